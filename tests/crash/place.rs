//! Where the ledger under test is kept.

use std::path::PathBuf;
use std::process::Command;

use ipledger_tests::program::Server;
use tempfile::TempDir;

/// A store that outlives the server.
pub(crate) trait Place {
    /// Makes a server, given by its command, work on this store.
    fn on(&self, server: &mut Command);

    /// Starts a server and waits until it is ready.
    fn start(&self) -> Server {
        Server::start_with(|server| self.on(server))
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

/// A ledger in a real etcd of its own.
#[cfg(feature = "etcd")]
pub(crate) struct Etcd(ipledger_tests::etcd::Etcd);

#[cfg(feature = "etcd")]
impl Etcd {
    /// It does not wait for the disk: it is not what is killed.
    pub(crate) fn new() -> Etcd {
        let options = ipledger_tests::etcd::EtcdOptions::default();
        Etcd(ipledger_tests::etcd::Etcd::start(&options).expect("tests/tools/build etcd"))
    }
}

#[cfg(feature = "etcd")]
impl Place for Etcd {
    fn on(&self, server: &mut Command) {
        let store = format!("etcd://{}/crash", self.0.endpoint());
        // Under one name the next server leads at once.
        server.args(["--store", &store, "--name", "crash"]);
    }
}

/// A folder in memory where there is one, for files whose syncs protect nothing.
pub(crate) fn memory_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}
