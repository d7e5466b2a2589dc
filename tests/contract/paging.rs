//! Listing page by page: all pages show one revision.

use ipledger_core::api::{Kind, Object};
use ipledger_core::store::{ListOptions, Revision, Store, StoreError, WatchFrom};

use crate::backend::Ledger;
use crate::case::cases;
use crate::make::*;
use crate::reader::Reader;

cases![
    pages_together_are_the_whole_list,
    twelve_hundred_objects_come_in_pages_of_five_hundred,
    a_page_that_holds_everything_has_no_token,
    a_limit_of_zero_is_no_limit,
    pages_show_the_state_at_the_first_one_whatever_is_written_between,
    pages_show_objects_deleted_and_recreated_between_as_they_were,
    the_same_token_gives_the_same_page_again,
    pages_of_one_namespace_end_with_it,
    pages_with_a_selector_have_all_that_match_and_nothing_else,
    pages_with_a_selector_show_objects_that_left_it_between,
    a_token_from_before_a_compaction_is_expired,
    a_list_from_the_start_works_after_a_token_has_expired,
    a_token_that_was_not_made_here_is_refused,
    a_token_of_another_kind_is_refused,
    a_watch_from_the_revision_of_the_pages_misses_nothing,
];

fn pages_of(limit: usize) -> ListOptions {
    ListOptions {
        limit: Some(limit),
        ..Default::default()
    }
}

struct Pages {
    items: Vec<Object>,
    sizes: Vec<usize>,
    revision: Revision,
}

/// All pages; between two of them this happens.
async fn pages(
    store: &dyn Store,
    mut options: ListOptions,
    mut between: impl AsyncFnMut(usize),
) -> Pages {
    let mut all = Pages {
        items: Vec::new(),
        sizes: Vec::new(),
        revision: Revision(0),
    };
    loop {
        let page = list(store, Kind::IPAddressClaim, &options).await;
        if all.sizes.is_empty() {
            all.revision = page.revision;
        }
        assert_eq!(page.revision, all.revision, "all pages show one revision");
        all.sizes.push(page.items.len());
        all.items.extend(page.items);
        assert!(all.sizes.len() < 10_000, "the pages do not end");
        match page.continue_token {
            Some(token) => options.continue_token = Some(token),
            None => return all,
        }
        between(all.sizes.len()).await;
    }
}

async fn nothing(_: usize) {}

async fn seven(l: &Ledger) -> Vec<Object> {
    create_claims(&*l.store, &["a", "b", "c", "d", "e", "f", "g"]).await
}

async fn pages_together_are_the_whole_list(l: Ledger) {
    let wanted = seven(&l).await;
    for limit in 1..=8 {
        let got = pages(&*l.store, pages_of(limit), nothing).await;
        assert_eq!(got.items, wanted, "{limit}");
        assert!(got.sizes.iter().all(|s| *s <= limit), "{:?}", got.sizes);
    }
}

async fn twelve_hundred_objects_come_in_pages_of_five_hundred(l: Ledger) {
    for n in 0..1_200 {
        create(&*l.store, claim(&format!("c-{n:04}"))).await;
    }
    let got = pages(&*l.store, pages_of(500), nothing).await;
    assert_eq!(got.sizes, [500, 500, 200]);
    let wanted: Vec<_> = (0..1_200).map(|n| format!("c-{n:04}")).collect();
    assert_eq!(names(&got.items), wanted);
    assert_eq!(list_claims(&*l.store).await.items, got.items);
}

async fn a_page_that_holds_everything_has_no_token(l: Ledger) {
    seven(&l).await;
    for limit in [7, 8] {
        let page = list(&*l.store, Kind::IPAddressClaim, &pages_of(limit)).await;
        assert_eq!((page.items.len(), page.continue_token), (7, None));
    }
}

async fn a_limit_of_zero_is_no_limit(l: Ledger) {
    seven(&l).await;
    let page = list(&*l.store, Kind::IPAddressClaim, &pages_of(0)).await;
    assert_eq!((page.items.len(), page.continue_token), (7, None));
}

async fn pages_show_the_state_at_the_first_one_whatever_is_written_between(l: Ledger) {
    let wanted = seven(&l).await;
    let store = &*l.store;
    let got = pages(store, pages_of(2), async |n| match n {
        1 => {
            // Behind and before where the listing is.
            create_claims(store, &["a0", "e0", "z"]).await;
            update(store, wanted[0].clone().asking("other")).await;
            update(store, wanted[4].clone().asking("other")).await;
        }
        2 => {
            delete(store, &key("f")).await;
            delete(store, &key("b")).await;
            let e = latest(store, &key("e")).await;
            update_status(store, e.phase("Bound")).await;
        }
        _ => {}
    })
    .await;
    assert_eq!(got.items, wanted);
    let page = list_claims(store).await;
    assert_eq!(
        names(&page.items),
        ["a", "a0", "c", "d", "e", "e0", "g", "z"]
    );
}

async fn pages_show_objects_deleted_and_recreated_between_as_they_were(l: Ledger) {
    let wanted = seven(&l).await;
    let store = &*l.store;
    let got = pages(store, pages_of(3), async |_| {
        for name in ["a", "e", "g"] {
            delete(store, &key(name)).await;
            create(store, claim(name).asking("anew")).await;
        }
    })
    .await;
    assert_eq!(got.items, wanted);
}

