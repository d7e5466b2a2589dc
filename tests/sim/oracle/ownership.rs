//! Who may write which field: the table of the source's §3 with the additions of the design.

use ipledger_core::api::{AddressPhase, Condition, IPAddress, IPAddressClaim, names};
use ipledger_core::store::Part;
use ipledger_drivers::range;

use super::{Verb, Written, has_derived_name};
use crate::ledger::Who;

/// What is said of a write that is not its writer's to make.
type Found = Vec<String>;

pub(super) fn class(w: &Written, out: &mut Found) {
    match w.who {
        Who::Core => out.push(format!("the core never writes a class ({})", w.key)),
        Who::Range if w.verb != Verb::Update(Part::Status) => {
            out.push(format!(
                "the range driver writes more of {} than its status",
                w.key
            ));
        }
        _ => {}
    }
}

pub(super) fn claim(
    w: &Written,
    before: Option<&IPAddressClaim>,
    now: &IPAddressClaim,
    out: &mut Found,
) {
    let Some(before) = before.filter(|_| !matches!(w.verb, Verb::Delete(_))) else {
        if matches!(w.who, Who::Core | Who::Range | Who::Driver) {
            out.push(format!(
                "{:?} never creates or deletes a claim ({})",
                w.who, w.key
            ));
        }
        return;
    };
    let (own_finalizer, own_annotation, may_write_status) = match w.who {
        Who::Core => (Some(names::CLAIM_PROTECTION), names::PROVISIONER, true),
        Who::Range | Who::Driver => (None, names::PROVISIONING_STATUS, false),
        Who::Tenant | Who::Admin | Who::Vandal => return,
    };
    if before.spec != now.spec || before.metadata.labels != now.metadata.labels {
        out.push(format!(
            "{:?} changed the spec or the labels of {}",
            w.who, w.key
        ));
    }
    if without(&before.metadata.annotations, &[own_annotation])
        != without(&now.metadata.annotations, &[own_annotation])
    {
        out.push(format!(
            "{:?} changed an annotation of {} that is not its own",
            w.who, w.key
        ));
    }
    if others(&before.metadata.finalizers, own_finalizer)
        != others(&now.metadata.finalizers, own_finalizer)
    {
        out.push(format!(
            "{:?} changed a finalizer of {} that is not its own",
            w.who, w.key
        ));
    }
    if before.status != now.status && !may_write_status {
        out.push(format!("{:?} wrote the status of {}", w.who, w.key));
    }
}

pub(super) fn address(w: &Written, before: Option<&IPAddress>, now: &IPAddress, out: &mut Found) {
    match (w.who, &w.verb, before) {
        (Who::Core, Verb::Create, _) => out.push(format!("the core created {}", w.key)),
        (Who::Core, Verb::Delete(p), _) if p.uid.is_none() || p.revision.is_none() => {
            out.push(format!(
                "the core deleted {} without saying which uid and revision",
                w.key
            ));
        }
        (Who::Core, Verb::Update(part), Some(before)) => core(w, *part, before, now, out),
        (Who::Range, Verb::Create, _) => created_by_range(w, now, out),
        (Who::Range, Verb::Delete(_), _) => out.push(format!("the range driver deleted {}", w.key)),
        (Who::Range | Who::Driver, Verb::Update(part), Some(before)) => {
            driver(w, *part, before, now, out);
        }
        _ => {}
    }
}

fn core(w: &Written, part: Part, before: &IPAddress, now: &IPAddress, out: &mut Found) {
    let (old, new) = (&before.metadata, &now.metadata);
    let own = [names::BOUND_BY_CORE, names::PARKED_FOR];
    if old.labels != new.labels
        || without(&old.annotations, &own) != without(&new.annotations, &own)
    {
        out.push(format!(
            "the core changed metadata of {} that is not its own",
            w.key
        ));
    }
    if others(&old.finalizers, Some(names::ADDRESS_PROTECTION))
        != others(&new.finalizers, Some(names::ADDRESS_PROTECTION))
    {
        out.push(format!(
            "the core changed somebody's finalizer on {}",
            w.key
        ));
    }
    let mut same_ref = now.spec.clone();
    same_ref.claim_ref = before.spec.claim_ref.clone();
    if same_ref != before.spec {
        out.push(format!(
            "the core changed the spec of {} beyond the claimRef",
            w.key
        ));
    }
    if part == Part::Status {
        let (old, new) = (
            before.status.clone().unwrap_or_default(),
            now.status.clone().unwrap_or_default(),
        );
        let own = ["Bound", "Valid", "Reclaimed"];
        if old.associated_to != new.associated_to
            || old.extra != new.extra
            || conditions(&old.conditions, &own) != conditions(&new.conditions, &own)
        {
            out.push(format!(
                "the core changed a driver's part of the status of {}",
                w.key
            ));
        }
        let sticky = |p: Option<AddressPhase>| p.is_some_and(AddressPhase::is_sticky);
        if (sticky(old.phase) || sticky(new.phase)) && old.phase != new.phase {
            out.push(format!(
                "the core moved {} from {:?} to {:?}: Conflict and Lost are the drivers'",
                w.key, old.phase, new.phase
            ));
        }
    }
}

fn created_by_range(w: &Written, now: &IPAddress, out: &mut Found) {
    let holder = now.spec.claim_ref.as_ref();
    if !has_derived_name(now)
        || holder.is_none_or(|r| r.uid.is_empty())
        || !now.metadata.has_finalizer(range::FINALIZER)
        || now.spec.class_name.is_empty()
    {
        out.push(format!("the range driver created {} not as D2 says", w.key));
    }
}

fn driver(w: &Written, part: Part, before: &IPAddress, now: &IPAddress, out: &mut Found) {
    if part == Part::Main {
        if before.spec != now.spec {
            out.push(format!("{:?} changed the spec of {}", w.who, w.key));
        }
        let core = [names::ADDRESS_PROTECTION];
        let kept = |a: &IPAddress| core.map(|f| a.metadata.has_finalizer(f));
        let own = |a: &IPAddress| a.metadata.has_finalizer(range::FINALIZER);
        if w.who == Who::Range && own(before) && !own(now) {
            if !before.metadata.is_deleting()
                || before.metadata.has_finalizer(names::ADDRESS_PROTECTION)
            {
                out.push(format!("{} is let go while the core keeps it (D7)", w.key));
            }
            let rests = before.metadata.annotation(range::REUSE_AFTER).is_some();
            if rests && before.metadata.annotation(range::REUSABLE_AT).is_none() {
                out.push(format!("{} is let go without its cool-down (D5)", w.key));
            }
        }
        if kept(before) != kept(now) {
            out.push(format!(
                "{:?} changed the core's finalizer on {}",
                w.who, w.key
            ));
        }
    } else if w.who == Who::Range
        && before.status.as_ref().and_then(|s| s.phase) != now.status.as_ref().and_then(|s| s.phase)
    {
        out.push(format!("the range driver changed the phase of {}", w.key));
    }
}

fn without<'a>(
    map: &'a std::collections::BTreeMap<String, String>,
    own: &[&str],
) -> Vec<(&'a String, &'a String)> {
    map.iter()
        .filter(|(k, _)| !own.contains(&k.as_str()))
        .collect()
}

fn others<'a>(finalizers: &'a [String], own: Option<&str>) -> Vec<&'a String> {
    finalizers
        .iter()
        .filter(|f| Some(f.as_str()) != own)
        .collect()
}

fn conditions<'a>(all: &'a [Condition], own: &[&str]) -> Vec<&'a Condition> {
    all.iter()
        .filter(|c| !own.contains(&c.type_.as_str()))
        .collect()
}
