use std::collections::BTreeSet;

use ipledger_core::api::{ClaimFamily, ReclaimPolicy};
use serde_json::json;

use super::*;
use crate::range::samples::{claim, claim4, class, deleting, held, ip};

fn parameters(value: serde_json::Value) -> Parameters {
    Parameters::parse(Some(&value)).unwrap()
}

#[test]
fn only_stamped_pending_resolved_live_claims_without_an_address_name_are_served() {
    type Edit = fn(&mut IPAddressClaim);
    let cases: [(Edit, Option<&str>); 12] = [
        (|_| {}, Some("c")),
        (|k| k.spec.class_name = "c".to_owned(), Some("c")),
        (|k| k.spec.class_name = "d".to_owned(), None),
        (|k| k.metadata.annotations.clear(), None),
        (
            |k| {
                let other = ("x".to_owned(), names::PROVISIONER.to_owned());
                k.metadata.annotations.extend([(other.1, other.0)]);
            },
            None,
        ),
        (|k| k.status = None, None),
        (|k| k.status.as_mut().unwrap().phase = None, None),
        (
            |k| k.status.as_mut().unwrap().phase = Some(ClaimPhase::Bound),
            None,
        ),
        (
            |k| k.status.as_mut().unwrap().phase = Some(ClaimPhase::Lost),
            None,
        ),
        (|k| k.status.as_mut().unwrap().class_name.clear(), None),
        (|k| k.spec.address_name = "ip-10-0-0-1".to_owned(), None),
        (
            |k| k.metadata.deletion_timestamp = Some(Default::default()),
            None,
        ),
    ];
    for (index, (edit, expected)) in cases.into_iter().enumerate() {
        let mut claim = claim4("one");
        edit(&mut claim);
        assert_eq!(class_asked(&claim), expected, "case {index}");
    }
}

#[test]
fn an_address_covers_its_family_unless_it_is_lost_invalid_going_parked_or_of_another_uid() {
    type Edit = fn(&mut IPAddress);
    let cases: [(Edit, bool); 10] = [
        (|_| {}, true),
        (|a| a.spec.claim_ref.as_mut().unwrap().uid.clear(), true),
        (|a| a.spec.class_name = "another".to_owned(), true),
        (
            |a| a.status.get_or_insert_default().phase = Some(AddressPhase::Conflict),
            true,
        ),
        (
            |a| {
                let parked = (names::PARKED_FOR.to_owned(), "uid-of-one/serve".to_owned());
                a.metadata.annotations.extend([parked]);
            },
            true,
        ),
        (
            |a| a.spec.claim_ref.as_mut().unwrap().uid = "older".to_owned(),
            false,
        ),
        (
            |a| a.status.get_or_insert_default().phase = Some(AddressPhase::Lost),
            false,
        ),
        (
            |a| {
                let parked = (names::PARKED_FOR.to_owned(), "uid-of-one".to_owned());
                a.metadata.annotations.extend([parked]);
            },
            false,
        ),
        (|a| a.metadata.name = "my-ip".to_owned(), false),
        (|a| *a = deleting(a.clone()), false),
    ];
    for (index, (edit, covers)) in cases.into_iter().enumerate() {
        let mut address = held("10.0.0.1", "one");
        edit(&mut address);
        let need = missing(&claim4("one"), [&address]);
        assert_eq!(need.is_none(), covers, "case {index}");
    }
}

#[test]
fn a_dual_claim_misses_what_its_addresses_do_not_cover() {
    let dual = claim("one", ClaimFamily::Dual);
    let (four, six) = (held("10.0.0.1", "one"), held("fd00::1", "one"));
    assert_eq!(missing(&dual, []), Some(Need::Both));
    assert_eq!(missing(&dual, [&four]), Some(Need::V6));
    assert_eq!(missing(&dual, [&six]), Some(Need::V4));
    assert_eq!(missing(&dual, [&four, &six]), None);
    assert_eq!(missing(&claim4("one"), [&six]), Some(Need::V4));
}

#[test]
fn the_choice_is_a_function_of_uid_and_ledger_in_either_order() {
    let lowest = parameters(json!({"addresses": ["10.0.0.0/24", "fd00::/48"]}));
    let random = parameters(json!({"addresses": ["10.0.0.0/24", "fd00::/48"], "order": "random"}));
    let mut occupied = Occupancy::new();
    occupied.insert(ip("10.0.0.0"));
    for uid in ["u1", "u2"] {
        assert_eq!(
            choose(&lowest, &occupied, uid, Family::V4),
            Some(ip("10.0.0.1"))
        );
        for family in Family::ALL {
            let once = choose(&random, &occupied, uid, family);
            assert_eq!(once, choose(&random, &occupied, uid, family));
        }
    }
}

