//! A real etcd, alone or as a cluster, with its data in a temporary folder.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use etcd_client::{Client, Error};
use tempfile::TempDir;

use crate::certificates::Certificate;
use crate::process::Process;
use crate::program::free_port;
use crate::tools;

/// How an etcd is started.
#[derive(Clone, Debug, Default)]
pub struct EtcdOptions {
    /// Wait for the disk with every write, as a real one must. Tests of logic need not.
    pub fsync: bool,
    /// Speak TLS with clients.
    pub tls: Option<ServerTls>,
    /// More arguments of the program.
    pub arguments: Vec<String>,
}

/// How an etcd speaks TLS with clients.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// Its own certificate, for `127.0.0.1`.
    pub own: Certificate,
    /// Who must have signed the certificates of clients; `None` if they need none.
    pub clients: Option<String>,
}

/// One member.
pub struct Etcd {
    folder: TempDir,
    programs: PathBuf,
    data: PathBuf,
    client_port: u16,
    peer_port: u16,
    /// Tells plainly whether it is healthy, also where clients need TLS.
    metrics_port: u16,
    number: usize,
    /// All members with their peer URLs.
    cluster: String,
    options: EtcdOptions,
    process: Option<Process>,
}

impl Etcd {
    /// Starts one alone and waits until it is ready; `None` if etcd is not built.
    ///
    /// # Panics
    /// It does not start.
    pub fn start(options: &EtcdOptions) -> Option<Etcd> {
        Some(cluster(1, options)?.remove(0))
    }

    /// `HOST:PORT` for clients.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    /// Starts it again after a stop, on the same ports and data, and waits until it is ready.
    ///
    /// # Panics
    /// It does not start.
    pub fn start_again(&mut self) {
        self.launch();
        self.wait_until_ready().expect("etcd starts");
    }