async fn the_same_token_gives_the_same_page_again(l: Ledger) {
    seven(&l).await;
    let first = list(&*l.store, Kind::IPAddressClaim, &pages_of(3)).await;
    let next = ListOptions {
        continue_token: first.continue_token,
        ..pages_of(3)
    };
    let once = list(&*l.store, Kind::IPAddressClaim, &next).await;
    delete(&*l.store, &key("d")).await;
    let again = list(&*l.store, Kind::IPAddressClaim, &next).await;
    assert_eq!(names(&once.items), ["d", "e", "f"]);
    assert_eq!((once.items, once.revision), (again.items, again.revision));
}

async fn pages_of_one_namespace_end_with_it(l: Ledger) {
    for namespace in ["team", "team-a", "team-b"] {
        for name in ["a", "b", "c"] {
            create(&*l.store, claim_in(namespace, name)).await;
        }
    }
    let options = ListOptions {
        namespace: Some(TEAM.to_owned()),
        ..pages_of(2)
    };
    let got = pages(&*l.store, options, nothing).await;
    assert_eq!(names(&got.items), ["a", "b", "c"]);
    assert!(got.items.iter().all(|o| o.metadata.namespace == TEAM));
    assert_eq!(got.sizes, [2, 1]);
}

async fn gold_and_silver(l: &Ledger) -> Vec<Object> {
    for n in 0..40 {
        let tier = if n % 4 == 0 { "gold" } else { "silver" };
        create(&*l.store, claim(&format!("c-{n:02}")).label("tier", tier)).await;
    }
    let mut all = list_claims(&*l.store).await.items;
    all.retain(|o| o.metadata.labels["tier"] == "gold");
    all
}

async fn pages_with_a_selector_have_all_that_match_and_nothing_else(l: Ledger) {
    let wanted = gold_and_silver(&l).await;
    for limit in [1, 3, 10] {
        let options = ListOptions {
            labels: labels("tier=gold"),
            ..pages_of(limit)
        };
        let got = pages(&*l.store, options, nothing).await;
        assert_eq!(got.items, wanted, "{limit}");
        assert!(got.sizes.iter().all(|s| *s <= limit), "{:?}", got.sizes);
    }
}

async fn pages_with_a_selector_show_objects_that_left_it_between(l: Ledger) {
    let wanted = gold_and_silver(&l).await;
    let store = &*l.store;
    let options = ListOptions {
        labels: labels("tier=gold"),
        ..pages_of(3)
    };
    let got = pages(store, options, async |n| {
        if n == 1 {
            for object in &wanted {
                update(store, object.clone().label("tier", "silver")).await;
            }
            create(store, claim("c-21a").label("tier", "gold")).await;
        }
    })
    .await;
    assert_eq!(got.items, wanted);
}

async fn expired_token(l: &Ledger) -> Option<ListOptions> {
    seven(l).await;
    let first = list(&*l.store, Kind::IPAddressClaim, &pages_of(3)).await;
    let next = ListOptions {
        continue_token: first.continue_token,
        ..pages_of(3)
    };
    delete(&*l.store, &key("e")).await;
    let last = create(&*l.store, claim("z")).await;
    l.compact(revision(&last)).await.then_some(next)
}

async fn a_token_from_before_a_compaction_is_expired(l: Ledger) {
    if let Some(next) = expired_token(&l).await {
        assert_fails!(l.store.list(Kind::IPAddressClaim, &next).await, Expired);
    }
}

async fn a_list_from_the_start_works_after_a_token_has_expired(l: Ledger) {
    expired_token(&l).await;
    let got = pages(&*l.store, pages_of(3), nothing).await;
    assert_eq!(names(&got.items), ["a", "b", "c", "d", "f", "g", "z"]);
}

async fn a_token_that_was_not_made_here_is_refused(l: Ledger) {
    seven(&l).await;
    for token in [
        "",
        "x",
        "AAAA",
        "{}",
        "v1",
        "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ",
        "\0",
        "漢",
    ] {
        let options = ListOptions {
            continue_token: Some(token.to_owned()),
            ..pages_of(3)
        };
        match l.store.list(Kind::IPAddressClaim, &options).await {
            Err(StoreError::BadRequest { reason }) => assert!(reason.contains("token"), "{reason}"),
            other => panic!("{token:?}: {other:?}"),
        }
    }
}

async fn a_token_of_another_kind_is_refused(l: Ledger) {
    for name in ["a", "b", "c"] {
        create(&*l.store, class(name)).await;
        create(&*l.store, address(name)).await;
    }
    let first = list(&*l.store, Kind::IPAddressClass, &pages_of(1)).await;
    let next = ListOptions {
        continue_token: first.continue_token,
        ..pages_of(1)
    };
    assert_fails!(l.store.list(Kind::IPAddress, &next).await, BadRequest);
}

async fn a_watch_from_the_revision_of_the_pages_misses_nothing(l: Ledger) {
    seven(&l).await;
    let store = &*l.store;
    let got = pages(store, pages_of(3), async |n| {
        if n == 1 {
            delete(store, &key("a")).await;
            create(store, claim("z")).await;
        }
    })
    .await;
    let mut reader = Reader::claims(store, WatchFrom::After(got.revision)).await;
    let last = create(store, claim("y")).await;
    let events = reader.reach(revision(&last)).await;
    assert_eq!(crate::reader::told(&events), ["-a", "+z", "+y"]);
}
