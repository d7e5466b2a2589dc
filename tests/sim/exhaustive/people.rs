//! What tenants and admins can do next.

use std::sync::Arc;

use ipledger_core::api::AddressPhase;
use ipledger_core::store::{Part, Preconditions};

use super::oracles::Who;
use super::state::State;
use super::step::{Step, Steps, Violation};
use super::table::{Change, Thing};
use super::world::World;

impl World {
    /// Somebody who looks at the object as it is changes it.
    pub fn change(
        &mut self,
        state: &State,
        place: usize,
        change: Change,
        who: Who,
        out: &mut Steps,
        step: impl Fn(u8) -> Step,
    ) -> Result<(), Violation> {
        let change = self.table.number_of(change);
        match self.table.apply(state.ledger[place], change) {
            Ok(entry) => self.commit(state, place, entry, None, who, out, step),
            Err(_) => Ok(()),
        }
    }

    pub fn acts(&mut self, state: &State, out: &mut Steps) -> Result<(), Violation> {
        let anyone = || Change::Delete(Preconditions::default());
        for what in 0..self.universe.places() {
            let mut next = *state;
            match self.table.get(state.ledger[what]).object.clone() {
                Some(Thing::Claim(claim)) if claim.metadata.is_deleting() => {}
                Some(Thing::Claim(_)) if state.left.claim_deletes > 0 => {
                    next.left.claim_deletes -= 1;
                    self.change(&next, what, anyone(), Who::Tenant, out, |lags| {
                        Step::DeleteClaim { what, lags }
                    })?;
                }
                Some(Thing::Claim(_)) => {}
                Some(Thing::Address(address)) => {
                    let deleting = address.metadata.is_deleting();
                    if state.left.address_deletes > 0 && !deleting {
                        next.left.address_deletes -= 1;
                        self.change(&next, what, anyone(), Who::Admin, out, |lags| {
                            Step::DeleteAddress { what, lags }
                        })?;
                    }
                    let released = address.phase() == Some(AddressPhase::Released);
                    if state.left.clears > 0 && released && address.spec.claim_ref.is_some() {
                        let mut next = *state;
                        next.left.clears -= 1;
                        let mut free = (*address).clone();
                        free.spec.claim_ref = None;
                        let free = Thing::Address(Arc::new(free));
                        let free = Change::Update(free, Part::Main);
                        self.change(&next, what, free, Who::Admin, out, |lags| Step::Clear {
                            what,
                            lags,
                        })?;
                    }
                }
                None if self.universe.is_claim(what) && state.left.claim_creates > 0 => {
                    next.left.claim_creates -= 1;
                    let new = Thing::Claim(Arc::new(self.universe.claims[what].clone()));
                    let new = Change::Create(new);
                    self.change(&next, what, new, Who::Tenant, out, |lags| {
                        Step::CreateClaim { what, lags }
                    })?;
                }
                None => {}
            }
        }
        Ok(())
    }
}
