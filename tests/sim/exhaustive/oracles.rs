//! What must hold: in every state of the ledger, and of every write. `rest` has what must hold once
//! the system is at rest.

use std::collections::HashSet;

use ipledger_core::api::{
    AddressPhase, ClaimPhase, ConditionStatus, IPAddress, IPAddressClaim, ReclaimPolicy,
    find_condition, names,
};
use ipledger_core::net::{Family, Ip};

use super::hash::Fast;
use super::rest;
use super::state::PLACES;
use super::table::{Entry, EntryId, Table};
use super::universe::Universe;

/// Who has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    Core,
    Driver,
    Tenant,
    Admin,
}

pub type Verdict = Result<(), String>;
pub type Ledger<'a> = [&'a Entry; PLACES];

/// The oracles, and what they have found well.
#[derive(Default)]
pub struct Oracles {
    judged: HashSet<([EntryId; PLACES], EntryId, Who), Fast>,
    rested: HashSet<[EntryId; PLACES], Fast>,
}

pub fn check(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

pub fn holder(address: &IPAddress) -> &str {
    let holder = address.spec.claim_ref.as_ref();
    holder.map_or("", |r| r.uid.as_str())
}

pub fn protected(address: &IPAddress) -> bool {
    address.metadata.has_finalizer(names::ADDRESS_PROTECTION)
}

pub fn family(text: &str) -> Option<Family> {
    Ip::parse(text).ok().map(|ip| ip.family())
}

pub fn is_parked(address: &IPAddress, uid: &str) -> bool {
    address.metadata.annotation(names::PARKED_FOR) == Some(uid)
}

/// The claims that are not being deleted.
pub fn live<'a>(ledger: &Ledger<'a>) -> impl Iterator<Item = &'a IPAddressClaim> {
    let claims = ledger.iter().filter_map(|e| e.claim());
    claims
        .map(|c| c.as_ref())
        .filter(|c| !c.metadata.is_deleting())
}

pub fn addresses<'a>(ledger: &Ledger<'a>) -> impl Iterator<Item = &'a IPAddress> {
    ledger
        .iter()
        .filter_map(|e| e.address())
        .map(|a| a.as_ref())
}

pub fn reports(claim: &IPAddressClaim) -> impl Iterator<Item = &str> {
    let status = claim.status.iter();
    status
        .flat_map(|s| &s.addresses)
        .map(|entry| entry.name.as_str())
}

impl Oracles {
    /// How many distinct writes were judged, and how many distinct ledgers at rest.
    pub fn counts(&self) -> (usize, usize) {
        (self.judged.len(), self.rested.len())
    }

    /// Judges a write and the ledger after it.
    pub fn judge(
        &mut self,
        universe: &Universe,
        table: &Table,
        ledger: &[EntryId; PLACES],
        place: usize,
        entry: EntryId,
        who: Who,
    ) -> Verdict {
        let mut key = *ledger;
        key[place] = entry;
        if self.judged.contains(&(key, ledger[place], who)) {
            return Ok(());
        }
        let before = ledger.map(|id| table.get(id));
        let after = key.map(|id| table.get(id));
        everywhere(&after)?;
        let (old, new) = (before[place], after[place]);
        if universe.is_claim(place) {
            claim_step(&after, old, new, who)?;
        } else {
            address_step(&before, old, new, who)?;
        }
        self.judged.insert((key, ledger[place], who));
        Ok(())
    }

    /// Judges a ledger from which nothing moves by itself.
    pub fn at_rest(&mut self, table: &Table, ledger: &[EntryId; PLACES]) -> Verdict {
        if !self.rested.contains(ledger) {
            rest::judge(&ledger.map(|id| table.get(id)))?;
            self.rested.insert(*ledger);
        }
        Ok(())
    }
}

/// Whether the claim was bound without this address (R6d).
fn is_extra(address: &IPAddress, claim: &IPAddressClaim) -> bool {
    claim.phase() == Some(ClaimPhase::Bound) && !reports(claim).any(|n| n == address.metadata.name)
}

