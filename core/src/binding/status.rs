//! The status of a claim, recomputed from scratch (§4 step 8, R12).

use super::ClaimView;
use super::assign::{Assignment, Slot, entry, is_decided};
use crate::api::{
    ClaimFamily, ClaimPhase, Condition, IPAddress, IPAddressClaim, IPAddressClaimStatus,
    ProvisioningStatus, Verdict, find_condition, names, remove_condition, set_condition,
};
use crate::mutant::{Mutant, active};
use names::{condition, reason};

/// What a pass found out about a claim, for its status.
pub(super) struct Findings<'a> {
    /// What it has after this pass.
    pub(super) assignment: &'a Assignment,
    /// Whether its class was asked for in this pass.
    pub(super) class_consulted: bool,
    /// Why nothing else can be had, if the spec itself is the reason.
    pub(super) obstacle: Option<(&'static str, String)>,
}

/// The phase that the assignment makes.
pub(super) fn phase(claim: &IPAddressClaim, findings: &Findings<'_>) -> ClaimPhase {
    if findings.assignment.is_complete() {
        ClaimPhase::Bound
    } else if is_decided(claim) || findings.assignment.has_lost() {
        ClaimPhase::Lost
    } else {
        ClaimPhase::Pending
    }
}

/// The claim's status as it should be.
pub(super) fn compute(
    view: &ClaimView,
    claim: &IPAddressClaim,
    findings: &Findings<'_>,
) -> IPAddressClaimStatus {
    let mut status = claim.status.clone().unwrap_or_default();
    let phase = phase(claim, findings);
    let mut held: Vec<&IPAddress> = findings.assignment.held().map(AsRef::as_ref).collect();
    held.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    status.phase = Some(phase);
    status.addresses = held.iter().map(|a| entry(a)).collect();
    status.lost_addresses = Vec::new();
    if phase == ClaimPhase::Lost {
        let lost = findings
            .assignment
            .slots
            .iter()
            .filter_map(|(_, slot)| match slot {
                Slot::Lost(entry) => Some(entry.clone()),
                _ => None,
            });
        if prunes_additions(view, claim) {
            status.addresses.extend(lost);
            status.addresses.sort_by(|a, b| a.name.cmp(&b.name));
        } else {
            status.lost_addresses = lost.collect();
        }
    }
    status.address_text = status
        .addresses
        .iter()
        .map(|e| e.address.as_str())
        .collect::<Vec<_>>()
        .join(",");
    if findings.class_consulted
        && let Some(class) = view.class.class()
    {
        status.class_name = class.metadata.name.clone();
    }
    if status.class_name.is_empty()
        && phase == ClaimPhase::Bound
        && let Some(address) = held.first()
    {
        // Bound without asking for a class: the address knows which one it is of.
        status.class_name = address.spec.class_name.clone();
    }
    write_conditions(view, claim, findings, phase, &held, &mut status);
    status
}

fn write_conditions(
    view: &ClaimView,
    claim: &IPAddressClaim,
    findings: &Findings<'_>,
    phase: ClaimPhase,
    held: &[&IPAddress],
    status: &mut IPAddressClaimStatus,
) {
    let (generation, now) = (claim.metadata.generation, view.now);
    let all: &mut Vec<Condition> = &mut status.conditions;
    if findings.class_consulted {
        let (reason, message) = view.class.explain();
        let verdict = match view.class.class() {
            Some(_) => Verdict::yes(reason, message),
            None => Verdict::no(reason, message),
        };
        set_condition(all, condition::CLASS_RESOLVED, verdict, generation, now);
    } else if phase == ClaimPhase::Pending {
        remove_condition(all, condition::CLASS_RESOLVED);
    }
    let verdict = match phase {
        ClaimPhase::Bound => Verdict::yes(
            reason::BOUND,
            format!("holds {}", status.address_text.replace(',', " and ")),
        ),
        ClaimPhase::Lost => Verdict::no(reason::ADDRESS_LOST, lost_message(findings)),
        ClaimPhase::Pending => pending(view, claim, findings, held),
    };
    set_condition(all, condition::BOUND, verdict, generation, now);
    let deleting: Vec<&str> = held
        .iter()
        .filter(|a| a.metadata.is_deleting())
        .map(|a| a.metadata.name.as_str())
        .collect();
    if deleting.is_empty() {
        remove_condition(all, condition::ADDRESS_DELETING);
    } else {
        let message = format!(
            "{} is marked for deletion and goes when this claim is deleted",
            deleting.join(" and ")
        );
        let verdict = Verdict::yes(reason::ADDRESS_DELETING, message);
        set_condition(all, condition::ADDRESS_DELETING, verdict, generation, now);
    }
}

