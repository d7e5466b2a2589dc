//! Create, update and delete, each one compare-and-swap on the key of the object.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ipledger_core::api::{Key, Object};
use ipledger_core::store::rules::{self, Birth, Outcome};
use ipledger_core::store::{Deletion, Part, Preconditions, Revision, StoreError};

use crate::failure::unavailable;
use crate::kv::{self, Raw, Swap};
use crate::value::{self, Value, corrupt};
use crate::{Inner, Server};

/// How often a swap is tried that only other writers can make fail. Each time one of them has
/// succeeded.
const TRIES: usize = 100;

/// What is to become of the value under a key.
enum Decision {
    /// Nothing.
    Keep(Object),
    Store(Object),
    /// Store the object with a deletion mark. It is not measured: one at the limit must be deletable.
    Mark(Object),
    /// Take the object away; this is its last state.
    Bury(Object),
}

/// The object as a write has left it.
enum Done {
    There(Object),
    Gone(Object),
}

impl Inner {
    pub(crate) async fn create(&self, object: Object) -> Result<Object, StoreError> {
        let birth = Birth {
            uid: uuid::Uuid::new_v4().to_string(),
            now: (self.options.now)(),
        };
        let mut object = rules::create(object, birth)?;
        let key = object.key();
        let bytes = value::of_object(&mut object, self.options.max_object_bytes)?;
        let mut expected = 0;
        for _ in 0..TRIES {
            let raw = match self.put(&key, expected, &bytes).await? {
                Swap::Done(revision) => {
                    let created = match self.server {
                        Server::Kine if expected == 0 => {
                            self.as_created(at(object, revision)).await?
                        }
                        _ => at(object, revision),
                    };
                    self.recent.put(&Arc::new(created.clone()), bytes.len());
                    return Ok(created);
                }
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
    /// the one that it wrote. So the key is read again: it knows under which revision it was created.
    async fn as_created(&self, object: Object) -> Result<Object, StoreError> {
        let key = object.key();
        let raw = self
            .read(&key)
            .await
            .map_err(|e| StoreError::OutcomeUnknown {
                key: key.clone(),
                reason: format!("it was created, but its revision could not be read: {e}"),
            })?;
        if let Some(raw) = raw
            && let Value::Object(last) | Value::Gone(last) =
                Value::read(&key, raw.revision, &raw.value)
            && last.metadata.uid == object.metadata.uid
        {
            return Ok(at(object, raw.created));
        }
        Err(StoreError::OutcomeUnknown {
            key,
            reason: "it was created, and deleted before its revision could be read".to_owned(),
        })
    }

    pub(crate) async fn update(
        self: &Arc<Self>,
        new: Object,
        part: Part,
    ) -> Result<Object, StoreError> {
        let key = new.key();
        let decide = |value: &Value, _| match value {
            // After a swap that was lost to another writer this says `Conflict`.
            Value::Object(current) => Ok(match rules::update(current, new.clone(), part)? {
                Outcome::Unchanged => Decision::Keep(Object::clone(current)),
                Outcome::Write(next) => Decision::Store(next),
                Outcome::Remove(last) => Decision::Bury(last),
            }),
            Value::Unreadable { reason, .. } => Err(corrupt(&key, reason)),
            Value::Gone(_) => Err(not_found(&key)),
        };
        match self.decide_and_swap(&key, decide).await? {
            Done::There(object) | Done::Gone(object) => Ok(object),
        }
    }

    pub(crate) async fn delete(
        self: &Arc<Self>,
        key: &Key,
        preconditions: &Preconditions,
    ) -> Result<Deletion, StoreError> {
        let now = (self.options.now)();
        let decide = |value: &Value, revision| match value {
            Value::Object(current) => Ok(match rules::delete(current, preconditions, now)? {
                Outcome::Unchanged => Decision::Keep(Object::clone(current)),
                Outcome::Write(marked) => Decision::Mark(marked),
                Outcome::Remove(last) => Decision::Bury(last),
            }),
            Value::Unreadable { uid, .. } => {
                let at = Some(Revision(revision));
                rules::check_preconditions(key, uid, at, preconditions)?;
                Ok(Decision::Bury(rules::remains(key, uid)))
            }
            Value::Gone(_) => Err(not_found(key)),
        };
        Ok(match self.decide_and_swap(key, decide).await? {
            Done::There(object) => Deletion::Finalizing(object),
            Done::Gone(object) => Deletion::Gone(object),
        })
    }

    /// Decides on what stands under the key and does it, again and again until nobody comes between.
    async fn decide_and_swap(
        self: &Arc<Self>,
        key: &Key,
        decide: impl Fn(&Value, u64) -> Result<Decision, StoreError> + Send,
    ) -> Result<Done, StoreError> {
        let mut raw = match self.decide_on_recent(key, &decide) {
            Some((revision, decision)) => match self.act(key, revision, decision).await? {
                Ok(done) => return Ok(done),
                Err(raw) => raw,
            },
            None => self.read(key).await?,
        };
        for _ in 0..TRIES {
            let found = raw.ok_or_else(|| not_found(key))?;
            let value = Value::read(key, found.revision, &found.value);
            let decision = decide(&value, found.revision)?;
            raw = match self.act(key, found.revision, decision).await? {
                Ok(done) => return Ok(done),
                Err(raw) => raw,
            };
        }
        Err(contended(key))
    }

    /// A swap, decided on what this store knows; it may be old, which the swap finds out. `None` if
    /// nothing is known, or if the answer would be anything else than a swap.
    fn decide_on_recent(
        &self,
        key: &Key,
        decide: impl Fn(&Value, u64) -> Result<Decision, StoreError>,
    ) -> Option<(u64, Decision)> {
        let recent = self.recent.get(key)?;
        let revision = recent.revision()?.0;
        match decide(&Value::Object(recent), revision) {
            Ok(Decision::Keep(_)) | Err(_) => None,
            Ok(decision) => Some((revision, decision)),
        }
    }

    /// Does what was decided if the key is still at this revision; else returns what stands there.
    async fn act(
        self: &Arc<Self>,
        key: &Key,
        expected: u64,
        decision: Decision,
    ) -> Result<Result<Done, Option<Raw>>, StoreError> {
        let (object, bytes, is_grave) = match decision {
            Decision::Keep(object) => return Ok(Ok(Done::There(object))),
            Decision::Store(mut next) => {
                let bytes = value::of_object(&mut next, self.options.max_object_bytes)?;
                (next, bytes, false)
            }
            Decision::Mark(mut next) => {
                let bytes = value::of_object(&mut next, usize::MAX)?;
                (next, bytes, false)
            }
            Decision::Bury(mut last) => {
                let bytes = value::of_grave(&mut last)?;
                (last, bytes, true)
            }
        };
        let revision = match self.put(key, expected, &bytes).await? {
            Swap::Done(revision) => revision,
            Swap::Lost(raw) => return Ok(Err(raw)),
        };
        let object = at(object, revision);
        Ok(Ok(if is_grave {
            self.clear_away(self.keys.of(key), revision);
            Done::Gone(object)
        } else {
            self.recent.put(&Arc::new(object.clone()), bytes.len());
            Done::There(object)
        }))
    }

    async fn read(&self, key: &Key) -> Result<Option<Raw>, StoreError> {
        let read = kv::get(&self.members, &self.keys.of(key)).await;
        Ok(read.map_err(|f| f.of_read(key))?.0)
    }

    async fn put(&self, key: &Key, expected: u64, bytes: &[u8]) -> Result<Swap, StoreError> {
        let put = kv::put(&self.members, &self.keys.of(key), expected, bytes).await;
        let swap = put.map_err(|failure| failure.of_write(key))?;
        if let Swap::Done(_) = swap {
            self.writes.fetch_add(1, Relaxed);
        }
        Ok(swap)
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
