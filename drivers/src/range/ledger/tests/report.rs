//! What classes report (D3, D5, D8).

use super::*;

#[test]
fn d3_an_edit_moves_nobody_and_reports_who_is_outside() {
    let mut ledger = started(&[class_of(20).seen(), claim4("k1").seen()]);
    for n in 1..=12 {
        ledger.observe(&held(&format!("10.0.0.{n}"), &format!("k{n}")).seen());
    }
    let disjoint = class("c", json!({"addresses": ["10.0.9.0/30", "10.0.0.12"]}));
    assert_eq!(claims_woken(&mut ledger, &disjoint.seen()), woken(&[]));
    assert_eq!(numbers(&ledger, "c", Family::V4), "5 1 4 0 11");
    let status = status(&ledger, "c");
    assert_eq!(status.out_of_range.len(), 10);
    assert_eq!(status.out_of_range[0], "ip-10-0-0-1");
    let outside = find_condition(&status.conditions, condition::OUT_OF_RANGE).unwrap();
    assert!(
        outside.message.starts_with("11 addresses"),
        "{}",
        outside.message
    );

    ledger.observe(&class_of(24).seen());
    assert_eq!(numbers(&ledger, "c", Family::V4), "24 12 12 0 0");
    assert_eq!(status_condition(&ledger, condition::OUT_OF_RANGE), None);
}

#[test]
fn d8_overlaps_inside_a_class_and_picks_are_counted_right() {
    let overlapping = json!({
        "addresses": ["10.0.0.0/29", "10.0.0.4-10.0.0.11", "fd00::/64"], "exclude": ["10.0.0.11"]
    });
    let mut ledger = started(&[class("c", overlapping).seen(), claim4("one").seen()]);
    assert_eq!(numbers(&ledger, "c", Family::V4), "11 0 11 1 0");
    assert_eq!(
        numbers(&ledger, "c", Family::V6),
        "18446744073709551616 0 18446744073709551616 0 0"
    );
    assert_eq!(created(&mut ledger, "one"), ["10.0.0.0"]);
    assert_eq!(numbers(&ledger, "c", Family::V4), "11 0 11 1 0");
    let keys = ledger.observe(&held("10.0.0.0", "one").seen());
    assert!(keys.contains(&RangeKey::Class("c".to_owned())));
    assert_eq!(numbers(&ledger, "c", Family::V4), "11 1 10 1 0");
    let mut bound = held("10.0.0.0", "one");
    bound.metadata.add_finalizer("another");
    assert!(
        !ledger
            .observe(&bound.seen())
            .contains(&RangeKey::Class("c".to_owned()))
    );
}

#[test]
fn d8_the_younger_of_two_classes_names_the_older_one_it_overlaps() {
    let mut younger = class("c", json!({"addresses": ["10.0.0.0/24"]}));
    younger.metadata.creation_timestamp = Some(Timestamp::from_unix(2));
    let mut older = class("d", json!({"addresses": ["10.0.0.128/25"]}));
    older.metadata.creation_timestamp = Some(Timestamp::from_unix(1));
    let mut ledger = started(&[younger.seen()]);
    assert_eq!(status_condition(&ledger, condition::OVERLAP), None);
    assert!(
        ledger
            .observe(&older.seen())
            .contains(&RangeKey::Class("c".to_owned()))
    );
    let message = status_condition(&ledger, condition::OVERLAP).unwrap();
    assert!(message.contains("older class d"), "{message}");
    let of_older = status(&ledger, "d").conditions;
    assert!(find_condition(&of_older, condition::OVERLAP).is_none());
}

