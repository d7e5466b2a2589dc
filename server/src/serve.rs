//! One process that is a whole ledger: API, binding core and range driver on one SQLite file.
//!
//! # Guarantees
//! * The port is bound before the ledger is opened, and both before anything is announced.
//! * A part that ends without being asked to ends the whole process with an error.
//! * A graceful stop takes no new connection, ends watches, lets requests and passes in work
//!   finish, and closes the ledger last.

use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use ipledger_core::runtime::{
    Binder, BinderOptions, Clock, Controller, ControllerOptions, LogEvents, Progress, Reconciler,
};
use ipledger_core::store::{Store, StoreError};
use ipledger_drivers::range::RangeDriver;
use ipledger_store_sqlite::{OpenError, Options, SqliteStore};
use tokio::net::TcpListener;
use tokio::sync::watch as flag;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::api::{self, ApiState};
use crate::cli::Exit;
use crate::clock::SystemClock;
use crate::metrics::Metrics;

/// A stop waits this long for requests and passes in work; then they are cut off, as by a crash.
const GRACE: Duration = Duration::from_secs(10);

/// What to serve, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeOptions {
    /// The SQLite file; made if it is not there.
    pub db: PathBuf,
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
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
        source: std::io::Error,
    },
    /// The ledger cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
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
    Signals(std::io::Error),
}

fn bind_advice(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "another program listens there, perhaps another `ipledger serve`; stop it or choose \
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
            ServeError::Open(_) | ServeError::Close(_) => Exit::Unavailable,
            ServeError::Bind { .. } | ServeError::PartEnded { .. } | ServeError::Signals(_) => {
                Exit::Other
            }
        }
    }
}

/// A server at work. Dropping it cuts everything off, as a crash would.
pub struct Server {
    address: SocketAddr,
    store: Arc<SqliteStore>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    stop: flag::Sender<bool>,
    parts: JoinSet<Ended>,
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
        let failed = |source| ServeError::Bind { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let store = Arc::new(SqliteStore::open(&options.db, &Options::default()).await?);
        let mut server = Server {
            address,
            metrics: Arc::new(Metrics::new(Arc::clone(&store))),
            store,
            clock: Arc::new(SystemClock::new()),
            stop: flag::channel(false).0,
            parts: JoinSet::new(),
        };
        server.start_binding_core();
        server.start_range_driver();
        server.start_api(listener);
        Ok(server)
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn start_api(&mut self, listener: TcpListener) {
        let (ready, metrics) = (Arc::clone(&self.metrics), Arc::clone(&self.metrics));
        let state = ApiState::new(self.shared_store())
            .with_ready(move || ready.ready())
            .with_metrics(move || metrics.text())
            .with_stop(self.stop.subscribe());
        let server =
            axum::serve(listener, api::router(state)).with_graceful_shutdown(self.stopped());
        self.spawn(
            "API",
            async move { server.await.map_err(|e| e.to_string()) },
        );
    }

    fn start_range_driver(&mut self) {
        let driver = RangeDriver::new(self.shared_store(), Arc::clone(&self.clock));
        self.start_controller("range driver", Arc::new(driver), Progress::new());
    }

    fn start_binding_core(&mut self) {
        let progress = Progress::new();
        let binder = Binder::new(
            self.shared_store(),
            Arc::clone(&self.clock),
            progress.clone(),
            Arc::new(LogEvents),
            BinderOptions::default(),
        );
        self.start_controller("binding core", Arc::new(binder), progress);
    }

    fn start_controller<R: Reconciler>(
        &mut self,
        part: &'static str,
        reconciler: Arc<R>,
        progress: Progress,
    ) {
        let controller = Controller::new(
            part,
            self.shared_store(),
            reconciler,
            Arc::clone(&self.clock),
            progress,
            ControllerOptions::default(),
        );
        let stats = Arc::clone(&controller);
        self.metrics.add_controller(part, move || stats.stats());
        let stopped = self.stopped();
        self.spawn(part, async move {
            controller.run(stopped).await.map_err(|e| e.to_string())
        });
    }

    fn shared_store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    /// Ready once the server is to stop.
    fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.stop.subscribe();
        async move {
            // An error means that the server is gone, which is a stop, too.
            let _ = stop.wait_for(|stop| *stop).await;
        }
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
        let closed = self.store.close().await.map_err(ServeError::Close);
        result.and(closed)
    }
}
