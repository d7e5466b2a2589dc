//! Following only some objects: what enters and leaves.

use ipledger_core::api::{Kind, Object};
use ipledger_core::store::{Revision, Store, WatchEvent, WatchFrom, WatchOptions};

use crate::backend::Ledger;
use crate::case::cases;
use crate::make::*;
use crate::reader::{Reader, told};

cases![
    a_watch_of_one_namespace_sees_only_that_one,
    an_object_that_enters_the_label_selector_is_applied,
    an_object_that_leaves_the_label_selector_is_deleted_with_its_previous_state,
    an_object_that_leaves_and_enters_again_is_deleted_and_applied,
    an_object_outside_the_selector_makes_no_event,
    a_field_selector_follows_spec_and_status,
    a_filtered_watch_from_a_revision_replays_who_entered_and_who_left,
    a_filtered_watch_from_the_start_has_only_what_matches,
    an_object_that_leaves_the_selector_in_its_last_write_is_deleted,
    an_object_that_would_enter_the_selector_in_its_last_write_makes_no_event,
    a_deletion_of_what_the_selector_does_not_match_makes_no_event,
    filters_of_namespace_labels_and_fields_work_together,
];

async fn filtered(store: &dyn Store, from: WatchFrom, label: &str, field: &str) -> Reader {
    let options = WatchOptions {
        labels: labels(label),
        fields: fields(field),
        ..WatchOptions::all(from)
    };
    Reader::open(store, Kind::IPAddressClaim, &options)
        .await
        .unwrap()
}

async fn gold_from_now(store: &dyn Store) -> Reader {
    let from = WatchFrom::After(list_claims(store).await.revision);
    filtered(store, from, "tier=gold", "").await
}

/// A write that every filter here lets pass, so that "no event" needs no waiting.
async fn end(store: &dyn Store) -> Revision {
    revision(&create(store, claim("end").label("tier", "gold").asking("gold")).await)
}

fn tier(object: Object, tier: &str) -> Object {
    object.label("tier", tier)
}

async fn a_watch_of_one_namespace_sees_only_that_one(l: Ledger) {
    create(&*l.store, claim_in("team", "before")).await;
    let options = WatchOptions {
        namespace: Some(TEAM.to_owned()),
        ..WatchOptions::all(WatchFrom::Start)
    };
    let mut reader = Reader::open(&*l.store, Kind::IPAddressClaim, &options)
        .await
        .unwrap();
    create(&*l.store, claim_in("team", "a")).await;
    create(&*l.store, claim_in("team-a", "b")).await;
    create(&*l.store, claim_in("team-a-b", "c")).await;
    delete(&*l.store, &claim_in("team", "a").key()).await;
    let end = end(&*l.store).await;
    assert_eq!(told(&reader.reach(end).await), ["+b", "+end"]);
}

async fn an_object_that_enters_the_label_selector_is_applied(l: Ledger) {
    let created = create(&*l.store, claim("web")).await;
    let mut reader = gold_from_now(&*l.store).await;
    let entered = update(&*l.store, tier(created, "gold")).await;
    match reader.change().await {
        WatchEvent::Applied(object) => assert_eq!(*object, entered),
        other => panic!("{other:?}"),
    }
}

async fn an_object_that_leaves_the_label_selector_is_deleted_with_its_previous_state(l: Ledger) {
    let inside = create(&*l.store, tier(claim("web"), "gold")).await;
    let mut reader = gold_from_now(&*l.store).await;
    let outside = update(&*l.store, tier(inside.clone(), "silver")).await;
    match reader.change().await {
        WatchEvent::Deleted(last) => assert_eq!(*last, inside.at(outside.revision())),
        other => panic!("{other:?}"),
    }
}

async fn an_object_that_leaves_and_enters_again_is_deleted_and_applied(l: Ledger) {
    let mut current = create(&*l.store, tier(claim("web"), "gold")).await;
    let mut reader = gold_from_now(&*l.store).await;
    for next in ["silver", "gold", "silver", "bronze", "gold"] {
        current = update(&*l.store, tier(current, next)).await;
    }
    let end = end(&*l.store).await;
    assert_eq!(
        told(&reader.reach(end).await),
        ["-web", "+web", "-web", "+web", "+end"]
    );
}

async fn an_object_outside_the_selector_makes_no_event(l: Ledger) {
    let mut reader = gold_from_now(&*l.store).await;
    let outside = create(&*l.store, tier(claim("web"), "silver")).await;
    let outside = update(&*l.store, outside.asking("other")).await;
    update_status(&*l.store, outside.phase("Bound")).await;
    let end = end(&*l.store).await;
    assert_eq!(told(&reader.reach(end).await), ["+end"]);
}

