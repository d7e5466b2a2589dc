//! Which faults have struck at which write of which plan.

use std::collections::BTreeMap;

use ipledger_core::api::{IPAddress, Kind, names};
use ipledger_core::store::Part;

use crate::config::{Fault, Trouble};
use crate::desk::{Op, Request};
use crate::ledger::Who;
use crate::oracle::Oracle;

/// The plans of the core and of the range driver, each with the number of writes that it can have
/// in this world often enough: one fault of each kind is to strike at each of them. Later writes are
/// shown where they were struck.
pub const PLANS: [(&str, usize); 9] = [
    // Claim metadata; claimRef and status of two addresses; claim status; stamp.
    ("bind", 7),
    // The addresses, each with up to two writes, then the claim's finalizer.
    ("reclaim", 4),
    ("surplus", 1),
    ("keep an address", 3),
    ("safety net", 2),
    ("hand out", 2),
    ("refuse", 1),
    ("tear down", 1),
    ("class status", 1),
];

/// How often each fault struck where.
#[derive(Clone, Default)]
pub struct Coverage {
    faults: BTreeMap<(&'static str, usize, Fault), u64>,
    troubles: BTreeMap<Trouble, u64>,
    /// The plan of each pass, known from its first write.
    plans: BTreeMap<u64, &'static str>,
}

impl Coverage {
    /// A write is asked for: remembers of which plan it is.
    pub fn asked(&mut self, who: Who, op: &Op, oracle: &Oracle) {
        if op.index == 0 && op.request.is_write() {
            self.plans
                .insert(op.caller.pass, plan(who, &op.request, oracle));
        }
    }

    pub fn fault(&mut self, fault: Fault, op: &Op) {
        if let Some(plan) = self
            .plans
            .get(&op.caller.pass)
            .filter(|_| op.request.is_write())
        {
            *self.faults.entry((plan, op.index, fault)).or_default() += 1;
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

    /// The table, and how many places no fault has struck.
    pub fn table(&self) -> (String, usize) {
        let mut text = format!("{:<20}", "plan, write");
        for fault in Fault::ALL {
            text += &format!("{:>12}", format!("{fault:?}"));
        }
        let mut zeros = 0;
        for (plan, writes) in PLANS {
            let places = self.faults.keys().filter(|(p, ..)| *p == plan);
            let last = places.map(|(_, index, _)| index + 1).max().unwrap_or(0);
            for index in 0..writes.max(last) {
                text += &format!("\n{:<20}", format!("{plan} {index}"));
                for fault in Fault::ALL {
                    let n = self.faults.get(&(plan, index, fault)).copied().unwrap_or(0);
                    zeros += usize::from(n == 0 && index < writes);
                    text += &format!("{n:>12}");
                }
            }
        }
        text += "\n";
        for trouble in Trouble::ALL {
            let n = self.troubles.get(&trouble).copied().unwrap_or(0);
            zeros += usize::from(n == 0);
            text += &format!("\n{:<20}{n:>12}", format!("{trouble:?}"));
        }
        (text, zeros)
    }
}

/// Which plan begins with this write.
fn plan(who: Who, first: &Request, oracle: &Oracle) -> &'static str {
    if who == Who::Range {
        return match first {
            Request::Create(_) => "hand out",
            _ if first.key().kind == Kind::IPAddressClaim => "refuse",
            _ if first.key().kind == Kind::IPAddress => "tear down",
            _ => "class status",
        };
    }
    let key = first.key();
    if key.kind == Kind::IPAddressClaim {
        let deleting = oracle
            .claims
            .get(&key)
            .is_some_and(|c| c.metadata.is_deleting());
        return if deleting { "reclaim" } else { "bind" };
    }
    let Some(before) = oracle.addresses.get(&key.name) else {
        return "keep an address";
    };
    let claim_ref = before.spec.claim_ref.as_ref();
    let claim = claim_ref.and_then(|r| oracle.claims.get(&r.key()));
    if claim.is_some_and(|c| c.metadata.is_deleting()) {
        return "reclaim";
    }
    let Request::Update(object, part) = first else {
        return "safety net";
    };
    let Ok(after) = IPAddress::from_object(object) else {
        return "keep an address";
    };
    let parked = |a: &IPAddress| a.metadata.annotation(names::PARKED_FOR).map(str::to_owned);
    match (claim_ref, after.spec.claim_ref.as_ref()) {
        (Some(_), None) | (Some(_), Some(_)) if claim.is_none() && is_reclaim(before, &after) => {
            "safety net"
        }
        (Some(_), None) => "surplus",
        _ if parked(before) != parked(&after) => "surplus",
        (a, b) if a != b => "bind",
        _ if *part == Part::Status && claim.is_some() && is_marked(&after) => "bind",
        _ => "keep an address",
    }
}

fn is_reclaim(before: &IPAddress, after: &IPAddress) -> bool {
    after.spec.claim_ref.is_none() || after.phase() != before.phase()
}

fn is_marked(after: &IPAddress) -> bool {
    after.phase() == Some(ipledger_core::api::AddressPhase::Bound)
}
