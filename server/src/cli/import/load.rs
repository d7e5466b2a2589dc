//! Brings a store to hold exactly the objects of an export.
//!
//! # Guarantees
//! * Everything is kept but what a store gives itself: uid, revision, generation, creation and
//!   deletion time. Who holds which address is as before, and what the conditions and annotations
//!   say of it.
//! * It may be cut off anywhere and begun again: what is there already is not written again.
//! * At the end all was read once more and found as it should be.
//!
//! # Assumptions
//! * Nobody else works on the store until the end, above all no controller: a claim without its
//!   status looks like a new one, and an address whose claim is not there yet like one whose claim
//!   is gone.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt, TryStreamExt};
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::rules::{self, Outcome};
use ipledger_core::store::{Deletion, ListOptions, Part, Preconditions, Store, StoreError};

use super::remap::{Uids, given, observe};

/// Writes that wait for the store at the same time.
const AT_ONCE: usize = 256;

/// Why objects cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    /// The store refuses or cannot be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store holds something else.
    #[error(
        "{key} is in the new ledger and not in the export; nothing was written over it: import \
         into an empty one, or move this one away"
    )]
    Foreign {
        /// The object.
        key: Key,
    },
    /// An object is not as it was written.
    #[error(
        "{key} was changed during the import; stop whatever else works on the new ledger, and \
             import again"
    )]
    Interfered {
        /// The object.
        key: Key,
    },
}

/// Makes the store hold these objects. `progress` hears the number of those that are done.
///
/// Claims come first, because the uids that they get are needed for the addresses.
pub(super) async fn load(
    store: &dyn Store,
    objects: &[Object],
    mut progress: impl FnMut(usize),
) -> Result<(), LoadError> {
    let mut there = everything(store).await?;
    let wanted: BTreeMap<Key, &Object> = objects.iter().map(|o| (o.key(), o)).collect();
    if let Some(key) = there.keys().find(|key| !wanted.contains_key(key)) {
        return Err(LoadError::Foreign { key: key.clone() });
    }
    let claims = |o: &&&Object| o.kind == Kind::IPAddressClaim;
    let missing = objects.iter().filter(|o| !there.contains_key(&o.key()));
    let mut created = stream::iter(missing.filter(|o| claims(&o)))
        .map(|claim| store.create(blank(claim)))
        .buffer_unordered(AT_ONCE);
    let mut new = Vec::new();
    while let Some(claim) = created.try_next().await? {
        new.push(claim);
    }
    drop(created);
    there.extend(new.into_iter().map(|claim| (claim.key(), claim)));
    let mut uids = Uids::default();
    for claim in objects.iter().filter(|o| claims(&o)) {
        if let Some(new) = there.get(&claim.key()) {
            uids.add(&claim.metadata.uid, &new.metadata.uid);
        }
    }
    let uids = &uids;
    let mut brought = stream::iter(objects)
        .map(|object| bring(store, there.get(&object.key()).cloned(), object, uids))
        .buffer_unordered(AT_ONCE);
    let mut done = 0;
    while brought.try_next().await?.is_some() {
        done += 1;
        progress(done);
    }
    drop(brought);
    verify(&everything(store).await?, &wanted, uids)
}

async fn everything(store: &dyn Store) -> Result<BTreeMap<Key, Object>, StoreError> {
    let mut all = BTreeMap::new();
    for kind in Kind::ALL {
        let mut options = ListOptions::default();
        loop {
            let page = store.list(kind, &options).await?;
            if let Some(e) = page.corrupt.into_iter().next() {
                return Err(e);
            }
            all.extend(page.items.into_iter().map(|o| (o.key(), o)));
            options.continue_token = page.continue_token;
            if options.continue_token.is_none() {
                break;
            }
        }
    }
    Ok(all)
}

fn verify(
    there: &BTreeMap<Key, Object>,
    wanted: &BTreeMap<Key, &Object>,
    uids: &Uids,
) -> Result<(), LoadError> {
    let interfered = |key: &Key| LoadError::Interfered { key: key.clone() };
    if let Some(key) = there.keys().find(|key| !wanted.contains_key(key)) {
        return Err(interfered(key));
    }
    for (key, object) in wanted {
        let there = there.get(key).ok_or_else(|| interfered(key))?;
        if next(there, object, uids)?.is_some() {
            return Err(interfered(key));
        }
    }
    Ok(())
}

/// What a create takes.
fn blank(object: &Object) -> Object {
    Object {
        metadata: given(&object.metadata),
        ..object.clone()
    }
}

/// A write that brings an object closer to what it should be.
enum Write {
    Update(Box<Object>, Part),
    Mark(Preconditions),
}

async fn bring(
    store: &dyn Store,
    there: Option<Object>,
    wanted: &Object,
    uids: &Uids,
) -> Result<(), StoreError> {
    let mut current = match there {
        Some(object) => object,
        None => {
            let mut object = blank(wanted);
            uids.replace_in(&mut object);
            store.create(object).await?
        }
    };
    while let Some(write) = next(&current, wanted, uids)? {
        current = match write {
            Write::Update(object, part) => store.update(*object, part).await?,
            Write::Mark(preconditions) => {
                match store.delete(&current.key(), &preconditions).await? {
                    Deletion::Finalizing(object) => object,
                    // It has a finalizer, so this does not happen.
                    Deletion::Gone(_) => return Ok(()),
                }
            }
        };
    }
    Ok(())
}

/// The next write that an object needs; none if it is as it should be. The deletion mark comes
/// last, because it counts as a generation.
fn next(current: &Object, wanted: &Object, uids: &Uids) -> Result<Option<Write>, StoreError> {
    let marks = wanted.metadata.is_deleting() && !current.metadata.is_deleting();
    let mut object = wanted.clone();
    uids.replace_in(&mut object);
    observe(&mut object, current.metadata.generation + u64::from(marks));
    object.metadata = given(&object.metadata);
    object.metadata.uid.clone_from(&current.metadata.uid);
    object.metadata.resource_version = current.metadata.resource_version;
    for part in [Part::Main, Part::Status] {
        match rules::update(current, object.clone(), part)? {
            Outcome::Unchanged => {}
            Outcome::Write(_) | Outcome::Remove(_) => {
                return Ok(Some(Write::Update(Box::new(object), part)));
            }
        }
    }
    Ok(marks.then(|| {
        Write::Mark(Preconditions {
            uid: Some(current.metadata.uid.clone()),
            revision: current.revision(),
        })
    }))
}