async fn a_field_selector_follows_spec_and_status(l: Ledger) {
    let store = &*l.store;
    let from = WatchFrom::After(list_claims(store).await.revision);
    let mut spec = filtered(store, from, "", "spec.className=gold").await;
    let mut bound = filtered(store, from, "", "status.phase=Bound").await;
    let mut named = filtered(store, from, "", "metadata.name=web").await;
    let web = create(store, claim("web")).await;
    let web = update(store, web.asking("gold")).await;
    let web = update_status(store, web.phase("Bound")).await;
    let web = update(store, web.asking("silver")).await;
    let web = update_status(store, web.phase("Lost")).await;
    let other = end(store).await;
    assert!(other > revision(&web));
    let last = update_status(store, latest(store, &key("end")).await.phase("Bound")).await;
    let last = revision(&last);
    assert_eq!(
        told(&spec.reach(last).await),
        ["+web", "+web", "-web", "+end", "+end"]
    );
    assert_eq!(
        told(&bound.reach(last).await),
        ["+web", "+web", "-web", "+end"]
    );
    let events = named.reach(revision(&web)).await;
    assert_eq!(told(&events), ["+web", "+web", "+web", "+web", "+web"]);
}

async fn a_filtered_watch_from_a_revision_replays_who_entered_and_who_left(l: Ledger) {
    let store = &*l.store;
    let a = create(store, tier(claim("a"), "gold")).await;
    let b = create(store, tier(claim("b"), "silver")).await;
    let start = list_claims(store).await.revision;
    update(store, tier(a.clone(), "silver")).await;
    let b2 = update(store, tier(b, "gold")).await;
    delete(store, &key("a")).await;
    delete(store, &key("b")).await;
    let end = end(store).await;
    let mut reader = filtered(store, WatchFrom::After(start), "tier=gold", "").await;
    let events = reader.reach(end).await;
    assert_eq!(told(&events), ["-a", "+b", "-b", "+end"]);
    let WatchEvent::Deleted(left) = &events[0] else {
        panic!("{events:?}")
    };
    assert_eq!(left.metadata.labels, a.metadata.labels);
    let mut reader = filtered(store, WatchFrom::After(revision(&b2)), "tier=gold", "").await;
    assert_eq!(told(&reader.reach(end).await), ["-b", "+end"]);
}

async fn a_filtered_watch_from_the_start_has_only_what_matches(l: Ledger) {
    create(&*l.store, tier(claim("a"), "gold")).await;
    create(&*l.store, tier(claim("b"), "silver")).await;
    create(&*l.store, tier(claim("c"), "gold").asking("gold")).await;
    let mut reader = filtered(
        &*l.store,
        WatchFrom::Start,
        "tier=gold",
        "spec.className=gold",
    )
    .await;
    assert_eq!(told(&reader.synced().await.0), ["+c"]);
}

async fn marked(store: &dyn Store, label: &str) -> Object {
    create(store, tier(claim("web"), label).hold(HOLD)).await;
    delete(store, &key("web")).await
}

async fn an_object_that_leaves_the_selector_in_its_last_write_is_deleted(l: Ledger) {
    let marked = marked(&*l.store, "gold").await;
    let mut reader = gold_from_now(&*l.store).await;
    update(&*l.store, tier(marked.release(HOLD), "silver")).await;
    let end = end(&*l.store).await;
    assert_eq!(told(&reader.reach(end).await), ["-web", "+end"]);
}

async fn an_object_that_would_enter_the_selector_in_its_last_write_makes_no_event(l: Ledger) {
    let marked = marked(&*l.store, "silver").await;
    let mut reader = gold_from_now(&*l.store).await;
    update(&*l.store, tier(marked.release(HOLD), "gold")).await;
    let end = end(&*l.store).await;
    assert_eq!(told(&reader.reach(end).await), ["+end"]);
}

async fn a_deletion_of_what_the_selector_does_not_match_makes_no_event(l: Ledger) {
    create(&*l.store, tier(claim("web"), "silver")).await;
    let mut reader = gold_from_now(&*l.store).await;
    delete(&*l.store, &key("web")).await;
    let end = end(&*l.store).await;
    assert_eq!(told(&reader.reach(end).await), ["+end"]);
}

async fn filters_of_namespace_labels_and_fields_work_together(l: Ledger) {
    let options = WatchOptions {
        namespace: Some(TEAM.to_owned()),
        labels: labels("tier=gold"),
        fields: fields("spec.className=gold"),
        ..WatchOptions::all(WatchFrom::Start)
    };
    let mut reader = Reader::open(&*l.store, Kind::IPAddressClaim, &options)
        .await
        .unwrap();
    create(
        &*l.store,
        tier(claim_in("team-b", "namespace"), "gold").asking("gold"),
    )
    .await;
    create(&*l.store, tier(claim("tier"), "silver").asking("gold")).await;
    let class = create(&*l.store, tier(claim("class"), "gold").asking("silver")).await;
    update(&*l.store, class.asking("gold")).await;
    let end = end(&*l.store).await;
    assert_eq!(told(&reader.reach(end).await), ["+class", "+end"]);
}
