//! Where `bench bind` binds: what it needs of a ledger and of the controllers that work on it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use ipledger_core::api::{Kind, Object};
use ipledger_core::runtime::BinderOptions;

use crate::cli::client::{Client, Scope, WatchItem};
use crate::cli::exit::CliError;
use crate::cli::folder::Folder;
use crate::ledger::Location;
use crate::serve::{Counts, ServeOptions, Server};

/// The states of objects, as they come.
pub(super) type Objects = BoxStream<'static, Result<Object, CliError>>;

/// A ledger with controllers of this process at work on it. What it does for a tenant is done as a
/// tenant would do it.
#[async_trait]
pub(super) trait Place: Send + Sync {
    /// What is measured, for people.
    fn name(&self) -> String;

    /// The namespace of the claims.
    fn namespace(&self) -> &str;

    /// The first address of those that are bound, in a network of their own.
    fn network(&self) -> (Ipv4Addr, u8);

    /// What the names of the class and the claims begin with.
    fn prefix(&self) -> &str;

    /// Writes the object.
    async fn create(&self, object: &Object) -> Result<(), CliError>;

    /// Follows the objects of a kind from now on, at least those in a phase.
    async fn follow(&self, kind: Kind, phase: &str) -> Result<Objects, CliError>;

    /// Writes so far.
    fn counts(&self) -> Counts;

    /// Removes what was created, and stops.
    async fn close(self: Arc<Self>) -> Result<(), CliError>;
}

/// Writes until nothing was written for half a second.
pub(super) async fn counts_at_rest(place: &dyn Place) -> Counts {
    let mut last = place.counts();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = place.counts();
        if now == last {
            return now;
        }
        last = now;
    }
}

/// A server on a ledger file of its own, over its API.
pub(super) struct Standalone {
    server: Server,
    client: Client,
    /// Deleted at the end.
    _folder: Folder,
}

impl Standalone {
    pub(super) async fn start() -> Result<Standalone, CliError> {
        let folder = Folder::new("bench")?;
        let server = Server::start(&ServeOptions {
            ledger: Location::File(folder.path().join("bench.db")),
            listen: ([127, 0, 0, 1], 0).into(),
            name: None,
            binding: BinderOptions::default(),
        })
        .await?;
        let client = Client::new(&format!("http://{}", server.address()))?;
        Ok(Standalone {
            server,
            client,
            _folder: folder,
        })
    }
}

#[async_trait]
impl Place for Standalone {
    fn name(&self) -> String {
        "sqlite, synchronous=FULL".to_owned()
    }

    fn namespace(&self) -> &str {
        "bench"
    }

    fn network(&self) -> (Ipv4Addr, u8) {
        (Ipv4Addr::new(10, 0, 0, 0), 8)
    }

    fn prefix(&self) -> &str {
        "bench"
    }

    async fn create(&self, object: &Object) -> Result<(), CliError> {
        self.client.create(object, false).await?;
        Ok(())
    }

    async fn follow(&self, kind: Kind, _: &str) -> Result<Objects, CliError> {
        let scope = Scope::default();
        let version = self.client.list(kind, &scope).await?.version;
        let items = self.client.watch(kind, &scope, &version).await?;
        let objects = items.map_err(CliError::from).try_filter_map(|item| async {
            Ok(match item {
                WatchItem::Applied(object) => Some(object),
                _ => None,
            })
        });
        Ok(objects.boxed())
    }

    fn counts(&self) -> Counts {
        self.server.counts()
    }

    async fn close(self: Arc<Self>) -> Result<(), CliError> {
        if let Ok(place) = Arc::try_unwrap(self) {
            place.server.stop().await?;
        }
        Ok(())
    }
}
