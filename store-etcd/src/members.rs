//! The members of the cluster, and calls that go to the next one when one fails.
//!
//! One member is used at a time. The balancer of the client library is not used: it forgets a member
//! that was down when it was first tried, and keeps sending to one that is frozen.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions};
use tokio::sync::OnceCell;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::failure::Failure;
use crate::open::OpenError;
use crate::options::{Options, Tls};

/// etcd cuts off who pings more often than each five seconds.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const BEGIN_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
/// The wait before a call is repeated, doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_millis(500);

struct Member {
    endpoint: Endpoint,
    /// Made at the first use, because that asks etcd for a token if there is a user.
    client: OnceCell<Client>,
}

pub(crate) struct Members {
    all: Vec<Member>,
    current: AtomicUsize,
    connect: ConnectOptions,
    request_timeout: Duration,
    member_timeout: Duration,
}

/// Whether a call may be repeated when nobody knows what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Write,
}

impl Members {
    /// Connects to nobody yet.
    ///
    /// # Errors
    /// `BadOption`: an endpoint or the TLS options cannot be used.
    pub(crate) fn new(options: &Options) -> Result<Members, OpenError> {
        if options.endpoints.is_empty() {
            return Err(bad("endpoints", "none is given"));
        }
        let all = options.endpoints.iter().map(|address| {
            Ok(Member {
                endpoint: endpoint(address, options)?,
                client: OnceCell::new(),
            })
        });
        let mut connect = ConnectOptions::new().with_require_leader(true);
        if let Some(user) = &options.user {
            connect = connect
                .with_user(&user.name, &user.password)
                .with_auto_token_refresh(true);
        }
        Ok(Members {
            all: all.collect::<Result<_, OpenError>>()?,
            current: AtomicUsize::new(0),
            connect,
            request_timeout: options.request_timeout,
            member_timeout: options.member_timeout,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The number of the member that is in use.
    pub(crate) fn current(&self) -> usize {
        self.current.load(Relaxed)
    }

    /// Goes on to the next member, unless somebody else has already left this one.
    pub(crate) fn leave(&self, number: usize) {
        let next = (number + 1) % self.all.len();
        let _ = self
            .current
            .compare_exchange(number, next, Relaxed, Relaxed);
    }

    /// The client of a member.
    pub(crate) async fn client(&self, number: usize) -> Result<Client, Failure> {
        let Some(member) = self.all.get(number) else {
            return Err(Failure::NotDone("there is no such member".to_owned()));
        };
        let client = member.client.get_or_try_init(|| async {
            let channel = Channel::Tonic(member.endpoint.connect_lazy());
            Client::from_channel(channel, Some(self.connect.clone())).await
        });
        match client.await {
            Ok(client) => Ok(client.clone()),
            // Whatever the reason, the call itself was not sent.
            Err(e) => Err(match Failure::of(&e) {
                Failure::Unknown(reason) => Failure::NotDone(reason),
                other => other,
            }),
        }
    }

    async fn client_in_time(&self, number: usize, left: Duration) -> Result<Client, Failure> {
        let patience = left.min(self.member_timeout);
        let client = timeout(patience, self.client(number)).await;
        client.unwrap_or_else(|_| {
            Err(Failure::NotDone(format!(
                "no connection within {patience:?}"
            )))
        })
    }

    /// Makes a call, and repeats it, on the next member if there is one, as long as that is safe and
    /// there is time.
    pub(crate) async fn call<T, F>(
        &self,
        what: Call,
        call: impl Fn(Client) -> F + Send,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, etcd_client::Error>> + Send,
    {
        let deadline = Instant::now() + self.request_timeout;
        let mut wait = FIRST_WAIT;
        loop {
            let member = self.current();
            let left = deadline.saturating_duration_since(Instant::now());
            let failure = match self.client_in_time(member, left).await {
                Ok(client) => {
                    // Another member can help with a read, but an abandoned write helps nobody.
                    let until = match what {
                        Call::Read => deadline.min(Instant::now() + self.member_timeout),
                        Call::Write => deadline,
                    };
                    match timeout_at(until, call(client)).await {
                        Ok(Ok(answer)) => return Ok(answer),
                        Ok(Err(e)) => Failure::of(&e),
                        Err(_) => Failure::Unknown("no answer in time".to_owned()),
                    }
                }
                Err(failure) => failure,
            };
            match failure {
                Failure::NotDone(_) => self.leave(member),
                Failure::Unknown(_) => {
                    self.leave(member);
                    if what == Call::Write {
                        return Err(failure);
                    }
                }
                _ => return Err(failure),
            }
            if Instant::now() + wait >= deadline {
                return Err(failure);
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }
}

fn endpoint(address: &str, options: &Options) -> Result<Endpoint, OpenError> {
    let scheme = if options.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
        .map_err(|e| bad("endpoints", format!("`{address}`: {e}; write HOST:PORT")))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true);
    if let Some(tls) = &options.tls {
        // One without any would be taken for "trust nobody".
        if tls
            .ca
            .as_ref()
            .is_some_and(|pem| !pem.contains(BEGIN_CERTIFICATE))
        {
            return Err(bad("tls", "the authority has no certificate in PEM form"));
        }
        endpoint = endpoint.tls_config(tls_config(tls)).map_err(|e| {
            let cause =
                std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
            bad(
                "tls",
                format!("{cause}; certificates and key must be in PEM form"),
            )
        })?;
    }
    Ok(endpoint)
}

fn tls_config(tls: &Tls) -> ClientTlsConfig {
    let mut config = match &tls.ca {
        Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    if let Some(own) = &tls.identity {
        config = config.identity(Identity::from_pem(&own.certificate, &own.key));
    }
    if let Some(name) = &tls.server_name {
        config = config.domain_name(name);
    }
    config
}

fn bad(option: &'static str, reason: impl Into<String>) -> OpenError {
    OpenError::BadOption {
        option,
        reason: reason.into(),
    }
}
