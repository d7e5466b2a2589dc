//! The real `ipledger` program: started on a free loopback port, killed on drop.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The program under test; it stands beside the folder of the test binaries.
///
/// # Panics
/// It was not built.
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test
        .parent()
        .and_then(Path::parent)
        .expect("the target folder");
    let path = folder.join("ipledger");
    assert!(
        path.exists(),
        "{} is missing: cargo build --package ipledger",
        path.display()
    );
    path
}

/// A loopback port that is free now.
pub fn free_port() -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    socket.local_addr().expect("its address").port()
}

/// `ipledger serve` on a port of 127.0.0.1, still without a store.
pub fn serve(port: u16) -> Command {
    let mut command = Command::new(binary());
    let listen = format!("127.0.0.1:{port}");
    command.args(["serve", "--listen", &listen]);
    command
}

/// A running server.
pub struct Server {
    child: Child,
    /// Its URL.
    pub url: String,
    printed: Arc<Mutex<String>>,
}

impl Server {
    /// Starts `ipledger serve` on this database, with further arguments, and waits until it is
    /// ready.
    pub fn start(db: &Path, args: &[&str]) -> Server {
        Server::start_with(|command| {
            command.arg("--db").arg(db).args(args);
        })
    }

    /// Starts one on a store that is named by its URL, under a name of its own.
    pub fn start_on(store: &str, name: &str) -> Server {
        Server::start_with(|command| {
            command.args(["--store", store, "--name", name]);
        })
    }

    /// Starts one with further arguments, on another port if somebody was quicker to take this one.
    pub fn start_with(arguments: impl Fn(&mut Command)) -> Server {
        let mut said = String::new();
        for _ in 0..5 {
            let port = free_port();
            let mut command = serve(port);
            arguments(&mut command);
            match Server::try_launch(command, port) {
                Err(e) if e.contains("another program listens there") => said = e,
                started => return started.unwrap_or_else(|e| panic!("{e}")),
            }
        }
        panic!("{said}")
    }

    /// Runs a command that serves on this port (see [`serve`]), and waits until it is ready.
    pub fn launch(command: Command, port: u16) -> Server {
        Server::try_launch(command, port).unwrap_or_else(|e| panic!("{e}"))
    }

