//! The plan for a claim (seed 000 §4).

use std::sync::Arc;

use super::assign::{Assignment, Slot, assign, is_decided};
use super::held::{claim_ref, holder_uid, is_given_up, is_matchable, mark_bound, says_bound_to};
use super::status::{self, Findings};
use super::{ClaimView, Event, EventKind, Need, Plan, Resolution, Step, Write, reclaim, surplus};
use crate::api::{
    AddressPhase, ClaimFamily, ClaimPhase, Condition, ConditionStatus, IPAddress, IPAddressClaim,
    IPAddressClass, Key, Kind, find_condition, names,
};
use crate::mutant::{Mutant, active, either};
use crate::net::{Family, Ip};
use names::{condition, reason};

/// Plans one pass over a claim.
pub fn plan(view: &ClaimView) -> Step {
    let Some(claim) = view.claim.object.as_deref() else {
        return Step::nothing();
    };
    // Step 1.
    if claim.metadata.is_deleting() {
        return reclaim::plan(view, claim);
    }
    match decide(view, claim) {
        Ok(plan) => Step::Do(plan),
        Err(needs) => Step::Need(needs),
    }
}

/// What an address is to become for a claim, and how it is seen now.
struct Taken {
    now: Arc<IPAddress>,
    matched: bool,
}

fn decide(view: &ClaimView, claim: &IPAddressClaim) -> Result<Plan, Vec<Need>> {
    // Step 3, and which of the collected addresses count.
    let mut assignment = assign(view, claim)?;
    // That the claim lives may be an old view. It is asked before the claim is put on an address that
    // waits for the next claim of this name (R4, R13), or that somebody has reclaimed.
    if !view.claim.proven
        && assignment
            .held()
            .any(|a| holder_uid(a).is_empty() || is_given_up(a))
    {
        return Err(vec![Need::Read(claim.key())]);
    }
    let mut taken: Vec<Taken> = assignment
        .held()
        .map(|address| Taken {
            now: address.clone(),
            matched: false,
        })
        .collect();
    // Steps 5 to 7, only with families missing and never for a claim that was bound (R5).
    let obstacle = obstacle(view, claim, &assignment);
    let mut class_consulted = false;
    let was_bound = is_decided(claim) && !active(Mutant::LostMatchedAgain);
    if !assignment.missing().is_empty() && !assignment.has_lost() && !was_bound {
        if claim.spec.address_name.is_empty() {
            class_consulted = obstacle.is_none();
        }
        // Views of different age would take turns in saying that there is a class and that there is
        // none: whoever contradicts what is said already proves it first.
        if class_consulted && contradicts(view, claim) && !view.classes_current {
            return Err(vec![Need::Barrier(Kind::IPAddressClass)]);
        }
        if obstacle.is_none() {
            let found = matches(view, claim, &assignment);
            // A match for a dead claim is no match to undo: once it says `Bound`, its policy decides.
            // Without its finalizer the claim is written first, which proves the same.
            let proves_itself = !claim.metadata.has_finalizer(names::CLAIM_PROTECTION);
            if !found.is_empty() && !proves_itself && !view.claim.proven {
                return Err(vec![Need::Read(claim.key())]);
            }
            for (address, family) in found {
                taken.push(Taken {
                    now: address.clone(),
                    matched: true,
                });
                for slot in assignment.slots.iter_mut().filter(|(f, _)| *f == family) {
                    slot.1 = Slot::Held(address.clone());
                }
            }
        }
    }
    let findings = Findings {
        assignment: &assignment,
        class_consulted,
        obstacle,
    };
    let desired = status::compute(view, claim, &findings);
    // No deletion mark ever goes from an object, so that a view without it may be an old one. Taken at
    // its word, two cores write against each other for as long as one of them lags.
    if says_deleting(claim.conditions()) && !says_deleting(&desired.conditions) {
        let unproven = assignment.held().filter(|a| {
            let seen = view.named.get(&a.metadata.name);
            seen.is_some_and(|s| !s.proven)
        });
        let needs: Vec<Need> = unproven.map(|a| Need::Read(a.key())).collect();
        if !needs.is_empty() {
            return Err(needs);
        }
    }
    let stamp = stamp(view, claim, &findings)?;

    // The order of writes (R11): the claim's protection, the addresses, the claim's status, and
    // the stamp last if there was something to match first (R10).
    let mut plan = Plan::default();
    let mut main = claim.clone();
    main.metadata.add_finalizer(names::CLAIM_PROTECTION);
    for t in &taken {
        write_address(view, claim, t, assignment.fence, &mut plan);
    }
    let stamp_first = match &stamp {
        Stamp::Remove => true,
        Stamp::Write(_) => {
            plan.writes.is_empty() && desired.phase == Some(ClaimPhase::Pending)
                || active(Mutant::StampBeforeMatch)
        }
        Stamp::Keep => false,
    };
    if stamp_first {
        stamp.apply(&mut main);
    }
    if main.metadata != claim.metadata {
        let at = either(Mutant::BoundBeforeProtected, 0, plan.writes.len());
        plan.writes.insert(at, Write::claim(main.clone()));
    }
    if status::differs(view, claim, &desired) {
        let mut object = main.clone();
        object.status = Some(desired.clone());
        let at = either(Mutant::ReportedBeforeCondition, plan.writes.len(), 0);
        plan.writes.insert(at, Write::claim_status(object));
        plan.events.extend(event(claim, &desired));
    }
    if !stamp_first {
        let mut stamped = main.clone();
        stamp.apply(&mut stamped);
        if stamped.metadata != main.metadata {
            plan.writes.push(Write::claim(stamped));
        }
    }
    if plan.writes.is_empty() {
        // Surplus is looked at only once everything else is settled (R6d).
        return surplus::plan(view, claim, &assignment);
    }
    Ok(plan)
}

