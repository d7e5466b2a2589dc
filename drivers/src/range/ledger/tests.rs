use ipledger_core::api::{
    ClaimFamily, ClaimPhase, IPAddressClassStatus, Timestamp, find_condition,
};
use ipledger_core::net::Family;
use serde_json::json;

use super::*;
use crate::range::condition;
use crate::range::decide::{Cause, Decision};
use crate::range::samples::{Seen, address, claim, claim_key, claim4, class, deleting, held, ip};

mod laws;
mod report;
mod waking;

/// A ledger that has seen these changes and begun to work.
fn started(changes: &[Change]) -> Ledger {
    let mut ledger = Ledger::default();
    changes
        .iter()
        .for_each(|change| drop(ledger.observe(change)));
    ledger.start();
    ledger
}

fn woken(names: &[&str]) -> BTreeSet<RangeKey> {
    names
        .iter()
        .map(|name| RangeKey::Claim(claim_key(name)))
        .collect()
}

/// The claims that a change wakes.
fn claims_woken(ledger: &mut Ledger, change: &Change) -> BTreeSet<RangeKey> {
    let mut keys = ledger.observe(change);
    keys.retain(|key| matches!(key, RangeKey::Claim(_)));
    keys
}

/// What is created for a claim, as text.
fn created(ledger: &mut Ledger, claim: &str) -> Vec<String> {
    match ledger.begin(&claim_key(claim)) {
        Some((claim, Decision::Create { addresses, .. })) => {
            let mut texts = Vec::new();
            for address in addresses {
                assert_ne!(ledger.attempt(&claim, address.ip().unwrap()), Attempt::Void);
                texts.push(address.spec.address);
            }
            texts
        }
        _ => Vec::new(),
    }
}

fn is_in_doubt(begun: &Option<(Arc<IPAddressClaim>, Decision)>) -> bool {
    matches!(begun, Some((_, Decision::Create { verify: true, .. })))
}

fn refused(ledger: &mut Ledger, claim: &str) -> Option<Cause> {
    match ledger.begin(&claim_key(claim)) {
        Some((_, Decision::Refuse(refusal))) => Some(refusal.cause),
        _ => None,
    }
}

fn status(ledger: &Ledger, class: &str) -> IPAddressClassStatus {
    ledger
        .report(class)
        .unwrap()
        .status(Timestamp::from_unix(5))
}

/// `total used free excluded out-of-range` of a family.
fn numbers(ledger: &Ledger, class: &str, family: Family) -> String {
    let capacity = status(ledger, class).capacity;
    let c = capacity
        .iter()
        .find(|c| c.family == family.to_string())
        .unwrap();
    format!(
        "{} {} {} {} {}",
        c.total, c.used, c.free, c.excluded, c.out_of_range
    )
}

/// A class `c` over 10.0.0.1-10.0.0.N.
fn class_of(last: u8) -> IPAddressClass {
    class(
        "c",
        json!({"addresses": [format!("10.0.0.1-10.0.0.{last}")]}),
    )
}

fn status_condition(ledger: &Ledger, type_: &str) -> Option<String> {
    let status = status(ledger, "c");
    find_condition(&status.conditions, type_).map(|c| c.message.clone())
}

#[test]
fn d1_the_order_in_which_the_start_is_seen_changes_nothing() {
    let mut changes = vec![
        class_of(6).seen(),
        held("10.0.0.1", "one").seen(),
        held("10.0.0.3", "gone").seen(),
        deleting(held("10.0.0.4", "four")).seen(),
    ];
    let names = ["one", "two", "three", "four", "five", "six"];
    changes.extend(names.map(|name| claim4(name).seen()));
    let mut state = 1_u64;
    for round in 0..100 {
        let mut ledger = Ledger::default();
        for change in &changes {
            ledger.observe(change);
            assert!(
                !names
                    .iter()
                    .any(|name| !created(&mut ledger, name).is_empty())
            );
        }
        ledger.start();
        let got = names.map(|name| created(&mut ledger, name).join(","));
        assert_eq!(
            got,
            ["", "", "", "10.0.0.5", "10.0.0.2", "10.0.0.6"],
            "round {round}"
        );
        // Another order for the next round.
        for i in (1..changes.len()).rev() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            changes.swap(i, (state >> 33) as usize % (i + 1));
        }
    }
}

#[test]
fn d1_a_holder_keeps_its_address_when_the_waiting_claim_is_seen_first() {
    let mut ledger = started(&[
        claim4("two").seen(),
        class("c", json!({"addresses": ["10.0.0.1/32"]})).seen(),
        held("10.0.0.1", "one").seen(),
    ]);
    assert_eq!(
        refused(&mut ledger, "two"),
        Some(Cause::Exhausted(Family::V4))
    );
}