    /// # Errors
    /// It has ended, with what it said.
    fn try_launch(mut command: Command, port: u16) -> Result<Server, String> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let printed = Arc::new(Mutex::new(String::new()));
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|s| Box::new(s) as _),
            child.stderr.take().map(|s| Box::new(s) as _),
        ];
        for stream in streams.into_iter().flatten() {
            let printed = Arc::clone(&printed);
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let mut all = printed.lock().unwrap_or_else(PoisonError::into_inner);
                    all.push_str(&line);
                    all.push('\n');
                }
            });
        }
        let mut server = Server {
            child,
            url: format!("http://127.0.0.1:{port}"),
            printed,
        };
        let mut ended = None;
        wait_for("the server is ready", || {
            ended = server.child.try_wait().expect("the state of the server");
            // Another program may answer on its port.
            ended.is_some()
                || server
                    .ask("GET", "/readyz", None)
                    .is_ok_and(|(code, _)| code == 200)
        });
        match ended {
            None => Ok(server),
            Some(status) => {
                // What it has printed is still on its way here.
                let printed = || !server.printed().is_empty();
                wait_for("it says why", printed);
                Err(format!(
                    "the server ended with {status}: {}",
                    server.printed()
                ))
            }
        }
    }

    /// What the server has printed so far, on both streams.
    pub fn printed(&self) -> String {
        self.printed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap_or(&self.url)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it at once, as a power switch would.
    pub fn kill(mut self) {
        self.child.kill().expect("the server can be killed");
        self.child.wait().expect("the server is gone");
    }

    /// Asks it to stop, and waits for it.
    pub fn stop(mut self) -> ExitStatus {
        signal(self.child.id(), "TERM");
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().expect("the state of the server") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the server does not stop: {}", self.printed());
    }

    /// One HTTP request: status code and body.
    ///
    /// # Errors
    /// The connection broke.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), String> {
        crate::http::ask(self.address(), method, path, body)
    }

    /// Reads one object or list; fails the test if that does not work.
    pub fn get(&self, path: &str) -> Value {
        match self.ask("GET", &api(path), None) {
            Ok((200, value)) => value,
            other => panic!("GET {path}: {other:?}"),
        }
    }

    /// Runs the command line against this server.
    pub fn cli(&self, args: &[&str]) -> Output {
        cli(&self.url, args)
    }

    /// The number of writes that the store has made.
    pub fn writes(&self) -> u64 {
        self.metric("ipledger_store_writes_total")
    }

    /// Whether its controllers work.
    pub fn leads(&self) -> bool {
        self.metric("ipledger_leader") == 1
    }

    /// The value of a series without labels.
    pub fn metric(&self, name: &str) -> u64 {
        let text = crate::http::text(self.address(), "/metrics").expect("the metrics");
        let line = text
            .lines()
            .find(|l| l.split(' ').next() == Some(name))
            .unwrap_or_else(|| panic!("no {name} in:\n{text}"));
        let number = line.rsplit(' ').next().expect("a number");
        number.parse::<f64>().expect("a number") as u64
    }

    /// The phase and `Bound` reason of each claim of a namespace, by name.
    pub fn claims(&self, namespace: &str) -> Vec<Claim> {
        let list = self.get(&format!("namespaces/{namespace}/ipaddressclaims"));
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(Claim::read).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a test looks at of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name.
    pub name: String,
    /// Its phase; empty without a status.
    pub phase: String,
    /// Its IPs.
    pub ips: Vec<String>,
    /// The reason of its `Bound` condition.
    pub reason: String,
}

impl Claim {
    fn read(value: &Value) -> Claim {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let status = &value["status"];
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let bound = conditions.iter().find(|c| c["type"] == "Bound");
        let ips = status["addresses"].as_array().cloned().unwrap_or_default();
        Claim {
            name: text(&value["metadata"]["name"]),
            phase: text(&status["phase"]),
            ips: ips.iter().map(|a| text(&a["address"])).collect(),
            reason: bound.map(|c| text(&c["reason"])).unwrap_or_default(),
        }
    }
}

/// The full path of a resource of our API group.
pub fn api(path: &str) -> String {
    format!("/apis/local.sdn.cozystack.io/v1alpha1/{path}")
}

/// Runs the command line; a command that does not end is killed, and its exit code is missing.
pub fn cli(url: &str, args: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command
        .args(args)
        .env("IPLEDGER_SERVER", url)
        .stdin(Stdio::null());
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.expect("the command line runs");
    let pid = child.id();
    let (ended, end) = std::sync::mpsc::channel();
    let killer = std::thread::spawn(move || {
        if end.recv_timeout(PATIENCE).is_err() {
            signal(pid, "KILL");
        }
    });
    let output = child
        .wait_with_output()
        .expect("the output of the command line");
    // The killer may have come first.
    let _ = ended.send(());
    killer
        .join()
        .expect("the killer of a command that does not end");
    output
}

/// Sends a signal to a process that this test started.
pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(pid.to_string())
        .status();
    assert!(status.expect("kill runs").success());
}

/// Waits until something holds; fails the test if that takes too long.
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < PATIENCE,
            "after {PATIENCE:?} still not: {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The claims of a quickstart-like ledger: a class over these addresses.
pub fn class(name: &str, addresses: &[&str], policy: &str) -> Value {
    serde_json::json!({
        "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClass",
        "metadata": {"name": name},
        "spec": {"provisioner": "range.drivers.local.sdn.cozystack.io", "reclaimPolicy": policy,
                 "parameters": {"addresses": addresses}}
    })
}

/// A claim of a class.
pub fn claim(name: &str, class: &str) -> Value {
    serde_json::json!({
        "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClaim",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"className": class}
    })
}
