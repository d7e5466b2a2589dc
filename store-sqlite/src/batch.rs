//! What a batch of writes does to the objects that it touches: decided in memory, one write after
//! the other, each on what the one before it left.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipledger_core::api::{Key, Object, Timestamp};
use ipledger_core::store::rules::{self, Birth, Outcome};
use ipledger_core::store::{Part, Preconditions, Revision, StoreError};

use crate::event::{self, Event, Op, State};

/// A write that a caller asks for.
#[derive(Debug)]
pub(crate) enum Request {
    Create(Object),
    Update(Object, Part),
    Delete(Key, Preconditions),
}

impl Request {
    pub(crate) fn key(&self) -> Key {
        match self {
            Request::Create(object) | Request::Update(object, _) => object.key(),
            Request::Delete(key, _) => key.clone(),
        }
    }
}

/// The answer to a write that was not refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Done {
    pub(crate) object: Object,
    /// Whether the object is gone.
    pub(crate) gone: bool,
}

/// What the rules need from outside.
pub(crate) struct Surroundings<'a> {
    pub(crate) now: Timestamp,
    pub(crate) max_object_bytes: usize,
    pub(crate) new_uid: &'a (dyn Fn() -> String + Sync),
}

/// An object in the file at the start of the batch.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: i64,
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) revision: u64,
    pub(crate) body: Vec<u8>,
}

/// The state of an object within the batch.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) uid: String,
    pub(crate) revision: u64,
    pub(crate) body: Arc<str>,
    object: Result<Arc<Object>, String>,
}

#[derive(Debug, Default)]
struct Slot {
    row: Option<i64>,
    current: Option<Current>,
    changed: bool,
}

/// One event to be written.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: Key,
    pub(crate) op: Op,
    pub(crate) body: Arc<str>,
    pub(crate) before: Option<Current>,
    after: Arc<Object>,
}

impl Change {
    /// Bytes of the bodies.
    pub(crate) fn size(&self) -> usize {
        self.body.len() + self.before.as_ref().map_or(0, |b| b.body.len())
    }

    pub(crate) fn into_event(self) -> Event {
        Event {
            size: self.size(),
            revision: self.revision,
            key: self.key,
            op: self.op,
            after: State::parsed(Ok(self.after)),
            before: self.before.map(|b| State::parsed(b.object)),
        }
    }
}

pub(crate) struct Batch {
    slots: BTreeMap<Key, Slot>,
    pub(crate) changes: Vec<Change>,
    /// Of the last change.
    pub(crate) revision: u64,
}

impl Batch {
    /// A batch that begins at a revision, with those of its objects that exist.
    pub(crate) fn new(revision: u64, rows: Vec<Row>) -> Batch {
        let slots = rows.into_iter().map(|row| {
            let object = event::decode(&row.key, row.revision, &row.body);
            let current = Current {
                uid: row.uid,
                revision: row.revision,
                body: String::from_utf8_lossy(&row.body).into(),
                object,
            };
            let slot = Slot {
                row: Some(row.id),
                current: Some(current),
                changed: false,
            };
            (row.key, slot)
        });
        Batch {
            slots: slots.collect(),
            changes: Vec::new(),
            revision,
        }
    }

    /// Decides one write and keeps what it changes.
    ///
    /// # Errors
    /// What the rules refuse; the batch is then as before.
    pub(crate) fn apply(
        &mut self,
        request: Request,
        around: &Surroundings<'_>,
    ) -> Result<Done, StoreError> {
        let key = request.key();
        let current = self.slots.get(&key).and_then(|slot| slot.current.clone());
        match request {
            Request::Create(object) => {
                let birth = Birth {
                    uid: (around.new_uid)(),
                    now: around.now,
                };
                let object = rules::create(object, birth)?;
                let body = rules::check_size(&object, around.max_object_bytes)?;
                match current.map(|c| (c.object, c.uid)) {
                    None => Ok(self.put(key, object, text(body), None)),
                    Some((Ok(current), _)) => Err(rules::already_exists(key, &current)),
                    Some((Err(_), uid)) => Err(StoreError::AlreadyExists {
                        key,
                        uid,
                        operation: None,
                    }),
                }
            }
            Request::Update(object, part) => {
                let current = current.ok_or_else(|| StoreError::NotFound { key: key.clone() })?;
                let old = current
                    .object
                    .as_ref()
                    .map_err(|e| event::corrupt(&key, e))?;
                match rules::update(old, object, part)? {
                    Outcome::Unchanged => Ok(kept(old)),
                    Outcome::Write(next) => {
                        let body = rules::check_size(&next, around.max_object_bytes)?;
                        Ok(self.put(key, next, text(body), Some(current)))
                    }
                    Outcome::Remove(last) => self.remove(key, last, current),
                }
            }
            Request::Delete(_, preconditions) => {
                let current = current.ok_or_else(|| StoreError::NotFound { key: key.clone() })?;
                let Ok(old) = &current.object else {
                    let revision = Some(Revision(current.revision));
                    rules::check_preconditions(&key, &current.uid, revision, &preconditions)?;
                    let last = rules::remains(&key, &current.uid);
                    return self.remove(key, last, current);
                };
                match rules::delete(old, &preconditions, around.now)? {
                    Outcome::Unchanged => Ok(kept(old)),
                    // Not measured: an object at the limit must be deletable.
                    Outcome::Write(marked) => {
                        let body = rules::check_size(&marked, usize::MAX)?;
                        Ok(self.put(key, marked, text(body), Some(current)))
                    }
                    Outcome::Remove(last) => self.remove(key, last, current),
                }
            }
        }
    }

