use super::script::page;
use super::{applied, claim, deleted, garbled, object};
use crate::api::{Key, Kind, Object};
use crate::runtime::{Change, Listing, Mirror};
use crate::store::{Revision, StoreError, WatchEvent};

const KIND: Kind = Kind::IPAddressClaim;

/// A change of a claim in short: `name old->new`, each as `uid@revision`.
fn short(changes: &[Change]) -> Vec<String> {
    changes
        .iter()
        .map(|change| {
            let Change::Claim { key, old, new } = change else {
                panic!("a claim is expected: {change:?}");
            };
            let state = |claim: &Option<std::sync::Arc<crate::api::IPAddressClaim>>| {
                claim.as_ref().map_or("-".to_owned(), |c| {
                    format!("{}@{}", c.uid(), c.metadata.resource_version.unwrap())
                })
            };
            format!("{} {}->{}", key.name, state(old), state(new))
        })
        .collect()
}

fn listing(revision: u64, objects: Vec<Object>) -> Listing {
    Listing::new(page(revision, objects, None)).unwrap()
}

/// A mirror that has seen these claims at revision 10.
fn mirror_of(objects: Vec<Object>) -> Mirror {
    let mut mirror = Mirror::new();
    mirror.replace(KIND, listing(10, objects));
    mirror
}

#[test]
fn creation_change_and_deletion_are_reported_with_old_and_new_state() {
    let mut mirror = mirror_of(vec![]);
    let mut apply = |event| short(&mirror.apply(KIND, &event));
    assert_eq!(apply(applied(claim("a", "u", 11))), ["a -->u@11"]);
    assert_eq!(apply(applied(claim("a", "u", 12))), ["a u@11->u@12"]);
    assert_eq!(apply(deleted(claim("a", "u", 13))), ["a u@12->-"]);
    assert_eq!(mirror.claims().count(), 0);
    assert_eq!(mirror.reached(KIND), Revision(13));
}

#[test]
fn what_is_not_newer_than_what_is_held_changes_nothing() {
    let mut mirror = mirror_of(vec![claim("a", "u", 5)]);
    assert!(mirror.apply(KIND, &applied(claim("a", "u", 5))).is_empty());
    assert!(mirror.apply(KIND, &deleted(claim("a", "u", 9))).is_empty());
    assert!(mirror.apply(KIND, &applied(claim("b", "v", 10))).is_empty());
    assert_eq!(mirror.apply(KIND, &deleted(claim("a", "u", 11))).len(), 1);
    assert!(
        mirror.apply(KIND, &applied(claim("a", "u", 11))).is_empty(),
        "nothing comes back"
    );
    assert!(mirror.claim(&Key::claim("n", "a")).is_none());
}

#[test]
fn an_object_created_again_under_its_name_is_gone_and_then_new() {
    let mut mirror = mirror_of(vec![claim("a", "u", 5), claim("b", "x", 6)]);
    let changes = mirror.apply(KIND, &applied(claim("a", "v", 12)));
    assert_eq!(short(&changes), ["a u@5->-", "a -->v@12"]);
    let changes = mirror.replace(
        KIND,
        listing(20, vec![claim("a", "v", 12), claim("b", "y", 19)]),
    );
    assert_eq!(short(&changes), ["b x@6->-", "b -->y@19"]);
}

#[test]
fn a_listing_reports_missed_deletions_first_and_nothing_that_is_as_before() {
    let mut mirror = mirror_of(vec![
        claim("b", "2", 2),
        claim("c", "3", 3),
        claim("d", "4", 4),
    ]);
    let now = vec![claim("a", "1", 11), claim("b", "2", 2), claim("c", "3", 12)];
    let changes = mirror.replace(KIND, listing(15, now));
    assert_eq!(short(&changes), ["d 4@4->-", "a -->1@11", "c 3@3->3@12"]);
    assert_eq!(mirror.reached(KIND), Revision(15));
}

#[test]
fn a_listing_older_than_what_was_reached_is_ignored() {
    let mut mirror = mirror_of(vec![claim("a", "u", 5)]);
    assert!(mirror.replace(KIND, listing(9, vec![])).is_empty());
    assert!(mirror.claim(&Key::claim("n", "a")).is_some());
    assert_eq!(mirror.reached(KIND), Revision(10));
}

