//! When an address that is marked for deletion lets its IP go (D5, D7): pure.

use std::time::Duration;

use ipledger_core::api::{
    IPAddress, ObjectMeta, Timestamp, Verdict, find_condition, set_condition,
};
use ipledger_core::mutant::{Mutant, active};

use super::holdings::is_leaving;
use super::{FINALIZER, REUSABLE_AT, REUSE_AFTER, condition};

/// How long an address keeps the driver's finalizer after it is released (D5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// So long after the release, which is still to come.
    For(Duration),
    /// Until then.
    Until(Timestamp),
}

impl Rest {
    /// That of an address, by its metadata; `None` if it goes as soon as it is released.
    pub fn of(address: &ObjectMeta) -> Option<Rest> {
        let rest = Some(reuse_after(address)).filter(|rest| !rest.is_zero())?;
        let until = reusable_at(address).filter(|_| address.is_deleting());
        Some(until.map_or(Rest::For(rest), Rest::Until))
    }
}

/// The next step for an address.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Teardown {
    /// It is not for this driver to let it go, or not yet.
    Nothing,
    /// Write metadata: the end of the cool-down, or the finalizer taken off.
    WriteMain(Box<IPAddress>),
    /// Write the status: the condition that people look at. The IP rests for so much longer,
    /// whether or not that can be written.
    WriteStatus(Box<IPAddress>, Duration),
    /// The IP rests for so much longer.
    Wait(Duration),
}

/// The next step for an address at this time. Every step can be repeated; the last one, taking
/// the finalizer off, is a swap on the very object that was seen, so that it happens once and
/// never to the object of a later owner.
///
/// The core's protection must be gone first: until then a claim may hold the address, and the
/// rest of a released IP has not begun.
pub(super) fn next_step(address: &IPAddress, now: Timestamp) -> Teardown {
    if !is_leaving(address) {
        return Teardown::Nothing;
    }
    let mut next = address.clone();
    let rest = reuse_after(&address.metadata);
    let latest = now.plus(rest);
    // An end beyond that was written by a clock that was ahead, or by hand.
    let Some(until) = reusable_at(&address.metadata).filter(|until| *until <= latest) else {
        if rest.is_zero() || active(Mutant::RestSkipped) {
            next.metadata.remove_finalizer(FINALIZER);
        } else {
            next.metadata
                .annotations
                .insert(REUSABLE_AT.to_owned(), latest.to_string());
        }
        return Teardown::WriteMain(Box::new(next));
    };
    if until <= now || active(Mutant::RestCutShort) {
        next.metadata.remove_finalizer(FINALIZER);
        return Teardown::WriteMain(Box::new(next));
    }
    if find_condition(address.conditions(), condition::COOLING_DOWN).is_none() {
        let message = format!("the address is released and may be handed out again at {until}");
        let generation = next.metadata.generation;
        let conditions = &mut next.status.get_or_insert_default().conditions;
        let verdict = Verdict::yes("Released", message);
        set_condition(
            conditions,
            condition::COOLING_DOWN,
            verdict,
            generation,
            now,
        );
        return Teardown::WriteStatus(Box::new(next), until.since(now));
    }
    Teardown::Wait(until.since(now))
}

/// How long the IP rests. An annotation that cannot be read any more means no rest: nothing may
/// stay for ever because somebody edited it.
fn reuse_after(address: &ObjectMeta) -> Duration {
    let text = address.annotation(REUSE_AFTER);
    text.and_then(|text| humantime::parse_duration(text).ok())
        .unwrap_or_default()
}

