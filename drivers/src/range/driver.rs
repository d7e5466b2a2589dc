//! Carries the ledger's decisions out on a store.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ipledger_core::api::{
    ClaimPhase, FamilyCapacity, IPAddress, IPAddressClaim, Key, Kind, Resource, ResourceSpec,
};
use ipledger_core::mutant::{Mutant, active};
use ipledger_core::runtime::{Change, Clock, Next, Pass, Reconciler};
use ipledger_core::store::{ErrorClass, Part, ReadAt, Revision, Store, StoreError, StoreExt};

use super::class_writer::ClassWriter;
use super::decide::{Decision, Refusal, annotated};
use super::ledger::{Attempt, Ledger};
use super::teardown::{Teardown, next_step};

/// What a pass of the driver is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RangeKey {
    /// A claim to be served.
    Claim(Key),
    /// The class of this name, whose status is to be kept.
    Class(String),
    /// The address object of this name, to be let go.
    Address(String),
}

impl fmt::Display for RangeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RangeKey::Claim(key) => key.fmt(f),
            RangeKey::Class(name) => Key::class(name).fmt(f),
            RangeKey::Address(name) => Key::address(name).fmt(f),
        }
    }
}

/// The range driver on one store. Run it in a
/// [`Controller`](ipledger_core::runtime::Controller); any number may run on the same store.
pub struct RangeDriver {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ledger: Mutex<Ledger>,
    classes: ClassWriter,
}

/// What has become of the creation of one address.
enum Creation {
    /// The claim has the address; the revision at which its object is to be seen.
    Done(Option<Revision>),
    /// Another object stands there.
    Taken,
    /// An object stands there that nobody can read.
    Unreadable,
    /// Perhaps it is there. The pick stays: the same create is repeated, never another one.
    Unknown(StoreError),
    /// It is not there.
    Failed(StoreError),
}

