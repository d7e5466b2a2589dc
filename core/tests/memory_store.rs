//! What only the in-memory store has: injected time and uids, its hooks, its window of history.
//! Everything that all stores promise is in the contract suite.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml covers only test functions"
)]

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use futures::{FutureExt, StreamExt};
use ipledger_core::api::{Key, Kind, Object, Timestamp};
use ipledger_core::store::{
    ListOptions, MemoryStore, Revision, Store, StoreError, WatchEvent, WatchFrom, WatchOptions,
    WatchStream,
};
use serde_json::json;

const CLAIMS: Kind = Kind::IPAddressClaim;

/// The store never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().unwrap()
}

fn claim(name: &str) -> Object {
    Object::from_value(json!({
        "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClaim",
        "metadata": {"name": name, "namespace": "team-a", "labels": {"name": name}},
    }))
    .unwrap()
}

fn class(name: &str) -> Object {
    Object::from_value(json!({
        "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClass",
        "metadata": {"name": name},
    }))
    .unwrap()
}

fn create(store: &MemoryStore, object: Object) -> Revision {
    now(store.create(object)).unwrap().revision().unwrap()
}

fn create_all(store: &MemoryStore, objects: &[Object]) -> Vec<Revision> {
    objects.iter().map(|o| create(store, o.clone())).collect()
}

fn watch(store: &MemoryStore, options: &WatchOptions) -> WatchStream {
    now(store.watch(CLAIMS, options)).unwrap()
}

fn from_start() -> WatchOptions {
    WatchOptions::all(WatchFrom::Start)
}

/// Whatever is there: each event in short, and `end` if the stream ends.
fn read(stream: &mut WatchStream) -> Vec<String> {
    let mut got = Vec::new();
    while let Some(item) = stream.next().now_or_never() {
        got.push(match item {
            None => {
                got.push("end".to_owned());
                return got;
            }
            Some(Ok(WatchEvent::Applied(o))) => format!("+{}", o.metadata.name),
            Some(Ok(WatchEvent::Deleted(o))) => format!("-{}", o.metadata.name),
            Some(Ok(WatchEvent::Bookmark(r))) => format!("bookmark {r}"),
            Some(Ok(WatchEvent::Synced(r))) => format!("synced {r}"),
            Some(Ok(WatchEvent::Unreadable { key, reason, .. })) => format!("?{key}: {reason}"),
            Some(Err(e)) => format!("error: {e}"),
        });
    }
    got
}

#[test]
fn two_stores_with_the_same_writes_are_the_same() {
    let run = || {
        let store = MemoryStore::default();
        ["a", "b"].map(|name| now(store.create(claim(name))).unwrap())
    };
    assert_eq!(run(), run());
    assert_eq!(
        run()[1].metadata.uid,
        "00000000-0000-4000-8000-000000000002"
    );
}

#[test]
fn time_and_uids_are_those_that_are_injected() {
    let clock = Arc::new(Mutex::new(100));
    let time = clock.clone();
    let store = MemoryStore::new(
        move || Timestamp::from_unix(*time.lock().unwrap()),
        || "u".to_owned(),
    );
    let mut held = claim("a");
    held.metadata.finalizers.push("example.com/hold".to_owned());
    let created = now(store.create(held)).unwrap();
    assert_eq!(created.metadata.uid, "u");
    assert_eq!(
        created.metadata.creation_timestamp,
        Some(Timestamp::from_unix(100))
    );
    *clock.lock().unwrap() = 200;
    now(store.delete(&created.key(), &Default::default())).unwrap();
    let page = now(store.list(CLAIMS, &ListOptions::default())).unwrap();
    let marked = page.items[0].metadata.deletion_timestamp;
    assert_eq!(marked, Some(Timestamp::from_unix(200)));
}

#[test]
fn the_history_reaches_back_as_many_revisions_as_configured() {
    let store = MemoryStore::default().with_history(3);
    let revisions = create_all(&store, &["a", "b", "c", "d", "e"].map(claim));
    let after = |r| WatchOptions::all(WatchFrom::After(r));
    let mut kept = watch(&store, &after(revisions[1]));
    assert_eq!(read(&mut kept), ["+c", "+d", "+e", "synced 6"]);
    let Err(e) = now(store.watch(CLAIMS, &after(revisions[0]))) else {
        panic!("not expired")
    };
    assert!(matches!(e, StoreError::Expired { .. }), "{e}");
}

#[test]
fn a_watch_that_hears_nothing_is_told_the_revision_before_its_own_leaves_the_history() {
    let store = MemoryStore::default().with_history(3);
    let mut idle = watch(&store, &from_start());
    assert_eq!(read(&mut idle), ["synced 1"]);
    create_all(&store, &["a", "b", "c"].map(class));
    assert_eq!(read(&mut idle), [""; 0]);
    create(&store, class("d"));
    assert_eq!(read(&mut idle), ["bookmark 5"]);
}