/// What holds in every state.
fn everywhere(ledger: &Ledger<'_>) -> Verdict {
    let mut taken: Vec<&str> = Vec::new();
    for claim in live(ledger) {
        let key = claim.key();
        let Some(status) = &claim.status else {
            continue;
        };
        let mut families = Vec::new();
        for entry in &status.addresses {
            let name = &entry.name;
            check(!taken.contains(&name.as_str()), || {
                format!("{name} is reported by two claims, one of them {key}")
            })?;
            taken.push(name);
            let of = family(&entry.address);
            check(!families.contains(&of), || {
                format!("{key} reports two addresses of a family")
            })?;
            families.push(of);
            let address = addresses(ledger).find(|a| a.metadata.name == *name);
            let Some(address) = address else {
                return Err(format!("{key} reports {name}, which is gone"));
            };
            check(holder(address) == claim.metadata.uid, || {
                format!(
                    "{key} reports {name}, which is held by uid '{}'",
                    holder(address)
                )
            })?;
            check(protected(address), || {
                format!("{key} reports {name}, which is not protected (R2)")
            })?;
            let phase = address.phase();
            let lost = [AddressPhase::Available, AddressPhase::Released];
            check(phase.is_none_or(|p| !lost.contains(&p)), || {
                format!("{key} reports {name}, which is {phase:?}")
            })?;
        }
        check(status.lost_addresses.is_empty(), || {
            format!("{key} is said to have lost what nobody took away")
        })?;
        if status.phase == Some(ClaimPhase::Bound) {
            let asked = claim.spec.family.families();
            check(
                asked.iter().all(|f| families.contains(&Some(*f))) && families.len() == asked.len(),
                || format!("{key} is Bound with {:?}", status.address_text),
            )?;
            check(
                claim.metadata.has_finalizer(names::CLAIM_PROTECTION),
                || format!("{key} is Bound and not protected"),
            )?;
        }
    }
    let mut ips = Vec::new();
    for address in addresses(ledger) {
        let in_use = !holder(address).is_empty()
            || matches!(
                address.phase(),
                Some(AddressPhase::Available | AddressPhase::Bound)
            );
        if in_use && let Some(ip) = address.ip() {
            check(!ips.contains(&ip), || {
                format!("{ip} has two live entries (R1)")
            })?;
            ips.push(ip);
        }
    }
    Ok(())
}

fn others<'a>(finalizers: &'a [String], own: &str) -> Vec<&'a String> {
    finalizers.iter().filter(|f| *f != own).collect()
}

/// A write on a claim.
fn claim_step(after: &Ledger<'_>, old: &Entry, new: &Entry, who: Who) -> Verdict {
    if who != Who::Core {
        return Ok(());
    }
    let Some(old) = old.claim() else {
        return Err("the core created a claim".to_owned());
    };
    let key = old.key();
    let Some(new) = new.claim() else {
        // The rules of the store remove a marked object with its last finalizer.
        return check(old.metadata.is_deleting(), || {
            format!("the core removed {key}")
        });
    };
    let protection = names::CLAIM_PROTECTION;
    check(
        old.spec == new.spec
            && old.metadata.labels == new.metadata.labels
            && others(&old.metadata.finalizers, protection)
                == others(&new.metadata.finalizers, protection)
            && unmarked(&old.metadata.annotations, &[names::PROVISIONER])
                == unmarked(&new.metadata.annotations, &[names::PROVISIONER]),
        || format!("the core changed more of {key} than is its own"),
    )?;
    check(
        new.metadata.has_finalizer(protection)
            || !old.metadata.has_finalizer(protection)
            || new.metadata.is_deleting(),
        || format!("the protection of {key} goes although nobody deletes it"),
    )?;
    if old.status == new.status {
        return Ok(());
    }
    check(new.metadata.has_finalizer(protection), || {
        format!("{key} gets a status before its protection (R11)")
    })?;
    let (was, is) = (old.phase(), new.phase());
    let decided = was == Some(ClaimPhase::Bound);
    check(is.is_some() && (!decided || is == was), || {
        format!("{key} goes from {was:?} to {is:?}")
    })?;
    check(!decided || reports(old).eq(reports(new)), || {
        format!(
            "{key} was bound to {:?} and now reports {:?} (R5)",
            reports(old).collect::<Vec<_>>(),
            reports(new).collect::<Vec<_>>()
        )
    })?;
    for name in reports(new).filter(|n| !reports(old).any(|o| o == *n)) {
        let address = addresses(after).find(|a| a.metadata.name == name);
        let says = address.is_some_and(|a| {
            find_condition(a.conditions(), names::condition::BOUND).is_some_and(|c| {
                c.status == ConditionStatus::True
                    && c.message.ends_with(&format!(" {}", new.metadata.uid))
            })
        });
        check(says, || {
            format!("{key} reports {name} before the address says so (R6b)")
        })?;
    }
    Ok(())
}

