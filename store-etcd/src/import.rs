//! What keeps the controllers away from a ledger that is being filled (decision 13).
//!
//! The mark `/PREFIX/import` lies there from before the first object until after the last one, also when
//! the import is cut off: no server opens a ledger that has it, and none leads there. On etcd the import
//! takes the place of the leader, too, so that it begins only where nobody serves. On kine, where all
//! servers lead, it waits until those that run must have seen the mark.

use std::sync::Arc;

use ipledger_core::runtime::Term;
use tokio::time::sleep;

use crate::election::{Attempt, LOOK, Lease, lead};
use crate::failure::Failure;
use crate::{Inner, Server};

/// Why an import cannot begin or end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A server works on the ledger.
    #[error(
        "{by} serves the ledger: stop all servers on it first, and import again (one that was \
         killed is forgotten after {seconds} s)"
    )]
    Served {
        /// The name of the leader.
        by: String,
        /// How long a leader that is gone keeps its place.
        seconds: u64,
    },
    /// The cluster did not do what it was asked.
    #[error("etcd: {reason}")]
    Failed {
        /// What it said.
        reason: String,
    },
}

impl From<Failure> for ImportError {
    fn from(failure: Failure) -> ImportError {
        ImportError::Failed {
            reason: failure.said(),
        }
    }
}

/// A ledger that is being filled, and on which nobody else works. Dropped, the mark stays: the ledger
/// can be served only after an import that was completed.
pub struct Import {
    inner: Arc<Inner>,
    lease: Option<Lease>,
    begun_by: Option<String>,
}

impl Import {
    pub(crate) async fn begin(inner: Arc<Inner>, name: &str) -> Result<Import, ImportError> {
        let lease = match inner.server {
            Server::Kine => None,
            Server::Etcd => match lead(&inner, name, true, true).await? {
                Attempt::Won(lease) => Some(lease),
                Attempt::Led(by) | Attempt::Importing(by) => {
                    let seconds = inner.options.lease_ttl.as_secs();
                    return Err(ImportError::Served { by, seconds });
                }
            },
        };
        let begun_by = inner.mark_import(name).await?;
        if inner.server == Server::Kine {
            sleep(LOOK * 2).await;
        }
        Ok(Import {
            inner,
            lease,
            begun_by,
        })
    }

    /// Who has begun an import of this ledger that was cut off.
    pub fn begun_by(&self) -> Option<&str> {
        self.begun_by.as_deref()
    }

    /// Returns when somebody else may work on the ledger, with the reason.
    pub async fn over(&mut self) -> String {
        match &mut self.lease {
            Some(lease) => lease.over().await,
            None => std::future::pending().await,
        }
    }

    /// Lets servers in: the ledger holds everything, or as little as before.
    ///
    /// # Errors
    /// The cluster did not do it; the mark may still be there.
    pub async fn end(self) -> Result<(), ImportError> {
        self.inner.unmark_import().await?;
        if let Some(lease) = self.lease {
            Box::new(lease).resign().await;
        }
        Ok(())
    }
}
