//! The real kube-controller-manager, with the controllers that our kinds meet: those of namespaces,
//! quotas, roles, accounts, owners and services. There is no kubelet, so that nothing else would have
//! work.

use std::path::Path;

use crate::process::Process;

/// As whom it comes to the API server, which has roles for this user.
pub(super) const USER: &str = "system:kube-controller-manager";

const CONTROLLERS: &str = "namespace-controller,garbage-collector-controller,\
    resourcequota-controller,clusterrole-aggregation-controller,serviceaccount-controller,\
    endpointslice-controller";

/// Starts it with the files of the API server; it answers for its health on this port.
pub(super) fn start(programs: &Path, folder: &Path, port: u16) -> Process {
    let file = |name: &str| folder.join(name).display().to_string();
    let kubeconfig = file(USER);
    let arguments = [
        format!("--kubeconfig={kubeconfig}"),
        // Each controller works under an account of its own, as in a real cluster.
        "--use-service-account-credentials=true".to_owned(),
        format!("--controllers={CONTROLLERS}"),
        "--leader-elect=false".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", file("server.pem")),
        format!("--tls-private-key-file={}", file("server.key")),
        "--namespace-sync-period=2s".to_owned(),
        "--resource-quota-sync-period=1s".to_owned(),
        "--concurrent-namespace-syncs=2".to_owned(),
        "--concurrent-resource-quota-syncs=1".to_owned(),
        "--concurrent-gc-syncs=1".to_owned(),
        "--kube-api-qps=200".to_owned(),
        "--kube-api-burst=400".to_owned(),
    ];
    let program = programs.join("kube-controller-manager");
    Process::start(&program, &arguments, &folder.join("manager-log"))
}
