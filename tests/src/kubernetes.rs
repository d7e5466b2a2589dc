//! A real Kubernetes API server on an etcd of its own, with its files in a temporary folder.
//!
//! There is no kubelet, and no controller unless it is started: what is stored is all that happens.

mod audit;
mod manager;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use crate::certificates::{Authority, Certificate};
use crate::etcd::{Etcd, EtcdOptions};
use crate::process::{PATIENCE, PAUSE, Process};
use crate::program::free_port;
use crate::tools;

pub use audit::Answer;

/// The namespace of whose service accounts the server writes down every request.
pub const AUDITED: &str = "ipledger-system";
/// A user who may do everything, and whom the server never asks to wait.
pub const ADMIN: &str = "admin";
/// A user who may do nothing, until a role is given to them.
pub const NOBODY: &str = "nobody";

/// An API server and its etcd.
pub struct Kubernetes {
    folder: TempDir,
    programs: PathBuf,
    etcd: Etcd,
    authority: Authority,
    port: u16,
    process: Option<Process>,
    manager: Option<Process>,
    /// The lines of the audit log that were written while the server was starting.
    starts: Vec<Range<usize>>,
}

impl Kubernetes {
    /// Starts one and waits until it is ready; `None` if etcd or Kubernetes is not built.
    ///
    /// # Panics
    /// It does not start.
    pub fn start() -> Option<Kubernetes> {
        let programs = tools::folder("kubernetes")?;
        let etcd = Etcd::start(&EtcdOptions::default())?;
        let authority = Authority::new();
        let mut kubernetes = Kubernetes {
            folder: tempfile::tempdir().expect("a temporary folder"),
            programs,
            etcd,
            authority,
            port: 0,
            process: None,
            manager: None,
            starts: Vec::new(),
        };
        let mut said = String::new();
        // Another process may take the port between the look and the start.
        for _ in 0..5 {
            kubernetes.port = free_port();
            kubernetes.write_files();
            match kubernetes.launch() {
                Ok(()) => return Some(kubernetes),
                Err(e) => said = e,
            }
        }
        panic!("kube-apiserver does not start:\n{said}")
    }

    /// The kubeconfig of one of the users.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.folder.path().join(user)
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The etcd behind it.
    pub fn etcd(&self) -> &Etcd {
        &self.etcd
    }

    /// The etcd behind it, to stop it.
    pub fn etcd_mut(&mut self) -> &mut Etcd {
        &mut self.etcd
    }

