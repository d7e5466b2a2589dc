//! Listing: all pages show one revision.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::*;
use futures::future::join_all;
use ipledger_core::api::Kind;
use ipledger_core::store::{
    LabelSelector, ListOptions, Part, Preconditions, Revision, Store, StoreError,
};

fn limit(limit: usize) -> ListOptions {
    ListOptions {
        limit: Some(limit),
        ..ListOptions::default()
    }
}

#[tokio::test]
async fn all_pages_show_one_revision_whatever_is_written_in_between() {
    for page_size in [1, 3, 7] {
        let folder = Folder::new();
        let store = open(&folder.file()).await;
        let creates = (0..40).map(|n| store.create(address(&format!("ip-{n:02}"), n)));
        let created: Vec<_> = join_all(creates)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        let before = list(&store, &ListOptions::default()).await;
        let mut options = limit(page_size);
        let mut found = Vec::new();
        let mut at = None;
        for turn in 0.. {
            let page = store.list(Kind::IPAddress, &options).await.unwrap();
            assert_eq!(*at.get_or_insert(page.revision), page.revision);
            assert!(page.items.len() <= page_size);
            let items = page.items.iter();
            found.extend(items.map(|o| (o.metadata.name.clone(), value(o).clone())));
            options.continue_token = page.continue_token;
            if options.continue_token.is_none() {
                break;
            }
            // Something of every kind, ahead of the listing and behind it.
            for object in created.iter().skip(turn).step_by(9) {
                let name = &object.metadata.name;
                let gone = Preconditions::default();
                match turn % 4 {
                    0 => drop(store.update(with_value(object, "new"), Part::Main).await),
                    1 => drop(store.delete(&key(name), &gone).await),
                    2 => drop(store.create(address(name, "again")).await),
                    _ => drop(
                        store
                            .create(address(&format!("{name}-{turn}"), "new"))
                            .await,
                    ),
                }
            }
        }
        assert_eq!(found, before, "pages of {page_size}");
        assert_ne!(list(&store, &ListOptions::default()).await, before);
    }
}

#[tokio::test]
async fn the_limit_counts_what_the_selector_lets_through_and_the_last_page_has_no_token() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    let creates = (0..60).map(|n| {
        let mut object = address(&format!("ip-{n:02}"), n);
        let pool = if n % 10 == 0 { "rare" } else { "usual" };
        object
            .metadata
            .labels
            .insert("pool".to_owned(), pool.to_owned());
        store.create(object)
    });
    join_all(creates).await;
    let mut options = ListOptions {
        labels: LabelSelector::parse("pool=rare").unwrap(),
        ..limit(2)
    };
    let mut pages = Vec::new();
    loop {
        let page = store.list(Kind::IPAddress, &options).await.unwrap();
        pages.push(
            page.items
                .iter()
                .map(|o| value(o).as_u64().unwrap())
                .collect::<Vec<_>>(),
        );
        options.continue_token = page.continue_token;
        if options.continue_token.is_none() {
            break;
        }
    }
    assert_eq!(pages, [[0, 10], [20, 30], [40, 50]]);
}

#[tokio::test]
async fn a_listing_comes_in_key_order_and_keeps_to_its_namespace() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    for (namespace, name) in [
        ("b", "x"),
        ("a-b", "x"),
        ("a", "y"),
        ("a", "x"),
        ("ab", "x"),
    ] {
        let claim = object(Kind::IPAddressClaim, namespace, name, 1);
        store.create(claim).await.unwrap();
    }
    let names = async |options: &ListOptions| {
        let page = store.list(Kind::IPAddressClaim, options).await.unwrap();
        let names = page
            .items
            .iter()
            .map(|o| format!("{}/{}", o.metadata.namespace, o.metadata.name));
        (names.collect::<Vec<_>>().join(" "), page.continue_token)
    };
    let (all, _) = names(&ListOptions::default()).await;
    assert_eq!(all, "a/x a/y a-b/x ab/x b/x");
    let mut scoped = ListOptions {
        namespace: Some("a".to_owned()),
        ..limit(1)
    };
    let (first, token) = names(&scoped).await;
    scoped.continue_token = token;
    let (second, token) = names(&scoped).await;
    assert_eq!(
        (first.as_str(), second.as_str(), token),
        ("a/x", "a/y", None)
    );
}

#[tokio::test]
async fn a_token_that_is_too_old_is_expired_and_one_that_is_not_ours_is_refused() {
    let folder = Folder::new();
    let store = open(&folder.file()).await;
    for n in 0..3 {
        store.create(address(&format!("ip-{n}"), n)).await.unwrap();
    }
    let token = store
        .list(Kind::IPAddress, &limit(1))
        .await
        .unwrap()
        .continue_token;
    let options = ListOptions {
        continue_token: token,
        ..ListOptions::default()
    };
    store.compact_to(Revision(4)).await.unwrap();
    assert_eq!(
        store
            .list(Kind::IPAddress, &options)
            .await
            .unwrap()
            .items
            .len(),
        2
    );
    store.create(address("ip-9", 1)).await.unwrap();
    store.compact_to(Revision(5)).await.unwrap();
    let e = store.list(Kind::IPAddress, &options).await.unwrap_err();
    assert!(matches!(e, StoreError::Expired { .. }), "{e}");
    for text in [
        "",
        "nonsense",
        "v1_99_ipaddresses__a",
        "v1_5_ipaddressclaims_a_b",
    ] {
        let options = ListOptions {
            continue_token: Some(text.to_owned()),
            ..ListOptions::default()
        };
        let e = store.list(Kind::IPAddress, &options).await.unwrap_err();
        assert!(matches!(e, StoreError::BadRequest { .. }), "{text}: {e}");
    }
}
