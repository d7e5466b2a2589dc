//! Which faults have struck where.

use std::collections::BTreeMap;

use crate::config::{Fault, Trouble};
use crate::desk::Op;
use crate::ledger::Who;

/// Counts.
#[derive(Clone, Default)]
pub struct Coverage {
    pub faults: BTreeMap<(Who, Fault, usize), u64>,
    pub troubles: BTreeMap<Trouble, u64>,
}

impl Coverage {
    pub fn fault(&mut self, who: Who, fault: Fault, op: &Op) {
        if op.request.is_write() {
            *self.faults.entry((who, fault, op.index)).or_default() += 1;
        }
    }

    pub fn trouble(&mut self, trouble: Trouble) {
        *self.troubles.entry(trouble).or_default() += 1;
    }

    pub fn add(&mut self, other: &Coverage) {
        for (place, n) in &other.faults {
            *self.faults.entry(*place).or_default() += n;
        }
        for (place, n) in &other.troubles {
            *self.troubles.entry(*place).or_default() += n;
        }
    }
}
