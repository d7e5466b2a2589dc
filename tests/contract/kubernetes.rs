//! The Kubernetes store under test, on a real API server.
//!
//! A server takes seconds to start, so that each thread of the run has one, and each case finds it
//! empty. The cases are about the Store, which keeps whatever it is given: they run on definitions
//! with the names and selectable fields of ours, and without their rules.

use std::cell::RefCell;
use std::sync::Arc;

use async_trait::async_trait;
use etcd_client::GetOptions;
use ipledger_core::api::{GROUP, Key, Kind, crd};
use ipledger_core::store::{Revision, Store};
use ipledger_store_kube::{Cluster, KubeStore, Options};
use ipledger_tests::etcd::client;
use ipledger_tests::kubernetes::{ADMIN, Kubernetes};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::backend::{Backend, Hooks};
use crate::case::Case;
use crate::table::{self, Outcome};

const NAME: &str = "kubernetes";

/// Cases about what an API server cannot be brought to do.
const IMPOSSIBLE: [&str; 2] = [
    // A restore compacts; `a_restore_that_jumps_and_compacts_expires_what_is_older` is about that.
    "a_jump_of_the_revision_is_followed_at_once",
    // It reads whole numbers as 64 bits with sign, and rounds larger ones.
    "numbers_of_64_bits_without_sign_survive_exactly",
];

/// The namespaces of the cases.
const NAMESPACES: [&str; 10] = [
    "a",
    "a-b",
    "a0",
    "ab",
    "b",
    "team",
    "team-a",
    "team-a-b",
    "team-b",
    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
];

/// Every case. If the server is not built, the trials are there but ignored.
pub(crate) fn trials(cases: &[Case]) -> Vec<Trial> {
    let built = ["etcd", NAME].map(|tool| ipledger_tests::tools::folder(tool).is_some());
    let built = built == [true, true];
    if !built {
        eprintln!("{NAME} is not built, its cases are skipped: tests/tools/build etcd {NAME}");
    }
    let (impossible, possible): (Vec<&Case>, Vec<&Case>) = cases
        .iter()
        .partition(|case| IMPOSSIBLE.contains(&case.name));
    for case in impossible {
        table::note(case.name, NAME, Outcome::Refused);
    }
    possible
        .into_iter()
        .map(|case| case.trial(Arc::new(Server)).with_ignored_flag(!built))
        .collect()
}

thread_local! {
    /// The server of this thread, while no case has it.
    static IDLE: RefCell<Option<Kubernetes>> = const { RefCell::new(None) };
}

struct Server;

#[async_trait]
impl Backend for Server {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn fresh(&self) -> Box<dyn Hooks> {
        let server = IDLE.take().unwrap_or_else(start);
        wipe(&server).await;
        let store = open(&server).await;
        let server = Some(server);
        Box::new(Ledger { store, server })
    }
}

fn start() -> Kubernetes {
    let server = Kubernetes::start().expect("it is built");
    let list = |items: Vec<Value>| json!({"apiVersion": "v1", "kind": "List", "items": items});
    server.apply(&list(Kind::ALL.map(definition).into()).to_string());
    let namespaces = NAMESPACES
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    server.apply(&list(namespaces.into()).to_string());
    server.wait_until_served();
    server
}

/// The definition of a kind without its rules; only what can be selected by has a type.
fn definition(kind: Kind) -> Value {
    let mut definition = crd::definition(kind);
    let version = &mut definition["spec"]["versions"][0];
    let mut schema = open_object();
    for field in version["selectableFields"].as_array().unwrap() {
        let path = field["jsonPath"].as_str().unwrap().to_owned();
        let mut at = &mut schema;
        for name in path.split('.').skip(1) {
            let properties = &mut at["properties"];
            if properties[name].is_null() {
                properties[name] = open_object();
            }
            at = &mut properties[name];
        }
        *at = json!({"type": "string"});
    }
    version["schema"]["openAPIV3Schema"] = schema;
    definition
}

fn open_object() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Takes the objects of the last case out of etcd, whoever holds them; the server sees them go. One
/// by one: it is made for one object a revision.
async fn wipe(server: &Kubernetes) {
    let mut client = client(&server.etcd().endpoint()).await.unwrap();
    let options = GetOptions::new().with_prefix().with_keys_only();
    let prefix = format!("/registry/{GROUP}/");
    let left = client.get(prefix, Some(options)).await.unwrap();
    for object in left.kvs() {
        client.delete(object.key(), None).await.unwrap();
    }
}

async fn open(server: &Kubernetes) -> Arc<KubeStore> {
    let cluster = Cluster {
        kubeconfig: Some(server.kubeconfig(ADMIN)),
        context: None,
    };
    let config = cluster.config().await.unwrap();
    Arc::new(KubeStore::open(config, Options::default()).unwrap())
}

struct Ledger {
    store: Arc<KubeStore>,
    /// `Some` until it is given back.
    server: Option<Kubernetes>,
}

impl Ledger {
    fn server(&mut self) -> &mut Kubernetes {
        self.server.as_mut().expect("it is given back at the end")
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.store.close();
        // After a panic nobody knows what it is like.
        if !std::thread::panicking() {
            IDLE.set(self.server.take());
        }
    }
}

#[async_trait]
impl Hooks for Ledger {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// What a slow reader leaves at the server, that keeps for a while.
    fn watch_buffer(&self) -> usize {
        1_000
    }

    /// The server answers from a memory of its own, however etcd is compacted.
    async fn compact(&self, _: Revision) -> Option<()> {
        None
    }

    async fn jump(&mut self, to: Revision) {
        self.store.close();
        let mut client = client(&self.server().etcd().endpoint()).await.unwrap();
        let answer = client.get("/", None).await.unwrap();
        let now = u64::try_from(answer.header().unwrap().revision()).unwrap();
        self.server().restore_ahead(to.0.saturating_sub(now));
        self.server().wait_until_served();
        self.store = open(self.server()).await;
    }

    async fn break_watches(&mut self) {
        self.store.close();
        self.store = open(self.server()).await;
    }

    /// What the server cannot read it does not serve, with all others of the kind.
    async fn damage(&self, _: &Key) -> Option<()> {
        None
    }

    /// An API server tells a watch with a selector how far it has got only when something was
    /// written since that was no event to it. In a cluster, leases are renewed all the time.
    async fn stir(&self) {
        let server = self.server.as_ref().expect("it is given back at the end");
        let mut client = client(&server.etcd().endpoint()).await.unwrap();
        client.put("/stir", "", None).await.unwrap();
    }

    async fn second_client(&self) -> Option<Arc<dyn Store>> {
        let server = self.server.as_ref()?;
        Some(open(server).await)
    }

    async fn restart(&mut self) -> Option<()> {
        self.store.close();
        self.server().stop();
        self.server().start_again();
        self.server().wait_until_served();
        self.store = open(self.server()).await;
        Some(())
    }
}
