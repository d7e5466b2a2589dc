//! Who is woken, and by what (D4, D6).

use super::*;
use crate::range::decide::{Refusal, annotated};

#[test]
fn d4_two_classes_over_one_range_hand_out_each_ip_once_and_help_each_other() {
    let mut of_d = claim4("two");
    of_d.status.as_mut().unwrap().class_name = "d".to_owned();
    let range = json!({"addresses": ["10.0.0.1"]});
    let mut ledger = started(&[
        class("c", range.clone()).seen(),
        class("d", range).seen(),
        claim4("one").seen(),
        of_d.seen(),
    ]);
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.1"]);
    assert_eq!(
        refused(&mut ledger, "two"),
        Some(Cause::Exhausted(Family::V4))
    );
    ledger.observe(&held("10.0.0.1", "one").seen());
    assert_eq!(numbers(&ledger, "d", Family::V4), "1 1 0 0 0");
    assert_eq!(
        claims_woken(&mut ledger, &held("10.0.0.1", "one").gone()),
        woken(&["one"])
    );
    ledger.observe(&claim4("one").gone());
    assert_eq!(created(&mut ledger, "two"), ["10.0.0.1"]);
}

#[test]
fn d6_each_address_that_is_freed_wakes_the_next_claim_in_key_order_and_nobody_else() {
    let mut changes = vec![class_of(2).seen()];
    changes.extend([held("10.0.0.1", "x").seen(), held("10.0.0.2", "x").seen()]);
    changes.extend(["c", "a", "d", "b"].map(|name| claim4(name).seen()));
    let mut ledger = started(&changes);
    assert_eq!(
        refused(&mut ledger, "a"),
        Some(Cause::Exhausted(Family::V4))
    );
    assert_eq!(
        claims_woken(&mut ledger, &held("10.0.0.2", "x").gone()),
        woken(&["a"])
    );
    assert_eq!(
        claims_woken(&mut ledger, &held("10.0.0.1", "x").gone()),
        woken(&["b"])
    );
    assert_eq!(created(&mut ledger, "a"), ["10.0.0.2"]);
    assert_eq!(
        refused(&mut ledger, "c"),
        Some(Cause::Exhausted(Family::V4))
    );
}

#[test]
fn d6_what_a_woken_claim_cannot_use_goes_to_the_next_one() {
    let names = ["a", "b", "c"];
    let mut changes = vec![class_of(1).seen()];
    changes.extend(names.map(|name| claim4(name).seen()));
    let mut ledger = started(&changes);
    // It goes away before its pass.
    assert_eq!(
        claims_woken(&mut ledger, &claim4("a").gone()),
        woken(&["b"])
    );
    // Its creation is refused for good.
    assert_eq!(created(&mut ledger, "b"), ["10.0.0.1"]);
    assert_eq!(
        ledger.give_back(&claim_key("b"), ip("10.0.0.1")),
        woken(&["c"])
    );
    assert_eq!(
        refused(&mut ledger, "b"),
        Some(Cause::Exhausted(Family::V4))
    );
    // It was served by somebody else.
    let mut bound = claim4("c");
    bound.status.as_mut().unwrap().phase = Some(ClaimPhase::Bound);
    assert_eq!(claims_woken(&mut ledger, &bound.seen()), woken(&["b", "c"]));
    assert_eq!(created(&mut ledger, "b"), ["10.0.0.1"]);
}

#[test]
fn d6_widening_and_unexcluding_wake_as_many_as_can_be_helped() {
    let names = ["a", "b", "c", "d", "e"];
    let excluded = json!({"addresses": ["10.0.0.1-10.0.0.3"], "exclude": ["10.0.0.2-10.0.0.3"]});
    let mut changes = vec![class("c", excluded).seen()];
    changes.extend(names.map(|name| claim4(name).seen()));
    let mut ledger = started(&changes);
    assert_eq!(created(&mut ledger, "a"), ["10.0.0.1"]);
    assert_eq!(
        claims_woken(&mut ledger, &class_of(3).seen()),
        woken(&["b", "c"])
    );
    assert_eq!(
        claims_woken(&mut ledger, &class_of(4).seen()),
        woken(&["d"])
    );
    assert_eq!(
        refused(&mut ledger, "e"),
        Some(Cause::Exhausted(Family::V4))
    );
}

