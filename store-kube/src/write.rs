//! Creates, updates and deletions.
//!
//! The API server keeps the object rules itself. Its answers say less than ours: it names a lost
//! swap and a foreign uid alike, and words its refusals in its own way. So what is refused is looked
//! at again with the object rules of the core, over the object as it is then.

use std::time::Duration;

use http::Method;
use ipledger_core::api::{Key, Kind, Object, Timestamp};
use ipledger_core::store::rules::{self, Birth};
use ipledger_core::store::{Deletion, Part, Preconditions, ReadAt, Revision, StoreError};
use serde_json::{Value, json};

use crate::failure::{Failure, Status, not_found, unavailable};
use crate::path::{self, Query};
use crate::{Inner, wire};

/// So long a write waits for the server to show what it is a swap on.
const SHOWN_WITHIN: Duration = Duration::from_millis(100);
/// A create or a deletion that others come between so often is given up.
const TRIES: usize = 32;

impl Inner {
    pub(crate) async fn get(&self, key: &Key, at: ReadAt) -> Result<Object, StoreError> {
        let mut query = Query::new(path::of_object(key).ok_or_else(|| not_found(key))?);
        if let ReadAt::NotOlderThan(revision) = at
            && revision.0 > 0
        {
            query = query.with("resourceVersion", &revision.to_string());
        }
        let answer = self.caller.get(query.into_path()).await;
        wire::read(key.kind, answer.map_err(|failure| failure.of_read(key))?)
    }

    pub(crate) async fn create(&self, object: Object) -> Result<Object, StoreError> {
        let key = object.key();
        let birth = Birth {
            uid: String::new(),
            now: Timestamp::default(),
        };
        let object = rules::create(object, birth)?;
        let body = rules::check_size(&wire::main_part(&object), self.options.max_object_bytes)?;
        let path = path::of_kind(key.kind, Some(&key.namespace));
        for _ in 0..TRIES {
            let path = self.writing(path.clone());
            match self
                .caller
                .call(Method::POST, path, Some(body.clone()))
                .await
            {
                Ok(value) => return written(&key, value),
                // It says that nothing was created, so that another try is safe if the holder of the
                // name is gone by now.
                Err(Failure::Refused(status)) if status.already_exists() => {
                    match self.get(&key, ReadAt::Latest).await {
                        Ok(holder) => return Err(rules::already_exists(key, &holder)),
                        Err(StoreError::NotFound { .. }) => {}
                        Err(e) => return Err(e),
                    }
                }
                Err(Failure::Refused(status)) if status.code == 409 => {
                    return Err(unavailable(status.message));
                }
                Err(failure) => return Err(failure.of_write(&key)),
            }
        }
        Err(busy(&key))
    }

    pub(crate) async fn update(&self, object: Object, part: Part) -> Result<Object, StoreError> {
        let key = object.key();
        let path = path::of_object(&key).ok_or_else(|| not_found(&key))?;
        let Some(seen) = object.revision().filter(|r| r.0 > 0) else {
            return Err(self.explained(object, part, None).await);
        };
        let (method, path, body) = match part {
            Part::Main => {
                let body = rules::check_size(&wire::main_part(&object), self.limit())?;
                (Method::PUT, path, body)
            }
            Part::Status => {
                rules::check_size(&object, self.limit())?;
                let patch = bytes(&wire::status_patch(&object));
                (Method::PATCH, format!("{path}/status"), patch)
            }
        };
        let path = self.writing(path);
        self.until_shown(key.kind, seen).await;
        let mut stored = match self.caller.call(method, path, Some(body)).await {
            Ok(value) => written(&key, value)?,
            Err(Failure::Refused(status)) if [404, 409, 422].contains(&status.code) => {
                return Err(self.explained(object, part, Some(status)).await);
            }
            Err(failure) => return Err(failure.of_write(&key)),
        };
        if stored.metadata.is_deleting() && stored.metadata.finalizers.is_empty() {
            let revision = self.revision_of_deletion(&stored, seen).await?;
            stored.metadata.resource_version = Some(revision);
        }
        Ok(stored)
    }