#[test]
fn a_watch_is_cut_off_when_its_buffer_is_full_and_says_where_to_resume() {
    let store = MemoryStore::default().with_watch_buffer(2);
    create(&store, claim("existing"));
    let mut slow = watch(&store, &from_start());
    create_all(&store, &["a", "b", "c", "d"].map(claim));
    let e = StoreError::TooSlow {
        resume: Revision(4),
    };
    assert_eq!(
        read(&mut slow),
        [
            "+existing",
            "synced 2",
            "+a",
            "+b",
            &format!("error: {e}"),
            "end"
        ]
    );
    let mut resumed = watch(&store, &WatchOptions::all(WatchFrom::After(Revision(4))));
    assert_eq!(read(&mut resumed), ["+c", "+d", "synced 6"]);
}

#[test]
fn what_exists_does_not_fill_the_buffer_of_a_new_watch() {
    let store = MemoryStore::default().with_watch_buffer(1);
    create_all(&store, &["a", "b", "c"].map(claim));
    let mut stream = watch(&store, &from_start());
    create(&store, claim("d"));
    assert_eq!(read(&mut stream), ["+a", "+b", "+c", "synced 4", "+d"]);
}

#[test]
fn bookmarks_come_when_asked_for_and_only_when_there_is_news() {
    let store = MemoryStore::default();
    let mut stream = watch(&store, &from_start());
    store.bookmark_all();
    assert_eq!(read(&mut stream), ["synced 1"]);
    create(&store, class("a"));
    store.bookmark_all();
    create(&store, class("b"));
    store.bookmark_all();
    store.bookmark_all();
    assert_eq!(
        read(&mut stream),
        ["bookmark 3"],
        "one for all that nobody has read"
    );
    create(&store, claim("c"));
    store.bookmark_all();
    assert_eq!(read(&mut stream), ["+c", "bookmark 4"]);
}

#[test]
fn a_jump_of_the_revision_is_followed_at_once() {
    let store = MemoryStore::default();
    let mut stream = watch(&store, &from_start());
    create(&store, claim("a"));
    store.advance_to(Revision(1_000_000));
    store.advance_to(Revision(5));
    assert_eq!(create(&store, claim("b")), Revision(1_000_001));
    assert_eq!(read(&mut stream), ["synced 1", "+a", "+b"]);
}

#[test]
fn an_unreadable_write_is_an_event_of_its_own() {
    let store = MemoryStore::default();
    let mut all = watch(&store, &from_start());
    let key = Key::claim("team-a", "a");
    create(&store, claim("a"));
    let revision = store.inject_unreadable(&key, "half a page is missing");
    create(&store, claim("b"));
    let unreadable = "?IPAddressClaim team-a/a: half a page is missing";
    assert_eq!(read(&mut all), ["synced 1", "+a", unreadable, "+b"]);
    assert_eq!(revision, Revision(3));
    let mut replayed = watch(&store, &WatchOptions::all(WatchFrom::After(Revision(2))));
    assert_eq!(read(&mut replayed), [unreadable, "+b", "synced 4"]);
    let other = WatchOptions {
        namespace: Some("team-b".to_owned()),
        ..from_start()
    };
    assert_eq!(read(&mut watch(&store, &other)), ["synced 4"]);
}

#[test]
fn a_broken_watch_ends_at_once_and_delivers_nothing_more() {
    let store = MemoryStore::default();
    let mut stream = watch(&store, &from_start());
    create(&store, claim("a"));
    store.break_watches();
    create(&store, claim("b"));
    assert_eq!(read(&mut stream), ["end"]);
}

/// Does with the store whatever a woken task may do: even drop the watch itself.
struct DropsTheWatch(Mutex<Option<WatchStream>>, MemoryStore);

impl Wake for DropsTheWatch {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().take();
        self.1.bookmark_all();
    }
}

#[test]
fn waking_a_watch_may_call_the_store_again() {
    let store = MemoryStore::default();
    let mut stream = watch(&store, &from_start());
    read(&mut stream);
    let waker = Arc::new(DropsTheWatch(Mutex::new(None), store.clone()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(stream.poll_next_unpin(&mut context).is_pending());
    let own = Waker::from(waker.clone());
    assert_eq!(
        stream.poll_next_unpin(&mut Context::from_waker(&own)),
        Poll::Pending
    );
    *waker.0.lock().unwrap() = Some(stream);
    create(&store, claim("a"));
    assert!(waker.0.lock().unwrap().is_none(), "the watch was woken");
}

#[test]
fn the_default_limits_are_declared_and_can_be_changed() {
    let store = MemoryStore::default()
        .with_history(7)
        .with_max_object_bytes(400);
    let declared = store.capabilities();
    assert_eq!(
        (declared.history_revisions, declared.max_object_bytes),
        (7, 400)
    );
    let mut large = claim("a");
    large
        .fields
        .insert("spec".to_owned(), json!({"text": "x".repeat(300)}));
    let e = now(store.create(large)).unwrap_err();
    assert!(matches!(e, StoreError::TooLarge { limit: 400, .. }), "{e}");
}