    /// Stops it in order.
    pub fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop();
        }
    }

    /// Kills it.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// Stops it from doing anything, until [`Etcd::thaw`].
    ///
    /// # Panics
    /// It does not run.
    pub fn freeze(&self) {
        self.process.as_ref().expect("etcd runs").freeze();
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// It does not run.
    pub fn thaw(&self) {
        self.process.as_ref().expect("etcd runs").thaw();
    }

    /// Restores it from its own data with the revision moved ahead by this much and everything
    /// before compacted, as after a disaster. It is running again afterwards.
    ///
    /// # Panics
    /// `etcdutl` fails.
    pub fn restore_ahead(&mut self, by: u64) {
        self.stop();
        let restored = self.folder.path().join("restored");
        let output = Command::new(self.programs.join("etcdutl"))
            .args([
                "snapshot",
                "restore",
                "--skip-hash-check",
                "--mark-compacted",
            ])
            .arg(format!("--bump-revision={by}"))
            .arg(format!("--name={}", name(self.number)))
            .arg(format!("--initial-cluster={}", self.cluster))
            .arg(format!(
                "--initial-advertise-peer-urls={}",
                url(self.peer_port)
            ))
            .arg("--data-dir")
            .arg(&restored)
            .arg(self.data.join("member/snap/db"))
            .output()
            .expect("etcdutl starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        std::fs::remove_dir_all(&self.data).expect("the old data can be removed");
        std::fs::rename(&restored, &self.data).expect("the restored data can be moved");
        self.start_again();
    }

    fn launch(&mut self) {
        let (mut clients, peers) = (url(self.client_port), url(self.peer_port));
        if self.options.tls.is_some() {
            clients = clients.replace("http:", "https:");
        }
        let mut arguments = vec![
            format!("--name={}", name(self.number)),
            format!("--data-dir={}", self.data.display()),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster={}", self.cluster),
            format!("--listen-metrics-urls={}", url(self.metrics_port)),
            "--log-level=warn".to_owned(),
        ];
        if let Some(tls) = &self.options.tls {
            arguments.push(self.file("--cert-file", &tls.own.certificate));
            arguments.push(self.file("--key-file", &tls.own.key));
            if let Some(authority) = &tls.clients {
                arguments.push("--client-cert-auth".to_owned());
                arguments.push(self.file("--trusted-ca-file", authority));
            }
        }
        if !self.options.fsync {
            arguments.push("--unsafe-no-fsync".to_owned());
        }
        arguments.extend(self.options.arguments.iter().cloned());
        let log = self.folder.path().join("log");
        self.process = Some(Process::start(
            &self.programs.join("etcd"),
            &arguments,
            &log,
        ));
    }

    /// An argument that names a file with this in it.
    fn file(&self, argument: &str, contents: &str) -> String {
        let path = self.folder.path().join(argument.trim_start_matches('-'));
        std::fs::write(&path, contents).expect("a file can be written");
        format!("{argument}={}", path.display())
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let port = self.metrics_port;
        let process = self.process.as_mut().expect("etcd was started");
        process.wait_until(|| is_healthy(port))
    }
}

/// Starts a cluster of so many members and waits until each is ready; `None` if etcd is not built.
///
/// # Panics
/// It does not start.
pub fn cluster(members: usize, options: &EtcdOptions) -> Option<Vec<Etcd>> {
    let programs = tools::folder("etcd")?;
    // Another process may take a port between the look and the start.
    let mut said = String::new();
    for _ in 0..5 {
        let mut all: Vec<Etcd> = (0..members)
            .map(|number| {
                let folder = tempfile::tempdir().expect("a temporary folder");
                Etcd {
                    data: folder.path().join("data"),
                    folder,
                    programs: programs.clone(),
                    client_port: free_port(),
                    peer_port: free_port(),
                    metrics_port: free_port(),
                    number,
                    cluster: String::new(),
                    options: options.clone(),
                    process: None,
                }
            })
            .collect();
        let peers = all
            .iter()
            .map(|m| format!("{}={}", name(m.number), url(m.peer_port)));
        let peers = peers.collect::<Vec<_>>().join(",");
        for member in &mut all {
            member.cluster.clone_from(&peers);
            member.launch();
        }
        match all.iter_mut().try_for_each(Etcd::wait_until_ready) {
            Ok(()) => return Some(all),
            Err(e) => said = e,
        }
    }
    panic!("etcd does not start:\n{said}")
}

/// Which of the members leads, by its place.
///
/// # Panics
/// None of them says so within 30 seconds.
pub async fn leader(members: &[Etcd]) -> usize {
    for _ in 0..300 {
        for (place, member) in members.iter().enumerate() {
            let status = async { client(&member.endpoint()).await?.status().await };
            if let Ok(Ok(status)) = tokio::time::timeout(Duration::from_secs(1), status).await {
                let own = status
                    .header()
                    .map_or(0, etcd_client::ResponseHeader::member_id);
                if status.leader() != 0 && status.leader() == own {
                    return place;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no member leads")
}

/// A plain client, to look and to damage behind the back of the store.
///
/// # Errors
/// It does not connect.
pub async fn client(endpoint: &str) -> Result<Client, Error> {
    Client::connect([endpoint], None).await
}

/// Compacts up to a revision; one that is compacted already, or not reached yet, is fine.
///
/// # Panics
/// It fails.
pub async fn compact(endpoint: &str, revision: u64) {
    let mut client = client(endpoint).await.expect("etcd takes clients");
    let revision = i64::try_from(revision).expect("a revision");
    // etcd refuses the future, where our contract takes it for "now".
    let now = client.get("/", None).await.expect("etcd answers");
    let now = now
        .header()
        .map_or(0, etcd_client::ResponseHeader::revision);
    match client.compact(revision.min(now), None).await {
        Err(Error::GRpcStatus(status)) if status.message().contains("has been compacted") => {}
        other => drop(other.expect("etcd compacts")),
    }
}

fn name(number: usize) -> String {
    format!("m{number}")
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Whether it has a leader and answers reads.
fn is_healthy(port: u16) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains("\"health\":\"true\""))
}