fn unmarked<'a>(
    annotations: &'a std::collections::BTreeMap<String, String>,
    own: &[&str],
) -> Vec<(&'a String, &'a String)> {
    let all = annotations.iter();
    all.filter(|(k, _)| !own.contains(&k.as_str())).collect()
}

/// A write on an address.
fn address_step(before: &Ledger<'_>, old: &Entry, new: &Entry, who: Who) -> Verdict {
    if who != Who::Core {
        return Ok(());
    }
    let Some(old) = old.address() else {
        return Err("the core created an address".to_owned());
    };
    let (key, uid) = (old.key(), holder(old));
    // The claim that holds it, if it lives.
    let held_for = live(before).find(|c| !uid.is_empty() && c.metadata.uid == uid);
    let gone = new.address().is_none();
    let marked =
        !old.metadata.is_deleting() && new.address().is_none_or(|a| a.metadata.is_deleting());
    if marked {
        check(old.spec.reclaim_policy == ReclaimPolicy::Delete, || {
            format!("{key} is deleted although its policy is Retain")
        })?;
        check(held_for.is_none(), || {
            format!("{key} is deleted while its claim lives")
        })?;
    }
    let unprotected = protected(old) && new.address().is_none_or(|a| !protected(a));
    if unprotected && !(marked && gone) {
        check(old.metadata.is_deleting(), || {
            format!("the protection of {key} goes although nobody deletes it (R2)")
        })?;
        let let_go = |claim| is_parked(old, uid) || is_extra(old, claim);
        check(held_for.is_none_or(let_go), || {
            format!("the protection of {key} goes while its claim lives (R2)")
        })?;
    }
    let Some(new) = new.address() else {
        return Ok(());
    };
    let own = [names::BOUND_BY_CORE, names::PARKED_FOR];
    let mut same = new.spec.clone();
    same.claim_ref = old.spec.claim_ref.clone();
    check(
        same == old.spec
            && old.metadata.labels == new.metadata.labels
            && others(&old.metadata.finalizers, names::ADDRESS_PROTECTION)
                == others(&new.metadata.finalizers, names::ADDRESS_PROTECTION)
            && unmarked(&old.metadata.annotations, &own)
                == unmarked(&new.metadata.annotations, &own),
        || format!("the core changed more of {key} than is its own"),
    )?;
    if old.spec.claim_ref != new.spec.claim_ref {
        reference_step(old, new)?;
    }
    let phases = (old.phase(), new.phase());
    if phases.0 != phases.1 && phases.1 == Some(AddressPhase::Released) {
        check(held_for.is_none(), || {
            format!("{key} is released while its claim lives")
        })?;
    }
    Ok(())
}

/// The core changes who holds an address.
fn reference_step(old: &IPAddress, new: &IPAddress) -> Verdict {
    let key = old.key();
    match (&old.spec.claim_ref, &new.spec.claim_ref) {
        (Some(had), None) => check(
            old.metadata.annotation(names::BOUND_BY_CORE) == Some(had.uid.as_str())
                && !had.uid.is_empty(),
            || format!("the core undoes a binding of {key} that it has not made (R6d)"),
        ),
        (Some(had), Some(has)) => check(had.uid.is_empty() && had.key() == has.key(), || {
            format!("{key} goes from {had:?} to {has:?}")
        }),
        (None, _) => check(old.phase() == Some(AddressPhase::Available), || {
            format!("{key} is bound while it is {:?}", old.phase())
        }),
    }
}
