//! Each claim of `capabilities()` is put to the test, the refusals too.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ipledger_core::api::{Kind, Object};
use ipledger_core::store::{Part, Revision, Store, StoreError, WatchFrom};
use serde_json::json;

use crate::backend::Ledger;
use crate::case::{cases, soon};
use crate::make::*;
use crate::reader::Reader;

cases![
    capabilities_do_not_change_while_the_store_works,
    durability_is_as_declared,
    sharing_is_as_declared,
    an_object_of_the_largest_size_is_stored_and_read_back,
    an_object_over_the_limit_is_too_large_and_leaves_nothing_behind,
    an_update_over_the_limit_is_too_large_and_changes_nothing,
    an_object_of_the_largest_size_can_be_marked_and_deleted,
    a_watch_can_start_as_far_back_as_declared,
    a_cheap_barrier_costs_no_list,
    servers_elect_one_as_declared,
];

/// What the store adds to an object in bytes is less than this.
const ROOM: usize = 1_000;

/// A claim of about this many bytes of JSON.
fn sized(name: &str, bytes: usize) -> Object {
    let bare = claim(name).field("extension", json!(""));
    let base = serde_json::to_vec(&bare).unwrap().len();
    bare.field("extension", json!("x".repeat(bytes - base)))
}

fn too_large<T: std::fmt::Debug>(result: Result<T, StoreError>, named: &str, max: usize) {
    match result {
        Err(StoreError::TooLarge {
            key: of,
            size,
            limit,
        }) => {
            assert_eq!((of, limit), (key(named), max));
            assert!(size > limit, "{size} is not more than {limit}");
        }
        other => panic!("TooLarge is expected, not {:.200}", format!("{other:?}")),
    }
}

async fn capabilities_do_not_change_while_the_store_works(l: Ledger) {
    let before = l.capabilities();
    create(&*l.store, claim("web")).await;
    delete(&*l.store, &key("web")).await;
    assert_eq!(l.capabilities(), before);
    assert!(!before.backend.is_empty());
}

async fn durability_is_as_declared(mut l: Ledger) {
    create(&*l.store, claim("web")).await;
    // `restart` itself asserts that it is possible exactly if the store says so.
    if l.restart().await {
        assert!(!is_absent(&*l.store, &key("web")).await);
    }
}

async fn sharing_is_as_declared(l: Ledger) {
    if let Some(other) = l.second_client().await {
        let mine = create(&*l.store, claim("web")).await;
        assert_eq!(latest(&*other, &key("web")).await, mine);
        let theirs = update(&*other, mine.clone().asking("other")).await;
        assert_eq!(latest(&*l.store, &key("web")).await, theirs);
        assert_fails!(l.store.update(mine.asking("x"), Part::Main).await, Conflict);
    }
}

async fn an_object_of_the_largest_size_is_stored_and_read_back(l: Ledger) {
    let max = l.capabilities().max_object_bytes;
    assert!(max >= 256 * 1_024, "{max} bytes are too few for any use");
    let created = create(&*l.store, sized("web", max - ROOM)).await;
    assert!(latest(&*l.store, &key("web")).await == created);
    assert!(list_claims(&*l.store).await.items == [created]);
}

async fn an_object_over_the_limit_is_too_large_and_leaves_nothing_behind(l: Ledger) {
    let max = l.capabilities().max_object_bytes;
    too_large(l.store.create(sized("web", max + 1)).await, "web", max);
    assert!(is_absent(&*l.store, &key("web")).await);
}

async fn an_update_over_the_limit_is_too_large_and_changes_nothing(l: Ledger) {
    let max = l.capabilities().max_object_bytes;
    let created = create(&*l.store, claim("web")).await;
    let text = json!("x".repeat(max));
    let main = created.clone().field("extension", text.clone());
    too_large(l.store.update(main, Part::Main).await, "web", max);
    let status = created.clone().field("status", json!({"text": text}));
    too_large(l.store.update(status, Part::Status).await, "web", max);
    assert_eq!(latest(&*l.store, &key("web")).await, created);
}

