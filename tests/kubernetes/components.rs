//! The components of the chart at work: each is the real program as its pod would run it, under its
//! own account, as the user of the pod, with the rendered arguments and environment. Rewritten is only
//! what a pod has of its node: the address, and how the API server is found.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};

use ipledger_tests::http;
use ipledger_tests::kubernetes::ADMIN;
use ipledger_tests::program::{Server, binary, free_port};
use rustix::process::getuid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::chart::{self, RELEASE, SYSTEM};
use crate::cluster::Cluster;

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
    user: u32,
    group: u32,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// The address and port in the pod on which it is asked.
    port: u64,
    probes: Vec<String>,
    token: String,
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
        let token = cluster.ctl(&["create", "token", account, "-n", SYSTEM]);
        let pod = Pod {
            name,
            user: number("runAsUser").unwrap(),
            group: number("runAsGroup").unwrap(),
            arguments: texts(&container["args"]),
            environment: container["env"]
                .as_array()
                .unwrap()
                .iter()
                .map(variable)
                .collect(),
            port: port["containerPort"].as_u64().unwrap(),
            probes: vec![probe("livenessProbe"), probe("readinessProbe")],
            token: token.trim().to_owned(),
        };
        assert_eq!(spec["securityContext"]["runAsNonRoot"], json!(true));
        let elects = pod.arguments.iter().any(|a| a.starts_with("--lease="));
        assert_eq!(elects, election != Election::None, "{:?}", pod.arguments);
        pod
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
    pub(crate) fn start(&self, cluster: &Cluster) -> Component {
        self.start_at(cluster, Pod::free_address())
    }

    pub(crate) fn start_at(&self, cluster: &Cluster, at: (Ipv4Addr, u16)) -> Component {
        let (host, port) = at;
        let home = tempfile::tempdir().unwrap();
        let [kubeconfig, authority] = ["kubeconfig", "ca.pem"].map(|f| home.path().join(f));
        let admin = std::fs::read_to_string(cluster.kubeconfig(ADMIN)).unwrap();
        let own = admin
            .replace(&format!("{ADMIN}-token"), &self.token)
            .replace(
                &cluster.kubeconfig("ca.pem").display().to_string(),
                &authority.display().to_string(),
            );
        std::fs::write(&kubeconfig, own).unwrap();
        std::fs::write(&authority, cluster.authority()).unwrap();

        // The user of the pod need not reach the folder of the program.
        let program = File::open(binary()).unwrap();
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command.arg0("ipledger").current_dir("/").env_clear();
        command.envs(self.environment.iter().cloned());
        command.env("HOSTNAME", format!("{}-{port}", self.name.account()));
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
        command.arg("--kubeconfig").arg(&kubeconfig);
        if getuid().is_root() {
            for path in [home.path(), &kubeconfig, &authority] {
                chown(path, Some(self.user), Some(self.group)).unwrap();
            }
            command.uid(self.user).gid(self.group);
        }
        Component {
            server: Server::launch(command, port),
            probes: self.probes.clone(),
            _home: home,
        }
    }
}

/// A process of a component; it is killed with this.
pub(crate) struct Component {
    server: Server,
    probes: Vec<String>,
    _home: TempDir,
}

impl Component {
    /// Whether it works, and not only stands by.
    pub(crate) fn leads(&self) -> bool {
        leads(&self.server)
    }

    pub(crate) fn is_ready(&self) -> bool {
        let asked = self.server.ask("GET", &self.probes[1], None);
        asked.is_ok_and(|(code, _)| code == 200)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub(crate) fn printed(&self) -> String {
        self.server.printed()
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
            let (code, said) = self.server.ask("GET", path, None).unwrap();
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

pub(crate) fn leads(server: &Server) -> bool {
    let text = http::text(server.address(), "/metrics").unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        text.contains("# TYPE ipledger_store_requests_total"),
        "{text}"
    );
    match lines
        .iter()
        .find_map(|l| l.strip_prefix("ipledger_leader "))
    {
        Some("1") => true,
        Some("0") => false,
        other => panic!("{other:?}: {text}"),
    }
}
