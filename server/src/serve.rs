//! One process that is a whole ledger: API, binding core and range driver on one store.
//!
//! # Guarantees
//! * The port is bound before the ledger is opened, and both before anything is announced.
//! * A part that ends without being asked to ends the whole process with an error.
//! * A graceful stop takes no new connection, ends watches, lets requests and passes in work
//!   finish, and closes the ledger last.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures::FutureExt;
use ipledger_core::runtime::{BinderOptions, Clock, Election, MeteredStore};
use ipledger_core::store::StoreError;
use tokio::net::TcpListener;
use tokio::sync::watch as flag;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::api::{self, ApiState};
use crate::cli::Exit;
use crate::clock::SystemClock;
use crate::controllers::{Component, Controllers};
use crate::ledger::{Ledger, LedgerError, Location, default_name};
use crate::metrics::Metrics;

/// A stop waits this long for requests and passes in work; then they are cut off, as by a crash.
const GRACE: Duration = Duration::from_secs(10);

/// What to serve, and where.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where the ledger is.
    pub ledger: Location,
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The name of the server among those of its ledger, which no other one has at the same time;
    /// host and address without it.
    pub name: Option<String>,
    /// How its binding core binds.
    pub binding: BinderOptions,
}

/// Why a server cannot start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Others could reach the server.
    #[error(
        "{listen} can be reached from other machines, and there is no authentication yet; listen \
         on 127.0.0.1 or [::1]"
    )]
    NotLoopback {
        /// The address asked for.
        listen: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {listen}: {}", bind_advice(source))]
    Bind {
        /// The address asked for.
        listen: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The ledger cannot be opened.
    #[error(transparent)]
    Open(#[from] LedgerError),
    /// A part of the server ended although nobody stopped it.
    #[error("the {part} ended unexpectedly: {reason}; the ledger is safe, start the server again")]
    PartEnded {
        /// Which.
        part: &'static str,
        /// How it ended.
        reason: String,
    },
    /// The ledger was not closed in order.
    #[error("the ledger was not closed in order ({0}); nothing is lost")]
    Close(StoreError),
    /// The signals of the system cannot be received.
    #[error("signals cannot be received: {0}")]
    Signals(io::Error),
}

fn bind_advice(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there, perhaps another `ipledger`; stop it or choose \
             another port with --listen"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

impl ServeError {
    /// The exit code that the command line gives it.
    pub fn exit(&self) -> Exit {
        match self {
            ServeError::NotLoopback { .. } => Exit::Usage,
            ServeError::Open(e) => e.exit(),
            ServeError::Close(_) => Exit::Unavailable,
            ServeError::Bind { .. } | ServeError::PartEnded { .. } | ServeError::Signals(_) => {
                Exit::Other
            }
        }
    }
}

/// A server at work. Dropping it cuts everything off, as a crash would.
pub struct Server {
    address: SocketAddr,
    ledger: Ledger,
    /// The ledger's store, as API and controllers use it.
    store: MeteredStore,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    stop: flag::Sender<bool>,
    parts: JoinSet<Ended>,
}

/// Writes since a server was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those of its binding core.
    pub core: u64,
    /// All that a ledger file got; nothing if the ledger is in none.
    pub file: Option<FileCounts>,
}

/// Writes to a ledger file, by anybody in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Of objects.
    pub writes: u64,
    /// Transactions that carried them.
    pub commits: u64,
}

/// The end of a part.
struct Ended {
    part: &'static str,
    result: Result<(), String>,
}

impl Server {
    /// Binds the port, opens the ledger and starts all parts.
    ///
    /// # Errors
    /// The address is not one of this machine alone or cannot be listened on; the ledger cannot
    /// be opened.
    pub async fn start(options: &ServeOptions) -> Result<Server, ServeError> {
        let listen = options.listen;
        if !listen.ip().is_loopback() {
            return Err(ServeError::NotLoopback { listen });
        }
        let (listener, address) = bind(listen).await?;
        let ledger = Ledger::open(&options.ledger).await?;
        let mut server = Server::new(address, ledger);
        let name = options.name.clone();
        let name = name.unwrap_or_else(|| default_name(address));
        server.start_controllers(
            Component::ALL,
            server.ledger.election(&name),
            options.binding,
        );
        server.start_api(listener, api::router);
        Ok(server)
    }

    /// One whose parts are still to be started.
    pub(crate) fn new(address: SocketAddr, ledger: Ledger) -> Server {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store = MeteredStore::new(ledger.store(), Arc::clone(&clock));
        Server {
            address,
            metrics: Arc::new(Metrics::new(ledger.clone(), store.clone())),
            ledger,
            store,
            clock,
            stop: flag::channel(false).0,
            parts: JoinSet::new(),
        }
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Writes so far.
    pub fn counts(&self) -> Counts {
        let stats = self.ledger.stats();
        Counts {
            core: self.metrics.core_writes(),
            file: stats.file.map(|file| FileCounts {
                writes: stats.writes,
                commits: file.commits,
            }),
        }
    }

    pub(crate) fn start_api(&mut self, listener: TcpListener, routes: fn(ApiState) -> Router) {
        let (ready, metrics) = (Arc::clone(&self.metrics), Arc::clone(&self.metrics));
        let state = ApiState::new(Arc::new(self.store.clone()))
            .with_ready(move || ready.ready())
            .with_metrics(move || metrics.text())
            .with_stop(self.stop.subscribe());
        let server = axum::serve(listener, routes(state))
            .with_graceful_shutdown(stopped(self.stop.subscribe()));
        self.spawn(
            "API",
            async move { server.await.map_err(|e| e.to_string()) },
        );
    }

    pub(crate) fn start_controllers(
        &mut self,
        components: &'static [Component],
        election: Option<Arc<dyn Election>>,
        binding: BinderOptions,
    ) {
        let controllers = Controllers {
            components,
            store: Arc::new(self.store.clone()),
            clock: Arc::clone(&self.clock),
            events: self.ledger.events(),
            binding,
            metrics: Arc::clone(&self.metrics),
            election,
        };
        let stop = self.stop.subscribe();
        let stopped = move || stopped(stop.clone());
        self.spawn("controllers", controllers.run(stopped));
    }

    fn spawn(
        &mut self,
        part: &'static str,
        work: impl Future<Output = Result<(), String>> + Send + 'static,
    ) {
        self.parts.spawn(async move {
            // The panic is only caught to tell whose it was; the process ends.
            let result = AssertUnwindSafe(work).catch_unwind().await;
            let result = result.unwrap_or_else(|_| Err("it panicked".to_owned()));
            Ended { part, result }
        });
    }

    /// Returns when a part has ended, which none does by itself. To be awaited in a `select!`
    /// beside what ends the server in an orderly way.
    pub async fn failed(&mut self) -> ServeError {
        match self.parts.join_next().await {
            Some(Ok(Ended { part, result })) => ServeError::PartEnded {
                part,
                reason: result.err().unwrap_or_else(|| "it finished".to_owned()),
            },
            Some(Err(e)) => ServeError::PartEnded {
                part: "server",
                reason: e.to_string(),
            },
            None => std::future::pending().await,
        }
    }

    /// Stops in an orderly way.
    ///
    /// # Errors
    /// A part failed while it stopped, or the ledger cannot be closed in order.
    pub async fn stop(mut self) -> Result<(), ServeError> {
        self.stop.send_replace(true);
        let mut result = Ok(());
        let all_ended = async {
            while let Some(ended) = self.parts.join_next().await {
                if let Ok(Ended {
                    part,
                    result: Err(reason),
                }) = ended
                {
                    result = Err(ServeError::PartEnded { part, reason });
                }
            }
        };
        if timeout(GRACE, all_ended).await.is_err() {
            tracing::warn!(
                "requests or passes took more than {GRACE:?} to finish; they are cut off"
            );
            self.parts.shutdown().await;
        }
        let closed = self.ledger.close().await.map_err(ServeError::Close);
        result.and(closed)
    }
}

/// Listens; port 0 takes a free one. `[::]` means every address of this machine, also where there is
/// no IPv6.
pub(crate) async fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let failed = |source| ServeError::Bind { listen, source };
    let listener = match TcpListener::bind(listen).await {
        Err(error) => match without_ipv6(listen, &error) {
            Some(instead) => {
                tracing::warn!(
                    "there is no IPv6 here ({error}): {instead} is listened on instead of {listen}"
                );
                TcpListener::bind(instead).await
            }
            None => Err(error),
        },
        bound => bound,
    };
    let listener = listener.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// `socket` and `bind` say so on Linux where the kernel has no IPv6.
const EAFNOSUPPORT: i32 = 97;

/// What is to be listened on if every address was meant and those of IPv6 cannot be had.
fn without_ipv6(listen: SocketAddr, error: &io::Error) -> Option<SocketAddr> {
    let no_ipv6 = error.raw_os_error() == Some(EAFNOSUPPORT)
        || error.kind() == io::ErrorKind::AddrNotAvailable;
    let every = listen.is_ipv6() && listen.ip().is_unspecified();
    (every && no_ipv6).then(|| (Ipv4Addr::UNSPECIFIED, listen.port()).into())
}

/// Ready once the server is to stop.
async fn stopped(mut stop: flag::Receiver<bool>) {
    // An error means that the server is gone, which is a stop, too.
    let _ = stop.wait_for(|stop| *stop).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipledger_core::api::{Kind, Object};
    use ipledger_core::store::{Preconditions, Store};

    fn options(folder: &tempfile::TempDir, listen: &str) -> ServeOptions {
        ServeOptions {
            ledger: Location::File(file(folder)),
            listen: listen.parse().unwrap(),
            name: None,
            binding: BinderOptions::default(),
        }
    }

    fn file(folder: &tempfile::TempDir) -> std::path::PathBuf {
        folder.path().join("ledger.db")
    }

    async fn refused(options: &ServeOptions) -> ServeError {
        match Server::start(options).await {
            Ok(_) => panic!("the server started"),
            Err(e) => e,
        }
    }

    #[tokio::test]
    async fn an_address_that_other_machines_can_reach_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7440"] {
            let options = options(&folder, listen);
            let error = refused(&options).await;
            assert!(matches!(error, ServeError::NotLoopback { .. }), "{error}");
            assert_eq!(error.exit(), Exit::Usage);
            assert!(!file(&folder).exists());
        }
    }

    #[test]
    fn every_address_is_those_of_ipv4_where_there_is_no_ipv6() {
        let no_ipv6 = io::Error::from_raw_os_error(EAFNOSUPPORT);
        assert!(
            no_ipv6.to_string().contains("family not supported"),
            "{no_ipv6}"
        );
        let instead = |listen: &str, error: &io::Error| {
            let instead = without_ipv6(listen.parse().unwrap(), error);
            instead.map(|address| address.to_string())
        };
        let every = Some("0.0.0.0:8080".to_owned());
        assert_eq!(instead("[::]:8080", &no_ipv6), every);
        let none = io::Error::from(io::ErrorKind::AddrNotAvailable);
        assert_eq!(instead("[::]:8080", &none), every);
        // Whoever asks for one address gets that one or none.
        assert_eq!(instead("[::1]:8080", &none), None);
        assert_eq!(instead("0.0.0.0:8080", &none), None);
        let taken = io::Error::from(io::ErrorKind::AddrInUse);
        assert_eq!(instead("[::]:8080", &taken), None);
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_told_before_the_ledger_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = options(&folder, &taken.local_addr().unwrap().to_string());
        let error = refused(&options).await;
        assert!(
            error
                .to_string()
                .contains("choose another port with --listen"),
            "{error}"
        );
        assert!(!file(&folder).exists());
    }

    #[tokio::test]
    async fn a_file_that_is_no_ledger_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(&folder, "127.0.0.1:0");
        std::fs::write(file(&folder), "a letter, not a ledger".repeat(100)).unwrap();
        let error = refused(&options).await;
        assert!(matches!(error, ServeError::Open(_)), "{error}");
        assert_eq!(error.exit(), Exit::Unavailable);
        let content = std::fs::read_to_string(file(&folder)).unwrap();
        assert_eq!(content, "a letter, not a ledger".repeat(100));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_becomes_ready_stops_in_order_and_starts_again_on_its_ledger() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(&folder, "127.0.0.1:0");
        for _ in 0..2 {
            let server = Server::start(&options).await.unwrap();
            let url = format!("http://{}/readyz", server.address());
            let ready = async {
                while !reqwest::get(&url).await.unwrap().status().is_success() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            timeout(Duration::from_secs(30), ready).await.unwrap();
            let text = server.metrics.text();
            assert!(
                text.contains("ipledger_controller_synced{controller=\"binding_core\"} 1"),
                "{text}"
            );
            server.stop().await.unwrap();
            assert!(reqwest::get(&url).await.is_err(), "nobody listens any more");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_capacity_of_a_class_is_told_as_long_as_the_class_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(&folder, "127.0.0.1:0");
        let server = Server::start(&options).await.unwrap();
        let class = Object::from_value(serde_json::json!({
            "apiVersion": Kind::IPAddressClass.api_version(), "kind": "IPAddressClass",
            "metadata": {"name": "lan"},
            "spec": {
                "provisioner": ipledger_drivers::range::NAME,
                "parameters": {"addresses": ["192.0.2.0/29"], "reserveFirstLast": true}
            }
        }));
        let class = server.store.create(class.unwrap()).await.unwrap();
        let series = "ipledger_class_addresses{class=\"lan\",family=\"IPv4\",state=\"free\"} 6";
        let told = async |there: bool| {
            while server.metrics.text().contains(series) != there {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), told(true)).await.unwrap();
        let (key, any) = (class.key(), Preconditions::default());
        server.store.delete(&key, &any).await.unwrap();
        timeout(Duration::from_secs(30), told(false)).await.unwrap();
        server.stop().await.unwrap();
    }

    #[tokio::test]
    async fn a_part_that_ends_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::start(&options(&folder, "127.0.0.1:0"))
            .await
            .unwrap();
        server.spawn("clock", async { panic!("out of time") });
        let error = server.failed().await;
        assert!(
            error
                .to_string()
                .starts_with("the clock ended unexpectedly"),
            "{error}"
        );
        assert_eq!(error.exit(), Exit::Other);
    }
}