/// Whether the class resolves now and did not as the claim's status has it, or the other way round.
fn contradicts(view: &ClaimView, claim: &IPAddressClaim) -> bool {
    find_condition(claim.conditions(), condition::CLASS_RESOLVED)
        .is_some_and(|said| (said.status == ConditionStatus::True) != view.class.class().is_some())
}

fn says_deleting(conditions: &[Condition]) -> bool {
    find_condition(conditions, condition::ADDRESS_DELETING).is_some()
}

/// Why the spec itself keeps the claim from being bound (R9).
fn obstacle(
    view: &ClaimView,
    claim: &IPAddressClaim,
    assignment: &Assignment,
) -> Option<(&'static str, String)> {
    if claim.spec.address_name.is_empty() || assignment.is_complete() || is_decided(claim) {
        return None;
    }
    let name = &claim.spec.address_name;
    if claim.spec.family == ClaimFamily::Dual {
        return Some((
            reason::INVALID_SPEC,
            "spec.addressName names one address and spec.family Dual asks for two; drop one of \
             them"
                .to_owned(),
        ));
    }
    let Some(address) = view.named.get(name).and_then(|s| s.object.as_deref()) else {
        // What looks like the address itself is told from the object that it may well have.
        let message = match Ip::parse(name) {
            Ok(ip) => format!(
                "spec.addressName is {name}, and no address object has that name; the one of this \
                 IP is {}",
                ip.object_name()
            ),
            Err(_) => format!("address {name} does not exist"),
        };
        return Some((reason::ADDRESS_NOT_FOUND, message));
    };
    let wanted = claim.spec.family.families();
    if let Some(ip) = address.ip()
        && !wanted.contains(&ip.family())
        && !active(Mutant::NamedFamilyUnchecked)
    {
        return Some((
            reason::ADDRESS_FAMILY_MISMATCH,
            format!(
                "address {name} is {} and spec.family asks for {}",
                ip.family(),
                claim.spec.family.as_str()
            ),
        ));
    }
    let class = &claim.spec.class_name;
    if !class.is_empty()
        && *class != address.spec.class_name
        && !active(Mutant::NamedClassUnchecked)
    {
        return Some((
            reason::ADDRESS_CLASS_MISMATCH,
            format!("address {name} is not of class {class}, which spec.className asks for"),
        ));
    }
    if address.metadata.is_deleting() {
        return Some((
            reason::ADDRESS_DELETING,
            format!("address {name} is marked for deletion"),
        ));
    }
    if let Some(holder) = &address.spec.claim_ref {
        if address.phase() == Some(AddressPhase::Released) && !active(Mutant::WrongObstacle) {
            return Some((
                reason::ADDRESS_RELEASED,
                format!("address {name} was released and waits for an admin to clear it"),
            ));
        }
        // Nothing of another namespace may show.
        let by = if holder.namespace == claim.metadata.namespace {
            format!("claim {}", holder.name)
        } else {
            "another claim".to_owned()
        };
        return Some((
            reason::ADDRESS_IN_USE,
            format!("address {name} is held by {by}"),
        ));
    }
    if !is_matchable(address) {
        let phase = address.phase().map_or("not seen yet", AddressPhase::as_str);
        return Some((
            reason::ADDRESS_NOT_AVAILABLE,
            format!("address {name} is not available (phase {phase})"),
        ));
    }
    None
}

/// Free addresses for the missing families (§4 step 7).
fn matches(
    view: &ClaimView,
    claim: &IPAddressClaim,
    assignment: &Assignment,
) -> Vec<(Arc<IPAddress>, Family)> {
    let mut found = Vec::new();
    for family in assignment.missing() {
        let candidate = if claim.spec.address_name.is_empty() {
            view.class
                .class()
                .and_then(|_| view.candidates.get(&family))
        } else {
            view.named
                .get(&claim.spec.address_name)
                .and_then(|s| s.object.as_ref())
        };
        if let Some(address) = candidate.filter(|a| is_matchable(a)) {
            found.push((address.clone(), family));
        }
    }
    found
}