    fn put(
        &mut self,
        key: Key,
        mut object: Object,
        body: Arc<str>,
        before: Option<Current>,
    ) -> Done {
        self.revision += 1;
        object.metadata.resource_version = Some(Revision(self.revision));
        let after = Arc::new(object.clone());
        let slot = self.slots.entry(key.clone()).or_default();
        slot.changed = true;
        slot.current = Some(Current {
            uid: object.metadata.uid.clone(),
            revision: self.revision,
            body: body.clone(),
            object: Ok(after.clone()),
        });
        self.changes.push(Change {
            revision: self.revision,
            key,
            op: if before.is_some() {
                Op::Updated
            } else {
                Op::Created
            },
            body,
            before,
            after,
        });
        Done {
            object,
            gone: false,
        }
    }

    fn remove(&mut self, key: Key, mut last: Object, before: Current) -> Result<Done, StoreError> {
        let body = text(rules::check_size(&last, usize::MAX)?);
        self.revision += 1;
        last.metadata.resource_version = Some(Revision(self.revision));
        let slot = self.slots.entry(key.clone()).or_default();
        slot.changed = true;
        slot.current = None;
        self.changes.push(Change {
            revision: self.revision,
            key,
            op: Op::Deleted,
            body,
            before: Some(before),
            after: Arc::new(last.clone()),
        });
        Ok(Done {
            object: last,
            gone: true,
        })
    }

    /// The objects that the batch leaves in another state than it found them in.
    pub(crate) fn to_put(&self) -> impl Iterator<Item = (&Key, &Current)> {
        let changed = self.slots.iter().filter(|(_, slot)| slot.changed);
        changed.filter_map(|(key, slot)| Some((key, slot.current.as_ref()?)))
    }

    /// The rows that are to go.
    pub(crate) fn to_delete(&self) -> Vec<i64> {
        let gone = self.slots.values().filter(|slot| slot.current.is_none());
        gone.filter_map(|slot| slot.row).collect()
    }
}

fn kept(object: &Arc<Object>) -> Done {
    Done {
        object: Object::clone(object),
        gone: false,
    }
}

/// JSON is UTF-8, so nothing is lost.
fn text(body: Vec<u8>) -> Arc<str> {
    String::from_utf8_lossy(&body).into()
}

#[cfg(test)]
mod tests {
    use ipledger_core::store::Preconditions;
    use serde_json::{Map, json};

    use super::*;

    fn object(value: u64) -> Object {
        let mut object = rules::remains(&Key::address("ip-1"), "");
        object.fields = Map::from_iter([("spec".to_owned(), json!({"value": value}))]);
        object
    }

    fn apply(batch: &mut Batch, request: Request) -> Result<Done, StoreError> {
        let around = Surroundings {
            now: Timestamp::from_unix(1),
            max_object_bytes: 1_000,
            new_uid: &|| "uid".to_owned(),
        };
        batch.apply(request, &around)
    }

    fn delete() -> Request {
        Request::Delete(Key::address("ip-1"), Preconditions::default())
    }

    fn row(body: &[u8]) -> Row {
        Row {
            id: 5,
            key: Key::address("ip-1"),
            uid: "old".to_owned(),
            revision: 7,
            body: body.to_vec(),
        }
    }

    #[test]
    fn a_write_sees_what_the_one_before_it_left() {
        let mut batch = Batch::new(7, Vec::new());
        let created = apply(&mut batch, Request::Create(object(1)))
            .unwrap()
            .object;
        assert!(apply(&mut batch, Request::Create(object(2))).is_err());
        let mut next = object(2);
        next.metadata = created.metadata.clone();
        apply(&mut batch, Request::Update(next, Part::Main)).unwrap();
        // It has moved on.
        assert!(apply(&mut batch, Request::Update(created, Part::Main)).is_err());
        assert_eq!((batch.revision, batch.changes.len()), (9, 2));
        assert_eq!(
            batch.to_put().map(|(_, c)| c.revision).collect::<Vec<_>>(),
            [9]
        );
    }

    #[test]
    fn what_comes_and_goes_within_a_batch_leaves_only_its_events() {
        let mut batch = Batch::new(7, Vec::new());
        apply(&mut batch, Request::Create(object(1))).unwrap();
        assert!(apply(&mut batch, delete()).unwrap().gone);
        assert_eq!(batch.changes.len(), 2);
        assert_eq!(batch.to_put().count(), 0);
        assert_eq!(batch.to_delete(), [0_i64; 0]);
    }

    #[test]
    fn a_row_that_cannot_be_read_can_be_deleted_and_then_replaced() {
        let mut batch = Batch::new(7, vec![row(b"\xff{")]);
        let e = apply(&mut batch, Request::Update(object(1), Part::Main)).unwrap_err();
        assert!(matches!(e, StoreError::Corrupt { .. }), "{e}");
        let gone = apply(&mut batch, delete()).unwrap();
        assert_eq!(gone.object.metadata.uid, "old");
        assert_eq!(batch.to_delete(), [5]);
        apply(&mut batch, Request::Create(object(1))).unwrap();
        assert_eq!(batch.to_delete(), [0_i64; 0], "the row is used again");
        assert_eq!(batch.to_put().count(), 1);
    }
}
