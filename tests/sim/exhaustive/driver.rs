//! What the driver can do next: one of another make, that names the claim without its uid.

use std::sync::Arc;

use ipledger_core::api::{ClaimPhase, names};
use ipledger_core::store::Part;

use super::oracles::Who;
use super::state::{FLYING, Flying, State};
use super::step::{Fate, Step, Steps, Violation};
use super::table::{Change, Thing};
use super::universe::{CLOUD, DRIVER, TEARDOWN, reserved_for};
use super::world::World;

impl World {
    pub fn driver_steps(&mut self, state: &State, out: &mut Steps) -> Result<(), Violation> {
        if self.universe.drivers() == 0 {
            return Ok(());
        }
        if state.driver == 0 {
            self.provisions(state, out);
        } else {
            self.creates(state, out)?;
            if state.left.crashes > 0 {
                let mut next = *state;
                next.left.crashes -= 1;
                next.driver = 0;
                out.push((Step::DriverCrash, next));
            }
        }
        for what in self.universe.claims.len()..self.universe.places() {
            let Some(address) = self.table.get(state.ledger[what]).address().cloned() else {
                continue;
            };
            let meta = &address.metadata;
            if meta.is_deleting()
                && meta.has_finalizer(TEARDOWN)
                && !meta.has_finalizer(names::ADDRESS_PROTECTION)
            {
                let mut gone = (*address).clone();
                gone.metadata.remove_finalizer(TEARDOWN);
                let gone = Change::Update(Thing::Address(Arc::new(gone)), Part::Main);
                self.change(state, what, gone, Who::Driver, out, |lags| Step::TearDown {
                    what,
                    lags,
                })?;
            }
        }
        Ok(())
    }

    /// The driver looks for a claim that is stamped with its name and has no address.
    fn provisions(&mut self, state: &State, out: &mut Steps) {
        let claims = self.universe.claims.len();
        let free = (claims..self.universe.places()).find(|place| {
            let (address, _) = &self.universe.addresses[place - claims];
            address.spec.class_name == CLOUD
                && self.table.get(state.ledger[*place]).object.is_none()
        });
        let Some(address) = free else {
            return;
        };
        for place in 0..claims {
            let Some(claim) = self.table.get(state.ledger[place]).claim() else {
                continue;
            };
            let waits = claim.stamp() == Some(DRIVER)
                && claim.phase() == Some(ClaimPhase::Pending)
                && !claim.metadata.is_deleting();
            if !waits {
                continue;
            }
            let served = (claims..self.universe.places()).any(|a| {
                let address = self.table.get(state.ledger[a]).address();
                let holder = address.and_then(|a| a.spec.claim_ref.as_ref());
                holder.is_some_and(|r| {
                    r.key() == claim.key() && (r.uid.is_empty() || r.uid == claim.metadata.uid)
                })
            });
            let mut next = *state;
            if served {
                if state.left.doubles == 0 {
                    continue;
                }
                next.left.doubles -= 1;
            }
            next.driver = 1 + (place * 8 + address) as u8;
            out.push((
                Step::Provision {
                    claim: place,
                    address,
                    double: served,
                },
                next,
            ));
        }
    }

    fn creates(&mut self, state: &State, out: &mut Steps) -> Result<(), Violation> {
        let code = usize::from(state.driver - 1);
        let (claim, what) = (code / 8, code % 8);
        let reservation = &self.universe.addresses[what - self.universe.claims.len()].0;
        let new = reserved_for(&self.universe.claims[claim], reservation);
        let new = self
            .table
            .number_of(Change::Create(Thing::Address(Arc::new(new))));
        let mut next = *state;
        next.driver = 0;
        let step = |fate, lags| Step::CreateAddress { what, fate, lags };
        match self.table.apply(state.ledger[what], new) {
            Err(_) => out.push((step(Fate::Answered, 0), next)),
            Ok(entry) => {
                self.commit(&next, what, entry, None, Who::Driver, out, |lags| {
                    step(Fate::Answered, lags)
                })?;
                if next.left.unknowns > 0 && next.flying.len() < FLYING {
                    next.left.unknowns -= 1;
                    next.flying.push(Flying {
                        place: what as u8,
                        change: new,
                    });
                    out.push((step(Fate::Late, 0), next));
                }
            }
        }
        Ok(())
    }
}
