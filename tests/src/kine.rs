//! A real kine on a SQLite file in a temporary folder.

use std::net::TcpStream;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::process::Process;
use crate::program::free_port;
use crate::tools;

/// A kine.
pub struct Kine {
    folder: TempDir,
    program: PathBuf,
    port: u16,
    process: Option<Process>,
}

impl Kine {
    /// Starts one and waits until it is ready; `None` if kine is not built.
    ///
    /// # Panics
    /// It does not start.
    pub fn start() -> Option<Kine> {
        let program = tools::folder("kine")?.join("kine");
        let mut said = String::new();
        // Another process may take the port between the look and the start.
        for _ in 0..5 {
            let mut kine = Kine {
                folder: tempfile::tempdir().expect("a temporary folder"),
                program: program.clone(),
                port: free_port(),
                process: None,
            };
            match kine.launch() {
                Ok(()) => return Some(kine),
                Err(e) => said = e,
            }
        }
        panic!("kine does not start:\n{said}")
    }

    /// `HOST:PORT` for clients.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its database.
    pub fn database(&self) -> PathBuf {
        self.folder.path().join("state.db")
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

    /// Starts it again after a stop, on the same port and database.
    ///
    /// # Panics
    /// It does not start.
    pub fn start_again(&mut self) {
        self.launch().expect("kine starts");
    }

    fn launch(&mut self) -> Result<(), String> {
        let arguments = [
            format!("--endpoint=sqlite://{}", dsn(&self.database())),
            format!("--listen-address=tcp://127.0.0.1:{}", self.port),
            "--metrics-bind-address=0".to_owned(),
            // It compacts when it is told to, and then as far as it is told.
            "--compact-interval=0".to_owned(),
            "--compact-min-retain=0".to_owned(),
        ];
        let log = self.folder.path().join("log");
        let mut process = Process::start(&self.program, &arguments, &log);
        let port = self.port;
        process.wait_until(|| TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        self.process = Some(process);
        Ok(())
    }
}

/// The parameters are those that kine gives its own default file.
fn dsn(file: &Path) -> String {
    format!(
        "{}?_journal_mode=WAL&_busy_timeout=30000&_synchronous=NORMAL&_txlock=immediate\
         &_stmt_cache_size=20&cache=shared",
        file.display()
    )
}
