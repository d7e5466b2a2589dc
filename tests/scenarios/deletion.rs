//! Whatever is deleted, in whatever order, nothing is left behind and nothing that lives is harmed.

use ipledger_core::api::ReclaimPolicy::{Delete, Retain};
use ipledger_core::api::{AddressPhase, Key, find_condition, names};
use ipledger_drivers::range::FINALIZER;
use serde_json::json;

use crate::order::in_every_order;
use crate::world::{CORE, DRIVER, World};

/// As in metal3 #694: a claim is deleted straight after it was created, and its address stays.
#[test]
fn a_claim_that_is_deleted_at_any_moment_of_its_provisioning_leaves_no_address_behind() {
    in_every_order(|order| {
        let policy = order.pick(&[Delete, Retain]);
        let mut w = World::new();
        w.class("c", policy, json!({"addresses": ["10.0.0.0/30"]}));
        w.settle();
        w.one_is_late(order);
        w.claim("a");
        w.steps(order.choose(24));
        w.delete_claim("a");
        w.settle_and_stay_quiet();
        assert!(w.find_claim("a").is_none());
        if policy == Delete {
            assert_eq!(w.holders(), [""; 0]);
        } else {
            // Released if it was handed out at all, and never in any other phase.
            let holders = w.holders();
            assert!(
                holders.is_empty() || holders == ["10.0.0.0 a Released"],
                "{holders:?}"
            );
        }
    });
}

/// As in whereabouts#176: what is left of the first claim frees the address of the second one of its
/// name.
#[test]
fn a_claim_created_again_under_its_name_is_not_harmed_by_what_the_first_one_left() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class("c", Delete, json!({"addresses": ["10.0.0.1"]}));
        w.claim("a");
        w.settle();
        let first = w.get_claim("a").metadata.uid;
        w.delete_claim("a");
        w.one_is_late(order);
        // One of the two goes on alone for a while, so that the other's view is of the first claim.
        let away = order.choose(3);
        if away < 2 {
            w.send_away(away);
        }
        w.steps(order.choose(6) * 2);
        w.call_back();
        while w.find_claim("a").is_some() {
            assert!(w.step(), "the first claim does not go");
        }
        w.claim("a");
        w.settle_and_stay_quiet();
        let second = w.get_claim("a").metadata.uid;
        assert_ne!(first, second);
        assert_eq!(w.bound("a"), "10.0.0.1");
        assert_eq!(
            w.get_address("10.0.0.1").spec.claim_ref.unwrap().uid,
            second
        );
    });
}

/// As in external-provisioner#546: what is bound is deleted first and its claim then, or both at once.
#[test]
fn a_bound_address_and_its_claim_deleted_in_either_order_are_both_gone_and_the_ip_is_free() {
    in_every_order(|order| {
        let policy = order.pick(&[Delete, Retain]);
        let mut w = World::new();
        w.class("c", policy, json!({"addresses": ["10.0.0.1"]}));
        w.claim("a");
        w.settle();
        w.one_is_late(order);
        let between = order.choose(8);
        if order.choose(2) == 0 {
            w.delete_address("10.0.0.1");
            w.steps(between);
            // Held means held, and no other address is bound for it.
            assert_eq!(w.bound("a"), "10.0.0.1");
            assert!(w.get_address("10.0.0.1").metadata.is_deleting());
            w.delete_claim("a");
        } else {
            w.delete_claim("a");
            w.steps(between);
            if w.find_address("10.0.0.1").is_some() {
                w.delete_address("10.0.0.1");
            }
        }
        w.settle();
        assert_eq!((w.claims(), w.addresses()), (vec![], vec![]));
        w.claim("b");
        w.settle_and_stay_quiet();
        assert_eq!(w.bound("b"), "10.0.0.1");
    });
}