#[test]
fn the_random_order_spreads_over_ranges_of_every_size() {
    let random = parameters(json!({"addresses": ["10.0.0.0/28", "fd00::/32"], "order": "random"}));
    let empty = Occupancy::new();
    let uids = (0..200).map(|n| format!("00000000-0000-4000-8000-{n:012}"));
    let chosen = |family| -> BTreeSet<Ip> {
        let uids = uids.clone();
        uids.filter_map(|uid| choose(&random, &empty, &uid, family))
            .collect()
    };
    assert_eq!(chosen(Family::V4).len(), 16);
    let six = chosen(Family::V6);
    assert_eq!(six.len(), 200);
    // The upper half of a range that is larger than 2^64 is reached as well.
    let middle = ip("fd00:0:8000::").number();
    let upper = six.iter().filter(|ip| ip.number() >= middle).count();
    assert!((60..140).contains(&upper), "{upper} of 200");
}

#[test]
fn the_object_is_prebound_with_uid_policy_source_and_finalizer() {
    let mut class = class("c", json!({}));
    class.spec.reclaim_policy = ReclaimPolicy::Delete;
    let mut parameters = parameters(json!({"addresses": ["10.0.0.1"], "reuseAfter": "90m"}));
    let object = new_address(ip("10.0.0.1"), &claim4("one"), &class, &parameters);
    assert_eq!(
        object.to_object().unwrap().to_value(),
        json!({
            "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddress",
            "metadata": {"name": "ip-10-0-0-1", "finalizers": [FINALIZER],
                "annotations": {REUSE_AFTER: "1h 30m"}},
            "spec": {"address": "10.0.0.1", "className": "c", "reclaimPolicy": "Delete",
                "claimRef": {"namespace": "a", "name": "one", "uid": "uid-of-one"},
                "source": {"fromClass": {}}},
        })
    );
    parameters.reuse_after = Default::default();
    let object = new_address(ip("10.0.0.1"), &claim4("one"), &class, &parameters);
    assert!(object.metadata.annotations.is_empty());
}

fn refusal(cause: Cause) -> Refusal {
    let class = "c".to_owned();
    Refusal { class, cause }
}

#[test]
fn a_refusal_names_reason_class_and_family_and_no_number_that_moves() {
    let cases = [
        (
            Cause::Exhausted(Family::V4),
            "PoolExhausted",
            "class c has no free IPv4 address",
        ),
        (
            Cause::FamilyUnavailable(Family::V6),
            "FamilyUnavailable",
            "class c has no IPv6 range",
        ),
        (
            Cause::InvalidParameters("unknown parameter `x`".to_owned()),
            "InvalidParameters",
            "parameters of class c cannot be used: unknown parameter `x`",
        ),
    ];
    for (cause, reason, phrase) in cases {
        let status = refusal(cause).status();
        assert_eq!(
            (status.reason.as_str(), status.class.as_str()),
            (reason, "c")
        );
        assert!(status.message.contains(phrase), "{}", status.message);
        let moving = status.message.replace("IPv4", "").replace("IPv6", "");
        assert!(!moving.contains(|c: char| c.is_ascii_digit()), "{moving}");
    }
}

#[test]
fn the_annotation_is_written_and_removed_only_when_that_changes_something() {
    let plain = claim4("one");
    let exhausted = refusal(Cause::Exhausted(Family::V4));
    assert_eq!(annotated(&plain, None), None);
    let told = annotated(&plain, Some(&exhausted)).unwrap();
    assert_eq!(told.provisioning_status(), Some(exhausted.status()));
    assert_eq!(annotated(&told, Some(&exhausted)), None);
    assert_eq!(annotated(&told, None), Some(plain.clone()));

    let mut going = told.clone();
    going.metadata.deletion_timestamp = Some(Default::default());
    assert_eq!(annotated(&going, None), None);

    let mut foreign = told;
    let text = r#"{"provisioner":"other","reason":"Busy"}"#.to_owned();
    let annotations = &mut foreign.metadata.annotations;
    annotations.insert(names::PROVISIONING_STATUS.to_owned(), text);
    assert_eq!(annotated(&foreign, None), None);
    assert!(annotated(&foreign, Some(&exhausted)).is_some());
}