#[test]
fn d6_an_impossible_claim_delays_nobody() {
    let mut changes = vec![class_of(2).seen(), claim("a", ClaimFamily::IPv6).seen()];
    changes.push(claim("b", ClaimFamily::Dual).seen());
    changes.extend(["c", "d", "e"].map(|name| claim4(name).seen()));
    let mut ledger = started(&changes);
    for impossible in ["a", "b"] {
        let cause = refused(&mut ledger, impossible);
        assert_eq!(cause, Some(Cause::FamilyUnavailable(Family::V6)));
    }
    assert_eq!(created(&mut ledger, "c"), ["10.0.0.1"]);
    assert_eq!(created(&mut ledger, "d"), ["10.0.0.2"]);
    ledger.observe(&held("10.0.0.1", "c").seen());
    assert_eq!(
        claims_woken(&mut ledger, &held("10.0.0.1", "c").gone()),
        woken(&["c"])
    );
}

#[test]
fn d6_a_dual_claim_that_cannot_be_helped_is_passed_over() {
    let both = json!({"addresses": ["10.0.0.1", "fd00::1"]});
    let mut ledger = started(&[
        class("c", both).seen(),
        held("10.0.0.1", "x").seen(),
        held("fd00::1", "x").seen(),
        claim("a", ClaimFamily::Dual).seen(),
        claim4("b").seen(),
    ]);
    assert_eq!(
        claims_woken(&mut ledger, &held("10.0.0.1", "x").gone()),
        woken(&["b"])
    );
    ledger.observe(&claim4("b").gone());
    assert_eq!(
        claims_woken(&mut ledger, &held("fd00::1", "x").gone()),
        woken(&["a"])
    );
    assert_eq!(created(&mut ledger, "a"), ["10.0.0.1", "fd00::1"]);
}

#[test]
fn bad_parameters_refuse_every_claim_of_the_class_until_they_are_mended() {
    let typo = json!({"addresses": ["10.0.0.1-10.0.0.9"], "excludeAddresses": ["10.0.0.1"]});
    let mut ledger = started(&[class("c", typo).seen(), claim4("one").seen()]);
    let Some(Cause::InvalidParameters(problem)) = refused(&mut ledger, "one") else {
        panic!("the claim should be refused");
    };
    assert!(
        problem.contains("`excludeAddresses`: did you mean `exclude`"),
        "{problem}"
    );
    let ready = status_condition(&ledger, condition::READY).unwrap();
    assert_eq!(ready, problem);
    assert_eq!(
        claims_woken(&mut ledger, &class_of(9).seen()),
        woken(&["one"])
    );
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.1"]);
}

#[test]
fn a_class_that_is_gone_or_of_another_driver_gives_nothing_and_says_nothing() {
    let mut ledger = started(&[class_of(2).seen(), claim4("one").seen()]);
    let mut foreign = class_of(2);
    foreign.spec.provisioner = "other".to_owned();
    for change in [class_of(2).gone(), foreign.seen()] {
        assert_eq!(claims_woken(&mut ledger, &change), woken(&["one"]));
        let begun = ledger.begin(&claim_key("one"));
        assert!(matches!(begun, Some((_, Decision::Nothing))), "{begun:?}");
        assert!(ledger.report("c").is_none());
        assert_eq!(
            claims_woken(&mut ledger, &class_of(2).seen()),
            woken(&["one"])
        );
    }
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.1"]);
}

#[test]
fn d6_what_a_dual_claim_was_told_is_repeated_by_a_driver_that_starts_later_while_it_is_true() {
    let parameters = json!({"addresses": ["10.0.0.1", "fd00::1"]});
    let full = [
        class("c", parameters).seen(),
        held("10.0.0.1", "x").seen(),
        held("fd00::1", "x").seen(),
    ];
    let refusal = Refusal {
        class: "c".to_owned(),
        cause: Cause::Exhausted(Family::V6),
    };
    let dual = annotated(&claim("one", ClaimFamily::Dual), Some(&refusal)).unwrap();
    let mut later = started(&full);
    later.observe(&dual.seen());
    assert_eq!(
        refused(&mut later, "one"),
        Some(Cause::Exhausted(Family::V6))
    );
    // Once it is not true any more, the other one is.
    later.observe(&held("fd00::1", "x").gone());
    assert_eq!(
        refused(&mut later, "one"),
        Some(Cause::Exhausted(Family::V4))
    );
}
