//! What happened, for people and for comparing two runs.

use ipledger_core::api::{IPAddress, IPAddressClaim, Kind, Object};
use ipledger_core::store::Part;

use crate::desk::Request;

/// The course of one run.
#[derive(Clone, Default)]
pub struct Trace {
    pub lines: Vec<String>,
    hash: u64,
}

impl Trace {
    pub fn say(&mut self, what: &str) {
        for byte in what.bytes().chain([b'\n']) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.lines.push(what.to_owned());
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// A request in a few words.
    pub fn describe(&self, request: &Request) -> String {
        match request {
            Request::Get(key) => format!("reads {key}"),
            Request::List(kind, _) => format!("lists {kind}"),
            Request::Barrier(kind) => format!("takes a barrier of {kind}"),
            Request::Create(object) => format!("creates {}: {}", object.key(), gist(object, None)),
            Request::Update(object, part) => {
                let at = object.revision().unwrap_or_default();
                format!(
                    "writes {} at {at}: {}",
                    object.key(),
                    gist(object, Some(*part))
                )
            }
            Request::Delete(key, p) => format!("deletes {key} {p:?}"),
        }
    }
}

fn gist(object: &Object, part: Option<Part>) -> String {
    match (object.kind, part) {
        (Kind::IPAddress, Some(Part::Status)) => IPAddress::from_object(object)
            .map(|a| {
                let said: Vec<String> = a
                    .conditions()
                    .iter()
                    .map(|c| format!("{}={}({})", c.type_, c.status.as_str(), c.message))
                    .collect();
                format!("{:?} {said:?}", a.phase())
            })
            .unwrap_or_default(),
        (Kind::IPAddress, _) => IPAddress::from_object(object)
            .map(|a| {
                let holder = a
                    .spec
                    .claim_ref
                    .map(|r| format!("{}/{} {}", r.namespace, r.name, r.uid));
                format!(
                    "{holder:?} {:?} {:?}",
                    a.metadata.finalizers, a.metadata.annotations
                )
            })
            .unwrap_or_default(),
        (Kind::IPAddressClaim, Some(Part::Status)) => IPAddressClaim::from_object(object)
            .map(|c| {
                let s = c.status.unwrap_or_default();
                let said: Vec<String> = s
                    .conditions
                    .iter()
                    .map(|c| format!("{}={}", c.type_, c.reason))
                    .collect();
                format!(
                    "{:?} {:?} lost {:?} {said:?}",
                    s.phase, s.address_text, s.lost_addresses
                )
            })
            .unwrap_or_default(),
        (Kind::IPAddressClaim, _) => {
            format!(
                "{:?} {:?}",
                object.metadata.finalizers, object.metadata.annotations
            )
        }
        (Kind::IPAddressClass, _) => String::new(),
    }
}
