//! Objects for the tests of this module.

use std::sync::Arc;

use ipledger_core::api::{
    ClaimFamily, ClaimPhase, ClaimRef, IPAddress, IPAddressClaim, IPAddressClass, Key, Timestamp,
    names,
};
use ipledger_core::net::Ip;
use ipledger_core::runtime::Change;
use serde_json::Value;

use super::{FINALIZER, NAME};

pub(super) fn ip(text: &str) -> Ip {
    Ip::parse(text).unwrap()
}

pub(super) fn claim_key(name: &str) -> Key {
    Key::claim("a", name)
}

/// A class of this driver; its name says its age, too.
pub(super) fn class(name: &str, parameters: Value) -> IPAddressClass {
    let mut class = IPAddressClass::default();
    class.metadata.name = name.to_owned();
    class.metadata.uid = format!("uid-of-{name}");
    class.metadata.generation = 1;
    class.spec.provisioner = NAME.to_owned();
    class.spec.parameters = Some(parameters);
    class
}

/// A claim that the core has resolved to class `c` and stamped.
pub(super) fn claim(name: &str, family: ClaimFamily) -> IPAddressClaim {
    let mut claim = IPAddressClaim::default();
    claim.metadata.namespace = "a".to_owned();
    claim.metadata.name = name.to_owned();
    claim.metadata.uid = format!("uid-of-{name}");
    let stamp = (names::PROVISIONER.to_owned(), NAME.to_owned());
    claim.metadata.annotations.extend([stamp]);
    claim.spec.family = family;
    let status = claim.status.get_or_insert_default();
    status.phase = Some(ClaimPhase::Pending);
    status.class_name = "c".to_owned();
    claim
}

pub(super) fn claim4(name: &str) -> IPAddressClaim {
    claim(name, ClaimFamily::IPv4)
}

/// An address of class `c` that nobody holds.
pub(super) fn address(text: &str) -> IPAddress {
    let mut address = IPAddress::default();
    address.metadata.name = ip(text).object_name();
    address.metadata.add_finalizer(FINALIZER);
    address.spec.address = text.to_owned();
    address.spec.class_name = "c".to_owned();
    address
}

/// An address of class `c` that the claim of this name holds.
pub(super) fn held(text: &str, claim: &str) -> IPAddress {
    let mut address = address(text);
    address.spec.claim_ref = Some(ClaimRef {
        namespace: "a".to_owned(),
        name: claim.to_owned(),
        uid: format!("uid-of-{claim}"),
        ..ClaimRef::default()
    });
    address
}

pub(super) fn deleting(mut address: IPAddress) -> IPAddress {
    address.metadata.deletion_timestamp = Some(Timestamp::from_unix(1));
    address
}

/// What a view is told of an object.
pub(super) trait Seen {
    fn seen(&self) -> Change;
    fn gone(&self) -> Change;
}

impl Seen for IPAddressClass {
    fn seen(&self) -> Change {
        let (key, old, new) = (self.key(), None, Some(Arc::new(self.clone())));
        Change::Class { key, old, new }
    }

    fn gone(&self) -> Change {
        let (key, old, new) = (self.key(), None, None);
        Change::Class { key, old, new }
    }
}

impl Seen for IPAddress {
    fn seen(&self) -> Change {
        let (key, old, new) = (self.key(), None, Some(Arc::new(self.clone())));
        Change::Address { key, old, new }
    }

    fn gone(&self) -> Change {
        let (key, old, new) = (self.key(), None, None);
        Change::Address { key, old, new }
    }
}

impl Seen for IPAddressClaim {
    fn seen(&self) -> Change {
        let (key, old, new) = (self.key(), None, Some(Arc::new(self.clone())));
        Change::Claim { key, old, new }
    }

    fn gone(&self) -> Change {
        let (key, old, new) = (self.key(), None, None);
        Change::Claim { key, old, new }
    }
}
