//! The ledger that a process works on, whichever store keeps it.

#[cfg(feature = "etcd")]
mod etcd;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ipledger_core::runtime::{Election, EventSink, LogEvents};
use ipledger_core::store::{Store, StoreError};
use ipledger_store_sqlite::{Options, SqliteStore};

use crate::cli::Exit;

#[cfg(feature = "etcd")]
pub(crate) use etcd::{connect, options};

/// Where a ledger is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In an SQLite file, which is made if it is not there.
    File(PathBuf),
    /// In etcd, or what speaks its protocol.
    Etcd(EtcdLocation),
}

/// Where a ledger in etcd is, and how it is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdLocation {
    /// `etcd://HOST:PORT[,HOST:PORT...]/PREFIX`; with `etcds://` for TLS.
    pub url: String,
    /// A PEM file with the authorities that sign the members' certificates; those of the system without
    /// it.
    pub ca: Option<PathBuf>,
    /// PEM files with our own certificate and its key, if etcd asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The user, if etcd asks for one.
    pub user: Option<String>,
    /// The file with the user's password; it is in the environment without it.
    pub password_file: Option<PathBuf>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::File(path) => write!(f, "{}", path.display()),
            Location::Etcd(etcd) => f.write_str(&etcd.url),
        }
    }
}

/// Why a ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The SQLite file.
    #[error(transparent)]
    File(#[from] ipledger_store_sqlite::OpenError),
    /// etcd.
    #[cfg(feature = "etcd")]
    #[error(transparent)]
    Etcd(#[from] ipledger_store_etcd::OpenError),
    /// The Kubernetes cluster is not configured, or in a way that cannot be used.
    #[cfg(feature = "kube")]
    #[error(transparent)]
    Cluster(#[from] ipledger_store_kube::OpenError),
    /// What was said about the store cannot be used.
    #[error("{0}")]
    BadOption(String),
    /// An import fills the ledger, or was cut off.
    #[error(
        "{location} is not complete: {by} has begun an import; wait for its end, or run the same \
         `ipledger import` again if it was cut off"
    )]
    Importing {
        /// Where the ledger is.
        location: String,
        /// Who has begun the import.
        by: String,
    },
    /// The store did not answer.
    #[error("{location}: {reason}")]
    Store {
        /// Where the ledger is.
        location: String,
        /// What it said.
        reason: String,
    },
}

impl LedgerError {
    /// The exit code that the command line gives it.
    pub fn exit(&self) -> Exit {
        match self {
            LedgerError::BadOption(_) => Exit::Usage,
            #[cfg(feature = "kube")]
            LedgerError::Cluster(_) => Exit::Usage,
            #[cfg(feature = "etcd")]
            LedgerError::Etcd(e) => etcd::exit(e),
            LedgerError::File(_) | LedgerError::Importing { .. } | LedgerError::Store { .. } => {
                Exit::Unavailable
            }
        }
    }
}

/// What a store has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LedgerStats {
    /// Writes of objects that were committed.
    pub(crate) writes: u64,
    /// What only a file has.
    pub(crate) file: Option<FileStats>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileStats {
    /// Transactions that carried the writes.
    pub(crate) commits: u64,
    /// Compactions of the history that failed.
    pub(crate) compaction_failures: u64,
}

/// An open ledger.
#[derive(Clone)]
pub(crate) enum Ledger {
    File(Arc<SqliteStore>),
    #[cfg(feature = "etcd")]
    Etcd(Arc<ipledger_store_etcd::EtcdStore>),
    #[cfg(feature = "kube")]
    Kubernetes(Arc<ipledger_store_kube::KubeStore>),
}

impl Ledger {
    /// Opens a ledger to work on it.
    pub(crate) async fn open(location: &Location) -> Result<Ledger, LedgerError> {
        match location {
            Location::File(path) => {
                let store = SqliteStore::open(path, &Options::default()).await?;
                Ok(Ledger::File(Arc::new(store)))
            }
            #[cfg(feature = "etcd")]
            Location::Etcd(etcd) => Ok(Ledger::Etcd(Arc::new(etcd::open(etcd).await?))),
            #[cfg(not(feature = "etcd"))]
            Location::Etcd(_) => Err(not_built()),
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Ledger::File(store) => Arc::clone(store) as _,
            #[cfg(feature = "etcd")]
            Ledger::Etcd(store) => Arc::clone(store) as _,
            #[cfg(feature = "kube")]
            Ledger::Kubernetes(store) => Arc::clone(store) as _,
        }
    }