fn lost_message(findings: &Findings<'_>) -> String {
    let lost: Vec<String> = findings
        .assignment
        .slots
        .iter()
        .filter_map(|(family, slot)| match slot {
            Slot::Held(_) => None,
            Slot::Lost(entry) => Some(format!("{} ({})", entry.address, entry.name)),
            Slot::Missing => Some(format!("its {family} address")),
        })
        .collect();
    format!(
        "lost {}; it is bound again when that address is back; delete the claim to give up",
        lost.join(" and ")
    )
}

/// Why a claim waits.
fn pending(
    view: &ClaimView,
    claim: &IPAddressClaim,
    findings: &Findings<'_>,
    held: &[&IPAddress],
) -> Verdict {
    if let Some((reason, message)) = &findings.obstacle {
        return Verdict::no(*reason, message.clone());
    }
    let Some(class) = view.class.class() else {
        let (reason, message) = view.class.explain();
        return Verdict::no(reason, message);
    };
    let provisioner = class.spec.provisioner.as_str();
    // A driver's word counts only if the class that it speaks of is still the one (R14).
    let said = claim.provisioning_status().and_then(sound).filter(|s| {
        (s.provisioner == provisioner || active(Mutant::AnyDriversWord))
            && s.class == class.metadata.name
            && !s.reason.is_empty()
    });
    let (reason, message) = match said {
        Some(s) => (s.reason, s.message),
        None => (
            reason::WAITING_FOR_PROVISIONING.to_owned(),
            format!(
                "waits for {provisioner} to provide an address of class {}",
                class.metadata.name
            ),
        ),
    };
    match held.first() {
        Some(address)
            if claim.spec.family == ClaimFamily::Dual && !active(Mutant::PartlyBoundUnsaid) =>
        {
            let missing = findings.assignment.missing();
            let missing = missing.first().map(ToString::to_string).unwrap_or_default();
            Verdict::no(
                reason::PARTIALLY_BOUND,
                format!(
                    "holds {}; {missing} is missing: {reason}: {message}",
                    address.spec.address
                ),
            )
        }
        _ => Verdict::no(reason, message),
    }
}

/// Longest message of a driver that is shown, in characters.
const MAX_MESSAGE: usize = 1_024;

/// The annotation is in the tenant's reach, so that it may say anything (R9): only what has the form
/// of a reason, and is not one of the core's good news, is shown.
fn sound(mut said: ProvisioningStatus) -> Option<ProvisioningStatus> {
    let form = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let first = said.reason.chars().next()?;
    if !first.is_ascii_alphabetic()
        || !said.reason.chars().all(form)
        || said.reason.len() > 128
        || said.reason == reason::BOUND
    {
        return None;
    }
    if said.message.chars().count() > MAX_MESSAGE {
        said.message = said.message.chars().take(MAX_MESSAGE).collect();
    }
    Some(said)
}

/// Whether the server that keeps this claim drops our additions to its status: none was ever seen,
/// and this claim was written with addresses and is without the text that is always written with
/// them.
fn prunes_additions(view: &ClaimView, claim: &IPAddressClaim) -> bool {
    !view.additions_kept
        && claim
            .status
            .as_ref()
            .is_some_and(IPAddressClaimStatus::lacks_additions)
}

/// Whether writing `desired` would change what the server keeps. A field that it drops is not
/// written again and again (R12).
pub(super) fn differs(
    view: &ClaimView,
    claim: &IPAddressClaim,
    desired: &IPAddressClaimStatus,
) -> bool {
    let Some(current) = &claim.status else {
        return true;
    };
    if prunes_additions(view, claim) {
        let mut kept = desired.clone();
        kept.address_text = String::new();
        return *current != kept;
    }
    current != desired
}

/// The reason of the claim's `Bound` condition.
pub(super) fn bound_reason(conditions: &[Condition]) -> &str {
    find_condition(conditions, condition::BOUND).map_or("", |c| c.reason.as_str())
}
