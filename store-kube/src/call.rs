//! One request and its answer. No request is ever sent twice from here: a write that is repeated
//! would meet its own first success.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout};

use crate::failure::{Failure, Status};

/// The longest that an overloaded server is left alone at its word.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long if it does not say.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Caller {
    client: kube::Client,
    timeout: Duration,
    /// An overloaded server has asked for quiet until then.
    quiet_until: Mutex<Option<Instant>>,
    /// Why the last call got no answer of use, if it got none.
    trouble: Mutex<Option<String>>,
}

impl Caller {
    pub(crate) fn new(client: kube::Client, timeout: Duration) -> Caller {
        Caller {
            client,
            timeout,
            quiet_until: Mutex::new(None),
            trouble: Mutex::new(None),
        }
    }

    /// The client itself, which waits for nothing.
    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Whether the server answers; if not, what is wrong.
    pub(crate) fn health(&self) -> Result<(), String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match &*trouble {
            None => Ok(()),
            Some(reason) => Err(format!("the API server: {reason}")),
        }
    }

    /// Sends a request and reads the answer, a JSON object.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: String,
        body: Option<Vec<u8>>,
    ) -> Result<Value, Failure> {
        let answer = async {
            self.wait_for_quiet().await?;
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
            self.wait_for_quiet().await?;
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
        if let Some(pause) = asked_pause(&head.headers, &status) {
            self.leave_alone(pause);
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
        let trouble = match &answer {
            Ok(_) | Err(Failure::Refused(_)) => None,
            Err(Failure::NotDone(reason) | Failure::Unknown(reason)) => Some(reason.clone()),
        };
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
        answer
    }

    /// Waits until an overloaded server may be asked again.
    pub(crate) async fn wait_for_quiet(&self) -> Result<(), Failure> {
        let began = Instant::now();
        loop {
            let until = *self.quiet();
            let Some(until) = until.filter(|u| *u > Instant::now()) else {
                return Ok(());
            };
            // Nothing was sent yet, which a time-out could not tell.
            if until >= began + self.timeout {
                return Err(Failure::NotDone("it is overloaded".to_owned()));
            }
            sleep_until(until).await;
        }
    }

    fn quiet(&self) -> MutexGuard<'_, Option<Instant>> {
        self.quiet_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends nothing for so long, at the server's word.
    pub(crate) fn leave_alone(&self, pause: Duration) {
        let pause = pause.min(LONGEST_PAUSE);
        tracing::warn!(?pause, "the API server is overloaded and is left alone");
        let mut until = self.quiet();
        // An earlier answer may have asked for more.
        *until = (*until).max(Some(Instant::now() + pause));
    }
}

/// For how long a server that refuses a call asks to be left alone, if it does. A 429 does in any case.
fn asked_pause(headers: &HeaderMap, status: &Status) -> Option<Duration> {
    let header = headers.get(RETRY_AFTER).and_then(|v| v.to_str().ok());
    let seconds = header
        .and_then(|text| text.trim().parse().ok())
        .or_else(|| {
            let details = status.details.as_ref();
            details.map(|d| d.retry_after_seconds).filter(|s| *s > 0)
        });
    match seconds {
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None => (status.code == 429).then_some(PAUSE),
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
mod tests {
    use http::HeaderValue;

    use super::*;

    fn pause(code: u16, header: Option<&'static str>) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        if let Some(text) = header {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(text));
        }
        let status = Status {
            code,
            ..Status::default()
        };
        asked_pause(&headers, &status)
    }

    #[test]
    fn a_server_is_left_alone_for_as_long_as_it_asks_whatever_the_code() {
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(pause(429, Some("7")), seconds(7));
        assert_eq!(pause(429, None), Some(PAUSE));
        assert_eq!(pause(429, Some("soon")), Some(PAUSE));
        assert_eq!(pause(503, Some("5")), seconds(5));
        assert_eq!(pause(503, None), None);
        assert_eq!(pause(409, None), None);
    }
}
