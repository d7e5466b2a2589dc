//! Listing: what is in it, in which order, at which revision.

use ipledger_core::api::Kind;
use ipledger_core::store::{ListOptions, Revision, Store, WatchFrom};

use crate::backend::Ledger;
use crate::case::cases;
use crate::make::*;
use crate::reader::{Reader, told};

cases![
    an_empty_list_has_a_revision_that_a_watch_can_start_from,
    the_revision_of_an_empty_store_is_not_zero,
    a_list_has_one_kind_only,
    a_list_is_in_the_order_of_namespace_then_name,
    a_list_of_one_namespace_has_only_that_one,
    a_list_selects_by_labels,
    a_list_selects_by_fields,
    a_field_that_cannot_be_selected_by_is_refused_and_never_ignored,
    a_list_selects_by_namespace_labels_and_fields_together,
    a_list_shows_every_write_that_was_acknowledged_before,
    a_watch_from_the_revision_of_a_list_misses_nothing,
    a_delete_between_list_and_watch_is_delivered,
    the_revision_of_a_list_never_goes_back,
    the_revision_of_a_list_is_at_least_that_of_its_objects,
];

async fn an_empty_list_has_a_revision_that_a_watch_can_start_from(l: Ledger) {
    for kind in Kind::ALL {
        let page = list(&*l.store, kind, &ListOptions::default()).await;
        assert!(page.items.is_empty() && page.corrupt.is_empty());
        assert_eq!(page.continue_token, None);
    }
    let from = WatchFrom::After(list_claims(&*l.store).await.revision);
    let mut reader = Reader::claims(&*l.store, from).await;
    let created = create(&*l.store, claim("web")).await;
    assert_eq!(told(&reader.reach(revision(&created)).await), ["+web"]);
}

/// Kubernetes clients read a resourceVersion of 0 as "any version will do".
async fn the_revision_of_an_empty_store_is_not_zero(l: Ledger) {
    assert!(list_claims(&*l.store).await.revision > Revision(0));
}

async fn a_list_has_one_kind_only(l: Ledger) {
    create(&*l.store, claim("same")).await;
    create(&*l.store, class("same")).await;
    let address = create(&*l.store, address("same")).await;
    let page = list(&*l.store, Kind::IPAddress, &ListOptions::default()).await;
    assert_eq!(page.items, [address]);
}

/// In one string, `a-b/x` would come before `a/y`, because `-` comes before `/`.
async fn a_list_is_in_the_order_of_namespace_then_name(l: Ledger) {
    let wanted = [
        ("a", "b.c"),
        ("a", "y"),
        ("a", "y-1"),
        ("a", "y.1"),
        ("a-b", "x"),
        ("a0", "a"),
        ("b", "10"),
        ("b", "9"),
    ];
    for at in [5, 0, 7, 3, 1, 6, 2, 4] {
        let (namespace, name) = wanted[at];
        create(&*l.store, claim_in(namespace, name)).await;
    }
    let page = list_claims(&*l.store).await;
    let got: Vec<_> = page
        .items
        .iter()
        .map(|o| (o.metadata.namespace.as_str(), o.metadata.name.as_str()))
        .collect();
    assert_eq!(got, wanted);
}

async fn a_list_of_one_namespace_has_only_that_one(l: Ledger) {
    for (namespace, name) in [("a", "1"), ("a-b", "2"), ("ab", "3"), ("b", "4")] {
        create(&*l.store, claim_in(namespace, name)).await;
    }
    for (namespace, wanted) in [("a", vec!["1"]), ("a-b", vec!["2"]), ("c", vec![])] {
        let options = ListOptions {
            namespace: Some(namespace.to_owned()),
            ..Default::default()
        };
        let page = list(&*l.store, Kind::IPAddressClaim, &options).await;
        assert_eq!(names(&page.items), wanted, "{namespace}");
    }
}

async fn listed(store: &dyn Store, label: &str, field: &str) -> Vec<String> {
    let options = ListOptions {
        labels: labels(label),
        fields: fields(field),
        ..Default::default()
    };
    let page = list(store, Kind::IPAddressClaim, &options).await;
    assert_eq!(page.continue_token, None);
    names(&page.items).into_iter().map(str::to_owned).collect()
}

async fn a_list_selects_by_labels(l: Ledger) {
    create(
        &*l.store,
        claim("a").label("tier", "gold").label("zone", "1"),
    )
    .await;
    create(&*l.store, claim("b").label("tier", "silver")).await;
    create(&*l.store, claim("c")).await;
    for (selector, wanted) in [
        ("", vec!["a", "b", "c"]),
        ("tier=gold", vec!["a"]),
        ("tier==silver", vec!["b"]),
        ("tier!=gold", vec!["b", "c"]),
        ("tier in (gold,silver)", vec!["a", "b"]),
        ("tier notin (gold,x)", vec!["b", "c"]),
        ("tier", vec!["a", "b"]),
        ("!tier", vec!["c"]),
        ("tier,!zone", vec!["b"]),
        ("tier=gold,zone=2", vec![]),
    ] {
        assert_eq!(listed(&*l.store, selector, "").await, wanted, "{selector}");
    }
}

