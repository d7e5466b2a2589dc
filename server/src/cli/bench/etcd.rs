//! The store on etcd, and the transactions that it sends without it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, DeleteOptions, Error, GetOptions,
    Identity, TlsOptions, Txn, TxnOp,
};
use ipledger_core::store::Store;
use ipledger_store_etcd::{EtcdStore, Options};
use uuid::Uuid;

use super::subject::{Probe, Row, Subject};
use crate::cli::exit::{CliError, Exit};
use crate::ledger::{EtcdLocation, LedgerError, options};

const TIMEOUT: Duration = Duration::from_secs(10);
/// So many keys are listed at once to be deleted one by one.
const PAGE: i64 = 500;

/// An etcd, and a place in it that is cleared in the end.
pub(super) struct Etcd {
    options: Options,
    client: Client,
    version: String,
    is_kine: bool,
}

impl Etcd {
    /// A new place inside of the ledger's prefix, which the user may write to.
    pub(super) async fn beside(location: &EtcdLocation) -> Result<Etcd, CliError> {
        let mut options = options(location)?;
        let prefix = options.prefix.trim_matches('/');
        options.prefix = format!("{prefix}/bench-{}", Uuid::new_v4());
        // The errors of the store say more than those of the client.
        let store = EtcdStore::open(options.clone()).await;
        store.map_err(LedgerError::from)?.close();
        let mut client = connect(&options).await.map_err(|e| failed(&e))?;
        let status = client.status().await.map_err(|e| failed(&e))?;
        Ok(Etcd {
            version: status.version().to_owned(),
            // It belongs to no cluster; its version is one that it imitates.
            is_kine: status.header().is_none_or(|h| h.cluster_id() == 0),
            options,
            client,
        })
    }

    /// Deletes everything that was written.
    pub(super) async fn clear(&self) -> Result<(), CliError> {
        let root = format!("/{}/", self.options.prefix);
        let deleted = if self.is_kine {
            self.delete_each(&root).await
        } else {
            let options = DeleteOptions::new().with_prefix();
            let mut client = self.client.kv_client();
            let deleted = client.delete(root.as_str(), Some(options)).await;
            deleted.map(|_| ())
        };
        deleted.map_err(|e| CliError::Ledger {
            exit: Exit::Unavailable,
            message: format!(
                "what was measured is left at {root}: {e}; delete it (etcdctl del --prefix)"
            ),
        })
    }

    /// kine takes a deletion only of one key, at a revision. Whatever was changed since it was listed is
    /// listed again.
    async fn delete_each(&self, root: &str) -> Result<(), Error> {
        loop {
            let page = GetOptions::new().with_prefix().with_limit(PAGE);
            let page = self.client.kv_client().get(root, Some(page)).await?;
            if page.kvs().is_empty() {
                return Ok(());
            }
            for kv in page.kvs() {
                let key = kv.key();
                let unchanged = Compare::mod_revision(key, CompareOp::Equal, kv.mod_revision());
                let txn = Txn::new()
                    .when([unchanged])
                    .and_then([TxnOp::delete(key, None)])
                    .or_else([TxnOp::get(key, None)]);
                self.client.kv_client().txn(txn).await?;
            }
        }
    }

    /// The same connection options as those of the store.
    fn fresh(&self) -> Options {
        let prefix = format!("{}/{}", self.options.prefix, Uuid::new_v4());
        Options {
            prefix,
            ..self.options.clone()
        }
    }
}

async fn connect(options: &Options) -> Result<Client, Error> {
    let mut connect = ConnectOptions::new()
        .with_require_leader(true)
        .with_connect_timeout(TIMEOUT);
    if let Some(user) = &options.user {
        connect = connect.with_user(&user.name, &user.password);
    }
    let mut scheme = "http";
    if let Some(tls) = &options.tls {
        scheme = "https";
        let mut config = TlsOptions::new();
        config = match &tls.ca {
            Some(ca) => config.ca_certificate(Certificate::from_pem(ca)),
            None => config.with_native_roots(),
        };
        if let Some(own) = &tls.identity {
            config = config.identity(Identity::from_pem(&own.certificate, &own.key));
        }
        connect = connect.with_tls(config);
    }
    // One member at a time, as the store does.
    let first = options.endpoints.iter().take(1);
    let endpoints: Vec<String> = first.map(|e| format!("{scheme}://{e}")).collect();
    Client::connect(endpoints, Some(connect)).await
}

#[async_trait]
impl Subject for Etcd {
    fn name(&self) -> String {
        let endpoints = self.options.endpoints.join(", ");
        format!("etcd {} at {endpoints}", self.version)
    }

    async fn open(&self, _: &Path) -> Result<Arc<dyn Store>, CliError> {
        let store = EtcdStore::open(self.fresh()).await;
        Ok(Arc::new(store.map_err(LedgerError::from)?))
    }

    async fn probe(&self, _: &Path) -> Result<Arc<dyn Probe>, CliError> {
        Ok(Arc::new(Bare {
            client: connect(&self.options).await.map_err(|e| failed(&e))?,
            folder: format!("/{}/ipaddresses/", self.fresh().prefix),
            revisions: Mutex::default(),
        }))
    }
}

/// A client with the revision of each key that it has written.
struct Bare {
    client: Client,
    folder: String,
    revisions: Mutex<HashMap<String, i64>>,
}

impl Bare {
    fn revisions(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        self.revisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The store's transaction: put if the key is at this revision, else read it.
    async fn write(&self, row: Row) -> Result<(), CliError> {
        let expected = self.revisions().get(&row.name).copied().unwrap_or(0);
        let key = format!("{}{}", self.folder, row.name);
        let txn = Txn::new()
            .when([Compare::mod_revision(
                key.as_str(),
                CompareOp::Equal,
                expected,
            )])
            .and_then([TxnOp::put(key.as_str(), row.body, None)])
            .or_else([TxnOp::get(key, None)]);
        let answer = self
            .client
            .kv_client()
            .txn(txn)
            .await
            .map_err(|e| failed(&e))?;
        if !answer.succeeded() {
            return Err(failure("a key was written by somebody else"));
        }
        let revision = answer.header().map_or(0, |h| h.revision());
        self.revisions().insert(row.name, revision);
        Ok(())
    }
}

#[async_trait]
impl Probe for Bare {
    async fn create(&self, row: Row) -> Result<(), CliError> {
        self.write(row).await
    }

    async fn update(&self, row: Row) -> Result<(), CliError> {
        self.write(row).await
    }
}

fn failed(error: &Error) -> CliError {
    failure(&error.to_string())
}

fn failure(reason: &str) -> CliError {
    CliError::Ledger {
        exit: Exit::Unavailable,
        message: format!("the bare client of etcd: {reason}"),
    }
}