impl RangeDriver {
    /// A driver that knows nothing yet.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> RangeDriver {
        RangeDriver {
            classes: ClassWriter::new(store.clone(), clock.clone()),
            store,
            clock,
            ledger: Mutex::new(Ledger::default()),
        }
    }

    /// What each class of this driver has, by name and family, as it stands now (D8). A class whose
    /// parameters cannot be used has no families.
    pub fn capacity(&self) -> Vec<(String, Vec<FamilyCapacity>)> {
        let ledger = self.ledger();
        let classes = ledger.class_names();
        let of = |name: &String| Some((name.clone(), ledger.report(name)?.capacity));
        classes.filter_map(of).collect()
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn claim_pass(&self, key: &Key) -> Pass<RangeKey> {
        let begun = self.ledger().begin(key);
        match begun {
            None => Pass::settled(),
            Some((claim, Decision::Nothing)) => self.annotate(&claim, None).await,
            Some((claim, Decision::Refuse(refusal))) => self.annotate(&claim, Some(&refusal)).await,
            Some((claim, Decision::Create { addresses, verify })) => {
                let check = if verify && !active(Mutant::ServesWithoutLook) {
                    self.still_wanted(&claim).await
                } else {
                    None
                };
                match check {
                    Some(pass) => pass,
                    None => self.create_all(&claim, addresses).await,
                }
            }
        }
    }

    /// Writes on the claim why it gets nothing, or takes that away (R14).
    async fn annotate(&self, claim: &IPAddressClaim, refusal: Option<&Refusal>) -> Pass<RangeKey> {
        match annotated(claim, refusal) {
            Some(claim) => write(&*self.store, &claim, Part::Main).await,
            None => Pass::settled(),
        }
    }

    /// Creates the addresses of a claim in order, and stops at the first that is not to be had.
    async fn create_all(
        &self,
        claim: &IPAddressClaim,
        addresses: Vec<IPAddress>,
    ) -> Pass<RangeKey> {
        let key = claim.key();
        let mut wrote = Vec::new();
        for address in &addresses {
            let Some(ip) = address.ip() else { continue };
            let attempt = self.ledger().attempt(claim, ip);
            if attempt == Attempt::Void {
                // The view has moved under the pass.
                break;
            }
            let mut pass = match self.create(claim, address).await {
                Creation::Done(revision) => {
                    wrote.extend(revision.map(|r| (Kind::IPAddress, r)));
                    continue;
                }
                // The next one is taken from a view that shows the holder, and whether the claim
                // still wants it.
                Creation::Taken => self.refresh(claim).await,
                Creation::Unreadable => {
                    let woken = self.ledger().block(&address.metadata.name);
                    let mut pass = self.refresh(claim).await;
                    pass.wake.extend(woken);
                    pass
                }
                Creation::Unknown(error) => again_later(&error, Vec::new()),
                Creation::Failed(error) if attempt == Attempt::Again => {
                    again_later(&error, Vec::new())
                }
                Creation::Failed(error) => {
                    let helped = self.ledger().give_back(&key, ip);
                    again_later(&error, helped.into_iter().collect())
                }
            };
            pass.wrote.append(&mut wrote);
            return pass;
        }
        // Seen at the revisions just written, the claim should be covered. If an object has come
        // and gone unseen, no event says so.
        Pass {
            next: Next::Wait,
            wrote,
            wake: vec![RangeKey::Claim(key)],
        }
    }

    async fn create(&self, claim: &IPAddressClaim, address: &IPAddress) -> Creation {
        match self.store.create_resource(address).await {
            Ok(stored) => {
                let ip = &address.spec.address;
                tracing::info!(claim = %claim.key(), ip, "an address is handed out");
                Creation::Done(stored.metadata.resource_version)
            }
            Err(StoreError::AlreadyExists { key, .. }) => self.holder(claim, &key).await,
            Err(e) if e.class() == ErrorClass::Unknown && !active(Mutant::TimeOutIsFailure) => {
                Creation::Unknown(e)
            }
            Err(e) => Creation::Failed(e),
        }
    }

    /// Who stands on the address that was to be created.
    async fn holder(&self, claim: &IPAddressClaim, key: &Key) -> Creation {
        let object = match self.store.get(key, ReadAt::Latest).await {
            Ok(object) => object,
            Err(StoreError::NotFound { .. }) => return Creation::Taken,
            Err(StoreError::Corrupt { .. }) => return Creation::Unreadable,
            // An earlier create may still be the one that stands there.
            Err(e) => return Creation::Unknown(e),
        };
        match IPAddress::from_object(&object) {
            Ok(holder)
                if holder
                    .spec
                    .claim_ref
                    .as_ref()
                    .is_some_and(|r| r.uid == claim.uid()) =>
            {
                Creation::Done(object.revision())
            }
            Ok(_) => Creation::Taken,
            Err(_) => Creation::Unreadable,
        }
    }

    /// Lets the claim rest until the view is as new as the store is now.
    async fn refresh(&self, claim: &IPAddressClaim) -> Pass<RangeKey> {
        let barrier = self.store.barrier(Kind::IPAddress).await;
        match (barrier, self.latest(claim).await) {
            (Ok(addresses), Ok(Some(current))) => Pass {
                next: Next::Again,
                wrote: revision_of(&current)
                    .into_iter()
                    .chain([(Kind::IPAddress, addresses)])
                    .collect(),
                wake: Vec::new(),
            },
            // Its deletion is on the way to the view.
            (_, Ok(None)) => Pass::settled(),
            (Err(e), _) | (_, Err(e)) => failed(&e),
        }
    }

    /// Before a create in doubt: whether the claim still waits for it. If not, this is the pass.
    async fn still_wanted(&self, claim: &IPAddressClaim) -> Option<Pass<RangeKey>> {
        match self.latest(claim).await {
            Ok(Some(current))
                if current.phase() == Some(ClaimPhase::Pending)
                    && !current.metadata.is_deleting() =>
            {
                None
            }
            Ok(Some(current)) => Some(Pass {
                wrote: revision_of(&current).into_iter().collect(),
                wake: vec![RangeKey::Claim(claim.key())],
                ..Pass::settled()
            }),
            Ok(None) => Some(Pass::settled()),
            Err(e) => Some(failed(&e)),
        }
    }

    /// The claim as the store has it now; `None` if it is gone or another one has its name.
    async fn latest(&self, claim: &IPAddressClaim) -> Result<Option<IPAddressClaim>, StoreError> {
        let current: Option<IPAddressClaim> = self.store.find(&claim.key(), ReadAt::Latest).await?;
        Ok(current.filter(|current| current.uid() == claim.uid()))
    }

    async fn address_pass(&self, name: &str) -> Pass<RangeKey> {
        let address = self.ledger().address(name);
        let Some(address) = address else {
            return Pass::settled();
        };
        match next_step(&address, self.clock.now()) {
            Teardown::Nothing => Pass::settled(),
            Teardown::WriteMain(next) => write(&*self.store, &*next, Part::Main).await,
            Teardown::WriteStatus(next, left) => {
                let mut pass = write(&*self.store, &*next, Part::Status).await;
                if let Next::Failed(problem) = &pass.next {
                    tracing::debug!(address = name, problem, "the cool-down is not announced");
                }
                pass.next = Next::After(left);
                pass
            }
            Teardown::Wait(left) => Pass {
                next: Next::After(left),
                ..Pass::settled()
            },
        }
    }

    async fn class_pass(&self, name: &str) -> Pass<RangeKey> {
        self.classes.pass(name, || self.ledger().report(name)).await
    }
}

