use crate::api::{IPAddress, IPAddressClaim, Key, Kind};
use crate::store::{Part, Preconditions};

/// What a plan function answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The decision needs proof (R3): fetch these, then plan again.
    Need(Vec<Need>),
    /// The decision.
    Do(Plan),
}

impl Step {
    /// Nothing is to be done.
    pub fn nothing() -> Step {
        Step::Do(Plan::default())
    }
}

/// A fact that must be fetched before the decision can be made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Read this object at `Latest`.
    Read(Key),
    /// Wait until the view of this kind covers everything committed before now.
    Barrier(Kind),
}

/// An ordered list of writes, each a compare-and-swap on the revision that was seen.
///
/// The first failure ends the plan; the next pass starts from a fresh view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The writes, in order.
    pub writes: Vec<Write>,
    /// What to tell the owners of objects, once all writes are done.
    pub events: Vec<Event>,
    /// Plan again after this time at the latest, although nothing changed.
    pub again_after: Option<std::time::Duration>,
}

impl Plan {
    /// Appends another plan.
    pub fn extend(&mut self, other: Plan) {
        self.writes.extend(other.writes);
        self.events.extend(other.events);
        self.again_after = match (self.again_after, other.again_after) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

/// One write. An object that was written before in the same plan is expected at the revision
/// which that write made.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Replaces one part of a claim.
    Claim {
        /// The claim as it is to be.
        object: Box<IPAddressClaim>,
        /// Which part is written.
        part: Part,
    },
    /// Replaces one part of an address.
    Address {
        /// The address as it is to be.
        object: Box<IPAddress>,
        /// Which part is written.
        part: Part,
    },
    /// Deletes an address object.
    DeleteAddress {
        /// The address.
        key: Key,
        /// Its uid and revision as seen.
        preconditions: Preconditions,
    },
}

impl Write {
    /// Replaces metadata and spec of a claim.
    pub(super) fn claim(object: IPAddressClaim) -> Write {
        Write::Claim {
            object: Box::new(object),
            part: Part::Main,
        }
    }

    /// Replaces the status of a claim.
    pub(super) fn claim_status(object: IPAddressClaim) -> Write {
        Write::Claim {
            object: Box::new(object),
            part: Part::Status,
        }
    }

    /// Replaces metadata and spec of an address.
    pub(super) fn address(object: IPAddress) -> Write {
        Write::Address {
            object: Box::new(object),
            part: Part::Main,
        }
    }

    /// Replaces the status of an address.
    pub(super) fn address_status(object: IPAddress) -> Write {
        Write::Address {
            object: Box::new(object),
            part: Part::Status,
        }
    }

    /// Deletes an address exactly as it was seen.
    pub(super) fn delete(address: &IPAddress) -> Write {
        Write::DeleteAddress {
            key: address.key(),
            preconditions: Preconditions {
                uid: Some(address.metadata.uid.clone()),
                revision: address.metadata.resource_version,
            },
        }
    }

    /// The object that is written.
    pub fn key(&self) -> Key {
        match self {
            Write::Claim { object, .. } => object.key(),
            Write::Address { object, .. } => object.key(),
            Write::DeleteAddress { key, .. } => key.clone(),
        }
    }
}

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// As it should be.
    Normal,
    /// As it should be, after a warning.
    Recovery,
    /// Somebody may have to act.
    Warning,
}

impl EventKind {
    /// The `type` of an Event in the API.
    #[must_use]
    pub fn type_name(self) -> &'static str {
        match self {
            EventKind::Normal | EventKind::Recovery => "Normal",
            EventKind::Warning => "Warning",
        }
    }
}

/// Tells the owner of an object what happened to it (R15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The object.
    pub about: Key,
    /// Its uid, which an object made later under the same name does not have.
    pub uid: String,
    /// Good news or not.
    pub kind: EventKind,
    /// One word for machines.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}