    /// How the server whose controllers work is elected; nothing if those of all do.
    pub(crate) fn election(&self, name: &str) -> Option<Arc<dyn Election>> {
        match self {
            Ledger::File(_) => {
                let _ = name;
                None
            }
            #[cfg(feature = "etcd")]
            Ledger::Etcd(store) => Some(store.election(name)),
            // Each controller has a lease of its own there, if any.
            #[cfg(feature = "kube")]
            Ledger::Kubernetes(_) => None,
        }
    }

    /// Where the binding core tells what becomes of claims.
    pub(crate) fn events(&self) -> Arc<dyn EventSink> {
        match self {
            Ledger::File(_) => Arc::new(LogEvents),
            #[cfg(feature = "etcd")]
            Ledger::Etcd(_) => Arc::new(LogEvents),
            #[cfg(feature = "kube")]
            Ledger::Kubernetes(store) => store.events("ipledger-controller", &host_name()),
        }
    }

    /// Whether the store works; if not, what is wrong.
    pub(crate) fn health(&self) -> Result<(), String> {
        match self {
            Ledger::File(store) => store.health(),
            #[cfg(feature = "etcd")]
            Ledger::Etcd(store) => store.health(),
            #[cfg(feature = "kube")]
            Ledger::Kubernetes(store) => store.health(),
        }
    }

    pub(crate) fn stats(&self) -> LedgerStats {
        match self {
            Ledger::File(store) => {
                let stats = store.stats();
                LedgerStats {
                    writes: stats.writes,
                    file: Some(FileStats {
                        commits: stats.commits,
                        compaction_failures: stats.compaction_failures,
                    }),
                }
            }
            #[cfg(feature = "etcd")]
            Ledger::Etcd(store) => LedgerStats {
                writes: store.writes(),
                file: None,
            },
            #[cfg(feature = "kube")]
            Ledger::Kubernetes(store) => LedgerStats {
                writes: store.writes(),
                file: None,
            },
        }
    }

    /// Ends watches, finishes writes and closes.
    pub(crate) async fn close(&self) -> Result<(), StoreError> {
        match self {
            Ledger::File(store) => store.close().await,
            #[cfg(feature = "etcd")]
            Ledger::Etcd(store) => {
                store.close();
                Ok(())
            }
            #[cfg(feature = "kube")]
            Ledger::Kubernetes(store) => {
                store.close();
                Ok(())
            }
        }
    }
}

/// What a program without etcd says about a ledger in it.
#[cfg(not(feature = "etcd"))]
pub(crate) fn not_built() -> LedgerError {
    LedgerError::BadOption(
        "this ipledger was built without etcd; build one with it: install protoc (Debian: \
         protobuf-compiler libprotobuf-dev), then `cargo build --release --features etcd`"
            .to_owned(),
    )
}

/// The name of this server among those of its ledger, if it was given none: what is true of one process
/// at a time on one machine.
pub(crate) fn default_name(listen: impl fmt::Display) -> String {
    format!("{}/{listen}", host_name())
}

/// The name of this machine; in a container that of the container.
pub(crate) fn host_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    if host.is_empty() { "server" } else { host }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "etcd"))]
    #[tokio::test]
    async fn a_program_without_etcd_says_how_to_build_one_with_it() {
        let location = Location::Etcd(EtcdLocation {
            url: "etcd://127.0.0.1:1/x".to_owned(),
            ..EtcdLocation::default()
        });
        let Err(e) = Ledger::open(&location).await else {
            panic!("it opens");
        };
        assert_eq!(e.exit(), Exit::Usage);
        assert!(e.to_string().contains("--features etcd"), "{e}");
    }

    #[test]
    fn a_server_without_a_name_is_told_from_others_by_its_machine_and_address() {
        let name = default_name("127.0.0.1:7440");
        let (host, address) = name.split_once('/').unwrap();
        assert!(!host.is_empty() && host == host.trim());
        assert_eq!(address, "127.0.0.1:7440");
    }
}
