//! A Kubernetes cluster, with a binding core and a range driver of this process.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt};
use ipledger_core::api::{IPAddressClaim, Key, Kind, Object};
use ipledger_core::runtime::BinderOptions;
use ipledger_core::store::{
    FieldSelector, ListOptions, Preconditions, ReadAt, Store, StoreError, WatchEvent, WatchFrom,
    WatchOptions,
};
use ipledger_store_kube::{Cluster as Kubeconfig, KubeStore};
use uuid::Uuid;

use super::bind::Source;
use super::place::{Objects, Place};
use crate::cli::exit::CliError;
use crate::kubernetes::{self, Component, ControllerOptions};
use crate::serve::{Counts, Server};

/// Objects a page of what is deleted in the end.
const PAGE: usize = 500;
/// Objects that are deleted at once.
const AT_ONCE: usize = 16;
/// So long a core that works there already has to show itself.
const LOOK: Duration = Duration::from_secs(2);
/// What was created is gone by then, or left.
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) struct Cluster {
    store: Arc<KubeStore>,
    core: Server,
    driver: Option<Server>,
    namespace: String,
    prefix: String,
}

impl Cluster {
    /// Starts the controllers, without a lease. The range driver only if it has something to do: each
    /// controller is told of every change, which is work of the API server.
    ///
    /// # Errors
    /// The cluster is not configured or does not answer; a binding core works there already.
    pub(super) async fn start(
        cluster: Kubeconfig,
        namespace: &str,
        source: Source,
    ) -> Result<Cluster, CliError> {
        let suffix = Uuid::new_v4().simple().to_string();
        let prefix = format!("bench-{}", suffix.get(..8).unwrap_or(&suffix));
        let store = kubernetes::open(&cluster, "ipledger-bench").await?;
        refuse_another_core(&store, Key::claim(namespace, &prefix)).await?;
        let start = |component| {
            let options = ControllerOptions {
                component,
                cluster: cluster.clone(),
                listen: ([127, 0, 0, 1], 0).into(),
                lease: None,
                binding: BinderOptions::default(),
            };
            async move { kubernetes::start(&options).await }
        };
        Ok(Cluster {
            core: start(Component::BindingCore).await?,
            driver: match source {
                Source::Range => Some(start(Component::RangeDriver).await?),
                Source::Static => None,
            },
            store,
            namespace: namespace.to_owned(),
            prefix,
        })
    }

    /// Deletes what was created here and does not go already; how much there was.
    async fn delete_all(&self, kind: Kind) -> Result<usize, CliError> {
        let mut options = ListOptions {
            namespace: (kind == Kind::IPAddressClaim).then(|| self.namespace.clone()),
            limit: Some(PAGE),
            ..ListOptions::default()
        };
        let mut found = 0;
        loop {
            let page = self.store.list(kind, &options).await?;
            let ours = page.items.iter().filter(|o| self.is_ours(o));
            found += ours.clone().count();
            let going = ours.filter(|o| !o.metadata.is_deleting()).map(Object::key);
            let going: Vec<Key> = going.collect();
            futures::stream::iter(going)
                .map(|key| async move {
                    match self.store.delete(&key, &Preconditions::default()).await {
                        Ok(_) | Err(StoreError::NotFound { .. }) => Ok(()),
                        Err(e) => Err(CliError::from(e)),
                    }
                })
                .buffer_unordered(AT_ONCE)
                .try_collect::<()>()
                .await?;
            options.continue_token = page.continue_token;
            if options.continue_token.is_none() {
                return Ok(found);
            }
        }
    }

    fn is_ours(&self, object: &Object) -> bool {
        match object.kind {
            Kind::IPAddress => {
                let spec = object.fields.get("spec");
                let class = spec.and_then(|spec| spec["className"].as_str());
                class.is_some_and(|class| class.starts_with(&self.prefix))
            }
            Kind::IPAddressClass | Kind::IPAddressClaim => {
                object.metadata.name.starts_with(&self.prefix)
            }
        }
    }

    /// Deletes until there is nothing left: a claim goes when its address has gone.
    async fn clear(&self) -> Result<(), CliError> {
        for kind in [Kind::IPAddressClaim, Kind::IPAddress, Kind::IPAddressClass] {
            while self.delete_all(kind).await? > 0 {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Place for Cluster {
    fn name(&self) -> String {
        "kubernetes".to_owned()
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    /// What RFC 2544 sets aside for measurements, because addresses of the cluster have names, too.
    fn network(&self) -> (Ipv4Addr, u8) {
        (Ipv4Addr::new(198, 18, 0, 0), 15)
    }

    fn prefix(&self) -> &str {
        &self.prefix
    }

    async fn create(&self, object: &Object) -> Result<(), CliError> {
        self.store.create(object.clone()).await?;
        Ok(())
    }

    async fn follow(&self, kind: Kind, phase: &str) -> Result<Objects, CliError> {
        let last = self.store.barrier(kind).await?;
        let mut options = WatchOptions::all(WatchFrom::After(last));
        let selector = format!("status.phase={phase}");
        options.fields =
            FieldSelector::parse(&selector).map_err(|e| CliError::Usage(e.to_string()))?;
        let events = self.store.watch(kind, &options).await?;
        let objects = events
            .map_err(CliError::from)
            .try_filter_map(|event| async {
                Ok(match event {
                    WatchEvent::Applied(object) => Some(Object::clone(&object)),
                    _ => None,
                })
            });
        Ok(objects.boxed())
    }

    fn counts(&self) -> Counts {
        self.core.counts()
    }

    async fn close(self: Arc<Self>) -> Result<(), CliError> {
        let cleared = tokio::time::timeout(PATIENCE, self.clear()).await;
        let cleared = cleared.unwrap_or_else(|_| {
            let reason = format!("it takes more than {PATIENCE:?} to delete what was created");
            Err(CliError::TimeOut(reason))
        });
        if let Ok(place) = Arc::try_unwrap(self) {
            if let Some(driver) = place.driver {
                driver.stop().await?;
            }
            place.core.stop().await?;
        }
        cleared
    }
}

/// A core that works there already would do part of the work, and be measured. It shows itself by what it
/// makes of a claim.
async fn refuse_another_core(store: &KubeStore, key: Key) -> Result<(), CliError> {
    let mut claim = IPAddressClaim::default();
    claim.metadata.name.clone_from(&key.name);
    claim.metadata.namespace.clone_from(&key.namespace);
    claim.spec.class_name.clone_from(&key.name);
    store
        .create(claim.to_object().map_err(StoreError::from)?)
        .await?;
    tokio::time::sleep(LOOK).await;
    let seen = store.get(&key, ReadAt::Latest).await;
    store.delete(&key, &Preconditions::default()).await?;
    if seen?.metadata.finalizers.is_empty() {
        return Ok(());
    }
    Err(CliError::Usage(
        "a binding core works on this cluster already, and would do part of the work; scale it to zero, or measure \
         on another cluster"
            .to_owned(),
    ))
}
