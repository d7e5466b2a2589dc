//! The steps that there are.

use super::state::State;

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is carried out or refused, and the caller hears so.
    Answered,
    /// It is not carried out, and the caller does not know.
    NotApplied,
    /// It is carried out, and the caller does not know.
    Applied,
    /// It stays in the air, and the caller does not know.
    Late,
}

/// One step. Places are numbers; `lags` is the set of cores whose view does not take in the event
/// at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A core takes up a key and decides.
    Begin { core: usize, place: usize },
    /// A core decides with what it has read.
    Decide { core: usize, place: usize },
    /// A core asks for a barrier; it is there already, or the pass waits for it.
    Barrier { core: usize, place: usize },
    /// A core reads at `Latest`.
    Read {
        core: usize,
        place: usize,
        what: usize,
    },
    /// A core writes.
    Write {
        core: usize,
        place: usize,
        what: usize,
        fate: Fate,
        lags: u8,
    },
    /// A view takes in its next event.
    Observe { core: usize, kind: usize },
    /// A core dies and starts again; the write that it has asked for last may still arrive.
    Crash { core: usize, flies: Option<usize> },
    /// A write arrives whose caller has given up on it.
    Arrive { what: usize, lags: u8 },
    /// A tenant deletes a claim.
    DeleteClaim { what: usize, lags: u8 },
    /// A tenant creates a claim under a name that was used before.
    CreateClaim { what: usize, lags: u8 },
    /// An admin deletes an address.
    DeleteAddress { what: usize, lags: u8 },
    /// An admin clears the claimRef of a released address.
    Clear { what: usize, lags: u8 },
    /// The driver decides to serve a claim. `double`: from a view that does not show that it has
    /// done so before.
    Provision {
        claim: usize,
        address: usize,
        double: bool,
    },
    /// The driver creates the address.
    CreateAddress { what: usize, fate: Fate, lags: u8 },
    /// The driver dies before it has created the address.
    DriverCrash,
    /// The driver lets an address go.
    TearDown { what: usize, lags: u8 },
}

impl Step {
    /// Whether the system takes it by itself, without people or faults.
    pub fn is_own(&self) -> bool {
        matches!(
            self,
            Step::Begin { .. }
                | Step::Decide { .. }
                | Step::Barrier { .. }
                | Step::Read { .. }
                | Step::Write {
                    fate: Fate::Answered,
                    ..
                }
                | Step::Observe { .. }
                | Step::Provision { double: false, .. }
                | Step::CreateAddress {
                    fate: Fate::Answered,
                    ..
                }
                | Step::TearDown { .. }
        )
    }
}

/// The steps from one state, and where each leads.
pub type Steps = Vec<(Step, State)>;

/// What is wrong, and with which step to which state; none if the system is at rest.
pub struct Violation {
    pub step: Option<(Step, Box<State>)>,
    pub what: String,
}
