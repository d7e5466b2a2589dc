//! One controller against the Kubernetes API: the binding core, or a driver.
//!
//! # Guarantees
//! * Several processes of one controller hurt nobody: every write is a swap on what was read. (They
//!   do the work several times: there is no election of a leader yet.)
//! * While the API server is away, the controller waits for it.

use std::sync::Arc;
use std::time::Duration;

use ipledger_core::runtime::{
    Binder, BinderOptions, Clock, Controller, ControllerError, ControllerOptions, LogEvents,
    Progress, Reconciler,
};
use ipledger_core::store::Store;
use ipledger_drivers::range::RangeDriver;
use ipledger_store_kube::{Cluster, KubeStore, OpenError, Options};

use crate::cli::Exit;
use crate::clock::SystemClock;

/// Which controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The binding core.
    BindingCore,
    /// The driver that hands out addresses of ranges.
    RangeDriver,
}

impl Component {
    /// Its name in logs.
    pub fn name(self) -> &'static str {
        match self {
            Component::BindingCore => "binding core",
            Component::RangeDriver => "range driver",
        }
    }

    /// Its name in `metadata.managedFields`.
    fn field_manager(self) -> &'static str {
        match self {
            Component::BindingCore => "ipledger-controller",
            Component::RangeDriver => "ipledger-driver-range",
        }
    }
}

/// Why a controller cannot start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The cluster is not configured, or in a way that cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The controller ended although nobody stopped it.
    #[error("the {} ended unexpectedly: {reason}; the ledger is safe, start it again", component.name())]
    Ended {
        /// Which.
        component: Component,
        /// How it ended.
        reason: ControllerError,
    },
}

impl RunError {
    /// The exit code that the command line gives it.
    pub fn exit(&self) -> Exit {
        match self {
            RunError::Open(_) => Exit::Usage,
            RunError::Ended { .. } => Exit::Other,
        }
    }
}

/// Runs a controller until it is stopped; passes in work are finished.
///
/// # Errors
/// See [`RunError`].
pub async fn run(
    component: Component,
    cluster: &Cluster,
    stopped: impl Future<Output = ()> + Send,
) -> Result<(), RunError> {
    let options = Options {
        field_manager: component.field_manager().to_owned(),
        // Shorter than the patience of a controller with a barrier.
        request_timeout: Duration::from_secs(20),
        ..Options::default()
    };
    let store = KubeStore::open(cluster.config().await?, options)?;
    let store: Arc<dyn Store> = Arc::new(store);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let progress = Progress::new();
    let ended = match component {
        Component::BindingCore => {
            let binder = Binder::new(
                store.clone(),
                clock.clone(),
                progress.clone(),
                Arc::new(LogEvents),
                BinderOptions::default(),
            );
            work(component, store, Arc::new(binder), clock, progress, stopped).await
        }
        Component::RangeDriver => {
            let driver = RangeDriver::new(store.clone(), clock.clone());
            work(component, store, Arc::new(driver), clock, progress, stopped).await
        }
    };
    ended.map_err(|reason| RunError::Ended { component, reason })
}

async fn work<R: Reconciler>(
    component: Component,
    store: Arc<dyn Store>,
    reconciler: Arc<R>,
    clock: Arc<dyn Clock>,
    progress: Progress,
    stopped: impl Future<Output = ()> + Send,
) -> Result<(), ControllerError> {
    let options = ControllerOptions::default();
    let name = component.name();
    let controller = Controller::new(name, store, reconciler, clock, progress, options);
    controller.run(stopped).await
}
