use serde_json::json;

use super::*;

const NOW: u64 = 1_800_000_000;

fn object(kind: Kind, mut value: serde_json::Value) -> Object {
    value["apiVersion"] = json!(kind.api_version());
    value["kind"] = json!(kind.name());
    value["metadata"]["creationTimestamp"] = json!(Timestamp::from_unix(NOW - 90));
    Object::from_value(value).unwrap()
}

fn render(kind: Kind, objects: &[Object], wide: bool) -> String {
    let now = Timestamp::from_unix(NOW);
    table(kind, objects, &View { wide, now }).render(false)
}

fn claims() -> Vec<Object> {
    let claim = |value| object(Kind::IPAddressClaim, value);
    vec![
        claim(json!({"metadata": {"namespace": "default", "name": "both"},
            "spec": {"family": "Dual"},
            "status": {"phase": "Bound", "className": "standard", "addresses": [
                {"name": "ip-192-0-2-254", "address": "192.0.2.254"},
                {"name": "x", "address": "2001:db8:1111:2222:3333:4444:5555:6666"}]}})),
        claim(
            json!({"metadata": {"namespace": "default", "name": "stuck"},
            "spec": {"family": "IPv6", "className": "four"},
            "status": {"phase": "Pending", "className": "four", "conditions": [
                {"type": "Bound", "status": "False", "reason": "FamilyUnavailable",
                 "message": "class four has no IPv6 range"}]}}),
        ),
        claim(json!({"metadata": {"namespace": "team-a", "name": "new"}})),
    ]
}

#[test]
fn a_table_of_claims_says_why_one_is_not_bound_and_fits_120_columns() {
    let text = render(Kind::IPAddressClaim, &claims(), false);
    assert_eq!(
        text,
        "\
NAMESPACE  NAME   PHASE    FAMILY  CLASS     ADDRESSES                                           AGE
default    both   Bound    Dual    standard  192.0.2.254,2001:db8:1111:2222:3333:4444:5555:6666  90s
default    stuck  Pending  IPv6    four      -                                                   90s
    FamilyUnavailable: class four has no IPv6 range
team-a     new    -        IPv4    -         -                                                   90s
    no controller has looked at it yet
"
    );
    assert!(text.lines().all(|line| line.len() <= 120));
}

#[test]
fn wide_claims_show_what_they_want_and_who_provisions() {
    let claim = object(
        Kind::IPAddressClaim,
        json!({"metadata": {"namespace": "n", "name": "a",
            "annotations": {names::PROVISIONER: "p.example.com"}},
            "spec": {"addressName": "ip-192-0-2-7"}, "status": {"phase": "Bound"}}),
    );
    assert_eq!(
        render(Kind::IPAddressClaim, &[claim], true),
        "\
NAMESPACE  NAME  PHASE  FAMILY  CLASS  ADDRESSES  AGE  WANTS         PROVISIONER
n          a     Bound  IPv4    -      -          90s  ip-192-0-2-7  p.example.com
"
    );
}

fn addresses() -> Vec<Object> {
    let address = |name: &str, ip: &str, rest: serde_json::Value| {
        let mut value = json!({"metadata": {"name": name},
            "spec": {"address": ip, "className": "standard"}});
        for (field, v) in rest.as_object().unwrap() {
            match field.as_str() {
                "status" => value["status"] = v.clone(),
                _ => value["spec"][field] = v.clone(),
            }
        }
        object(Kind::IPAddress, value)
    };
    vec![
        address(
            "ip-192-0-2-10",
            "192.0.2.10",
            json!({"reclaimPolicy": "Delete",
            "claimRef": {"namespace": "default", "name": "web", "uid": "u"},
            "source": {"fromClass": {}}, "status": {"phase": "Bound",
            "associatedTo": {"kind": "Service", "namespace": "default", "name": "s"}}}),
        ),
        address(
            "ip-192-0-2-9",
            "192.0.2.9",
            json!({"status": {"phase": "Available"}}),
        ),
        address(
            "ip-2001-db8--1",
            "2001:db8::1",
            json!({"status": {"phase": "Conflict",
            "conditions": [{"type": "Free", "status": "False", "reason": "InUse", "message": "by x"}]}}),
        ),
        address("odd", "nonsense", json!({})),
    ]
}

#[test]
fn addresses_are_sorted_as_numbers() {
    let mut all = addresses();
    all.reverse();
    all.sort_by(order);
    assert_eq!(
        render(Kind::IPAddress, &all, false),
        "\
NAME            ADDRESS      PHASE      CLASS     CLAIM        POLICY  AGE  REASON
ip-192-0-2-9    192.0.2.9    Available  standard  -            Retain  90s
ip-192-0-2-10   192.0.2.10   Bound      standard  default/web  Delete  90s
ip-2001-db8--1  2001:db8::1  Conflict   standard  -            Retain  90s  InUse: by x
odd             nonsense     -          standard  -            Retain  90s  no controller has looked at it yet
"
    );
}

