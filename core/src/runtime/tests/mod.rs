//! Tests of the runtime: a clock that jumps when nothing else can happen, stores that do what a
//! test tells them, and one file of tests a part.

mod bench;
mod binding_pass;
mod controller;
mod gated;
mod metered;
mod mirror;
mod progress;
mod queue;
mod reflector;
mod script;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;

use super::Clock;
use crate::api::{Kind, Object, Timestamp};
use crate::store::{Revision, WatchEvent};

/// The clock of a tokio runtime whose time is paused: it jumps to the next timer as soon as
/// nothing else can run, so that waits cost nothing and a run is repeatable.
pub(super) struct PausedClock {
    start: tokio::time::Instant,
}

impl PausedClock {
    pub(super) fn new() -> Arc<PausedClock> {
        Arc::new(PausedClock {
            start: tokio::time::Instant::now(),
        })
    }
}

#[async_trait]
impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix(self.monotonic().as_secs())
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the injected clock")]
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// A claim `n/name` of this revision and uid.
pub(super) fn claim(name: &str, uid: &str, revision: u64) -> Object {
    object(Kind::IPAddressClaim, name, uid, revision)
}

/// An object of this kind, revision and uid, without a spec.
pub(super) fn object(kind: Kind, name: &str, uid: &str, revision: u64) -> Object {
    let mut object = Object::from_value(json!({
        "apiVersion": kind.api_version(), "kind": kind.name(),
        "metadata": {"name": name, "uid": uid}
    }))
    .unwrap();
    if kind.namespaced() {
        object.metadata.namespace = "n".to_owned();
    }
    object.metadata.resource_version = Some(Revision(revision));
    object
}

/// A claim as [`claim`] makes it, with a field that cannot be read.
pub(super) fn garbled(name: &str, uid: &str, revision: u64) -> Object {
    let mut object = claim(name, uid, revision);
    object
        .fields
        .insert("spec".to_owned(), json!({"family": "IPv5"}));
    object
}

pub(super) fn applied(object: Object) -> WatchEvent {
    WatchEvent::Applied(Arc::new(object))
}

pub(super) fn deleted(object: Object) -> WatchEvent {
    WatchEvent::Deleted(Arc::new(object))
}
