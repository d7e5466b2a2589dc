//! One controller against the Kubernetes API: the binding core, or a driver.
//!
//! # Guarantees
//! * Several processes of one controller hurt nobody: every write is a swap on what was read. With a
//!   lease only one of them works, which saves work and nothing else (decision 0013).
//! * While the API server is away, the controller waits for it, and `/readyz` says so.
//! * Health and metrics are served, and nothing of the ledger.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ipledger_core::runtime::{BinderOptions, Election};
use ipledger_store_kube::{Cluster, KubeStore, LeaseOptions, Options};

use crate::api;
use crate::ledger::{Ledger, LedgerError, host_name};
use crate::serve::{ServeError, Server, bind};

pub use crate::controllers::Component;

/// Shorter than the patience of a controller with a barrier.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// What runs, where it listens, and against which cluster.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// Which controller.
    pub component: Component,
    /// The cluster.
    pub cluster: Cluster,
    /// Where health and metrics are served; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What it must hold to work; without one it always works.
    pub lease: Option<Lease>,
    /// How a binding core binds; nothing to a driver.
    pub binding: BinderOptions,
}

/// A lease that one of several processes holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Which.
    pub name: LeaseName,
    /// How long it must not have been renewed before another process takes it; whole seconds.
    pub duration: Duration,
}

/// The name of a lease, `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    namespace: String,
    name: String,
}

impl FromStr for LeaseName {
    type Err = String;

    fn from_str(text: &str) -> Result<LeaseName, String> {
        let right = |part: &str| !part.is_empty() && !part.contains('/') && part != "..";
        match text.split_once('/') {
            Some((namespace, name)) if right(namespace) && right(name) => Ok(LeaseName {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err("write NAMESPACE/NAME".to_owned()),
        }
    }
}

impl Component {
    /// Its name in `metadata.managedFields`.
    fn field_manager(self) -> &'static str {
        match self {
            Component::BindingCore => "ipledger-controller",
            Component::RangeDriver => "ipledger-driver-range",
        }
    }

    fn alone(self) -> &'static [Component] {
        match self {
            Component::BindingCore => &[Component::BindingCore],
            Component::RangeDriver => &[Component::RangeDriver],
        }
    }
}

/// A client of the cluster; whether it answers is not tried.
///
/// # Errors
/// The cluster is not configured, or in a way that cannot be used.
pub(crate) async fn open(
    cluster: &Cluster,
    field_manager: &str,
) -> Result<Arc<KubeStore>, LedgerError> {
    let options = Options {
        field_manager: field_manager.to_owned(),
        request_timeout: REQUEST_TIMEOUT,
        ..Options::default()
    };
    Ok(Arc::new(KubeStore::open(cluster.config().await?, options)?))
}

/// Starts a controller with its health and metrics.
///
/// # Errors
/// The address cannot be listened on, or the cluster is not configured.
pub async fn start(options: &ControllerOptions) -> Result<Server, ServeError> {
    let (listener, address) = bind(options.listen).await?;
    let component = options.component;
    let store = open(&options.cluster, component.field_manager()).await?;
    let election = options.lease.as_ref().map(|lease| election(&store, lease));
    let mut server = Server::new(address, Ledger::Kubernetes(store));
    server.start_controllers(component.alone(), election, options.binding);
    server.start_api(listener, api::probes);
    Ok(server)
}

fn election(store: &KubeStore, lease: &Lease) -> Arc<dyn Election> {
    // A pod knows its name; the rest tells a container that was started again from the one before.
    let host = std::env::var("HOSTNAME")
        .ok()
        .filter(|name| !name.is_empty());
    let host = host.unwrap_or_else(host_name);
    store.election(LeaseOptions {
        namespace: lease.name.namespace.clone(),
        name: lease.name.name.clone(),
        holder: format!("{host}_{}", uuid::Uuid::new_v4()),
        duration: lease.duration,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_named_with_its_namespace() {
        let name: LeaseName = "system/core".parse().unwrap();
        assert_eq!((&*name.namespace, &*name.name), ("system", "core"));
        for bad in ["", "core", "/core", "system/", "a/b/c", "../x", "x/.."] {
            assert!(bad.parse::<LeaseName>().is_err(), "{bad}");
        }
    }
}