/// As in sig-storage-lib-external-provisioner#20: a retained object whose driver acts on the policy
/// only can never be deleted.
#[test]
fn an_admin_who_deletes_a_released_address_gives_its_ip_back_to_the_range() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class("c", Retain, json!({"addresses": ["10.0.0.1"]}));
        w.claim("a");
        w.settle();
        w.delete_claim("a");
        w.settle();
        w.claim("b");
        w.settle();
        assert_eq!(w.holders(), ["10.0.0.1 a Released"]);
        assert_eq!(w.reason("b"), "PoolExhausted");
        w.all_dawdle(order);
        w.delete_address("10.0.0.1");
        w.act_at_once();
        assert_eq!(w.bound("b"), "10.0.0.1");
        w.settle_and_stay_quiet();
    });
}

/// Class, claim and address are deleted in the six orders, and nobody waits for anybody in between.
#[test]
fn class_claim_and_address_deleted_in_every_order_end_the_same() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class("c", Delete, json!({"addresses": ["10.0.0.1"]}));
        w.claim("a");
        w.settle();
        w.one_is_late(order);
        let mut acts = [0, 1, 2];
        order.shuffle(&mut acts);
        let between = order.choose(3) * 2;
        for act in acts {
            match act {
                0 => w.delete(&Key::class("c")),
                1 => w.delete_claim("a"),
                _ if w.find_address("10.0.0.1").is_some() => w.delete_address("10.0.0.1"),
                _ => {}
            }
            w.steps(between);
        }
        w.settle_and_stay_quiet();
        assert_eq!((w.claims(), w.addresses()), (vec![], vec![]));
    });
}

/// As in cluster-api-ipam-provider-in-cluster#317 and cluster-api#10108: a claim cannot be deleted
/// because something else is gone or paused.
#[test]
fn a_claim_can_be_deleted_while_its_class_is_gone_and_its_driver_is_away() {
    in_every_order(|order| {
        let policy = order.pick(&[Delete, Retain]);
        let mut w = World::new();
        w.class("c", policy, json!({"addresses": ["10.0.0.1"]}));
        w.claim("a");
        w.settle();
        w.one_is_late(order);
        w.send_away(DRIVER);
        w.delete(&Key::class("c"));
        w.delete_claim("a");
        w.settle();
        assert!(w.find_claim("a").is_none());
        let address = w.get_address("10.0.0.1");
        if policy == Retain {
            assert_eq!(address.phase(), Some(AddressPhase::Released));
        } else {
            // It says who is waited for.
            assert_eq!(address.metadata.finalizers, [FINALIZER]);
        }
        w.call_back();
        w.settle_and_stay_quiet();
        assert_eq!(w.find_address("10.0.0.1").is_some(), policy == Retain);
    });
}

/// An address that is deleted under its claim stays until the claim goes, and nothing replaces it.
#[test]
fn an_address_that_an_admin_deletes_under_a_live_claim_stays_and_is_not_replaced() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class("c", Delete, json!({"addresses": ["10.0.0.0/30"]}));
        w.claim("a");
        w.settle();
        w.all_dawdle(order);
        w.delete_address("10.0.0.0");
        w.settle_and_stay_quiet();
        assert_eq!(w.bound("a"), "10.0.0.0");
        let claim = w.get_claim("a");
        assert!(find_condition(claim.conditions(), names::condition::ADDRESS_DELETING).is_some());
        assert_eq!(w.addresses().len(), 1);
        w.delete_claim("a");
        w.settle_and_stay_quiet();
        assert_eq!(w.addresses(), []);
    });
}

/// As in whereabouts#75: a release that comes late frees the address of the next owner.
#[test]
fn a_core_that_was_away_frees_nothing_of_the_next_owner() {
    in_every_order(|order| {
        let mut w = World::of(2, 1);
        w.class("c", Delete, json!({"addresses": ["10.0.0.1"]}));
        w.claim("a");
        w.settle();
        w.delete_claim("a");
        // It has seen the deletion, has perhaps begun to act on it, and is away for long.
        w.steps(order.choose(10));
        w.send_away(CORE);
        w.settle();
        w.claim("b");
        w.settle();
        assert_eq!(w.bound("b"), "10.0.0.1");
        w.call_back();
        w.one_is_late(order);
        w.settle_and_stay_quiet();
        assert_eq!(w.bound("b"), "10.0.0.1");
        assert_eq!(w.holders(), ["10.0.0.1 b Bound"]);
    });
}
