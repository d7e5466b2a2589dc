//! What one pass of a process may do: what it has to have read before it writes, and in which order
//! it writes (R3, R6, R10, R11). The oracle sees the requests, nothing of the plans.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipledger_core::api::{ClaimPhase, IPAddress, IPAddressClaim, Key, Kind, find_condition, names};
use ipledger_core::store::{Revision, StoreError};

use super::{Oracle, Thing, Verb, Written, holder, is_given_up, is_parked, reports};
use crate::desk::{Answer, Caller, Request};
use crate::ledger::Who;

type Found = Vec<String>;

/// What a read at `Latest` of a claim or address has shown: uid, and whether it is being deleted;
/// and at which revision.
type Shown = (Option<(String, bool)>, Revision);

/// How long an address with policy `Delete` that was pre-bound waits for its claim (R4).
const GRACE: Duration = Duration::from_secs(600);

/// One pass.
#[derive(Default)]
pub struct Pass {
    reads: BTreeMap<Key, Shown>,
    /// How far the view has to come, and at which revision that was asked.
    barriers: BTreeMap<Kind, (Revision, Revision)>,
    /// A write that did not succeed as far as the pass knows.
    failed: Option<Key>,
    /// The claim whose protection it took off.
    freed: Option<Key>,
    /// Claims (by uid) that it has stamped while they waited.
    stamped: BTreeSet<String>,
    /// Claims (by uid) that it has protected.
    protected: BTreeSet<String>,
    /// The revisions that it has made.
    wrote: BTreeSet<Revision>,
}

impl Oracle {
    /// What is written from now on is written for this pass.
    pub fn begin(&mut self, by: Caller) {
        self.by = Some(by);
    }

    /// The request of a pass was carried out.
    pub fn end(&mut self, request: &Request, answer: &Answer) {
        let Some(by) = self.by.take() else {
            return;
        };
        let pass = self.passes.entry(by.pass).or_default();
        match (request, answer) {
            (Request::Get(key), Answer::Object(Ok(object))) => {
                let meta = &object.metadata;
                let shown = (meta.uid.clone(), meta.is_deleting());
                pass.reads.insert(key.clone(), (Some(shown), self.revision));
            }
            (Request::Get(key), Answer::Object(Err(StoreError::NotFound { .. }))) => {
                pass.reads.insert(key.clone(), (None, self.revision));
            }
            (Request::Barrier(kind), Answer::Revision(Ok(revision))) => {
                pass.barriers.insert(*kind, (*revision, self.revision));
            }
            _ => {}
        }
    }

    /// A request is on its way, before anything is known of its fate.
    pub fn asked(&mut self, who: Who, by: Caller, request: &Request) {
        let Some(pass) = self.passes.get(&by.pass).filter(|_| who == Who::Core) else {
            return;
        };
        let key = request.key();
        let mut found = Vec::new();
        if matches!(request, Request::List(..)) {
            found.push(format!("a pass lists {key} (bounds)"));
        }
        if let (Some(failed), true) = (&pass.failed, request.is_write()) {
            found.push(format!(
                "a pass goes on with {key} after its write to {failed} has failed (R11)"
            ));
        }
        self.violations.extend(found);
    }

    /// The answer to a request of a pass is on its way.
    pub fn heard(&mut self, who: Who, by: Caller, request: &Request, answer: &Answer) {
        if request.is_write() && answer.error().is_some() {
            self.passes.entry(by.pass).or_default().failed = Some(request.key());
        }
        if who == Who::Range {
            self.heard_of_create(by, request, answer);
        }
    }

    /// Whether the pass has read this object at `Latest`.
    pub(super) fn has_read(&self, by: Caller, key: &Key) -> bool {
        self.passes
            .get(&by.pass)
            .is_some_and(|pass| pass.reads.contains_key(key))
    }

    fn pass_of_core(&self, w: &Written) -> Option<(Caller, &Pass)> {
        let by = self.by.filter(|_| w.who == Who::Core)?;
        static NONE: std::sync::LazyLock<Pass> = std::sync::LazyLock::new(Pass::default);
        Some((by, self.passes.get(&by.pass).unwrap_or(&NONE)))
    }