/// Marking makes an object larger; that must not keep it for ever.
async fn an_object_of_the_largest_size_can_be_marked_and_deleted(l: Ledger) {
    let max = l.capabilities().max_object_bytes;
    let created = create(&*l.store, sized("web", max - ROOM).hold(HOLD)).await;
    let size = serde_json::to_vec(&created).unwrap().len();
    let grown = format!(
        "{}{}",
        created.fields["extension"].as_str().unwrap(),
        "x".repeat(max - size - 10)
    );
    let full = update(&*l.store, created.field("extension", json!(grown))).await;
    assert!(serde_json::to_vec(&full).unwrap().len() > max - 20);
    let marked = delete(&*l.store, &key("web")).await;
    assert!(marked.metadata.is_deleting());
    update(&*l.store, marked.release(HOLD)).await;
    assert!(is_absent(&*l.store, &key("web")).await);
}

async fn a_watch_can_start_as_far_back_as_declared(l: Ledger) {
    // Beyond this many, the promise is not tried: it would take too long.
    let promised = l.capabilities().history_revisions.min(1_500);
    let mut current = create(&*l.store, claim("web")).await;
    let mut writes = vec![revision(&current)];
    for n in 0..promised {
        current = update(&*l.store, current.asking(&format!("class-{n}"))).await;
        writes.push(revision(&current));
    }
    let mut reader = Reader::claims(&*l.store, WatchFrom::After(writes[0])).await;
    let events = reader.reach(revision(&current)).await;
    let got: Vec<Revision> = events.iter().map(|e| e.revision()).collect();
    assert_eq!(got, writes[1..]);
}

async fn a_cheap_barrier_costs_no_list(l: Ledger) {
    if !l.capabilities().cheap_barrier {
        return;
    }
    for n in 0..300 {
        create(&*l.store, sized(&format!("c-{n}"), 20_000)).await;
    }
    let time = async |store: &dyn Store, barrier: bool| {
        let start = std::time::Instant::now();
        if barrier {
            store.barrier(Kind::IPAddressClaim).await.unwrap();
        } else {
            list_claims(store).await;
        }
        start.elapsed()
    };
    let (mut barriers, mut lists) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        barriers.push(time(&*l.store, true).await);
        lists.push(time(&*l.store, false).await);
    }
    let (barrier, list) = (barriers.iter().min().unwrap(), lists.iter().min().unwrap());
    assert!(
        barrier < list,
        "a barrier takes {barrier:?}, a list of 6 MB {list:?}"
    );
}

async fn servers_elect_one_as_declared(l: Ledger) {
    let Some(first) = l.election("a").await else {
        return;
    };
    let second = l.election("b").await.expect("it is declared");
    let term = soon("the only candidate leads", first.win(&|_| {})).await;
    let told = Arc::new(Mutex::new(String::new()));
    let waits = told.clone();
    let mut next = tokio::spawn(async move {
        let waiting = |reason: &str| *waits.lock().unwrap() = reason.to_owned();
        second.win(&waiting).await
    });
    soon("it is told who leads", async {
        while !told.lock().unwrap().contains("a leads") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(!next.is_finished(), "two lead");
    term.resign().await;
    let mut term = soon("the next one leads", &mut next).await.unwrap();
    // One that starts again under its name does not wait for its own time to run out.
    let again = l.election("b").await.expect("it is declared");
    let renewed = soon("it leads again", again.win(&|_| {})).await;
    let reason = soon("the earlier term is over", term.over()).await;
    assert!(!reason.is_empty());
    // One that is gone without a word is followed when its time has run out.
    drop(renewed);
    drop(term);
    let third = l.election("c").await.expect("it is declared");
    soon("the time runs out", third.win(&|_| {})).await;
}