    pub(crate) async fn delete(
        &self,
        key: &Key,
        preconditions: &Preconditions,
    ) -> Result<Deletion, StoreError> {
        let path = path::of_object(key).ok_or_else(|| not_found(key))?;
        for _ in 0..TRIES {
            let current = self.get(key, ReadAt::Latest).await?;
            let (uid, seen) = (
                &current.metadata.uid,
                current.revision().unwrap_or_default(),
            );
            rules::check_preconditions(key, uid, Some(seen), preconditions)?;
            if current.metadata.is_deleting() && !current.metadata.finalizers.is_empty() {
                return Ok(Deletion::Finalizing(current));
            }
            // Exactly what was read, so that it is the last state.
            let body = bytes(&json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
                "preconditions": {"uid": uid, "resourceVersion": seen},
            }));
            match self
                .caller
                .call(Method::DELETE, path.clone(), Some(body))
                .await
            {
                Ok(answer) if answer["kind"] == key.kind.name() => {
                    let left = written(key, answer)?;
                    if !left.metadata.finalizers.is_empty() {
                        return Ok(Deletion::Finalizing(left));
                    }
                    return self.gone(current, seen).await;
                }
                Ok(_) => return self.gone(current, seen).await,
                Err(Failure::Refused(status)) if status.code == 409 => {}
                Err(failure) => return Err(failure.of_write(key)),
            }
        }
        Err(busy(key))
    }

    async fn gone(&self, mut last: Object, seen: Revision) -> Result<Deletion, StoreError> {
        let revision = self.revision_of_deletion(&last, seen).await?;
        last.metadata.resource_version = Some(revision);
        Ok(Deletion::Gone(last))
    }

    /// The revision under which an object was taken away after it was seen. The server does not
    /// answer with it, but tells it to whoever watches. If the history no longer reaches back that
    /// far, the last revision of all is as good: everything up to it includes the deletion.
    async fn revision_of_deletion(
        &self,
        object: &Object,
        seen: Revision,
    ) -> Result<Revision, StoreError> {
        let key = object.key();
        let told = self.deletion_after(&key, &object.metadata.uid, seen);
        let told = tokio::time::timeout(self.options.request_timeout, told).await;
        let revision = match told.unwrap_or_default() {
            Some(revision) => Ok(revision),
            None => self.committed(key.kind).await,
        };
        revision.map_err(|e| StoreError::OutcomeUnknown {
            reason: format!("it is deleted, but under which revision could not be read: {e}"),
            key,
        })
    }

    async fn deletion_after(&self, key: &Key, uid: &str, seen: Revision) -> Option<Revision> {
        let namespace = key.kind.namespaced().then_some(key.namespace.as_str());
        let path = Query::new(path::of_kind(key.kind, namespace))
            .with("watch", "1")
            .with("fieldSelector", &format!("metadata.name={}", key.name))
            .with("resourceVersion", &seen.to_string());
        let mut lines = self.lines(path.into_path()).await.ok()?;
        while let Ok(Some(line)) = lines.next().await {
            match line["type"].as_str() {
                Some("DELETED") if line["object"]["metadata"]["uid"] == uid => {
                    return wire::revision_of(&line["object"]);
                }
                Some("ERROR") => return None,
                _ => {}
            }
        }
        None
    }

    /// Waits a moment until a watch has shown the state that was seen. The server tries an update on the
    /// state that it has in memory, from which its watches come too; where that is an older one, the
    /// swap fails, and it does all of the work again on what it reads from its own store.
    async fn until_shown(&self, kind: Kind, seen: Revision) {
        let mut shown = self.shown(kind).subscribe();
        let there = shown.wait_for(|shown| shown.is_none_or(|shown| shown >= seen));
        // Without it the write only costs more.
        let _ = tokio::time::timeout(SHOWN_WITHIN, there).await;
    }

    /// Why an update was refused.
    async fn explained(&self, object: Object, part: Part, status: Option<Status>) -> StoreError {
        let key = object.key();
        let current = match self.get(&key, ReadAt::Latest).await {
            Ok(current) => current,
            Err(e) => return e,
        };
        match (rules::update(&current, object, part), status) {
            (Err(e), _) => e,
            (Ok(_), Some(status)) if status.code == 422 => Failure::Refused(status).of_write(&key),
            // It has changed once more since.
            (Ok(_), _) => StoreError::Conflict { key },
        }
    }

    fn writing(&self, path: String) -> String {
        let query = Query::new(path).with("fieldManager", &self.options.field_manager);
        query.into_path()
    }

    fn limit(&self) -> usize {
        self.options.max_object_bytes
    }
}

/// What the server answered to a write that it has done.
fn written(key: &Key, value: Value) -> Result<Object, StoreError> {
    wire::read(key.kind, value).map_err(|e| StoreError::OutcomeUnknown {
        key: key.clone(),
        reason: format!("the answer cannot be read: {e}"),
    })
}

fn busy(key: &Key) -> StoreError {
    unavailable(format!("others have changed {key} {TRIES} times meanwhile"))
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}
