//! A class is edited, deleted and made again, and nobody is renumbered.

use ipledger_core::api::ReclaimPolicy::{Delete, Retain};
use ipledger_core::api::{Key, find_condition};
use ipledger_drivers::range::condition;
use serde_json::json;

use crate::order::in_every_order;
use crate::world::World;

fn out_of_range(w: &World, class: &str) -> Vec<String> {
    w.get_class(class).status.unwrap_or_default().out_of_range
}

/// As in cluster-api-ipam-provider-in-cluster#114 and #124: a pool is deleted under its addresses.
#[test]
fn a_class_that_is_deleted_and_made_again_elsewhere_keeps_its_holders_and_names_them() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class("c", Retain, json!({"addresses": ["10.0.0.0/30"]}));
        for name in ["a", "b"] {
            w.claim(name);
        }
        w.settle();
        let before = (w.get_claim("a"), w.get_claim("b"), w.addresses());
        w.all_dawdle(order);
        w.delete(&Key::class("c"));
        w.settle();
        w.claim("late");
        w.settle_and_stay_quiet();
        assert_eq!(w.reason("late"), "ClassNotFound");
        assert_eq!(w.get_claim("late").stamp(), None);
        w.class("c", Retain, json!({"addresses": ["10.9.0.0/30"]}));
        w.settle_and_stay_quiet();
        assert_eq!(w.bound("late"), "10.9.0.0");
        let after = w
            .addresses()
            .into_iter()
            .filter(|a| a.spec.address.starts_with("10.0."));
        assert_eq!(
            (w.get_claim("a"), w.get_claim("b"), after.collect()),
            before
        );
        assert_eq!(out_of_range(&w, "c"), ["ip-10-0-0-0", "ip-10-0-0-1"]);
    });
}

/// As in metallb#1591, #1755 and #2076: a pool is deleted and made again, and what is held is handed
/// out once more.
#[test]
fn a_new_class_over_the_range_of_a_deleted_one_hands_out_nothing_that_is_held() {
    in_every_order(|order| {
        let name = order.pick(&["c", "another"]);
        let mut w = World::new();
        w.class("c", Delete, json!({"addresses": ["10.0.0.0/31"]}));
        w.claim("a");
        w.settle();
        w.all_dawdle(order);
        w.delete(&Key::class("c"));
        w.class(name, Delete, json!({"addresses": ["10.0.0.0/31"]}));
        for claim in ["b", "d"] {
            w.claim_with(claim, |c| c.spec.class_name = name.to_owned());
        }
        w.settle_and_stay_quiet();
        assert_eq!(w.bound("a"), "10.0.0.0");
        let bound = ["b", "d"].map(|claim| w.bound(claim));
        assert!(bound.contains(&"10.0.0.1".to_owned()), "{bound:?}");
        assert!(bound.contains(&String::new()), "{bound:?}");
        // Its release helps the one that waits, although it is of the class that is gone.
        w.delete_claim("a");
        w.act_at_once();
        assert!(
            ["b", "d"]
                .map(|claim| w.bound(claim))
                .contains(&"10.0.0.0".to_owned())
        );
    });
}

/// As in cilium#40358 and #41458, antrea#6874 and metallb#2449: a pool is made wider, loses an unused
/// part, a used part, or is replaced, and everybody gets another address.
#[test]
fn no_edit_of_a_range_changes_a_binding_or_writes_to_anything_that_is_bound() {
    in_every_order(|order| {
        let (range, outside) = order.pick(&[
            ("10.0.0.0/27", 0),
            ("10.0.0.0/29", 0),
            ("10.0.0.2-10.0.0.15", 2),
            ("10.9.0.0/24", 5),
        ]);
        let mut w = World::new();
        w.class("c", Delete, json!({"addresses": ["10.0.0.0/28"]}));
        for name in ["a", "b", "c", "d", "e"] {
            w.claim(name);
        }
        w.settle();
        let (claims, addresses) = (w.claims(), w.addresses());
        w.one_is_late(order);
        w.parameters("c", json!({"addresses": [range]}));
        if order.choose(2) == 1 {
            w.restart();
        }
        w.settle_and_stay_quiet();
        assert_eq!((w.claims(), w.addresses()), (claims, addresses), "{range}");
        assert_eq!(out_of_range(&w, "c").len(), outside, "{range}");
        let conditions = w.get_class("c").status.unwrap().conditions;
        let said = find_condition(&conditions, condition::OUT_OF_RANGE);
        assert_eq!(said.is_some(), outside > 0);
    });
}

/// Two classes over one range, each with its claims: no IP twice, and a release of one helps the other.
#[test]
fn two_classes_over_one_range_share_it_out_without_a_double() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class("c", Delete, json!({"addresses": ["10.0.0.0/30"]}));
        w.class("d", Delete, json!({"addresses": ["10.0.0.2/31"]}));
        w.one_is_late(order);
        for name in ["a", "b"] {
            w.claim_with(name, |c| c.spec.class_name = "d".to_owned());
        }
        w.steps(order.choose(3) * 8);
        for name in ["v", "w", "x"] {
            w.claim(name);
        }
        w.settle();
        assert_eq!(w.addresses().len(), 4, "{:?}", w.holders());
        let served = ["a", "b", "v", "w", "x"]
            .into_iter()
            .filter(|name| !w.bound(name).is_empty());
        assert_eq!(served.count(), 4);
        let conditions = w.get_class("d").status.unwrap().conditions;
        assert!(find_condition(&conditions, condition::OVERLAP).is_some());
        assert!(
            find_condition(
                &w.get_class("c").status.unwrap().conditions,
                condition::OVERLAP
            )
            .is_none()
        );
    });
}
