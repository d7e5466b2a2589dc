use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Resolution;
use crate::api::{IPAddress, IPAddressClaim, IPAddressClass, Key, Kind, Timestamp};
use crate::mutant::{Mutant, active};
use crate::net::Family;
use crate::store::Revision;

/// An object as it is known, or its absence.
#[derive(Clone, Debug)]
pub struct Seen<T> {
    /// The object; `None` if none is known.
    pub object: Option<Arc<T>>,
    /// Whether this pass read it at `Latest`. Only then is absence a fact (R3).
    pub proven: bool,
}

// Not derived, because that would ask for `T: Default`.
impl<T> Default for Seen<T> {
    fn default() -> Seen<T> {
        Seen {
            object: None,
            proven: false,
        }
    }
}

/// What this pass has read at `Latest` so far.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Claims, `None` for one that does not exist.
    pub claims: BTreeMap<Key, Option<Arc<IPAddressClaim>>>,
    /// Addresses by object name, `None` for one that does not exist.
    pub addresses: BTreeMap<String, Option<Arc<IPAddress>>>,
    /// Classes by name, `None` for one that does not exist.
    pub classes: BTreeMap<String, Option<Arc<IPAddressClass>>>,
    /// Kinds whose cached state was made current, each with the revision of the claim that was known
    /// when that was asked for: of what has become of the claim since it proves nothing.
    pub barriers: BTreeMap<Kind, Option<Revision>>,
}

impl Facts {
    /// Forgets what was read of single objects.
    pub fn forget_reads(&mut self) {
        if active(Mutant::ReadsKeptForEver) {
            return;
        }
        self.claims.clear();
        self.addresses.clear();
        self.classes.clear();
    }
}

/// All that a plan for a claim may look at.
#[derive(Clone, Debug, Default)]
pub struct ClaimView {
    /// The claim itself.
    pub claim: Seen<IPAddressClaim>,
    /// Every address whose claimRef names the claim, with its uid or without any, in name order.
    pub addresses: Vec<Arc<IPAddress>>,
    /// The addresses that the claim's status or `spec.addressName` names.
    pub named: BTreeMap<String, Seen<IPAddress>>,
    /// What its class resolves to.
    pub class: Resolution,
    /// The class that `status.className` names, or else that of the addresses it holds.
    pub stamp_class: Option<Arc<IPAddressClass>>,
    /// For each family the free address of the resolved class with the smallest name.
    pub candidates: BTreeMap<Family, Arc<IPAddress>>,
    /// Whether `addresses` covers everything committed before the claim became as it is here.
    pub addresses_current: bool,
    /// Whether `class` was resolved from all classes committed before the claim became as it is here.
    pub classes_current: bool,
    /// Whether the server was seen to keep our additions to a claim's status.
    pub additions_kept: bool,
    /// The wall clock.
    pub now: Timestamp,
}

/// All that a plan for an address may look at.
#[derive(Clone, Debug)]
pub struct AddressView {
    /// The address itself.
    pub address: Arc<IPAddress>,
    /// The claim that its claimRef names (any uid).
    pub claim: Seen<IPAddressClaim>,
    /// How long this process has seen it wait for a claim that does not exist.
    pub waited: Duration,
    /// How long a pre-bound address with policy `Delete` waits for its claim; zero means for ever.
    pub grace: Duration,
    /// The wall clock.
    pub now: Timestamp,
}
