use serde::{Deserialize, Serialize};

use super::{Extra, Timestamp};
use crate::mutant::{Mutant, active};

/// `True`, `False` or `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// It is not known whether the condition holds.
    Unknown,
}

impl ConditionStatus {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        }
    }
}

/// One condition of an object; a list of them is a map by `type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is said, for example `Bound`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// One word for machines.
    #[serde(default)]
    pub reason: String,
    /// A sentence for people.
    #[serde(default)]
    pub message: String,
    /// When `status` last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    /// The generation that this was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<u64>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What a condition should say; [`set_condition`] adds the time.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Whether the condition holds.
    pub status: ConditionStatus,
    /// One word for machines.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

impl Verdict {
    /// The condition holds.
    pub fn yes(reason: impl Into<String>, message: impl Into<String>) -> Verdict {
        Verdict {
            status: ConditionStatus::True,
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// The condition does not hold.
    pub fn no(reason: impl Into<String>, message: impl Into<String>) -> Verdict {
        Verdict {
            status: ConditionStatus::False,
            reason: reason.into(),
            message: message.into(),
        }
    }
}

/// The condition of this type, if there is one.
pub fn find_condition<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Writes a condition. The transition time moves only when `status` flips, so that repeating a
/// verdict changes nothing.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    type_: &str,
    verdict: Verdict,
    generation: u64,
    now: Timestamp,
) {
    let observed = (generation > 0).then_some(generation);
    match conditions.iter_mut().find(|c| c.type_ == type_) {
        Some(c) => {
            let flips = c.status != verdict.status || active(Mutant::TimesMove);
            if flips || c.last_transition_time.is_none() {
                c.last_transition_time = Some(now);
            }
            c.status = verdict.status;
            c.reason = verdict.reason;
            c.message = verdict.message;
            c.observed_generation = observed;
        }
        None => conditions.push(Condition {
            type_: type_.to_owned(),
            status: verdict.status,
            reason: verdict.reason,
            message: verdict.message,
            last_transition_time: Some(now),
            observed_generation: observed,
            extra: Extra::new(),
        }),
    }
}

/// Removes the condition of this type.
pub fn remove_condition(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|c| c.type_ != type_);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_only_when_the_status_flips() {
        let (t1, t2) = (Timestamp::from_unix(1), Timestamp::from_unix(2));
        let mut all = vec![];
        set_condition(&mut all, "Bound", Verdict::no("A", "a"), 1, t1);
        set_condition(&mut all, "Bound", Verdict::no("B", "b"), 2, t2);
        assert_eq!(all[0].last_transition_time, Some(t1));
        assert_eq!(
            (all[0].reason.as_str(), all[0].observed_generation),
            ("B", Some(2))
        );
        set_condition(&mut all, "Bound", Verdict::yes("C", "c"), 2, t2);
        assert_eq!(all[0].last_transition_time, Some(t2));
    }
}