    /// What a pass has done by this write, for its later ones.
    pub(super) fn remember_pass(&mut self, w: &Written, before: Option<&IPAddressClaim>) {
        let Some(by) = self.by else {
            return;
        };
        self.passes
            .entry(by.pass)
            .or_default()
            .wrote
            .insert(w.revision);
        let Thing::Claim(claim) = &w.last else {
            return;
        };
        let had = before.is_some_and(|b| b.metadata.has_finalizer(names::CLAIM_PROTECTION));
        let has = claim.metadata.has_finalizer(names::CLAIM_PROTECTION);
        let waits = matches!(claim.phase(), None | Some(ClaimPhase::Pending));
        let stamped = claim.stamp().is_some() && before.is_some_and(|b| b.stamp().is_none());
        let uid = claim.metadata.uid.clone();
        let pass = self.passes.entry(by.pass).or_default();
        if had && !has {
            pass.freed = Some(w.key.clone());
        }
        if !had && has {
            pass.protected.insert(uid.clone());
        }
        if stamped && waits {
            pass.stamped.insert(uid);
        }
    }

    /// A write of the core to an address.
    pub(super) fn address_in_pass(
        &self,
        w: &Written,
        before: &IPAddress,
        now: &IPAddress,
        out: &mut Found,
    ) {
        let Some((by, pass)) = self.pass_of_core(w) else {
            return;
        };
        self.after_the_end(pass, &w.key, out);
        let key = &w.key;
        let old_ref = before.spec.claim_ref.as_ref();
        let new_ref = now.spec.claim_ref.as_ref();
        let parks = now.metadata.annotation(names::PARKED_FOR).is_some()
            && before.metadata.annotation(names::PARKED_FOR)
                != now.metadata.annotation(names::PARKED_FOR);
        let gives_up = matches!(w.verb, Verb::Delete(_))
            || (old_ref.is_some() && new_ref.is_none())
            || (is_given_up(now) && !is_given_up(before));
        if (gives_up || parks)
            && !before.metadata.is_deleting()
            && let Some(r) = old_ref
        {
            match pass.reads.get(&r.key()) {
                None => out.push(format!(
                    "{key} is given up or parked without a read of {} at Latest (R3, R6d)",
                    r.key()
                )),
                Some((_, at)) if self.is_older(pass, *at, before) => out.push(format!(
                    "{key} is given up or parked on the word of a read that is older than it (R3)"
                )),
                Some((Some((uid, false)), _)) if gives_up && new_ref.is_some() && *uid == r.uid => {
                    out.push(format!(
                        "{key} is given up although {} was read alive",
                        r.key()
                    ));
                }
                _ => {}
            }
        }
        // Freed for good: the claim is gone or going, as far as the pass could know.
        let protection = names::ADDRESS_PROTECTION;
        if before.metadata.has_finalizer(protection)
            && !now.metadata.has_finalizer(protection)
            && let Some(r) = old_ref.filter(|r| !r.uid.is_empty() && !is_parked(before, &r.uid))
        {
            let seen_going = self.history.marked.get(&r.uid);
            let seen_going = seen_going.is_some_and(|at| *at <= by.now.of(Kind::IPAddressClaim));
            if !seen_going && !pass.reads.contains_key(&r.key()) {
                out.push(format!(
                    "{key} is freed without a read of {} at Latest (R3)",
                    r.key()
                ));
            }
        }
        if let Some(r) = new_ref.filter(|r| old_ref != Some(r)) {
            if !pass.reads.contains_key(&r.key()) && !pass.protected.contains(&r.uid) {
                out.push(format!(
                    "{key} is given to {} on the word of an old view (R3)",
                    r.key()
                ));
            }
            if old_ref.is_none() && pass.stamped.contains(&r.uid) {
                out.push(format!(
                    "{} was stamped before {key} was matched to it (R10)",
                    r.key()
                ));
            }
            self.smallest_first(by, key, before, now, out);
            self.as_asked(by, key, old_ref.is_none(), now, out);
        }
        // The next claim of that name is to have it (R13).
        let completed = new_ref.is_some_and(|r| {
            let read = pass.reads.get(&r.key());
            self.live(&r.uid).is_some() || matches!(read, Some((Some((_, false)), _)))
        });
        let touched = parks || gives_up || (new_ref != old_ref && !completed);
        let stays = !before.metadata.is_deleting();
        if touched
            && stays
            && old_ref.is_some()
            && holder(before).is_empty()
            && before.is_reserved()
        {
            out.push(format!("{key} is touched although it is reserved (R13)"));
        }
        if matches!(w.verb, Verb::Delete(_)) {
            self.deleted_by_core(by, pass, key, before, out);
        }
    }