#[test]
fn d2_fifty_claims_at_once_get_fifty_addresses_before_any_of_them_is_seen() {
    let mut ledger = started(&[class("c", json!({"addresses": ["10.0.0.0/26"]})).seen()]);
    let mut all = BTreeSet::new();
    for n in 0..50 {
        ledger.observe(&claim4(&format!("k{n}")).seen());
    }
    for n in 0..50 {
        all.extend(created(&mut ledger, &format!("k{n}")));
    }
    assert_eq!(all.len(), 50);
}

#[test]
fn d2_ledgers_that_see_the_same_choose_the_same_whoever_was_served_already() {
    let names: Vec<String> = (0..40).map(|n| format!("k{n:02}")).collect();
    let mut changes = vec![class("c", json!({"addresses": ["10.0.0.0/24"]})).seen()];
    changes.extend(names.iter().map(|name| claim4(name).seen()));
    let mut first = started(&changes);
    let chosen: Vec<String> = names
        .iter()
        .flat_map(|name| created(&mut first, name))
        .collect();
    // A second driver starts later, when the first has served every third claim.
    let served = names.iter().zip(&chosen).step_by(3);
    changes.extend(served.map(|(name, ip)| held(ip, name).seen()));
    let mut second = started(&changes);
    for (n, (name, ip)) in names.iter().zip(&chosen).enumerate().rev() {
        let expected = if n % 3 == 0 { vec![] } else { vec![ip.clone()] };
        assert_eq!(created(&mut second, name), expected, "{name}");
    }
}

#[test]
fn d2_a_pick_that_was_sent_is_repeated_whatever_becomes_free_or_is_excluded() {
    let mut ledger = started(&[
        class_of(3).seen(),
        held("10.0.0.1", "other").seen(),
        claim4("one").seen(),
    ]);
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.2"]);
    ledger.observe(&held("10.0.0.1", "other").gone());
    let narrow = json!({"addresses": ["10.0.0.1-10.0.0.3"], "exclude": ["10.0.0.2"]});
    ledger.observe(&class("c", narrow).seen());
    let again = ledger.begin(&claim_key("one"));
    let Some((
        _,
        Decision::Create {
            addresses,
            verify: true,
        },
    )) = again
    else {
        panic!("{again:?}");
    };
    assert_eq!(addresses[0].spec.address, "10.0.0.2");
    ledger.observe(&held("10.0.0.2", "one").seen());
    assert_eq!(created(&mut ledger, "one"), [""; 0]);
}

#[test]
fn d2_a_pick_that_was_not_sent_follows_the_edit_of_its_class() {
    let mut ledger = started(&[class_of(3).seen(), claim4("one").seen()]);
    let narrow = json!({"addresses": ["10.0.0.1-10.0.0.3"], "exclude": ["10.0.0.1"]});
    assert_eq!(
        claims_woken(&mut ledger, &class("c", narrow).seen()),
        woken(&["one"])
    );
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.2"]);
}

#[test]
fn d2_an_address_that_somebody_else_took_is_replaced_by_the_next_one() {
    let mut ledger = started(&[class_of(3).seen(), claim4("one").seen()]);
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.1"]);
    let keys = claims_woken(&mut ledger, &held("10.0.0.1", "other").seen());
    assert_eq!(keys, woken(&["one"]));
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.2"]);
}

#[test]
fn d2_an_object_that_cannot_be_read_takes_the_ip_of_its_name() {
    let mut ledger = started(&[class_of(3).seen(), claim4("one").seen()]);
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.1"]);
    assert!(
        ledger
            .block("ip-10-0-0-1")
            .contains(&RangeKey::Claim(claim_key("one")))
    );
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.2"]);
}

#[test]
fn d2_a_dual_claim_gets_both_families_or_nothing() {
    let both = json!({"addresses": ["10.0.0.1-10.0.0.2", "fd00::1"]});
    let dual = |name| claim(name, ClaimFamily::Dual).seen();
    let mut ledger = started(&[class("c", both).seen(), dual("one"), dual("two")]);
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.1", "fd00::1"]);
    assert_eq!(
        refused(&mut ledger, "two"),
        Some(Cause::Exhausted(Family::V6))
    );
    // It keeps nothing from a claim that can be served.
    ledger.observe(&claim4("three").seen());
    assert_eq!(created(&mut ledger, "three"), ["10.0.0.2"]);
}

#[test]
fn d2_a_dual_claim_that_holds_one_family_is_given_the_other_one() {
    let mut prebound = held("10.0.0.77", "one");
    prebound.spec.claim_ref.as_mut().unwrap().uid.clear();
    let both = json!({"addresses": ["10.0.0.1", "fd00::1"]});
    let mut ledger = started(&[
        class("c", both).seen(),
        prebound.seen(),
        claim("one", ClaimFamily::Dual).seen(),
    ]);
    assert_eq!(created(&mut ledger, "one"), ["fd00::1"]);
}

