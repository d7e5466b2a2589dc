use ipledger_core::api::Object;
use serde_json::json;

use super::*;

const NOW: u64 = 1_800_000_000;

fn typed<S: ResourceSpec>(value: Value) -> Resource<S> {
    let mut whole =
        json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": S::KIND.name()});
    for (name, v) in value.as_object().unwrap() {
        whole[name] = v.clone();
    }
    whole["metadata"]["creationTimestamp"] = json!(Timestamp::from_unix(NOW - 60));
    Resource::from_object(&Object::from_value(whole).unwrap()).unwrap()
}

fn page() -> Page {
    Page::new(Timestamp::from_unix(NOW))
}

#[test]
fn a_claim_is_described_with_its_class_its_addresses_and_why_it_is_pending() {
    let claim: IPAddressClaim = typed(json!({
        "metadata": {"name": "both", "namespace": "team-a", "uid": "u-1",
            "annotations": {names_provisioner(): "p.example.com"}},
        "spec": {"family": "Dual"},
        "status": {"phase": "Pending", "className": "standard",
            "addresses": [{"name": "ip-192-0-2-7", "address": "192.0.2.7"}],
            "conditions": [{"type": "Bound", "status": "False", "reason": "PartiallyBound",
                "message": "no IPv6 address yet",
                "lastTransitionTime": Timestamp::from_unix(NOW - 5)}]}}));
    let class: IPAddressClass = typed(json!({"metadata": {"name": "standard"},
        "spec": {"provisioner": "p.example.com", "reclaimPolicy": "Delete"}}));
    let address: IPAddress = typed(json!({"metadata": {"name": "ip-192-0-2-7"},
        "spec": {"address": "192.0.2.7", "className": "standard"},
        "status": {"phase": "Bound", "associatedTo":
            {"kind": "Service", "namespace": "team-a", "name": "web"}}}));
    let mut page = page();
    page.claim(
        &claim,
        Some(&class),
        &[("ip-192-0-2-7".to_owned(), address)].into(),
    );
    assert_eq!(
        page.text,
        "\
Kind:           IPAddressClaim
Namespace:      team-a
Name:           both
UID:            u-1
Created:        2027-01-15T07:59:00Z (60s ago)
Phase:          Pending
Why:            PartiallyBound: no IPv6 address yet
Family:         Dual
Class:          standard (by default), p.example.com, reclaim policy Delete
Provisioner:    p.example.com
Addresses:
  ADDRESS    NAME          PHASE  WORKLOAD
  192.0.2.7  ip-192-0-2-7  Bound  Service team-a/web
Conditions:
  TYPE   STATUS  REASON          AGE  MESSAGE
  Bound  False   PartiallyBound  5s   no IPv6 address yet
Annotations:    local.sdn.cozystack.io/provisioner=p.example.com
"
    );
}

fn names_provisioner() -> &'static str {
    ipledger_core::api::names::PROVISIONER
}

#[test]
fn an_address_says_who_holds_it() {
    let held = |uid: &str| -> IPAddress {
        typed(
            json!({"metadata": {"name": "ip-192-0-2-7"}, "spec": {"address": "192.0.2.7",
            "claimRef": {"namespace": "n", "name": "a", "uid": uid}}}),
        )
    };
    let claim: IPAddressClaim = typed(json!({
        "metadata": {"name": "a", "namespace": "n", "uid": "u-1"}, "status": {"phase": "Bound"}}));
    for (address, holder, text) in [
        (held("u-1"), Some(&claim), "claim n/a (Bound, uid u-1)"),
        (
            held("u-0"),
            Some(&claim),
            "an earlier claim n/a (uid u-0), which is gone",
        ),
        (held("u-0"), None, "claim n/a (uid u-0), which is gone"),
        (held(""), None, "claim n/a, which does not exist yet"),
        (held(""), Some(&claim), "claim n/a (not completed yet)"),
        (IPAddress::default(), None, "nobody"),
    ] {
        assert_eq!(held_by(&address, holder), text);
    }
}

#[test]
fn a_class_is_described_with_parameters_capacity_and_unknown_fields() {
    let class: IPAddressClass = typed(json!({"metadata": {"name": "c", "uid": "u"},
        "spec": {"provisioner": "p", "parameters": {"addresses": ["192.0.2.0/24"]}, "zone": "z"},
        "status": {"capacity": [{"family": "IPv4", "total": "256", "used": "1", "free": "255",
            "cooling": "0", "excluded": "0", "outOfRange": "1"}], "outOfRange": ["ip-1-2-3-4"]}}));
    let mut page = page();
    page.class(&class);
    assert_eq!(
        page.text,
        "\
Kind:           IPAddressClass
Name:           c
UID:            u
Created:        2027-01-15T07:59:00Z (60s ago)
Provisioner:    p
Reclaim policy: Retain
Default:        no
Parameters:
  addresses:
  - 192.0.2.0/24
Capacity:
  FAMILY  TOTAL  USED  FREE  COOLING  EXCLUDED  OUT OF RANGE
  IPv4    256    1     255   0        0         1
Out of range:   ip-1-2-3-4
Other fields:
  zone: z
"
    );
}