#[test]
fn a_listing_of_one_kind_leaves_the_others_alone() {
    let mut mirror = mirror_of(vec![claim("a", "u", 5)]);
    let addresses = vec![object(Kind::IPAddress, "ip-192-0-2-1", "i", 3)];
    let changes = mirror.replace(Kind::IPAddress, listing(4, addresses));
    assert!(matches!(
        &changes[..],
        [Change::Address {
            old: None,
            new: Some(_),
            ..
        }]
    ));
    let classes = vec![object(Kind::IPAddressClass, "c", "k", 2)];
    let changes = mirror.replace(Kind::IPAddressClass, listing(2, classes));
    assert!(matches!(
        &changes[..],
        [Change::Class {
            old: None,
            new: Some(_),
            ..
        }]
    ));
    assert!(mirror.class("c").is_some() && mirror.address("ip-192-0-2-1").is_some());
    let counts = (
        mirror.classes().count(),
        mirror.addresses().count(),
        mirror.claims().count(),
    );
    assert_eq!(counts, (1, 1, 1));
}

#[test]
fn an_object_that_cannot_be_read_does_not_look_absent() {
    let key = Key::claim("n", "a");
    let mut mirror = mirror_of(vec![claim("a", "u", 5)]);

    assert!(
        mirror
            .apply(KIND, &applied(garbled("a", "u", 11)))
            .is_empty()
    );
    assert_eq!(
        mirror.claim(&key).unwrap().metadata.resource_version,
        Some(Revision(5))
    );
    assert!(mirror.unreadable()[&key].contains("IPv5"));

    assert!(
        mirror
            .replace(KIND, listing(12, vec![garbled("a", "u", 11)]))
            .is_empty()
    );
    let mut corrupt = page(13, vec![], None);
    corrupt.corrupt.push(StoreError::Corrupt {
        key: key.clone(),
        reason: "bits".to_owned(),
    });
    assert!(
        mirror
            .replace(KIND, Listing::new(corrupt).unwrap())
            .is_empty()
    );
    assert!(mirror.claim(&key).is_some());
    assert_eq!(mirror.unreadable()[&key], "bits");

    let event = WatchEvent::Unreadable {
        key: key.clone(),
        revision: Revision(14),
        reason: "worse".to_owned(),
    };
    assert!(mirror.apply(KIND, &event).is_empty());
    assert!(mirror.claim(&key).is_some());
    assert_eq!(mirror.unreadable()[&key], "worse");
}

#[test]
fn an_object_that_can_be_read_again_is_a_change_from_its_last_readable_state() {
    let mut mirror = mirror_of(vec![claim("a", "u", 5), claim("b", "v", 6)]);
    mirror.apply(KIND, &applied(garbled("a", "u", 11)));
    mirror.apply(KIND, &applied(garbled("b", "v", 12)));
    mirror.apply(KIND, &applied(garbled("c", "w", 13)));
    assert_eq!(
        short(&mirror.apply(KIND, &applied(claim("a", "u", 14)))),
        ["a u@5->u@14"]
    );
    assert_eq!(
        short(&mirror.apply(KIND, &deleted(garbled("b", "v", 15)))),
        ["b v@6->-"]
    );
    assert!(
        mirror
            .apply(KIND, &deleted(garbled("c", "w", 16)))
            .is_empty()
    );
    assert!(mirror.unreadable().is_empty());
}

#[test]
fn a_page_that_leaves_out_objects_unnamed_is_refused() {
    let mut bad = page(5, vec![], None);
    bad.corrupt.push(StoreError::Unavailable {
        reason: "somewhere".to_owned(),
    });
    let e = Listing::new(bad).unwrap_err();
    assert!(e.to_string().contains("somewhere"), "{e}");
}

#[test]
fn pages_that_disagree_are_watched_from_the_oldest() {
    let mut listing = Listing::new(page(9, vec![claim("a", "u", 9)], Some("t"))).unwrap();
    listing
        .add(page(12, vec![claim("b", "v", 11)], None))
        .unwrap();
    assert_eq!(listing.revision(), Revision(9));
    let mut mirror = Mirror::new();
    mirror.replace(KIND, listing);
    assert!(
        mirror
            .apply(KIND, &deleted(claim("b", "old", 10)))
            .is_empty()
    );
    assert!(mirror.apply(KIND, &applied(claim("b", "v", 11))).is_empty());
}
