//! A ledger on a server that speaks etcd's protocol. Each case has a prefix of its own on a server
//! that all share; a case that would disturb the others has a server of its own.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use ipledger_core::api::{Key, Kind};
use ipledger_core::runtime::Election;
use ipledger_core::store::{Revision, Store};
use ipledger_store_etcd::{EtcdStore, Options};
use ipledger_tests::etcd::{client, compact};
use libtest_mimic::Trial;

use crate::backend::{Backend, Hooks};
use crate::case::Case;
use crate::table::{self, Outcome};
use crate::{durable, watch_faults};

/// Cases that compact, restart or jump, beside those of `durable` and `watch_faults`.
const DISTURBING: [&str; 4] = [
    "a_token_from_before_a_compaction_is_expired",
    "a_list_from_the_start_works_after_a_token_has_expired",
    "durability_is_as_declared",
    "random_operations_answer_as_the_model_does_across_compactions",
];

/// A server of one sort.
#[async_trait]
pub(crate) trait Server: Sized + Send + Sync + 'static {
    /// As in the capabilities.
    const NAME: &'static str;
    /// Cases about what this sort of server cannot be brought to do.
    const IMPOSSIBLE: &'static [&'static str];

    /// Starts one; `None` if it is not built.
    fn start() -> Option<Self>;
    /// `HOST:PORT`.
    fn endpoint(&self) -> String;
    /// Stops it and starts it again.
    fn restart(&mut self);
    /// Moves the revision ahead.
    async fn jump(&mut self, to: Revision);
}

/// Every case on this sort of server. If it is not built, the trials are there but ignored.
pub(crate) fn trials<S: Server>(cases: &[Case]) -> Vec<Trial> {
    let built = ipledger_tests::tools::folder(S::NAME).is_some();
    if !built {
        eprintln!(
            "{} is not built, its cases are skipped: tests/tools/build {0}",
            S::NAME
        );
    }
    let shared: Arc<dyn Backend> = Arc::new(Shared::<S>(OnceLock::new(), AtomicU64::new(0)));
    let own: Arc<dyn Backend> = Arc::new(Own::<S>(std::marker::PhantomData));
    let disturbing: BTreeSet<&str> = [durable::cases(), watch_faults::cases()]
        .concat()
        .iter()
        .map(|case| case.name)
        .chain(DISTURBING)
        .collect();
    let (impossible, possible): (Vec<&Case>, Vec<&Case>) = cases
        .iter()
        .partition(|case| S::IMPOSSIBLE.contains(&case.name));
    for case in impossible {
        table::note(case.name, S::NAME, Outcome::Refused);
    }
    let trials = possible.into_iter().map(|case| {
        let alone = disturbing.contains(case.name);
        let backend = if alone { own.clone() } else { shared.clone() };
        case.trial(backend).with_ignored_flag(!built)
    });
    trials.collect()
}

struct Shared<S>(OnceLock<S>, AtomicU64);

#[async_trait]
impl<S: Server> Backend for Shared<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    async fn fresh(&self) -> Box<dyn Hooks> {
        let server = self.0.get_or_init(|| S::start().expect("it is built"));
        // One is a beginning of another, so that no ledger may reach into another.
        let number = self.1.fetch_add(1, Ordering::Relaxed);
        Box::new(Remote::<S>::open(None, server.endpoint(), format!("contract/{number}")).await)
    }
}

struct Own<S>(std::marker::PhantomData<fn() -> S>);

#[async_trait]
impl<S: Server> Backend for Own<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    async fn fresh(&self) -> Box<dyn Hooks> {
        let server = S::start().expect("it is built");
        let endpoint = server.endpoint();
        Box::new(Remote::open(Some(server), endpoint, "contract".to_owned()).await)
    }
}

struct Remote<S> {
    store: Arc<EtcdStore>,
    prefix: String,
    endpoint: String,
    /// `None` if others use it too.
    server: Option<S>,
}

impl<S: Server> Remote<S> {
    async fn open(server: Option<S>, endpoint: String, prefix: String) -> Remote<S> {
        let store = open(&endpoint, &prefix).await;
        Remote {
            store,
            prefix,
            endpoint,
            server,
        }
    }

    fn own(server: &mut Option<S>) -> &mut S {
        let disturbs =
            "this case disturbs others: name it in DISTURBING of tests/contract/remote.rs";
        server.as_mut().expect(disturbs)
    }
}

async fn open(endpoint: &str, prefix: &str) -> Arc<EtcdStore> {
    let mut options = Options::new(vec![endpoint.to_owned()], prefix);
    options.lease_ttl = Duration::from_secs(2);
    Arc::new(EtcdStore::open(options).await.unwrap())
}

#[async_trait]
impl<S: Server> Hooks for Remote<S> {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// A watch whose queue is full reads the rest from the history of the server.
    fn watch_buffer(&self) -> usize {
        1_000
    }

    async fn compact(&self, revision: Revision) -> Option<()> {
        assert!(
            self.server.is_some(),
            "a case that compacts disturbs others: see DISTURBING"
        );
        compact(&self.endpoint, revision.0).await;
        Some(())
    }

    async fn jump(&mut self, to: Revision) {
        self.store.close();
        Self::own(&mut self.server).jump(to).await;
        self.store = open(&self.endpoint, &self.prefix).await;
    }

    async fn break_watches(&mut self) {
        self.store.close();
        self.store = open(&self.endpoint, &self.prefix).await;
    }

    async fn damage(&self, key: &Key) -> Option<()> {
        let plural = key.kind.plural();
        let name = match key.kind {
            Kind::IPAddressClaim => format!("{},{}", key.namespace, key.name),
            _ => key.name.clone(),
        };
        let path = format!("/{}/{plural}/{name}", self.prefix);
        let mut client = client(&self.endpoint).await.unwrap();
        let old = client.get(path.clone(), None).await.unwrap();
        assert_eq!(old.kvs().len(), 1, "{path} is not there");
        client.put(path, "{\"kind\": ", None).await.unwrap();
        Some(())
    }

    async fn second_client(&self) -> Option<Arc<dyn Store>> {
        Some(open(&self.endpoint, &self.prefix).await)
    }

    async fn election(&self, name: &str) -> Option<Arc<dyn Election>> {
        if self.store.capabilities().leases {
            return Some(self.store.election(name));
        }
        let client = client(&self.endpoint).await.unwrap();
        let mut leases = client.lease_client();
        let granted = leases.grant(60, None).await.unwrap();
        let kept = leases.keep_alive(granted.id()).await;
        assert!(
            kept.is_err(),
            "{} keeps leases alive, so that it could elect",
            S::NAME
        );
        None
    }

    async fn restart(&mut self) -> Option<()> {
        self.store.close();
        Self::own(&mut self.server).restart();
        self.store = open(&self.endpoint, &self.prefix).await;
        Some(())
    }
}