/// Makes an address the claim's: claimRef (or its missing uid) and protection in one write, then
/// phase and condition.
fn write_address(
    view: &ClaimView,
    claim: &IPAddressClaim,
    taken: &Taken,
    fence: bool,
    plan: &mut Plan,
) {
    let uid = claim.metadata.uid.as_str();
    let mut address = IPAddress::clone(&taken.now);
    if taken.matched {
        address.spec.claim_ref = Some(claim_ref(claim));
        address
            .metadata
            .annotations
            .insert(names::BOUND_BY_CORE.to_owned(), uid.to_owned());
        if active(Mutant::MarkForgotten) {
            address.metadata.annotations.remove(names::BOUND_BY_CORE);
        }
    } else if holder_uid(&address).is_empty()
        && let Some(r) = &mut address.spec.claim_ref
    {
        // Step 4. The claimRef is not the core's, so it gets no mark (R6a).
        r.uid = uid.to_owned();
    }
    if fence && !taken.matched {
        // The mark goes, so that a late undoing by another controller loses its swap (R6e).
        address.metadata.annotations.remove(names::BOUND_BY_CORE);
    }
    if !address.metadata.is_deleting() {
        address.metadata.add_finalizer(names::ADDRESS_PROTECTION);
    }
    if address != *taken.now {
        plan.writes.push(Write::address(address.clone()));
    }
    let mut marked = address.clone();
    mark_bound(&mut marked, claim, view.now);
    let settled = says_bound_to(&address, uid)
        && marked.status.as_ref().and_then(|s| s.phase) == address.phase();
    if !settled {
        plan.writes.push(Write::address_status(marked));
    }
}

/// What is to happen to the claim's stamp.
enum Stamp {
    Keep,
    Remove,
    Write(String),
}

impl Stamp {
    fn apply(&self, claim: &mut IPAddressClaim) {
        match self {
            Stamp::Keep => {}
            Stamp::Remove => {
                claim.metadata.annotations.remove(names::PROVISIONER);
            }
            Stamp::Write(driver) => {
                claim
                    .metadata
                    .annotations
                    .insert(names::PROVISIONER.to_owned(), driver.clone());
            }
        }
    }
}

/// The stamp mirrors the resolved class while the claim waits, is kept once it is bound, and goes
/// where no driver may provision (R10).
fn stamp(
    view: &ClaimView,
    claim: &IPAddressClaim,
    findings: &Findings<'_>,
) -> Result<Stamp, Vec<Need>> {
    let driver_of = |class: Option<&Arc<IPAddressClass>>| match class {
        Some(class) if !class.spec.provisioner.is_empty() => {
            Stamp::Write(class.spec.provisioner.clone())
        }
        _ => Stamp::Keep,
    };
    match status::phase(claim, findings) {
        ClaimPhase::Bound if claim.stamp().is_some() && !active(Mutant::StampFollowsClass) => {
            Ok(Stamp::Keep)
        }
        ClaimPhase::Bound => Ok(driver_of(
            view.class
                .class()
                .filter(|_| findings.class_consulted)
                .or(view.stamp_class.as_ref()),
        )),
        ClaimPhase::Lost if active(Mutant::StampKeptWhenLost) => Ok(Stamp::Keep),
        ClaimPhase::Lost => Ok(Stamp::Remove),
        ClaimPhase::Pending if findings.obstacle.is_some() => Ok(Stamp::Remove),
        ClaimPhase::Pending if !claim.spec.address_name.is_empty() => Ok(Stamp::Remove),
        ClaimPhase::Pending => match &view.class {
            Resolution::Class(class) => Ok(driver_of(Some(class))),
            _ if claim.stamp().is_none() => Ok(Stamp::Keep),
            Resolution::NotFound { proven: true, .. } => Ok(Stamp::Remove),
            Resolution::NotFound { name, .. } => Err(vec![Need::Read(Key::class(name))]),
            Resolution::NoDefault | Resolution::ManyDefaults(_) if view.classes_current => {
                Ok(Stamp::Remove)
            }
            _ => Err(vec![Need::Barrier(Kind::IPAddressClass)]),
        },
    }
}

/// Tells the tenant when the phase or the reason changes (R15).
fn event(claim: &IPAddressClaim, desired: &crate::api::IPAddressClaimStatus) -> Option<Event> {
    let before = (claim.phase(), status::bound_reason(claim.conditions()));
    let after = (desired.phase, status::bound_reason(&desired.conditions));
    if before == after && !active(Mutant::EventsRepeated) {
        return None;
    }
    let message = find_condition(&desired.conditions, condition::BOUND)
        .map(|c| c.message.clone())
        .unwrap_or_default();
    let kind = match (is_well(after), before) {
        (false, _) => EventKind::Warning,
        (true, (None, _)) => EventKind::Normal,
        (true, before) if is_well(before) => EventKind::Normal,
        // As the claim itself says it, whichever process gave the warning.
        (true, _) => EventKind::Recovery,
    };
    Some(Event {
        about: claim.key(),
        uid: claim.metadata.uid.clone(),
        kind,
        reason: after.1.to_owned(),
        message,
    })
}

/// Whether nobody has to act on a claim of this phase and reason.
fn is_well(said: (Option<ClaimPhase>, &str)) -> bool {
    match said {
        (Some(ClaimPhase::Bound), _) => true,
        (Some(ClaimPhase::Pending), reason) => reason == reason::WAITING_FOR_PROVISIONING,
        _ => false,
    }
}