#[test]
fn a_table_of_the_longest_addresses_fits_120_columns_without_their_names() {
    let ip = "2001:db8:1111:2222:3333:4444:5555:6666";
    let name = "ip-2001-db8-1111-2222-3333-4444-5555-6666";
    let address = object(
        Kind::IPAddress,
        json!({"metadata": {"name": name},
        "spec": {"address": ip, "className": "standard",
            "claimRef": {"namespace": "default", "name": "web"}}, "status": {"phase": "Bound"}}),
    );
    assert_eq!(
        render(Kind::IPAddress, &[address], false),
        "\
ADDRESS                                 PHASE  CLASS     CLAIM        POLICY  AGE
2001:db8:1111:2222:3333:4444:5555:6666  Bound  standard  default/web  Retain  90s
"
    );
}

#[test]
fn wide_addresses_show_their_workload_and_their_source() {
    let text = render(Kind::IPAddress, &addresses()[..1], true);
    let line = text.lines().last().unwrap();
    assert!(line.ends_with("Service default/s  class"), "{line}");
}

#[test]
fn a_table_of_classes_shows_capacity_and_what_is_wrong() {
    let capacity = |family: &str, free: &str, total: &str| {
        json!({"family": family, "free": free, "total": total, "used": "0", "cooling": "0",
            "excluded": "3", "outOfRange": "0"})
    };
    let none = json!({"family": "IPv6", "free": "0", "total": "0", "used": "0", "cooling": "0",
        "excluded": "0", "outOfRange": "0"});
    let class = |name: &str, rest: serde_json::Value| {
        let mut value = json!({"metadata": {"name": name},
            "spec": {"provisioner": "range.drivers.local.sdn.cozystack.io"}});
        for (field, v) in rest.as_object().unwrap() {
            value[field] = v.clone();
        }
        object(Kind::IPAddressClass, value)
    };
    let mut standard = class(
        "standard",
        json!({"status": {
        "capacity": [capacity("IPv4", "251", "254"),
            capacity("IPv6", "18446744073709551613", "18446744073709551615")],
        "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    standard
        .metadata
        .annotations
        .insert(names::DEFAULT_CLASS.to_owned(), "true".to_owned());
    let broken = class(
        "broken",
        json!({"status": {"conditions": [{"type": "Ready",
        "status": "False", "reason": "InvalidParameters", "message": "no key `adresses`"}]}}),
    );
    let legacy = class(
        "legacy",
        json!({"status": {"capacity": [capacity("IPv4", "16", "16"), none],
            "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    let text = render(Kind::IPAddressClass, &[broken, legacy, standard], false);
    assert_eq!(
        text,
        "\
NAME      PROVISIONER                           POLICY  DEFAULT  FREE/TOTAL                        READY
broken    range.drivers.local.sdn.cozystack.io  Retain  -        -                                 False
    InvalidParameters: no key `adresses`
legacy    range.drivers.local.sdn.cozystack.io  Retain  -        IPv4 16/16                        True
standard  range.drivers.local.sdn.cozystack.io  Retain  yes      IPv4 251/254, IPv6 1.8e19/1.8e19  True
"
    );
    assert!(text.lines().all(|line| line.len() <= 120));
}

#[test]
fn an_object_that_cannot_be_read_has_a_row_that_says_so() {
    let bad = object(
        Kind::IPAddressClaim,
        json!({"metadata": {"namespace": "n", "name": "bad"},
        "spec": {"family": "IPv5"}}),
    );
    let text = render(Kind::IPAddressClaim, &[bad], false);
    assert!(
        text.lines()
            .nth(1)
            .unwrap()
            .starts_with("n          bad   ?"),
        "{text}"
    );
    assert!(
        text.contains("cannot be read: spec: unknown variant `IPv5`"),
        "{text}"
    );
}

#[test]
fn ages_are_told_in_their_largest_unit() {
    let now = Timestamp::from_unix(NOW);
    for (seconds, text) in [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (7200, "2h"),
        (172_800, "2d"),
    ] {
        assert_eq!(age(Some(Timestamp::from_unix(NOW - seconds)), now), text);
    }
    assert_eq!(age(None, now), "");
    assert_eq!(age(Some(Timestamp::from_unix(NOW + 5)), now), "0s");
}

#[test]
fn long_counts_are_shortened() {
    for (count, text) in [
        ("254", "254"),
        ("999999999", "999999999"),
        ("1000000000", "1.0e9"),
        ("", ""),
    ] {
        assert_eq!(short(count), text);
    }
}