#[test]
fn d2_a_claim_whose_address_went_away_is_read_again_before_it_gets_another() {
    let mut ledger = started(&[
        class_of(3).seen(),
        claim4("one").seen(),
        held("10.0.0.1", "one").seen(),
    ]);
    assert_eq!(
        claims_woken(&mut ledger, &held("10.0.0.1", "one").gone()),
        woken(&["one"])
    );
    let begun = ledger.begin(&claim_key("one"));
    assert!(is_in_doubt(&begun), "{begun:?}");
}

#[test]
fn d2_an_address_that_is_given_up_and_may_still_come_puts_its_claim_in_doubt() {
    let mut ledger = started(&[class_of(3).seen(), claim4("one").seen()]);
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.1"]);
    // Somebody else has it, and may leave it again before the create arrives.
    ledger.observe(&held("10.0.0.1", "other").seen());
    let begun = ledger.begin(&claim_key("one"));
    assert!(is_in_doubt(&begun), "{begun:?}");
}

#[test]
fn d2_only_what_was_sent_outlives_the_edit_of_its_class() {
    let both = json!({"addresses": ["10.0.0.1-10.0.0.2", "fd00::1-fd00::2"]});
    let mut ledger = started(&[
        class("c", both).seen(),
        claim("one", ClaimFamily::Dual).seen(),
    ]);
    let (one, v4) = (claim("one", ClaimFamily::Dual), ip("10.0.0.1"));
    ledger.begin(&claim_key("one"));
    assert_eq!(ledger.attempt(&one, v4), Attempt::First);
    let narrow = json!({"addresses": ["10.0.0.2", "fd00::2"]});
    ledger.observe(&class("c", narrow).seen());
    assert_eq!(ledger.attempt(&one, ip("fd00::1")), Attempt::Void);
    assert_eq!(ledger.attempt(&one, v4), Attempt::Again);
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.1", "fd00::2"]);
}

#[test]
fn d2_what_has_failed_for_certain_is_given_back_and_what_may_come_is_kept() {
    let both = json!({"addresses": ["10.0.0.1", "fd00::1"]});
    let mut ledger = started(&[
        class("c", both).seen(),
        claim("one", ClaimFamily::Dual).seen(),
        claim("two", ClaimFamily::IPv6).seen(),
        claim4("three").seen(),
    ]);
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.1", "fd00::1"]);
    let helped = ledger.give_back(&claim_key("one"), ip("fd00::1"));
    assert_eq!(helped, woken(&["two"]));
    assert_eq!(
        refused(&mut ledger, "three"),
        Some(Cause::Exhausted(Family::V4))
    );
}

#[test]
fn d2_another_claim_of_the_same_name_starts_from_nothing() {
    let mut ledger = started(&[class_of(1).seen(), claim4("one").seen()]);
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.1"]);
    let mut successor = claim4("one");
    successor.metadata.uid = "another".to_owned();
    ledger.observe(&successor.seen());
    let Some((
        _,
        Decision::Create {
            addresses,
            verify: false,
        },
    )) = ledger.begin(&claim_key("one"))
    else {
        panic!("the successor should get the address");
    };
    assert_eq!(addresses[0].spec.claim_ref.as_ref().unwrap().uid, "another");
}

#[test]
fn d4_an_ip_with_an_object_of_any_class_spelling_or_name_is_not_handed_out() {
    let mut other_class = address("10.0.0.1");
    other_class.spec.class_name = "old".to_owned();
    let mut other_name = address("10.0.0.2");
    other_name.metadata.name = "my-ip".to_owned();
    let mut other_spelling = address("fd00::1");
    other_spelling.spec.address = "FD00:0::1".to_owned();
    let both = json!({"addresses": ["10.0.0.1-10.0.0.3", "fd00::1", "fd00::2"]});
    let mut ledger = started(&[
        class("c", both).seen(),
        other_class.seen(),
        other_name.seen(),
        other_spelling.seen(),
        claim("one", ClaimFamily::Dual).seen(),
    ]);
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.3", "fd00::2"]);
}

#[test]
fn d2_one_address_that_is_taken_moves_every_choice_by_one_and_none_to_the_end() {
    let names = ["a", "b", "c", "d"];
    let mut changes = vec![class_of(9).seen()];
    changes.extend(names.map(|name| claim4(name).seen()));
    let mut ledger = started(&changes);
    assert_eq!(created(&mut ledger, "c"), ["10.0.0.3"]);
    let keys = claims_woken(&mut ledger, &held("10.0.0.1", "other").seen());
    assert_eq!(keys, woken(&["a", "b", "d"]));
    let got = names.map(|name| created(&mut ledger, name).join(","));
    assert_eq!(got, ["10.0.0.2", "10.0.0.4", "10.0.0.3", "10.0.0.5"]);
}