    /// Stops it in order; etcd goes on.
    pub fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop();
        }
    }

    /// Kills it; etcd goes on.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// Stops it from doing anything, until [`Kubernetes::thaw`].
    ///
    /// # Panics
    /// It does not run.
    pub fn freeze(&self) {
        self.process.as_ref().expect("it runs").freeze();
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// It does not run.
    pub fn thaw(&self) {
        self.process.as_ref().expect("it runs").thaw();
    }

    /// Starts it again after a stop, on the same port and data, and waits until it is ready.
    ///
    /// # Panics
    /// It does not start.
    pub fn start_again(&mut self) {
        self.launch().expect("kube-apiserver starts");
    }

    /// Restores etcd with the revision moved ahead by this much and everything before compacted, as
    /// after a disaster. Both are running again afterwards.
    ///
    /// # Panics
    /// One of them does not start.
    pub fn restore_ahead(&mut self, by: u64) {
        self.stop();
        self.etcd.restore_ahead(by);
        self.start_again();
    }

    /// Starts the controllers of namespaces, quotas, roles, accounts and owners. They learn every half
    /// a minute which kinds there are, so that ours are to be defined before.
    ///
    /// # Panics
    /// They do not start.
    pub fn start_manager(&mut self) {
        let mut said = String::new();
        for _ in 0..5 {
            let port = free_port();
            let mut process = manager::start(&self.programs, self.folder.path(), port);
            let server = format!("--server=https://127.0.0.1:{port}");
            let healthy = process.wait_until(|| {
                let mut ask = self.kubectl(&["get", "--raw", "/healthz", &server]);
                ask.output().is_ok_and(|o| o.status.success())
            });
            match healthy {
                Ok(()) => {
                    self.manager = Some(process);
                    return;
                }
                Err(e) => said = e,
            }
        }
        panic!("kube-controller-manager does not start:\n{said}")
    }

    /// What the server has answered to the service accounts of [`AUDITED`] so far.
    pub fn audit(&self) -> Vec<Answer> {
        audit::read(&self.folder.path().join("audit-log"), &self.starts)
    }

    /// The certificate of who has signed that of the server, in PEM form.
    pub fn authority(&self) -> &str {
        &self.authority.certificate
    }

    /// `kubectl` as the administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join("kubectl"));
        command.arg("--kubeconfig").arg(self.kubeconfig(ADMIN));
        command.args(arguments);
        command
    }

    /// Applies manifests, JSON or YAML.
    ///
    /// # Panics
    /// The server does not take them.
    pub fn apply(&self, manifests: &str) {
        let file = self.folder.path().join("manifests");
        std::fs::write(&file, manifests).expect("a file can be written");
        let mut command = self.kubectl(&["apply", "--server-side", "-f"]);
        succeed(command.arg(&file));
    }

    /// Waits until our kinds are served, after they were defined and after each start.
    ///
    /// # Panics
    /// They are not within 30 seconds.
    pub fn wait_until_served(&self) {
        let mut ask = self.kubectl(&["get", "ipledger", "--all-namespaces"]);
        let end = Instant::now() + PATIENCE;
        loop {
            let output = ask.output().expect("kubectl starts");
            if output.status.success() {
                return;
            }
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(Instant::now() < end, "our kinds are not served: {said}");
            std::thread::sleep(PAUSE);
        }
    }

    fn write_files(&self) {
        let folder = self.folder.path();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).expect("a file can be written");
        };
        let Certificate { certificate, key } = self.authority.sign("127.0.0.1");
        let accounts = self.authority.sign("service-accounts");
        write("ca.pem", &self.authority.certificate);
        write("server.pem", &certificate);
        write("server.key", &key);
        write("accounts.pem", &accounts.certificate);
        write("accounts.key", &accounts.key);
        let tokens = format!(
            "{ADMIN}-token,{ADMIN},1,\"system:masters\"\n{NOBODY}-token,{NOBODY},2\n\
             {0}-token,{0},3\n",
            manager::USER
        );
        write("tokens.csv", &tokens);
        write("audit.yaml", &audit::policy(AUDITED));
        let authority = folder.join("ca.pem");
        for user in [ADMIN, NOBODY, manager::USER] {
            write(user, &kubeconfig(self.port, &authority, user));
        }
    }

    fn launch(&mut self) -> Result<(), String> {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let arguments = [
            format!("--etcd-servers=http://{}", self.etcd.endpoint()),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            // It would not announce itself to pods, of which there are none, under that address.
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--secure-port={}", self.port),
            format!("--tls-cert-file={}", file("server.pem")),
            format!("--tls-private-key-file={}", file("server.key")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", file("accounts.pem")),
            format!(
                "--service-account-signing-key-file={}",
                file("accounts.key")
            ),
            format!("--token-auth-file={}", file("tokens.csv")),
            "--authorization-mode=RBAC".to_owned(),
            // Nobody is there to make the accounts.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--service-cluster-ip-range=198.18.0.0/24".to_owned(),
            format!("--audit-policy-file={}", file("audit.yaml")),
            format!("--audit-log-path={}", file("audit-log")),
        ];
        let log = self.folder.path().join("log");
        let program = self.programs.join("kube-apiserver");
        let before = self.audit().len();
        let mut process = Process::start(&program, &arguments, &log);
        process.wait_until(|| {
            let mut ready = self.kubectl(&["get", "--raw", "/readyz"]);
            let output = ready.stderr(Stdio::null()).output();
            output.is_ok_and(|o| o.status.success() && o.stdout == b"ok")
        })?;
        self.starts.push(before..self.audit().len());
        self.process = Some(process);
        Ok(())
    }
}

/// Runs a command that must not fail, and returns what it printed.
///
/// # Panics
/// It fails.
pub fn succeed(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&stdout).into_owned()
}

fn kubeconfig(port: u16, authority: &Path, user: &str) -> String {
    format!(
        r"apiVersion: v1
kind: Config
current-context: test
clusters:
- name: test
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority: {}
users:
- name: {user}
  user:
    token: {user}-token
contexts:
- name: test
  context:
    cluster: test
    user: {user}
",
        authority.display()
    )
}
