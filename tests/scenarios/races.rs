//! Several at once: an address has one holder in every state that anybody sees, and a lost race is
//! nobody's business.

use ipledger_core::api::ReclaimPolicy::Delete;
use ipledger_core::api::names;
use ipledger_drivers::range::FINALIZER;
use serde_json::json;

use crate::order::in_every_order;
use crate::world::{World, dual};

/// As in openshift/origin#4829 and kubernetes#16432: two claims are bound to one volume.
#[test]
fn two_cores_and_two_claims_on_one_free_address_end_with_one_holder() {
    in_every_order(|order| {
        let mut w = World::of(2, 0);
        w.static_class("c");
        w.address("10.0.0.1", |_| ());
        w.settle();
        let mut claims = ["a", "b"];
        order.shuffle(&mut claims);
        w.claim(claims[0]);
        w.one_is_late(order);
        w.steps(order.choose(6));
        w.claim(claims[1]);
        // For a while the other one of the two goes on.
        let other = order.choose(2);
        w.send_away(other);
        w.steps(order.choose(4) * 2);
        w.call_back();
        w.settle_and_stay_quiet();
        let bound = ["a", "b"].map(|name| w.bound(name));
        assert!(bound.contains(&"10.0.0.1".to_owned()), "{bound:?}");
        assert!(bound.contains(&String::new()), "{bound:?}");
    });
}

/// Two cores are given one claim: it reports one address, and the other is free again.
#[test]
fn two_cores_that_bind_one_claim_leave_it_with_one_address() {
    in_every_order(|order| {
        let mut w = World::of(2, 0);
        w.static_class("c");
        w.address("10.0.0.2", |_| ());
        w.settle();
        w.claim("a");
        w.all_dawdle(order);
        w.steps(order.choose(4) * 2);
        w.address("10.0.0.1", |_| ());
        w.settle_and_stay_quiet();
        let ip = w.bound("a");
        let other = if ip == "10.0.0.1" {
            "10.0.0.2"
        } else {
            "10.0.0.1"
        };
        assert_eq!(w.get_address(&ip).spec.claim_ref.unwrap().name, "a");
        assert_eq!(w.get_address(other).spec.claim_ref, None);
    });
}

/// As in cluster-api-ipam-provider-in-cluster#98 and kube-vip#400: what is taken is looked for in
/// one namespace only.
#[test]
fn claims_of_one_name_in_two_namespaces_get_two_addresses() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class("c", Delete, json!({"addresses": ["10.0.0.0/29"]}));
        w.all_dawdle(order);
        w.claim("a");
        w.claim_with("a", |c| c.metadata.namespace = "other".to_owned());
        w.settle_and_stay_quiet();
        let claims = w.claims();
        let text = |n: usize| claims[n].status.clone().unwrap().address_text;
        assert_eq!((claims.len(), w.addresses().len()), (2, 2));
        assert!(text(0) != text(1) && !text(0).is_empty() && !text(1).is_empty());
    });
}

/// As in CAPO#1869 and #1870: one claim that asks for two gets the same one twice; and as in
/// kube-rs#964: two controllers write their finalizers at once.
#[test]
fn a_dual_claim_holds_one_address_a_family_and_each_carries_each_finalizer_once() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class(
            "c",
            Delete,
            json!({"addresses": ["10.0.0.0/30", "fd00::/126"]}),
        );
        w.all_dawdle(order);
        w.claim_with("a", dual);
        w.settle_and_stay_quiet();
        assert_eq!(w.bound("a"), "10.0.0.0,fd00::");
        for address in w.addresses() {
            let mut finalizers = address.metadata.finalizers.clone();
            finalizers.sort();
            assert_eq!(finalizers, [names::ADDRESS_PROTECTION, FINALIZER]);
            // Nothing else owns it, so that no collector removes it with its owner.
            assert!(!format!("{:?}", address.metadata).contains("ownerReferences"));
        }
    });
}

/// As in kube-vip-cloud-provider#14: "the object has been modified" is shown to the user.
#[test]
fn one_lost_race_for_each_write_of_everybody_is_not_noticed() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class("c", Delete, json!({"addresses": ["10.0.0.0/30"]}));
        w.address("10.0.0.9", |_| ());
        for process in &mut w.processes {
            process.loses_races();
        }
        w.one_is_late(order);
        for name in ["a", "b"] {
            w.claim(name);
        }
        w.settle();
        assert!(!w.bound("a").is_empty() && !w.bound("b").is_empty());
        w.delete_claim("a");
        w.delete_claim("b");
        w.settle_and_stay_quiet();
        assert_eq!(w.claims(), []);
        assert_eq!(w.warnings(), []);
    });
}

/// Several cores and drivers, each with its own view, and more claims than addresses.
#[test]
fn two_cores_and_two_drivers_share_out_a_range_exactly() {
    in_every_order(|order| {
        let mut w = World::of(2, 2);
        w.class("c", Delete, json!({"addresses": ["10.0.0.0/30"]}));
        w.one_is_late(order);
        for name in ["a", "b", "c", "d", "e"] {
            w.claim(name);
            w.steps(3);
        }
        w.settle();
        let bound = ["a", "b", "c", "d", "e"].map(|name| w.bound(name));
        assert_eq!(
            bound.iter().filter(|b| b.is_empty()).count(),
            1,
            "{bound:?}"
        );
        assert_eq!(w.addresses().len(), 4);
    });
}
