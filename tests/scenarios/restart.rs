//! Nothing moves because somebody starts again, whatever is heard of first.

use ipledger_core::api::ReclaimPolicy::{Delete, Retain};
use ipledger_core::api::{Key, Kind};
use ipledger_core::runtime::Change;
use ipledger_tests::random::Random;
use serde_json::json;

use crate::order::in_every_order;
use crate::process::Doing;
use crate::world::{CORE, DRIVER, World, dual, object_name};

/// As in metallb#1774: of two that want the only address, the one that waits is heard of first.
#[test]
fn the_holder_of_the_only_address_keeps_it_whatever_is_heard_first_after_a_restart() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class("c", Delete, json!({"addresses": ["10.0.0.1/32"]}));
        w.claim("one");
        w.settle();
        w.claim("two");
        w.settle();
        assert_eq!(
            (w.bound("one").as_str(), w.bound("two")),
            ("10.0.0.1", String::new())
        );
        let (holder, waiting) = (w.get_claim("one"), w.get_claim("two"));
        // One class, one address, two claims, in any order.
        let process = order.choose(2);
        w.restart();
        w.processes[process].restart_hearing_in(&mut |all| order.shuffle(all));
        w.one_is_late(order);
        w.settle_and_stay_quiet();
        assert_eq!((w.get_claim("one"), w.get_claim("two")), (holder, waiting));
        assert_eq!(w.holders(), ["10.0.0.1 one Bound"]);
    });
}

/// As in metallb#2443: those that wait push the others round.
#[test]
fn ten_restarts_in_a_hundred_random_orders_write_nothing_at_all() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut w = World::new();
        w.class(
            "c",
            Delete,
            json!({"addresses": ["10.0.0.1-10.0.0.5", "fd00::1-fd00::5"]}),
        );
        for name in ["h", "b", "g", "d", "e", "a", "c", "f"] {
            w.claim_with(name, |c| {
                if name == "a" {
                    dual(c);
                }
            });
        }
        w.settle();
        let (before, addresses, written) = (w.claims(), w.addresses(), w.log());
        assert_eq!(addresses.len(), 6, "{:?}", w.holders());
        for _ in 0..10 {
            w.restart();
            for process in [CORE, DRIVER] {
                let mut shuffle = |all: &mut Vec<Change>| {
                    for at in 1..all.len() {
                        all.swap(at, random.below(at + 1));
                    }
                };
                w.processes[process].restart_hearing_in(&mut shuffle);
            }
            w.settle();
        }
        assert_eq!(
            (w.claims(), w.addresses()),
            (before, addresses),
            "seed {seed}"
        );
        assert_eq!(w.log(), written, "seed {seed}");
    }
}

/// As in metallb#1984: an address that was asked for by name is given away over restarts.
#[test]
fn a_named_address_is_not_given_to_one_that_waits_over_three_restarts() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class("c", Retain, json!({"addresses": ["10.0.0.7"]}));
        w.address("10.0.0.7", |_| ());
        w.claim_with("db", |c| {
            c.spec.class_name = String::new();
            c.spec.address_name = object_name("10.0.0.7");
        });
        w.settle();
        w.claim("x");
        w.one_is_late(order);
        for _ in 0..3 {
            w.restart();
            w.settle();
        }
        assert_eq!(w.bound("db"), "10.0.0.7");
        assert_eq!(w.reason("x"), "PoolExhausted");
    });
}

/// As in metallb#435: everything was off, and all that is only said is gone.
#[test]
fn when_every_status_is_wiped_every_claim_gets_its_own_address_back() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class(
            "c",
            Delete,
            json!({"addresses": ["10.0.0.1-10.0.0.4", "fd00::1-fd00::4"]}),
        );
        for name in ["d", "b", "c"] {
            w.claim(name);
            w.settle();
        }
        w.claim_with("a", dual);
        w.settle();
        let before: Vec<String> = ["a", "b", "c", "d"].map(|name| w.bound(name)).into();
        assert_eq!(
            before,
            ["10.0.0.4,fd00::1", "10.0.0.2", "10.0.0.3", "10.0.0.1"]
        );
        w.wipe_all_statuses();
        w.claim("waits");
        w.restart();
        w.all_dawdle(order);
        w.settle_and_stay_quiet();
        assert_eq!(["a", "b", "c", "d"].map(|name| w.bound(name)), *before);
        assert_eq!(w.reason("waits"), "PoolExhausted");
    });
}

/// As in kubernetes#28002: what is bound is seen before its claim and is taken for an orphan.
#[test]
fn addresses_that_are_seen_long_before_their_claims_are_not_reclaimed() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class("c", Delete, json!({"addresses": ["10.0.0.0/29"]}));
        for name in ["a", "b"] {
            w.claim(name);
        }
        w.settle();
        let before = (w.claims(), w.addresses());
        w.restart();
        let process = order.choose(2);
        for kind in [Kind::IPAddress, Kind::IPAddressClass] {
            w.processes[process].step(Doing::Hear(kind));
        }
        // While that one does not know of any claim, the other works.
        w.send_away(process);
        w.settle();
        w.advance(std::time::Duration::from_secs(5));
        w.call_back();
        w.one_is_late(order);
        w.settle_and_stay_quiet();
        assert_eq!((w.claims(), w.addresses()), before);
    });
}

/// The class, too, may be what is heard of last, or be gone.
#[test]
fn a_restart_without_the_class_moves_nobody() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class("c", Delete, json!({"addresses": ["10.0.0.0/30"]}));
        w.claim("a");
        w.settle();
        w.claim_with("b", dual);
        w.settle();
        w.delete(&Key::class("c"));
        w.restart();
        w.all_dawdle(order);
        w.settle_and_stay_quiet();
        assert_eq!(w.holders(), ["10.0.0.0 a Bound"]);
        assert_eq!(w.bound("a"), "10.0.0.0");
        assert_eq!(w.reason("b"), "ClassNotFound");
    });
}