fn reusable_at(address: &ObjectMeta) -> Option<Timestamp> {
    let text = address.annotation(REUSABLE_AT)?;
    humantime::parse_rfc3339(text).ok().map(Timestamp::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipledger_core::api::names;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_unix(seconds)
    }

    fn marked(finalizers: &[&str]) -> IPAddress {
        let mut address = IPAddress::default();
        address.metadata.name = "ip-10-0-0-1".to_owned();
        address.spec.address = "10.0.0.1".to_owned();
        address.metadata.deletion_timestamp = Some(at(1));
        finalizers
            .iter()
            .for_each(|f| address.metadata.add_finalizer(f));
        address
    }

    #[test]
    fn the_finalizer_goes_only_from_a_marked_object_that_the_core_has_let_go() {
        let mut live = marked(&[FINALIZER]);
        live.metadata.deletion_timestamp = None;
        assert_eq!(next_step(&live, at(9)), Teardown::Nothing);
        let protected = marked(&[FINALIZER, names::ADDRESS_PROTECTION]);
        assert_eq!(next_step(&protected, at(9)), Teardown::Nothing);
        assert_eq!(next_step(&marked(&["other"]), at(9)), Teardown::Nothing);
        let Teardown::WriteMain(next) = next_step(&marked(&[FINALIZER, "other"]), at(9)) else {
            panic!("the finalizer should go");
        };
        assert_eq!(next.metadata.finalizers, ["other"]);
    }

    #[test]
    fn a_cool_down_is_written_down_announced_waited_for_and_ended() {
        let mut address = marked(&[FINALIZER]);
        address
            .metadata
            .annotations
            .insert(REUSE_AFTER.to_owned(), "1h".to_owned());
        let hour = Duration::from_secs(3600);
        assert_eq!(Rest::of(&address.metadata), Some(Rest::For(hour)));
        let Teardown::WriteMain(address) = next_step(&address, at(1000)) else {
            panic!("the end should be written");
        };
        assert_eq!(Rest::of(&address.metadata), Some(Rest::Until(at(4600))));
        assert_eq!(
            address.metadata.annotation(REUSABLE_AT),
            Some("1970-01-01T01:16:40Z")
        );
        assert!(address.metadata.has_finalizer(FINALIZER));
        let Teardown::WriteStatus(address, left) = next_step(&address, at(1001)) else {
            panic!("the condition should be written");
        };
        assert_eq!(left, Duration::from_secs(3599));
        assert_eq!(address.conditions().len(), 1);
        assert_eq!(
            next_step(&address, at(1600)),
            Teardown::Wait(Duration::from_secs(3000))
        );
        assert!(
            matches!(next_step(&address, at(4600)), Teardown::WriteMain(a) if a.metadata.finalizers.is_empty())
        );
    }

    #[test]
    fn a_cool_down_is_ended_by_whoever_takes_it_off_the_address() {
        let mut address = marked(&[FINALIZER]);
        let annotations = [(REUSE_AFTER, "1h"), (REUSABLE_AT, "1970-01-01T01:16:40Z")];
        let annotations = annotations.map(|(k, v)| (k.to_owned(), v.to_owned()));
        address.metadata.annotations.extend(annotations);
        assert!(matches!(
            next_step(&address, at(1000)),
            Teardown::WriteStatus(..)
        ));
        address.metadata.annotations.remove(REUSE_AFTER);
        assert_eq!(Rest::of(&address.metadata), None);
        assert!(
            matches!(next_step(&address, at(1000)), Teardown::WriteMain(a) if a.metadata.finalizers.is_empty())
        );
    }

    #[test]
    fn an_end_that_a_clock_far_ahead_has_written_is_brought_back_to_a_cool_down_from_now() {
        let mut address = marked(&[FINALIZER]);
        let annotations = [(REUSE_AFTER, "1h"), (REUSABLE_AT, "2000-01-01T00:00:00Z")];
        let annotations = annotations.map(|(k, v)| (k.to_owned(), v.to_owned()));
        address.metadata.annotations.extend(annotations);
        let Teardown::WriteMain(address) = next_step(&address, at(1000)) else {
            panic!("the end should be written again");
        };
        assert_eq!(
            address.metadata.annotation(REUSABLE_AT),
            Some("1970-01-01T01:16:40Z")
        );
        assert!(matches!(
            next_step(&address, at(1000)),
            Teardown::WriteStatus(_, left) if left == Duration::from_secs(3600)
        ));
    }

    #[test]
    fn annotations_that_cannot_be_read_hold_nothing_for_ever() {
        let mut address = marked(&[FINALIZER]);
        address
            .metadata
            .annotations
            .insert(REUSE_AFTER.to_owned(), "a while".to_owned());
        address
            .metadata
            .annotations
            .insert(REUSABLE_AT.to_owned(), "later".to_owned());
        assert!(
            matches!(next_step(&address, at(1)), Teardown::WriteMain(a) if a.metadata.finalizers.is_empty())
        );
    }
}