    /// A pre-bound address has had its grace (R4), and a match that never took effect is not held
    /// against a static address (R6d).
    fn deleted_by_core(
        &self,
        by: Caller,
        pass: &Pass,
        key: &Key,
        before: &IPAddress,
        out: &mut Found,
    ) {
        let Some(r) = &before.spec.claim_ref else {
            out.push(format!("{key} is deleted although nobody had it"));
            return;
        };
        let uid = &before.metadata.uid;
        let absent = matches!(pass.reads.get(&r.key()), Some((None, _)));
        if r.uid.is_empty() && absent {
            let changed = self.history.orphaned.get(uid).copied().unwrap_or_default();
            let waited = self.time.saturating_sub(changed.max(by.born));
            if waited < GRACE {
                out.push(format!(
                    "{key} is deleted after {waited:?} of its grace (R4)"
                ));
            }
        }
        let pair = (r.uid.clone(), uid.clone());
        let marked = before.metadata.annotation(names::BOUND_BY_CORE) == Some(r.uid.as_str());
        let h = &self.history;
        let wiped = h.wiped.contains(uid) || h.wiped.contains(&r.uid);
        if marked && !r.uid.is_empty() && !h.said_held.contains(&pair) && !wiped {
            out.push(format!(
                "{key} is deleted for a match that never took effect (R6d)"
            ));
        }
    }

    /// A write of the core to a claim.
    pub(super) fn claim_in_pass(
        &self,
        w: &Written,
        before: &IPAddressClaim,
        now: &IPAddressClaim,
        out: &mut Found,
    ) {
        let Some((by, pass)) = self.pass_of_core(w) else {
            return;
        };
        self.after_the_end(pass, &w.key, out);
        let uid = &now.metadata.uid;
        let protection = names::CLAIM_PROTECTION;
        if before.metadata.has_finalizer(protection) && !now.metadata.has_finalizer(protection) {
            self.left_behind(by, &w.key, out);
        }
        if before.stamp().is_some()
            && now.stamp().is_none()
            && before.phase() == Some(ClaimPhase::Pending)
            && now.spec.address_name.is_empty()
        {
            let of_class = |k: &Kind| *k == Kind::IPAddressClass;
            let read = pass.reads.keys().any(|k| of_class(&k.kind));
            if !read && !pass.barriers.keys().any(of_class) {
                out.push(format!("{} loses its stamp without proof (R3, R10)", w.key));
            }
        }
        if by.alone
            && before.stamp().is_none()
            && now.stamp().is_some()
            && before.phase() == Some(ClaimPhase::Pending)
        {
            self.could_be_matched(by, &w.key, now, out);
        }
        if before.status == now.status {
            return;
        }
        let Some(status) = &now.status else {
            return;
        };
        // A barrier that is older than what the claim said proves nothing about it.
        let since = before.metadata.resource_version;
        let barrier = |kind| {
            let taken = pass.barriers.get(&kind).copied();
            taken.filter(|(_, at)| Some(*at) >= since || self.is_own(pass, since))
        };
        // After a wipe a barrier says more than a read.
        let current = barrier(Kind::IPAddress).is_some();
        let class_is_read = pass.reads.keys().any(|k| k.kind == Kind::IPAddressClass)
            || barrier(Kind::IPAddressClass).is_some();
        let resolved = |claim: &IPAddressClaim| {
            let said = find_condition(claim.conditions(), names::condition::CLASS_RESOLVED);
            said.map(|c| c.status)
        };
        if let (Some(was), Some(is)) = (resolved(before), resolved(now))
            && was != is
            && !class_is_read
        {
            out.push(format!(
                "{} contradicts what was said of its class without proof (R3)",
                w.key
            ));
        }
        let read = |name: &str| current || pass.reads.contains_key(&Key::address(name));
        for entry in &status.lost_addresses {
            if reports(before, &entry.name) && !read(&entry.name) {
                out.push(format!(
                    "{} lost {} without a read at Latest (R3)",
                    w.key, entry.name
                ));
            }
        }
        let was_lost = before.status.iter().flat_map(|s| &s.lost_addresses);
        for entry in was_lost.filter(|l| reports(now, &l.name)) {
            if !read(&entry.name) {
                out.push(format!(
                    "{} has {} again on the word of an old view",
                    w.key, entry.name
                ));
            }
        }
        let wiped = before.phase().is_none()
            && !super::is_decided(before)
            && before.metadata.has_finalizer(protection)
            && !pass.protected.contains(uid);
        if wiped {
            let seen = barrier(Kind::IPAddress);
            if seen.is_none_or(|(to, _)| to > by.now.of(Kind::IPAddress)) {
                out.push(format!("{} is recomputed without a barrier (R6e)", w.key));
            }
            self.fenced(by, &w.key, now, out);
        }
    }

