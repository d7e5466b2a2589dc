//! One request and its answer. No request is ever sent twice from here: a write that is repeated
//! would meet its own first success.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;
use tokio::time::timeout;

use crate::failure::{Failure, Status};
use crate::health::Health;
use crate::pause::{self, Pause};

pub(crate) struct Caller {
    client: kube::Client,
    timeout: Duration,
    pause: Pause,
    health: Arc<Health>,
}

impl Caller {
    pub(crate) fn new(client: kube::Client, timeout: Duration) -> Caller {
        Caller {
            client,
            timeout,
            pause: Pause::default(),
            health: Arc::default(),
        }
    }

    /// One of the same server that leaves it alone only if its own calls are refused. It is for a few
    /// calls that cannot wait for what many others have caused.
    pub(crate) fn apart(&self) -> Caller {
        Caller {
            client: self.client.clone(),
            timeout: self.timeout,
            pause: Pause::default(),
            health: Arc::clone(&self.health),
        }
    }

    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// Sends a request and reads the answer, a JSON object.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: String,
        body: Option<Vec<u8>>,
    ) -> Result<Value, Failure> {
        let answer = async {
            self.pause.wait(self.timeout).await?;
            let response = self.send(method, path, body).await?;
            let bytes = response.into_body().collect().await;
            let bytes = bytes.map_err(|e| Failure::Unknown(chain(&e)))?.to_bytes();
            serde_json::from_slice(&bytes)
                .map_err(|e| Failure::Unknown(format!("the answer cannot be read: {e}")))
        };
        self.bounded(answer).await
    }

    pub(crate) async fn get(&self, path: String) -> Result<Value, Failure> {
        self.call(Method::GET, path, None).await
    }

    /// Sends a request whose answer comes bit by bit.
    pub(crate) async fn stream(&self, path: String) -> Result<Body, Failure> {
        let response = async {
            self.pause.wait(self.timeout).await?;
            self.send(Method::GET, path, None).await
        };
        Ok(self.bounded(response).await?.into_body())
    }

    async fn send(
        &self,
        method: Method,
        path: String,
        body: Option<Vec<u8>>,
    ) -> Result<Response<Body>, Failure> {
        let content = match method {
            Method::PATCH => "application/json-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, content)
            .body(Body::from(body.unwrap_or_default()))
            .map_err(|e| Failure::NotDone(e.to_string()))?;
        let response = self.client.send(request).await.map_err(of_client)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let bytes = body.collect().await;
        let bytes = bytes.map_err(|e| Failure::Unknown(chain(&e)))?.to_bytes();
        let status = Status::read(head.status, &bytes);
        if let Some(length) = pause::asked(&head.headers, &status, SystemTime::now()) {
            self.pause.begin(length);
        }
        Err(Failure::of_answer(status))
    }

    async fn bounded<T>(
        &self,
        call: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let limit = self.timeout;
        let answer = timeout(limit, call)
            .await
            .unwrap_or_else(|_| Err(Failure::Unknown(format!("no answer within {limit:?}"))));
        self.health.answered(&answer);
        answer
    }
}

fn of_client(error: kube::Error) -> Failure {
    let reason = chain(&error);
    match error {
        kube::Error::Auth(_) => Failure::NotDone(reason),
        kube::Error::Service(inner) if was_not_connected(&*inner) => Failure::NotDone(reason),
        _ => Failure::Unknown(reason),
    }
}

/// Whether there was no connection on which anything could have been sent.
fn was_not_connected(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return error.is_connect();
        }
        next = error.source();
    }
    false
}

/// An error with what is behind it, which the client libraries leave out.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    /// A server that refuses its first call with this header, and answers all others. When each came.
    pub(crate) async fn overloaded(retry_after: &str) -> (kube::Config, Arc<Mutex<Vec<Instant>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let came: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let refusal = format!(
            "HTTP/1.1 429 Too Many Requests\r\nRetry-After: {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            retry_after
        );
        let all = came.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let first = {
                    let mut all = all.lock().unwrap();
                    all.push(Instant::now());
                    all.len() == 1
                };
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await.unwrap();
                let answer = if first {
                    refusal.as_str()
                } else {
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
                };
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let mut config = kube::Config::new(url.parse().unwrap());
        config.default_retry = false;
        (config, came)
    }

    async fn assert_left_alone_for_a_second(retry_after: &str) {
        let (config, came) = overloaded(retry_after).await;
        let client = kube::Client::try_from(config).unwrap();
        let caller = Caller::new(client, Duration::from_secs(20));
        let refused = caller.get("/first".to_owned()).await;
        assert!(matches!(refused, Err(Failure::NotDone(_))), "{refused:?}");
        assert!(caller.health().check().is_err());
        // A lease is renewed meanwhile.
        caller.apart().get("/lease".to_owned()).await.unwrap();
        let calls = (0..8).map(|n| caller.get(format!("/{n}")));
        for answer in futures::future::join_all(calls).await {
            answer.unwrap();
        }
        assert_eq!(caller.health().check(), Ok(()));
        let came = came.lock().unwrap();
        assert_eq!(came.len(), 10);
        let after: Vec<Duration> = came.iter().map(|at| *at - came[0]).collect();
        assert!(after[1] < Duration::from_secs(1), "{after:?}");
        assert!(after[2] >= Duration::from_secs(1), "{after:?}");
        // Not all at once.
        assert!(after[9] - after[2] > Duration::from_millis(50), "{after:?}");
    }

    #[tokio::test]
    async fn an_overloaded_server_is_left_alone_by_all_calls_but_those_apart() {
        assert_left_alone_for_a_second("1").await;
    }

    #[tokio::test]
    async fn an_overloaded_server_may_name_a_date() {
        // In whole seconds: more than one from now.
        let date = SystemTime::now() + Duration::from_secs(3);
        assert_left_alone_for_a_second(&httpdate::fmt_http_date(date)).await;
    }
}
