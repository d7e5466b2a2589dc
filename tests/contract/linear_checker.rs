//! Whether a history of concurrent calls is linearizable: whether there is an order of them, each
//! taking effect at one moment between its start and its answer, in which every answer is right.
//!
//! The search is that of Wing and Gong with the memory of Lowe: of the calls that may be next (they
//! began before the first answer of those that are left) take one, and go back if that leads
//! nowhere; where one has been with the same calls done and the same state, one need not go again. A
//! write without an answer may take effect at any moment after its start, or never.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How many objects a history is about.
pub(crate) const KEYS: usize = 2;

/// An object as a caller was shown it. No two writes of a history write the same value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) value: u64,
    pub(crate) revision: u64,
    pub(crate) uid: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Get,
    Create {
        value: u64,
    },
    /// From the state with the value `base`.
    Update {
        base: u64,
        value: u64,
    },
    /// Of the state with the value `base`, or of any.
    Delete {
        base: Option<u64>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// What was read or written; of a deletion the last state, with the deletion's revision.
    Is(Version),
    /// There is no such object.
    Absent,
    /// There is one, with this uid.
    Exists(String),
    /// It is in another state, or another object.
    Changed,
    /// The write may have happened, or may still happen.
    Unknown,
}

/// One call, with the moments at which it began and was answered.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) key: usize,
    pub(crate) op: Op,
    pub(crate) answer: Answer,
    pub(crate) began: u64,
    pub(crate) answered: u64,
}

/// The objects, and the highest revision of a write until now.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    values: [Option<u64>; KEYS],
    revision: u64,
}

/// What the answers together say of each value.
#[derive(Default)]
struct Facts {
    revisions: BTreeMap<u64, u64>,
    uids: BTreeMap<u64, String>,
}

/// Looks for an order.
///
/// # Errors
/// There is none: the history in words.
pub(crate) fn check(mut calls: Vec<Call>) -> Result<(), String> {
    assert!(calls.len() <= 64, "{} calls", calls.len());
    calls.sort_by_key(|call| call.began);
    let found = Facts::of(&calls).and_then(|facts| {
        let mut search = Search {
            calls: &calls,
            facts,
            been: BTreeSet::new(),
        };
        let found = search.from(0, &State::default());
        found
            .then_some(())
            .ok_or_else(|| "no order explains this".to_owned())
    });
    found.map_err(|e| {
        let calls: Vec<_> = calls.iter().map(Call::to_string).collect();
        format!("{e}:\n{}", calls.join("\n"))
    })
}

struct Search<'a> {
    calls: &'a [Call],
    facts: Facts,
    /// Calls done (a bit each) and state, from where there is no way on.
    been: BTreeSet<(u64, State)>,
}

impl Search<'_> {
    fn from(&mut self, done: u64, state: &State) -> bool {
        let calls = self.calls;
        let left = || (0..calls.len()).filter(move |i| done & 1 << i == 0);
        let answered = left().filter(|i| calls[*i].answer != Answer::Unknown);
        let Some(first_answer) = answered.map(|i| calls[i].answered).min() else {
            return true;
        };
        if !self.been.insert((done, state.clone())) {
            return false;
        }
        left().any(|i| {
            calls[i].began < first_answer
                && self
                    .facts
                    .after(state, &calls[i])
                    .is_some_and(|next| self.from(done | 1 << i, &next))
        })
    }
}

impl Facts {
    /// # Errors
    /// Two answers contradict each other.
    fn of(calls: &[Call]) -> Result<Facts, String> {
        let mut facts = Facts::default();
        for call in calls {
            let Answer::Is(version) = &call.answer else {
                continue;
            };
            let Version {
                value,
                revision,
                uid,
            } = version;
            let known = facts.uids.entry(*value).or_insert_with(|| uid.clone());
            if known != uid {
                return Err(format!("{value} is of {known} and of {uid}"));
            }
            if !matches!(call.op, Op::Delete { .. }) {
                let known = *facts.revisions.entry(*value).or_insert(*revision);
                if known != *revision {
                    return Err(format!("{value} is at {known} and at {revision}"));
                }
            }
        }
        for call in calls {
            if let Op::Update { base, value } = call.op
                && let (Some(before), Some(after)) = (facts.uids.get(&base), facts.uids.get(&value))
                && before != after
            {
                return Err(format!(
                    "{value} is of {after}, and was made from {base} of {before}"
                ));
            }
        }
        Ok(facts)
    }

    /// The state after a call that takes effect in this state; `None` if it cannot be answered like
    /// that here, or has no effect and no answer.
    fn after(&self, state: &State, call: &Call) -> Option<State> {
        let now = state.values[call.key];
        let as_asked = |base: Option<u64>| now.is_some() && (base.is_none() || base == now);
        let (next, revision) = match (call.op, &call.answer) {
            (Op::Get, Answer::Is(version)) => {
                return (now == Some(version.value)).then(|| state.clone());
            }
            (Op::Create { value } | Op::Update { value, .. }, Answer::Is(version))
                if version.value != value =>
            {
                return None;
            }
            (_, Answer::Absent) => return now.is_none().then(|| state.clone()),
            (Op::Create { .. }, Answer::Exists(uid)) => {
                let is_it = self.uids.get(&now?).is_none_or(|known| known == uid);
                return is_it.then(|| state.clone());
            }
            (Op::Update { base, .. } | Op::Delete { base: Some(base) }, Answer::Changed) => {
                return (now? != base).then(|| state.clone());
            }
            (Op::Create { value }, Answer::Is(_) | Answer::Unknown) if now.is_none() => {
                (Some(value), self.revisions.get(&value))
            }
            (Op::Update { base, value }, Answer::Is(_) | Answer::Unknown) if now == Some(base) => {
                (Some(value), self.revisions.get(&value))
            }
            (Op::Delete { base }, Answer::Is(last))
                if as_asked(base) && now == Some(last.value) =>
            {
                (None, Some(&last.revision))
            }
            (Op::Delete { base }, Answer::Unknown) if as_asked(base) => (None, None),
            _ => return None,
        };
        let mut after = state.clone();
        after.values[call.key] = next;
        if let Some(revision) = revision {
            if *revision <= state.revision {
                return None;
            }
            after.revision = *revision;
        }
        Some(after)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call {
            key,
            op,
            answer,
            began,
            answered,
        } = self;
        write!(
            f,
            "{began:>4} .. {answered:>4}  object {key}: {op:?} => {answer:?}"
        )
    }
}