    /// Whether a read tells nothing of what the address is now: it was seen later than the read.
    fn is_older(&self, pass: &Pass, read: Revision, address: &IPAddress) -> bool {
        let seen = address.metadata.resource_version;
        seen > Some(read) && !self.is_own(pass, seen)
    }

    /// Whether the pass itself has made this revision.
    fn is_own(&self, pass: &Pass, revision: Option<Revision>) -> bool {
        revision.is_some_and(|revision| pass.wrote.contains(&revision))
    }

    /// Once a pass has taken the protection off its claim, it is over (R11).
    fn after_the_end(&self, pass: &Pass, key: &Key, out: &mut Found) {
        if let Some(freed) = &pass.freed {
            out.push(format!("{key} is written after {freed} was let go (R11)"));
        }
    }

    /// A claim that goes leaves its uid on what names it, so that the next one does not inherit (R4),
    /// except what is reserved for the next one (R13).
    fn left_behind(&self, by: Caller, claim: &Key, out: &mut Found) {
        let seen = |a: &&IPAddress| {
            let r = a.spec.claim_ref.as_ref();
            r.is_some_and(|r| r.key() == *claim && r.uid.is_empty())
                && a.metadata.resource_version <= Some(by.since.of(Kind::IPAddress))
                && !a.metadata.is_deleting()
                && !a.is_reserved()
        };
        for address in self.addresses.values().filter(seen) {
            out.push(format!(
                "{} is left for the next {claim} (R4)",
                address.key()
            ));
        }
    }

    /// Transition times move only when a status flips (R12).
    pub(super) fn times(&self, w: &Written, before: &Thing, out: &mut Found) {
        if !matches!(w.who, Who::Core | Who::Range) {
            return;
        }
        let conditions = |thing: &Thing| match thing {
            Thing::Class(c) => c.status.iter().flat_map(|s| s.conditions.clone()).collect(),
            Thing::Address(a) => a.conditions().to_vec(),
            Thing::Claim(c) => c.conditions().to_vec(),
        };
        let (old, new): (Vec<_>, Vec<_>) = (conditions(before), conditions(&w.last));
        for condition in &new {
            let Some(was) = find_condition(&old, &condition.type_) else {
                continue;
            };
            let moved = was.last_transition_time != condition.last_transition_time;
            if was.status == condition.status && moved && was.last_transition_time.is_some() {
                out.push(format!(
                    "{}: the time of {} moves without a flip (R12)",
                    w.key, condition.type_
                ));
            }
        }
    }
}
