//! Where the ledger under test is kept.

use std::path::PathBuf;
use std::process::Command;

use ipledger_tests::program::{Server, free_port, serve};
use tempfile::TempDir;

/// A store that outlives the server.
pub(crate) trait Place {
    /// Makes a server, given by its command, work on this store.
    fn on(&self, server: &mut Command);

    /// Starts a server and waits until it is ready.
    fn start(&self) -> Server {
        let port = free_port();
        let mut server = serve(port);
        self.on(&mut server);
        Server::launch(server, port)
    }
}

/// An SQLite file in a folder of its own.
pub(crate) struct Sqlite(TempDir);

impl Sqlite {
    pub(crate) fn new() -> Sqlite {
        Sqlite(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("ledger.db")
    }
}

impl Place for Sqlite {
    fn on(&self, server: &mut Command) {
        server.arg("--db").arg(self.file());
    }
}

/// A folder in memory where there is one, for files whose syncs protect nothing.
pub(crate) fn memory_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}
