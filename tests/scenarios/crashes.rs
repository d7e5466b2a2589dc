//! A process dies at any of its writes, with or without it, and starts with empty memory.

use ipledger_core::api::ReclaimPolicy::{Delete, Retain};
use serde_json::json;

use crate::client::Death;
use crate::order::{Order, in_every_order};
use crate::world::{World, dual};

/// One of the processes dies at one of its next writes.
fn somebody_dies(w: &mut World, order: &mut Order) {
    let process = order.choose(w.processes.len());
    // More than the writes of any one process in these scenarios.
    let at = order.choose(10) as u64;
    let death = order.pick(&[Death::BeforeTheWrite, Death::BeforeTheAnswer]);
    w.processes[process].dies_after(at, death);
}

/// They go on until that happens; then what is left goes on for as long as it can before the dead one
/// is back, or not at all.
fn and_comes_back(w: &mut World, order: &mut Order) {
    while w.step() && !w.somebody_is_dead() {}
    if !w.somebody_is_dead() {
        // Perhaps at a write that waits for its time, such as that of a class's status.
        w.settle();
    }
    if w.somebody_is_dead() {
        if order.choose(2) == 0 {
            w.settle();
        }
        w.restart_the_dead();
        w.one_is_late(order);
    }
    w.settle_and_stay_quiet();
}

/// As in f5-ipam-controller#16: after a restart a key is given a second address.
#[test]
fn a_crash_at_any_write_of_a_provisioning_leaves_exactly_one_address_a_family() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class(
            "c",
            Delete,
            json!({"addresses": ["10.0.0.0/30", "fd00::/126"]}),
        );
        w.settle();
        w.claim_with("a", dual);
        somebody_dies(&mut w, order);
        and_comes_back(&mut w, order);
        assert_eq!(w.bound("a"), "10.0.0.0,fd00::");
        assert_eq!(w.addresses().len(), 2);
    });
}

#[test]
fn a_crash_at_any_write_of_a_reclaim_leaves_nothing_or_what_is_retained() {
    in_every_order(|order| {
        let policy = order.pick(&[Delete, Retain]);
        let mut w = World::new();
        w.class(
            "c",
            policy,
            json!({"addresses": ["10.0.0.0/30", "fd00::/126"]}),
        );
        w.claim_with("a", dual);
        w.settle();
        w.delete_claim("a");
        somebody_dies(&mut w, order);
        and_comes_back(&mut w, order);
        assert_eq!(w.claims(), []);
        if policy == Delete {
            assert_eq!(w.addresses(), []);
        } else {
            assert_eq!(w.holders(), ["10.0.0.0 a Released", "fd00:: a Released"]);
        }
    });
}

#[test]
fn a_crash_at_any_write_of_a_hand_over_gives_the_address_to_the_next_one() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class("c", Delete, json!({"addresses": ["10.0.0.1"]}));
        w.claim("a");
        w.settle();
        w.claim("b");
        w.settle();
        w.delete_claim("a");
        somebody_dies(&mut w, order);
        and_comes_back(&mut w, order);
        assert_eq!(w.bound("b"), "10.0.0.1");
        assert_eq!(w.holders(), ["10.0.0.1 b Bound"]);
    });
}

/// As in metal3 #694, with a death in between.
#[test]
fn a_claim_deleted_in_the_middle_of_a_crash_leaves_nothing_behind() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class("c", Delete, json!({"addresses": ["10.0.0.0/30"]}));
        w.settle();
        w.claim("a");
        somebody_dies(&mut w, order);
        while w.step() && !w.somebody_is_dead() {}
        w.delete_claim("a");
        and_comes_back(&mut w, order);
        assert_eq!((w.claims(), w.addresses()), (vec![], vec![]));
    });
}
