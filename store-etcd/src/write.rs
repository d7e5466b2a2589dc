//! Create, update and delete, each one compare-and-swap on the key of the object.

use std::sync::Arc;

use ipledger_core::api::{Key, Object};
use ipledger_core::store::rules::{self, Birth, Outcome};
use ipledger_core::store::{Deletion, Part, Preconditions, Revision, StoreError};

use crate::{Inner, Server};
use crate::failure::unavailable;
use crate::kv::{self, Raw, Swap};
use crate::value::{self, Value, corrupt};

/// How often a swap is tried that only other writers can make fail. Each time one of them has
/// succeeded.
const TRIES: usize = 100;

/// What is to be stored.
enum Write {
    Object(Object),
    /// The object with a deletion mark. It is not measured: one at the limit must be deletable.
    Marked(Object),
    /// The object is removed; its last state.
    Grave(Object),
}

impl Inner {
    pub(crate) async fn create(&self, object: Object) -> Result<Object, StoreError> {
        let birth = Birth {
            uid: uuid::Uuid::new_v4().to_string(),
            now: (self.options.now)(),
        };
        let object = rules::create(object, birth)?;
        let key = object.key();
        let bytes = value::of_object(&object, self.options.max_object_bytes)?;
        let mut expected = 0;
        for _ in 0..TRIES {
            let raw = match self.put(&key, expected, &bytes).await? {
                Swap::Done(revision) if self.server == Server::Kine && expected == 0 => {
                    return self.as_created(at(object, revision)).await;
                }
                Swap::Done(revision) => return Ok(at(object, revision)),
                Swap::Lost(Some(raw)) => raw,
                Swap::Lost(None) => {
                    expected = 0;
                    continue;
                }
            };
            match Value::read(&key, raw.revision, &raw.value) {
                Value::Gone(_) => expected = raw.revision,
                // It was written after all: kine answers so when only its commit seemed to fail.
                Value::Object(current) if current.metadata.uid == object.metadata.uid => {
                    return Ok(Arc::unwrap_or_clone(current));
                }
                Value::Object(current) => return Err(rules::already_exists(key, &current)),
                Value::Unreadable { uid, .. } => {
                    return Err(StoreError::AlreadyExists {
                        key,
                        uid,
                        operation: None,
                    });
                }
            }
        }
        Err(contended(&key))
    }

    /// When a key was there before, kine 0.17 answers a create with its newest revision instead of
    /// the one that it wrote. So the object is read again.
    async fn as_created(&self, object: Object) -> Result<Object, StoreError> {
        let key = object.key();
        let unknown = |e: StoreError| StoreError::OutcomeUnknown {
            key: key.clone(),
            reason: format!("it was created, but its revision could not be read: {e}"),
        };
        let raw = self.read(&key).await.map_err(unknown)?;
        Ok(match raw.map(|raw| Value::read(&key, raw.revision, &raw.value)) {
            Some(Value::Object(current)) if current.metadata.uid == object.metadata.uid => {
                Arc::unwrap_or_clone(current)
            }
            // It is gone already.
            _ => object,
        })
    }

    pub(crate) async fn update(
        self: &Arc<Self>,
        new: Object,
        part: Part,
    ) -> Result<Object, StoreError> {
        let key = new.key();
        let mut raw = self.read(&key).await?;
        for _ in 0..TRIES {
            let current = match found(&key, raw)? {
                (Value::Object(current), _) => current,
                (Value::Unreadable { reason, .. }, _) => return Err(corrupt(&key, &reason)),
                (Value::Gone(_), _) => return Err(not_found(&key)),
            };
            let expected = current.revision().unwrap_or_default().0;
            // After a swap that was lost to another writer this says `Conflict`.
            let write = match rules::update(&current, new.clone(), part)? {
                Outcome::Unchanged => return Ok(Arc::unwrap_or_clone(current)),
                Outcome::Write(next) => Write::Object(next),
                Outcome::Remove(last) => Write::Grave(last),
            };
            raw = match self.swap(&key, expected, write).await? {
                Ok(stored) => return Ok(stored),
                Err(raw) => raw,
            };
        }
        Err(contended(&key))
    }