async fn a_list_selects_by_fields(l: Ledger) {
    let a = create(&*l.store, claim("a")).await;
    update_status(&*l.store, a.phase("Bound")).await;
    create(&*l.store, claim("b").asking("private")).await;
    create(&*l.store, claim_in("team-b", "a").asking("private")).await;
    for (selector, wanted) in [
        ("metadata.name=a", vec!["a", "a"]),
        ("metadata.name!=a", vec!["b"]),
        ("metadata.name=a,metadata.namespace=team-b", vec!["a"]),
        ("metadata.name=absent", vec![]),
        ("spec.className=private", vec!["b", "a"]),
        ("spec.className!=private", vec!["a"]),
        ("status.phase=Bound", vec!["a"]),
        ("status.phase!=Bound", vec!["b", "a"]),
        ("status.phase=", vec!["b", "a"]),
    ] {
        assert_eq!(listed(&*l.store, "", selector).await, wanted, "{selector}");
    }
}

async fn a_field_that_cannot_be_selected_by_is_refused_and_never_ignored(l: Ledger) {
    create(&*l.store, claim("a")).await;
    let options = ListOptions {
        fields: fields("spec.nobody.knows=x"),
        ..Default::default()
    };
    let listed = l.store.list(Kind::IPAddressClaim, &options).await;
    if l.capabilities().selects_any_field {
        assert_eq!(names(&listed.unwrap().items), Vec::<&str>::new());
    } else {
        assert_fails!(listed, BadRequest);
    }
}

async fn a_list_selects_by_namespace_labels_and_fields_together(l: Ledger) {
    for (namespace, name, tier, class) in [
        ("team-a", "yes", "gold", "private"),
        ("team-a", "tier", "silver", "private"),
        ("team-a", "class", "gold", "public"),
        ("team-b", "namespace", "gold", "private"),
    ] {
        let new = claim_in(namespace, name).label("tier", tier).asking(class);
        create(&*l.store, new).await;
    }
    let options = ListOptions {
        namespace: Some("team-a".to_owned()),
        labels: labels("tier=gold"),
        fields: fields("spec.className=private"),
        ..Default::default()
    };
    let page = list(&*l.store, Kind::IPAddressClaim, &options).await;
    assert_eq!(names(&page.items), ["yes"]);
}

async fn a_list_shows_every_write_that_was_acknowledged_before(l: Ledger) {
    for n in 0..20 {
        let created = create(&*l.store, claim(&format!("c-{n}"))).await;
        let page = list_claims(&*l.store).await;
        assert_eq!(page.items.len(), n + 1);
        let updated = update(&*l.store, created.asking("other")).await;
        let page = list_claims(&*l.store).await;
        assert!(page.items.contains(&updated));
    }
}

async fn a_watch_from_the_revision_of_a_list_misses_nothing(l: Ledger) {
    create_claims(&*l.store, &["a", "b"]).await;
    let page = list_claims(&*l.store).await;
    let after = create_claims(&*l.store, &["c", "d"]).await;
    let mut reader = Reader::claims(&*l.store, WatchFrom::After(page.revision)).await;
    assert_eq!(told(&reader.reach(revision(&after[1])).await), ["+c", "+d"]);
}

async fn a_delete_between_list_and_watch_is_delivered(l: Ledger) {
    create_claims(&*l.store, &["a", "b"]).await;
    let page = list_claims(&*l.store).await;
    let gone = delete(&*l.store, &key("a")).await;
    let mut reader = Reader::claims(&*l.store, WatchFrom::After(page.revision)).await;
    assert_eq!(told(&reader.reach(revision(&gone)).await), ["-a"]);
}

async fn the_revision_of_a_list_never_goes_back(l: Ledger) {
    let mut last = list_claims(&*l.store).await.revision;
    for n in 0..20 {
        create(&*l.store, class(&format!("c-{n}"))).await;
        let revision = list_claims(&*l.store).await.revision;
        assert!(revision >= last, "{revision} after {last}");
        last = revision;
    }
}

async fn the_revision_of_a_list_is_at_least_that_of_its_objects(l: Ledger) {
    for name in ["a", "b", "c"] {
        let created = create(&*l.store, claim(name)).await;
        assert!(list_claims(&*l.store).await.revision >= revision(&created));
    }
    let gone = delete(&*l.store, &key("b")).await;
    assert!(list_claims(&*l.store).await.revision >= revision(&gone));
}
