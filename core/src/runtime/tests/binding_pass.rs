use std::sync::Arc;
use std::time::Duration;

use crate::api::{
    ClaimFamily, ClaimPhase, ClaimRef, IPAddress, IPAddressClaim, IPAddressClass, Key, Kind,
    Timestamp, names,
};
use crate::binding::Write;
use crate::net::Ip;
use crate::runtime::{BindingPass, Cache, Change, Found, Moment, Request, Work};
use crate::store::Revision;

fn moment() -> Moment {
    Moment {
        now: Timestamp::from_unix(1),
        monotonic: Duration::ZERO,
        grace: Duration::ZERO,
    }
}

/// A claim that was seen before, and whose status is gone.
fn wiped(revision: u64) -> IPAddressClaim {
    let mut claim = IPAddressClaim::default();
    claim.metadata.namespace = "ns".to_owned();
    claim.metadata.name = "k".to_owned();
    claim.metadata.uid = "u".to_owned();
    claim.metadata.resource_version = Some(Revision(revision));
    claim.metadata.add_finalizer(names::CLAIM_PROTECTION);
    claim.spec.family = ClaimFamily::IPv4;
    claim.spec.class_name = "c".to_owned();
    claim
}

fn key() -> Key {
    Key::claim("ns", "k")
}

fn sees_claim(cache: &mut Cache, claim: IPAddressClaim) {
    cache.observe(&Change::Claim {
        key: key(),
        old: None,
        new: Some(Arc::new(claim)),
    });
}

fn sees_class(cache: &mut Cache) {
    let mut class = IPAddressClass::default();
    class.metadata.name = "c".to_owned();
    class.spec.provisioner = "driver.example.com".to_owned();
    cache.observe(&Change::Class {
        key: Key::class("c"),
        old: None,
        new: Some(Arc::new(class)),
    });
}

/// An address that names the claim, with this uid.
fn sees_address(cache: &mut Cache, uid: &str) {
    let mut address = IPAddress::default();
    address.spec.address = "192.0.2.1".to_owned();
    address.metadata.name = Ip::parse("192.0.2.1").unwrap().object_name();
    address.metadata.uid = "a".to_owned();
    address.metadata.resource_version = Some(Revision(2));
    address.spec.claim_ref = Some(ClaimRef {
        namespace: "ns".to_owned(),
        name: "k".to_owned(),
        uid: uid.to_owned(),
        ..ClaimRef::default()
    });
    cache.observe(&Change::Address {
        key: address.key(),
        old: None,
        new: Some(Arc::new(address)),
    });
}

fn is_barrier(request: &Request) -> bool {
    *request == Request::Barrier(Kind::IPAddress)
}

#[test]
fn r6_a_barrier_proves_nothing_about_a_claim_that_was_bound_and_wiped_again_since() {
    let mut cache = Cache::default();
    sees_class(&mut cache);
    sees_address(&mut cache, "u");
    sees_claim(&mut cache, wiped(3));
    let mut pass = BindingPass::new(Work::Claim(key()));
    assert!(is_barrier(&pass.next(&mut cache, moment())));
    // What it was bound to between these two may have come after the barrier.
    sees_claim(&mut cache, wiped(9));
    pass.reached();
    let next = pass.next(&mut cache, moment());
    assert!(is_barrier(&next), "{next:?}");
    pass.reached();
    let next = pass.next(&mut cache, moment());
    assert!(matches!(next, Request::Write(_)), "{next:?}");
}

#[test]
fn r6_a_barrier_proves_nothing_about_a_claim_that_was_read_later() {
    let mut cache = Cache::default();
    sees_class(&mut cache);
    // A claim is read before an address that waits for it is completed.
    sees_address(&mut cache, "");
    sees_claim(&mut cache, wiped(3));
    let mut pass = BindingPass::new(Work::Claim(key()));
    assert!(is_barrier(&pass.next(&mut cache, moment())));
    pass.reached();
    let next = pass.next(&mut cache, moment());
    assert_eq!(next, Request::Read(key()));
    pass.read(Found::Claim(Some(Arc::new(wiped(9)))));
    let next = pass.next(&mut cache, moment());
    assert!(is_barrier(&next), "{next:?}");
    pass.reached();
    let next = pass.next(&mut cache, moment());
    assert!(matches!(next, Request::Write(_)), "{next:?}");
}

#[test]
fn r3_a_class_that_was_read_to_be_absent_and_is_then_seen_is_there() {
    let mut cache = Cache::default();
    let mut claim = wiped(3);
    claim.status.get_or_insert_default().phase = Some(ClaimPhase::Pending);
    let stamp = (
        names::PROVISIONER.to_owned(),
        "driver.example.com".to_owned(),
    );
    claim.metadata.annotations.extend([stamp]);
    sees_claim(&mut cache, claim);
    let mut pass = BindingPass::new(Work::Claim(key()));
    let next = pass.next(&mut cache, moment());
    assert_eq!(next, Request::Read(Key::class("c")));
    sees_class(&mut cache);
    pass.read(Found::Class(None));
    match pass.next(&mut cache, moment()) {
        Request::Write(Write::Claim { object, .. }) => {
            assert_eq!(object.stamp(), Some("driver.example.com"));
            assert_eq!(object.resolved_class(), "c");
        }
        other => panic!("{other:?}"),
    }
}