    pub(crate) async fn delete(
        self: &Arc<Self>,
        key: &Key,
        preconditions: &Preconditions,
    ) -> Result<Deletion, StoreError> {
        let now = (self.options.now)();
        let mut raw = self.read(key).await?;
        for _ in 0..TRIES {
            let (expected, write) = match found(key, raw)? {
                (Value::Object(current), revision) => {
                    match rules::delete(&current, preconditions, now)? {
                        Outcome::Unchanged => {
                            return Ok(Deletion::Finalizing(Arc::unwrap_or_clone(current)));
                        }
                        Outcome::Write(marked) => (revision, Write::Marked(marked)),
                        Outcome::Remove(last) => (revision, Write::Grave(last)),
                    }
                }
                (Value::Unreadable { uid, .. }, revision) => {
                    let at = Some(Revision(revision));
                    rules::check_preconditions(key, &uid, at, preconditions)?;
                    (revision, Write::Grave(rules::remains(key, &uid)))
                }
                (Value::Gone(_), _) => return Err(not_found(key)),
            };
            let gone = matches!(write, Write::Grave(_));
            raw = match self.swap(key, expected, write).await? {
                Ok(last) if gone => return Ok(Deletion::Gone(last)),
                Ok(marked) => return Ok(Deletion::Finalizing(marked)),
                Err(raw) => raw,
            };
        }
        Err(contended(key))
    }

    async fn read(&self, key: &Key) -> Result<Option<Raw>, StoreError> {
        let read = kv::get(&self.members, &self.keys.of(key)).await;
        Ok(read.map_err(|f| f.of_read(key))?.0)
    }

    async fn put(&self, key: &Key, expected: u64, bytes: &[u8]) -> Result<Swap, StoreError> {
        let put = kv::put(&self.members, &self.keys.of(key), expected, bytes).await;
        put.map_err(|failure| failure.of_write(key))
    }

    /// Writes if the key is still at this revision, and returns the object with its new one; or
    /// else what stands there now.
    async fn swap(
        self: &Arc<Self>,
        key: &Key,
        expected: u64,
        write: Write,
    ) -> Result<Result<Object, Option<Raw>>, StoreError> {
        let is_grave = matches!(write, Write::Grave(_));
        let (object, bytes) = match write {
            Write::Object(next) => {
                let bytes = value::of_object(&next, self.options.max_object_bytes)?;
                (next, bytes)
            }
            Write::Marked(next) => {
                let bytes = value::of_object(&next, usize::MAX)?;
                (next, bytes)
            }
            Write::Grave(last) => {
                let bytes = value::of_grave(&last)?;
                (last, bytes)
            }
        };
        match self.put(key, expected, &bytes).await? {
            Swap::Done(revision) => {
                if is_grave {
                    self.clear_away(self.keys.of(key), revision);
                }
                Ok(Ok(at(object, revision)))
            }
            Swap::Lost(raw) => Ok(Err(raw)),
        }
    }

    /// Removes a grave in the background. If that fails, it lies there until somebody lists it
    /// again or creates an object over it; nobody sees it.
    pub(crate) fn clear_away(self: &Arc<Self>, key: Vec<u8>, revision: u64) {
        let inner = self.clone();
        tokio::spawn(async move {
            if let Err(failure) = kv::delete(&inner.members, &key, revision).await {
                tracing::debug!(?failure, "a grave was not cleared away");
            }
        });
    }
}

/// What stands under the key, with its revision.
fn found(key: &Key, raw: Option<Raw>) -> Result<(Value, u64), StoreError> {
    let raw = raw.ok_or_else(|| not_found(key))?;
    Ok((Value::read(key, raw.revision, &raw.value), raw.revision))
}

pub(crate) fn not_found(key: &Key) -> StoreError {
    StoreError::NotFound { key: key.clone() }
}

fn contended(key: &Key) -> StoreError {
    unavailable(format!(
        "{key} was changed by others at each of {TRIES} tries"
    ))
}

fn at(mut object: Object, revision: u64) -> Object {
    object.metadata.resource_version = Some(Revision(revision));
    object
}