#[async_trait]
impl Reconciler for RangeDriver {
    type Key = RangeKey;

    fn kinds(&self) -> &'static [Kind] {
        &Kind::ALL
    }

    fn observe(&self, change: &Change) -> Vec<RangeKey> {
        self.ledger().observe(change).into_iter().collect()
    }

    async fn reconcile(&self, key: &RangeKey) -> Pass<RangeKey> {
        let woken: BTreeSet<RangeKey> = self.ledger().start();
        let mut pass = match key {
            RangeKey::Claim(key) => self.claim_pass(key).await,
            RangeKey::Class(name) => self.class_pass(name).await,
            RangeKey::Address(name) => self.address_pass(name).await,
        };
        pass.wake.extend(woken);
        pass
    }

    fn all_keys(&self) -> Vec<RangeKey> {
        self.ledger().keys()
    }
}

/// Writes one part of an object if it is still as it was seen.
async fn write<S: ResourceSpec>(
    store: &dyn Store,
    resource: &Resource<S>,
    part: Part,
) -> Pass<RangeKey> {
    let written = match resource.to_object() {
        Ok(object) => store.update(object, part).await,
        Err(e) => Err(e.into()),
    };
    match written {
        Ok(stored) => Pass {
            wrote: stored
                .revision()
                .map(|r| (S::KIND, r))
                .into_iter()
                .collect(),
            ..Pass::settled()
        },
        Err(e) => failed(&e),
    }
}

/// The end of a pass that met this error.
pub(super) fn failed(error: &StoreError) -> Pass<RangeKey> {
    let next = match error {
        StoreError::Conflict { .. } => Next::Again,
        // Gone, or another object by now: its change is on the way to the view.
        StoreError::NotFound { .. } | StoreError::PreconditionFailed { .. } => Next::Wait,
        other => Next::Failed(other.to_string()),
    };
    Pass {
        next,
        ..Pass::settled()
    }
}

fn again_later(error: &StoreError, wake: Vec<RangeKey>) -> Pass<RangeKey> {
    Pass {
        next: Next::Failed(error.to_string()),
        wrote: Vec::new(),
        wake,
    }
}

fn revision_of(claim: &IPAddressClaim) -> Option<(Kind, Revision)> {
    claim
        .metadata
        .resource_version
        .map(|r| (Kind::IPAddressClaim, r))
}
