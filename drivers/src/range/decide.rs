//! Which claims are served, which address is chosen, and what is written for a claim: pure.

use ipledger_core::api::{
    AddressPhase, AddressSource, ClaimPhase, ClaimRef, Extra, IPAddress, IPAddressClaim,
    IPAddressClass, ProvisioningStatus, names,
};
use ipledger_core::mutant::{Mutant, active};
use ipledger_core::net::{Family, Ip, Occupancy};

use super::waiting::Need;
use super::{FINALIZER, NAME, Order, Parameters, REUSE_AFTER};

/// What is to be done for one claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Decision {
    /// It is not ours, it is served, or others have to act first.
    Nothing,
    /// Create these address objects, in this order.
    Create {
        /// The objects.
        addresses: Vec<IPAddress>,
        /// Whether the claim is to be read at `Latest` first, because one of them was sent before
        /// and is not seen yet, or because it may have had another one unseen.
        verify: bool,
    },
    /// Say on the claim why nothing is created.
    Refuse(Refusal),
}

/// Why a claim that is ours gets nothing (R14, D6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The class that the claim resolved to.
    pub(super) class: String,
    /// Why.
    pub(super) cause: Cause,
}

/// See [`Refusal`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Every address of the family is taken.
    Exhausted(Family),
    /// The class lists no address of the family.
    FamilyUnavailable(Family),
    /// The class's parameters cannot be used, and why.
    InvalidParameters(String),
}

impl Refusal {
    /// The value of the claim's annotation. It has no number that moves: those are in the class's
    /// status.
    pub(super) fn status(&self) -> ProvisioningStatus {
        let class = &self.class;
        let (reason, message) = match &self.cause {
            Cause::Exhausted(family) => (
                names::reason::POOL_EXHAUSTED,
                format!(
                    "class {class} has no free {family} address; the numbers are in the status of \
                     the class: widen its `addresses` or release some"
                ),
            ),
            Cause::FamilyUnavailable(family) => (
                names::reason::FAMILY_UNAVAILABLE,
                format!(
                    "class {class} has no {family} range; add one to its `addresses` or ask for \
                     another family"
                ),
            ),
            Cause::InvalidParameters(problem) => (
                names::reason::INVALID_PARAMETERS,
                format!("the parameters of class {class} cannot be used: {problem}"),
            ),
        };
        ProvisioningStatus {
            provisioner: NAME.to_owned(),
            reason: reason.to_owned(),
            class: class.clone(),
            message,
        }
    }
}

/// The class that this claim wants an address from, if it is for this driver to serve: stamped,
/// `Pending`, resolved as its spec says, not being deleted, and not waiting for one certain address.
pub(super) fn class_asked(claim: &IPAddressClaim) -> Option<&str> {
    let class = claim.resolved_class();
    let resolved = !class.is_empty() && ["", class].contains(&claim.spec.class_name.as_str());
    let served = claim.stamp() == Some(NAME)
        && claim.phase() == Some(ClaimPhase::Pending)
        && !claim.metadata.is_deleting()
        && claim.spec.address_name.is_empty();
    (resolved && served).then_some(class)
}

/// The families of the claim that no address covers. `held` are the addresses whose claimRef
/// names the claim.
pub(super) fn missing<'a>(
    claim: &IPAddressClaim,
    held: impl IntoIterator<Item = &'a IPAddress>,
) -> Option<Need> {
    let held = held
        .into_iter()
        .filter_map(|address| covered(claim, address));
    let covered: Vec<Family> = held.collect();
    let families = claim.spec.family.families().iter().copied();
    Need::of(families.filter(|family| !covered.contains(family)))
}

/// The family that an address covers for a claim that it names (R5, R7).
fn covered(claim: &IPAddressClaim, address: &IPAddress) -> Option<Family> {
    let ip = address.ip()?;
    let uid = &address.spec.claim_ref.as_ref()?.uid;
    let counts = (uid.is_empty() || uid == claim.uid())
        && ip.object_name() == address.metadata.name
        && address.phase() != Some(AddressPhase::Lost)
        && !address.metadata.is_deleting()
        && address.metadata.annotation(names::PARKED_FOR) != Some(claim.uid());
    counts.then_some(ip.family())
}

/// A free address of the class: a function of the claim's uid and what is occupied (D2).
pub(super) fn choose(
    parameters: &Parameters,
    occupied: &Occupancy,
    uid: &str,
    family: Family,
) -> Option<Ip> {
    match parameters.order {
        Order::Lowest => occupied.first_free(&parameters.usable, family),
        Order::Random => occupied.first_free_from(&parameters.usable, family, spread(uid, family)),
    }
}

/// FNV-1a over 128 bits: any start in a range of any size, the same in every process and version.
fn spread(uid: &str, family: Family) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let bytes = uid.bytes().chain([family.bits()]);
    let hash = bytes.fold(OFFSET, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(PRIME)
    });
    // A remainder by a power of two looks at the low bits only, which are the weakest.
    hash ^ (hash >> 64)
}

/// The object that hands `ip` out to the claim.
pub(super) fn new_address(
    ip: Ip,
    claim: &IPAddressClaim,
    class: &IPAddressClass,
    parameters: &Parameters,
) -> IPAddress {
    let mut address = IPAddress::default();
    address.metadata.name = ip.object_name();
    address.metadata.add_finalizer(FINALIZER);
    if !parameters.reuse_after.is_zero() && !active(Mutant::RestUnrecorded) {
        let rest = humantime::format_duration(parameters.reuse_after).to_string();
        address
            .metadata
            .annotations
            .insert(REUSE_AFTER.to_owned(), rest);
    }
    address.spec.address = ip.to_string();
    address.spec.class_name = class.metadata.name.clone();
    if !active(Mutant::PolicyUncopied) {
        address.spec.reclaim_policy = class.spec.reclaim_policy;
    }
    address.spec.claim_ref = Some(ClaimRef {
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.uid().to_owned(),
        ..ClaimRef::default()
    });
    address.spec.source = Some(AddressSource {
        from_class: Some(Extra::new()),
        ..AddressSource::default()
    });
    address
}

/// The claim with the annotation as it should be; `None` if it is so already, if it is another
/// driver's, or if the claim is going anyway.
pub(super) fn annotated(
    claim: &IPAddressClaim,
    refusal: Option<&Refusal>,
) -> Option<IPAddressClaim> {
    let written = claim.provisioning_status();
    let wanted = refusal.map(Refusal::status);
    let foreign = wanted.is_none() && written.as_ref().is_none_or(|s| s.provisioner != NAME);
    let unsaid = active(Mutant::RefusalUnsaid);
    if claim.metadata.is_deleting() || foreign || written == wanted || unsaid {
        return None;
    }
    let mut claim = claim.clone();
    let name = names::PROVISIONING_STATUS.to_owned();
    match wanted {
        // Writing strings as JSON cannot fail.
        Some(status) => claim
            .metadata
            .annotations
            .insert(name, serde_json::to_string(&status).ok()?),
        None => claim.metadata.annotations.remove(&name),
    };
    Some(claim)
}

#[cfg(test)]
mod tests;
