//! The components of the chart at work: each is the real program as its pod would run it, under its
//! own account, as the user of the pod, with the rendered arguments and environment. Rewritten is only
//! the address at which it is asked, since all share that of this machine.

use std::net::Ipv4Addr;
use std::process::{Command, ExitStatus};

use ipledger_tests::http;
use ipledger_tests::program::{Server, free_port};
use serde_json::{Value, json};

use crate::chart::{self, RELEASE, SYSTEM};
use crate::cluster::Cluster;
use crate::node::{self, Secrets, User};

/// A component of the chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Core,
    Range,
}

impl Name {
    /// As the chart calls it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Name::Core => "core",
            Name::Range => "range",
        }
    }

    /// Its service account.
    pub(crate) fn account(self) -> String {
        format!("{RELEASE}-{}", self.text())
    }

    fn values(self) -> &'static str {
        match self {
            Name::Core => "core",
            Name::Range => "drivers.range",
        }
    }
}

/// How the replicas of a component agree on which of them works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Election {
    /// As in the chart: by a lease, of which so much is left when its holder dies.
    Lease(&'static str),
    /// Not at all, as with one replica: every process works.
    None,
}

/// What the chart says of the pods of a component.
pub(crate) struct Pod {
    name: Name,
    user: User,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// The address and port in the pod on which it is asked.
    port: u64,
    probes: Vec<String>,
    token: String,
    /// How it knows the API server.
    authority: String,
    server: u16,
}

impl Pod {
    pub(crate) fn of(cluster: &Cluster, name: Name, election: Election) -> Pod {
        let values = name.values();
        let values = match election {
            Election::Lease(duration) => {
                format!("{values}.leaderElection.leaseDuration={duration}")
            }
            Election::None => format!("{values}.replicas=1"),
        };
        let deployment = chart::deployment(cluster, name.text(), &[values]);
        let spec = &deployment["spec"]["template"]["spec"];
        let account = spec["serviceAccountName"].as_str().unwrap();
        assert_eq!(account, name.account());
        let container = &spec["containers"][0];
        let texts = |list: &Value| -> Vec<String> {
            let list = list.as_array().unwrap().iter();
            list.map(|a| a.as_str().unwrap().to_owned()).collect()
        };
        let number = |name: &str| u32::try_from(spec["securityContext"][name].as_u64().unwrap());
        let variable = |v: &Value| {
            let text = |name: &str| v[name].as_str().unwrap().to_owned();
            (text("name"), text("value"))
        };
        let port = &container["ports"][0];
        let probe = |name: &str| {
            let asked = &container[name]["httpGet"];
            assert_eq!(asked["port"], port["name"], "{container}");
            asked["path"].as_str().unwrap().to_owned()
        };
        let pod = Pod {
            name,
            user: User {
                id: number("runAsUser").unwrap(),
                group: number("runAsGroup").unwrap(),
            },
            arguments: texts(&container["args"]),
            environment: container["env"]
                .as_array()
                .unwrap()
                .iter()
                .map(variable)
                .collect(),
            port: port["containerPort"].as_u64().unwrap(),
            probes: vec![probe("livenessProbe"), probe("readinessProbe")],
            token: token(cluster, name),
            authority: cluster.authority().to_owned(),
            server: cluster.port(),
        };
        assert_eq!(spec["securityContext"]["runAsNonRoot"], json!(true));
        // This is what `node` makes of it.
        let confined = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]}});
        assert_eq!(container["securityContext"], confined);
        let elects = pod.arguments.iter().any(|a| a.starts_with("--lease="));
        assert_eq!(elects, election != Election::None, "{:?}", pod.arguments);
        pod
    }

    /// The same where the API server is found at another port of this machine.
    pub(crate) fn with_server_at(self, server: u16) -> Pod {
        Pod { server, ..self }
    }

    /// Where a process of it will be asked.
    pub(crate) fn free_address() -> (Ipv4Addr, u16) {
        (Ipv4Addr::LOCALHOST, free_port())
    }

    /// The paths that the kubelet asks: for life, for readiness.
    pub(crate) fn probes(&self) -> [&str; 2] {
        [&self.probes[0], &self.probes[1]]
    }

    /// Starts a process of it and waits until it is ready.
    pub(crate) fn start(&self) -> Component {
        self.start_at(Pod::free_address())
    }

    pub(crate) fn start_at(&self, at: (Ipv4Addr, u16)) -> Component {
        let (command, secrets) = self.command(at);
        Component {
            server: Server::launch(command, at.1),
            probes: self.probes.clone(),
            secrets,
        }
    }

    /// What its container runs, and the files that it needs as long as it does.
    pub(crate) fn command(&self, (host, port): (Ipv4Addr, u16)) -> (Command, Secrets) {
        let secrets = Secrets::of(SYSTEM, &self.token, &self.authority, self.user);
        let mut environment = self.environment.clone();
        for (name, value) in [
            ("HOSTNAME", format!("{}-{port}", self.name.account())),
            ("KUBERNETES_SERVICE_HOST", Ipv4Addr::LOCALHOST.to_string()),
            ("KUBERNETES_SERVICE_PORT", self.server.to_string()),
        ] {
            environment.push((name.to_owned(), value));
        }
        let mut command = node::container(self.user, &secrets, &environment);
        let inside = format!("--listen=[::]:{}", self.port);
        let mut rewritten = 0;
        for argument in &self.arguments {
            if *argument == inside {
                command.arg(format!("--listen={host}:{port}"));
                rewritten += 1;
            } else {
                command.arg(argument);
            }
        }
        assert_eq!(rewritten, 1, "{inside}: {:?}", self.arguments);
        (command, secrets)
    }
}

/// A new token of the account of a component.
pub(crate) fn token(cluster: &Cluster, of: Name) -> String {
    let token = cluster.ctl(&["create", "token", &of.account(), "-n", SYSTEM]);
    token.trim().to_owned()
}

/// A process of a component; it is killed with this.
pub(crate) struct Component {
    server: Server,
    probes: Vec<String>,
    secrets: Secrets,
}

impl Component {
    /// Whether it works, and not only stands by.
    pub(crate) fn leads(&self) -> bool {
        match self.metric("ipledger_leader ").as_deref() {
            Some("1") => true,
            Some("0") => false,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ask(&self.probes[1]).0 == 200
    }

    /// Its node renews its token.
    pub(crate) fn renew(&self, token: &str) {
        self.secrets.renew(token);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub(crate) fn printed(&self) -> String {
        self.server.printed()
    }

    /// The value of a metric whose line begins like this.
    pub(crate) fn metric(&self, begins: &str) -> Option<String> {
        let text = http::text(self.server.address(), "/metrics").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(begins));
        line.map(|value| value.trim().to_owned())
    }

    /// Asks it, as the kubelet or anybody else in the cluster.
    pub(crate) fn ask(&self, path: &str) -> (u16, Value) {
        self.server.ask("GET", path, None).unwrap()
    }

    pub(crate) fn kill(self) {
        self.server.kill();
    }

    pub(crate) fn stop(self) -> ExitStatus {
        self.server.stop()
    }

    /// Asks what the kubelet asks: its life and its readiness.
    pub(crate) fn assert_probed(&self) {
        for path in &self.probes {
            let (code, said) = self.ask(path);
            assert_eq!(code, 200, "{path}: {said}");
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        assert!(
            !line("Uid:").split_whitespace().any(|id| id == "0"),
            "{status}"
        );
        // Nothing is left of what root may do.
        assert_eq!(line("CapEff:").trim_start_matches('0'), "", "{status}");
    }
}
