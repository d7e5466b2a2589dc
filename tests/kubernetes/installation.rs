//! The chart, installed on a cluster with its controllers, and its components at work. Many cases use
//! one after the other; each leaves it empty.

use std::ops::{Deref, DerefMut};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use ipledger_tests::kubernetes::{ADMIN, Answer};
use ipledger_tests::program::{binary, signal};
use ipledger_tests::relay::Relay;

use serde_json::json;

use crate::chart::{self, SYSTEM};
use crate::cluster::{Cluster, address, eventually};
use crate::components::{Component, Election, Name, Pod};

/// How many processes of each component work, and how they agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replicas {
    /// One of each, with the lease that the chart asks for.
    One,
    /// Two of each, both at work.
    TwoWithoutElection,
    /// The case starts what it needs.
    None,
}

pub(crate) struct Installation {
    cluster: Cluster,
    components: Vec<Component>,
    replicas: Replicas,
    /// The network between them and the API server, where a case makes it fail.
    relay: Option<Relay>,
    /// How long the audit log was when they started.
    audited: usize,
}

impl Deref for Installation {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl DerefMut for Installation {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}

impl Installation {
    pub(crate) fn new() -> Installation {
        let mut cluster = Cluster::bare();
        chart::install(&cluster);
        cluster.start_manager();
        eventually("the policies are in force", || {
            let spec = json!({"address": "192.0.2.99", "className": "none"});
            let mut forged = address("ip-192-0-2-99", spec);
            forged["metadata"]["annotations"] = json!({"local.sdn.cozystack.io/parked-for": "x"});
            let driver = format!(
                "--as=system:serviceaccount:{SYSTEM}:{}",
                Name::Range.account()
            );
            let (taken, said) = cluster.send(&["create", "--dry-run=server", &driver], &forged);
            !taken && said.contains("written by the binding core alone")
        });
        Installation::of(cluster)
    }

    /// One on a cluster that has the chart.
    pub(crate) fn of(cluster: Cluster) -> Installation {
        Installation {
            cluster,
            components: Vec::new(),
            replicas: Replicas::None,
            relay: None,
            audited: 0,
        }
    }

    /// Starts the components and waits until they work.
    pub(crate) fn start(&mut self, replicas: Replicas) {
        let (each, election) = match replicas {
            Replicas::One => (1, Election::Lease("15s")),
            Replicas::TwoWithoutElection => (2, Election::None),
            Replicas::None => return,
        };
        self.replicas = replicas;
        self.audited = self.audit().len();
        let server = self.relay.as_ref().map_or(self.port(), Relay::port);
        for name in [Name::Core, Name::Range] {
            let pod = Pod::of(&self.cluster, name, election).with_server_at(server);
            for _ in 0..each {
                self.components.push(pod.start());
            }
        }
        eventually("the components work", || {
            self.components.iter().all(Component::leads)
        });
    }

    /// Lets the components reach the API server through a relay only, until they stop.
    pub(crate) fn put_a_relay_between(&mut self) {
        self.stop();
        self.relay = Some(Relay::start(self.port()));
        self.start(self.replicas);
    }

    /// Stops the components and starts others.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.start(self.replicas);
    }

    /// Cuts all connections of the components. How many there were.
    pub(crate) fn cut(&self) -> usize {
        self.relay.as_ref().expect("a relay is between").cut()
    }

    pub(crate) fn components(&self) -> &[Component] {
        &self.components
    }

    /// Sends a signal to every component.
    pub(crate) fn signal(&self, name: &str) {
        self.components.iter().for_each(|c| signal(c.pid(), name));
    }

    /// What the server has answered since the components started.
    pub(crate) fn audit_of_components(&self) -> Vec<Answer> {
        self.audit().split_off(self.audited)
    }

    /// How many processes of each component work.
    pub(crate) fn each(&self) -> usize {
        self.components.len() / 2
    }

    /// Stops the components in order. Nothing was denied to them.
    pub(crate) fn stop(&mut self) {
        for component in self.components.drain(..) {
            component.assert_probed();
            let said = component.printed();
            assert!(component.stop().success(), "{said}");
        }
        self.relay = None;
        self.cluster.assert_nothing_was_denied();
    }

    /// `ipledger uninstall --check`.
    pub(crate) fn check(&self) -> Output {
        let mut command = Command::new(binary());
        command.args(["uninstall", "--check", "--kubeconfig"]);
        command.arg(self.kubeconfig(ADMIN)).output().unwrap()
    }

    /// Takes all objects away while the components work, and then the components.
    pub(crate) fn clear(&mut self) {
        if self.components.is_empty() {
            self.start(Replicas::One);
        }
        for kind in ["ipaddrclaim", "ipaddr", "ipaddrclass"] {
            let mut delete = vec!["delete", kind, "--all", "--wait=false"];
            if kind == "ipaddrclaim" {
                delete.push("--all-namespaces");
            }
            self.ctl(&delete);
            eventually("all are gone", || {
                self.ctl(&["get", kind, "-A", "-o", "name"]).is_empty()
            });
        }
        self.stop();
    }
}

/// Installations that no case is using.
#[derive(Default)]
pub(crate) struct Spare(Mutex<Vec<Installation>>);

impl Spare {
    /// Runs a case on one of them, or on a new one. After a failure it is not used again.
    pub(crate) fn run(&self, replicas: Replicas, case: fn(&mut Installation)) {
        let spare = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = spare().pop();
        let mut installation = found.unwrap_or_else(Installation::new);
        installation.start(replicas);
        case(&mut installation);
        installation.clear();
        spare().push(installation);
    }
}
