//! A class is used up, and what frees an address helps the one that waits, at once and in any order.

use std::collections::{BTreeMap, BTreeSet};

use ipledger_core::api::ReclaimPolicy::{Delete, Retain};
use ipledger_tests::random::Random;
use serde_json::json;

use crate::order::in_every_order;
use crate::world::{World, six};

/// Two addresses, two holders, and one claim that waits.
fn full(policy: ipledger_core::api::ReclaimPolicy) -> World {
    let mut w = World::new();
    let parameters = json!({"addresses": ["10.0.0.1-10.0.0.3"], "exclude": ["10.0.0.3"]});
    w.class("c", policy, parameters);
    for name in ["one", "two", "three"] {
        w.claim(name);
        w.settle();
    }
    assert_eq!(w.holders(), ["10.0.0.1 one Bound", "10.0.0.2 two Bound"]);
    assert_eq!(w.reason("three"), "PoolExhausted");
    w
}

/// As in cluster-api-ipam-provider-in-cluster#179 and #253 and metal3 #1537: a claim that met an
/// exhausted pool waits for ever.
#[test]
fn whatever_frees_an_address_serves_the_claim_that_waits_without_any_waiting_time() {
    in_every_order(|order| {
        let help = order.choose(4);
        let mut w = full(if help == 3 { Retain } else { Delete });
        if help == 3 {
            w.delete_claim("one");
            w.settle();
            assert_eq!(w.holders()[0], "10.0.0.1 one Released");
        }
        w.all_dawdle(order);
        let gets = match help {
            0 => {
                w.delete_claim("one");
                "10.0.0.1"
            }
            1 => {
                let wide = json!({"addresses": ["10.0.0.1-10.0.0.9"], "exclude": ["10.0.0.3"]});
                w.parameters("c", wide);
                "10.0.0.4"
            }
            2 => {
                w.parameters("c", json!({"addresses": ["10.0.0.1-10.0.0.3"]}));
                "10.0.0.3"
            }
            _ => {
                w.edit_address("10.0.0.1", |a| a.spec.claim_ref = None);
                "10.0.0.1"
            }
        };
        w.act_at_once();
        assert_eq!(w.bound("three"), gets, "help {help}");
        assert_eq!(w.bound("two"), "10.0.0.2");
        w.settle_and_stay_quiet();
        // Not even an annotation of the earlier refusal is left.
        assert_eq!(w.get_claim("three").provisioning_status(), None);
    });
}

/// As in metal3 #988: one claim that cannot be served blocks all behind it.
#[test]
fn an_impossible_claim_at_the_head_of_the_queue_delays_nobody_and_says_why_it_waits() {
    in_every_order(|order| {
        let mut w = World::new();
        w.claim_with("a", six);
        for name in ["b", "c", "d"] {
            w.claim(name);
        }
        w.class("c", Delete, json!({"addresses": ["10.0.0.0/30"]}));
        w.all_dawdle(order);
        w.act_at_once();
        for name in ["b", "c", "d"] {
            assert_ne!(w.bound(name), "", "{name}");
        }
        assert_eq!(w.reason("a"), "FamilyUnavailable");
        w.settle_and_stay_quiet();
    });
}

/// As in metallb#399, #190 and #1184: the same manifest is deleted and applied again, and its address
/// never becomes free.
#[test]
fn deleting_and_creating_the_same_claim_fifty_times_leaves_nothing_behind() {
    in_every_order(|order| {
        let mut w = World::new();
        w.class("c", Delete, json!({"addresses": ["10.0.0.1"]}));
        w.one_is_late(order);
        for round in 0..50 {
            w.claim("a");
            w.act_at_once();
            assert_eq!(w.bound("a"), "10.0.0.1", "round {round}");
            w.delete_claim("a");
            // Sometimes the next one comes while the last one is still on its way out.
            if round % 2 == 0 {
                w.act_at_once();
                assert_eq!((w.claims(), w.addresses()), (vec![], vec![]));
            }
            while w.find_claim("a").is_some() {
                assert!(w.step(), "the claim does not go: {}", w.show());
            }
        }
        w.settle_and_stay_quiet();
        assert_eq!((w.claims(), w.addresses()), (vec![], vec![]));
    });
}

/// As in ZeroTierOne#834 and n2n#393: addresses that come round again, or run out too early.
#[test]
fn filling_and_releasing_at_random_hands_out_every_address_and_none_twice() {
    for (range, size, rounds) in [("10.0.0.0/30", 4, 40), ("10.0.0.0/27", 32, 4)] {
        let mut random = Random::new(size);
        let mut w = World::new();
        w.class("c", Delete, json!({"addresses": [range]}));
        let mut live: BTreeSet<String> = BTreeSet::new();
        let mut last = 0;
        for _ in 0..rounds {
            // Two more than there is room for.
            while live.len() < size as usize + 2 {
                last += 1;
                let name = format!("k{last:05}");
                w.claim(&name);
                live.insert(name);
            }
            w.act_at_once();
            let mut ips = BTreeMap::new();
            for name in &live {
                match w.bound(name).as_str() {
                    "" => assert_eq!(w.reason(name), "PoolExhausted"),
                    ip => assert_eq!(ips.insert(ip.to_owned(), name.clone()), None, "{ip}"),
                }
            }
            assert_eq!(ips.len() as u64, size, "all are given out");
            for _ in 0..random.below(size as usize) + 1 {
                let all: Vec<String> = live.iter().cloned().collect();
                let gone = random.pick(&all).clone();
                w.delete_claim(&gone);
                live.remove(&gone);
            }
            w.act_at_once();
        }
    }
}
