//! What the driver reports on a class (D3, D8, R14): pure.

use std::sync::Arc;

use ipledger_core::api::{
    FamilyCapacity, IPAddressClass, IPAddressClassStatus, Timestamp, Verdict, names,
    remove_condition, set_condition,
};
use ipledger_core::net::Family;

use super::holdings::Holdings;
use super::{Parameters, condition};

/// How many objects out of range are named.
const NAMED: usize = 10;

/// What there is to say about a class.
#[derive(Clone, Debug)]
pub(super) struct ClassReport {
    /// The class as it was seen last.
    pub(super) object: Arc<IPAddressClass>,
    /// Why its parameters cannot be used.
    pub(super) problem: Option<String>,
    /// One entry a family, IPv4 first; empty if the parameters cannot be used.
    pub(super) capacity: Vec<FamilyCapacity>,
    /// How many objects of the class lie outside its ranges.
    outside: usize,
    /// The first of them, by name.
    outside_names: Vec<String>,
    /// An older class that it shares addresses with.
    pub(super) older: Option<String>,
}

impl ClassReport {
    /// A report that says nothing yet.
    pub(super) fn new(object: Arc<IPAddressClass>) -> ClassReport {
        ClassReport {
            object,
            problem: None,
            capacity: Vec::new(),
            outside: 0,
            outside_names: Vec::new(),
            older: None,
        }
    }

    /// Counts what the class has. Addresses that it shares with other classes count as used in
    /// each of them; a pick counts once its object exists.
    pub(super) fn count<'a>(
        &mut self,
        parameters: &Parameters,
        holdings: &Holdings,
        outside: impl Iterator<Item = (&'a String, Family)>,
    ) {
        let outside: Vec<(&String, Family)> = outside.collect();
        self.outside = outside.len();
        self.outside_names = outside
            .iter()
            .take(NAMED)
            .map(|(name, _)| (*name).clone())
            .collect();
        let usable = &parameters.usable;
        for family in Family::ALL {
            let total = usable.size(family);
            let picked = holdings
                .picked()
                .filter(|ip| ip.family() == family && usable.contains(*ip));
            let picked = u128::try_from(picked.count()).unwrap_or(0);
            let used = holdings
                .occupied()
                .count_in(usable, family)
                .saturating_sub(picked);
            let out_of_range = outside.iter().filter(|(_, f)| *f == family).count();
            self.capacity.push(FamilyCapacity {
                family: family.to_string(),
                total: total.to_string(),
                used: used.to_string(),
                free: total.saturating_sub(used).to_string(),
                cooling: holdings.cooling().count_in(usable, family).to_string(),
                excluded: parameters.excluded.size(family).to_string(),
                out_of_range: out_of_range.to_string(),
            });
        }
    }

    /// The status that the class should have, computed from scratch; only times and fields that
    /// are not ours are taken from the status that it has.
    pub(super) fn status(&self, now: Timestamp) -> IPAddressClassStatus {
        let mut status = self.object.status.clone().unwrap_or_default();
        status.capacity = self.capacity.clone();
        status.out_of_range = self.outside_names.clone();
        let ready = match &self.problem {
            None => Verdict::yes("ParametersValid", "the parameters of the class are in use"),
            Some(problem) => Verdict::no(names::reason::INVALID_PARAMETERS, problem.clone()),
        };
        let outside = (self.outside > 0).then(|| {
            let message = format!(
                "{} addresses of the class lie outside its ranges; they stay with their holders",
                self.outside
            );
            Verdict::yes("AddressesOutsideRanges", message)
        });
        let overlap = self.older.as_ref().map(|older| {
            let message = format!(
                "shares addresses with the older class {older}; none is handed out twice, and each \
                 class counts the shared ones"
            );
            Verdict::yes("SharesAddresses", message)
        });
        let verdicts = [
            (condition::READY, Some(ready)),
            (condition::OUT_OF_RANGE, outside),
            (condition::OVERLAP, overlap),
        ];
        let generation = self.object.metadata.generation;
        for (type_, verdict) in verdicts {
            match verdict {
                Some(verdict) => {
                    set_condition(&mut status.conditions, type_, verdict, generation, now);
                }
                None => remove_condition(&mut status.conditions, type_),
            }
        }
        status
    }
}