#[test]
fn d5_an_address_that_cools_down_is_counted_and_not_handed_out() {
    let mut cooling = deleting(address("10.0.0.1"));
    let mut ledger = started(&[class_of(1).seen(), cooling.seen(), claim4("one").seen()]);
    let until = (
        crate::range::REUSABLE_AT.to_owned(),
        "2026-01-01T00:00:00Z".to_owned(),
    );
    cooling.metadata.annotations.extend([until]);
    let keys = ledger.observe(&cooling.seen());
    assert!(keys.contains(&RangeKey::Class("c".to_owned())));
    assert!(keys.contains(&RangeKey::Address("ip-10-0-0-1".to_owned())));
    assert_eq!(status(&ledger, "c").capacity[0].cooling, "1");
    assert_eq!(
        refused(&mut ledger, "one"),
        Some(Cause::Exhausted(Family::V4))
    );
    assert_eq!(claims_woken(&mut ledger, &cooling.gone()), woken(&["one"]));
    assert_eq!(status(&ledger, "c").capacity[0].cooling, "0");
    assert!(ledger.holdings.occupied().contains(ip("10.0.0.1")));
}

#[test]
fn repeating_a_report_changes_nothing() {
    let ledger = started(&[class_of(3).seen(), held("10.0.0.77", "x").seen()]);
    let mut reported = class_of(3);
    reported.status = Some(status(&ledger, "c"));
    let mut ledger = ledger;
    assert_eq!(
        ledger.observe(&reported.seen()),
        [RangeKey::Class("c".to_owned())].into()
    );
    let again = ledger.report("c").unwrap().status(Timestamp::from_unix(99));
    assert_eq!(Some(again), reported.status);
}

/// 1,400 classes of 16 addresses each, none shared.
fn many() -> Ledger {
    let of = |n: u32| format!("10.0.{}.{}/28", n / 16, n % 16 * 16);
    let classes = (0..1_400).map(|n| class(&format!("n{n:04}"), json!({"addresses": [of(n)]})));
    started(&classes.map(|class| class.seen()).collect::<Vec<_>>())
}

fn classes(names: &[&str]) -> BTreeSet<RangeKey> {
    names
        .iter()
        .map(|name| RangeKey::Class((*name).to_owned()))
        .collect()
}

#[test]
fn an_edit_among_many_classes_wakes_those_whose_addresses_it_shares_or_shared() {
    let mut ledger = many();
    let mut edit =
        |addresses: &str| ledger.observe(&class("n0700", json!({"addresses": [addresses]})).seen());
    assert_eq!(edit("10.9.0.0/28"), classes(&["n0700"]));
    assert_eq!(
        edit("10.0.0.15-10.0.0.16"),
        classes(&["n0000", "n0001", "n0700"])
    );
    assert_eq!(edit("nonsense"), classes(&["n0000", "n0001", "n0700"]));
    assert_eq!(edit("10.0.0.0/8").len(), 1_400);
    assert_eq!(edit("10.9.0.0/28").len(), 1_400);
}

#[test]
fn an_address_among_many_classes_wakes_those_that_have_it() {
    let mut ledger = many();
    let shared = class("shared", json!({"addresses": ["10.0.0.0-10.0.1.0"]}));
    assert_eq!(ledger.observe(&shared.seen()).len(), 18);
    let keys = ledger.observe(&held("10.0.0.18", "other").seen());
    assert_eq!(keys, classes(&["n0001", "shared"]));
}

#[test]
fn a_class_names_the_oldest_of_those_that_share_with_it() {
    let of = |addresses: &str| json!({"addresses": [addresses]});
    let mut ledger = started(&[
        class("a", of("10.0.0.0/24")).seen(),
        class("b", of("10.0.1.0/24")).seen(),
        class("c", of("10.0.0.250-10.0.1.5")).seen(),
        class("d", of("10.0.0.251")).seen(),
    ]);
    let older = |ledger: &Ledger, name: &str| ledger.report(name).unwrap().older;
    assert_eq!(older(&ledger, "a"), None);
    assert_eq!(older(&ledger, "b"), None);
    assert_eq!(older(&ledger, "c").as_deref(), Some("a"));
    assert_eq!(older(&ledger, "d").as_deref(), Some("a"));
    ledger.observe(&class("a", of("10.7.0.0/24")).seen());
    assert_eq!(older(&ledger, "c").as_deref(), Some("b"));
    assert_eq!(older(&ledger, "d").as_deref(), Some("c"));
}
