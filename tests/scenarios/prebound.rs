//! An address that an admin or a driver has meant for a claim goes to that claim and to no other.

use std::time::Duration;

use ipledger_core::api::{IPAddress, ReclaimPolicy, names};
use ipledger_drivers::range::FINALIZER;
use serde_json::json;

use crate::order::in_every_order;
use crate::world::{World, for_claim};

/// As in kubernetes#23615: the matcher does not look at what is pre-bound.
#[test]
fn a_claim_takes_what_is_pre_bound_for_it_and_not_a_free_one_with_a_smaller_name() {
    in_every_order(|order| {
        let mut w = World::of(1, 0);
        w.static_class("c");
        // The free one is made after the other: before that, it is what there is.
        let mut acts = ["pre-bound", "x", "y"];
        order.shuffle(&mut acts);
        let mut acts = acts.to_vec();
        let first = acts.iter().position(|a| *a == "pre-bound").unwrap();
        acts.insert(first + 1 + order.choose(acts.len() - first), "free");
        w.all_dawdle(order);
        let between = order.choose(3) * 4;
        for act in acts {
            match act {
                "pre-bound" => w.address("10.0.0.9", |a| a.spec.claim_ref = for_claim("x")),
                "free" => w.address("10.0.0.1", |_| ()),
                claim => w.claim(claim),
            }
            w.steps(between);
        }
        w.settle_and_stay_quiet();
        assert_eq!(
            (w.bound("x").as_str(), w.bound("y").as_str()),
            ("10.0.0.9", "10.0.0.1")
        );
    });
}

/// It was made a minute before its claim, and its policy is Delete.
#[test]
fn what_is_pre_bound_with_policy_delete_is_alive_when_its_claim_comes_a_minute_later() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class(
            "c",
            ReclaimPolicy::Delete,
            json!({"addresses": ["10.0.0.0/30"]}),
        );
        w.all_dawdle(order);
        w.address("10.0.0.3", |a| {
            a.spec.claim_ref = for_claim("x");
            a.spec.reclaim_policy = ReclaimPolicy::Delete;
            a.metadata.finalizers.push(FINALIZER.to_owned());
        });
        w.act_at_once();
        w.advance(Duration::from_secs(60));
        w.claim("x");
        w.settle_and_stay_quiet();
        assert_eq!(w.bound("x"), "10.0.0.3");
        assert_eq!(w.addresses().len(), 1, "the driver provides no second one");
    });
}

/// Two drivers pre-bind two addresses for one claim: one counts, the other is kept aside.
#[test]
fn of_two_pre_bindings_for_one_claim_one_counts_and_the_other_is_parked_with_one_event() {
    in_every_order(|order| {
        let mut w = World::of(1, 0);
        w.static_class("c");
        let mut acts = [0, 1, 2];
        order.shuffle(&mut acts);
        w.all_dawdle(order);
        for act in acts {
            match act {
                0 => w.claim("a"),
                n => w.address(&format!("10.0.0.{n}"), |a| {
                    a.spec.claim_ref = for_claim("a");
                }),
            }
            w.steps(order.choose(3) * 3);
        }
        w.settle_and_stay_quiet();
        let ip = w.bound("a");
        assert_eq!(w.get_claim("a").status.unwrap().addresses.len(), 1);
        let uid = w.get_claim("a").metadata.uid;
        let parked: Vec<IPAddress> = w
            .addresses()
            .into_iter()
            .filter(|a| a.spec.address != ip)
            .collect();
        // The one that was not completed yet waits without a uid; it is parked all the same.
        assert_eq!(
            parked[0].metadata.annotation(names::PARKED_FOR),
            Some(uid.as_str())
        );
        let events = w.events().into_iter();
        assert_eq!(events.filter(|e| e.reason == "AddressParked").count(), 1);
    });
}
