//! The whole history of a ledger, and whether what is left of its file after a crash is a beginning
//! of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use futures::StreamExt;
use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::{
    ListOptions, Revision, Store, StoreError, WatchEvent, WatchFrom, WatchOptions,
};
use ipledger_store_sqlite::{Options, SqliteStore};

/// The revision of an empty ledger.
const EMPTY: u64 = 1;
/// How many revisions back the history in the file is compared.
const TAIL: u64 = 30;

/// Everything that was ever committed, in order.
pub(crate) struct History(Vec<Event>);

/// One write.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    revision: u64,
    gone: bool,
    /// As written, or its last state.
    object: Arc<Object>,
}

impl History {
    /// Reads the history of a file that is whole.
    pub(crate) async fn of(file: &Path) -> History {
        let store = SqliteStore::open(file, &Options::default()).await.unwrap();
        let events = events(&store, EMPTY).await.unwrap();
        store.close().await.unwrap();
        let first = EMPTY + 1;
        assert!(!events.is_empty());
        assert!(
            events
                .iter()
                .zip(first..)
                .all(|(e, revision)| e.revision == revision)
        );
        History(events)
    }

    /// The last revision.
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(EMPTY, |e| e.revision)
    }

    /// The object that was written at a revision.
    pub(crate) fn at(&self, revision: u64) -> Option<&Object> {
        let found = self.0.binary_search_by_key(&revision, |e| e.revision);
        Some(&self.0[found.ok()?].object)
    }

    /// The revision at which the object with this uid went.
    pub(crate) fn end_of(&self, uid: &str) -> Option<u64> {
        let gone = self
            .0
            .iter()
            .find(|e| e.gone && e.object.metadata.uid == uid);
        gone.map(|e| e.revision)
    }

    fn state_at(&self, revision: u64) -> BTreeMap<Key, Arc<Object>> {
        let mut state = BTreeMap::new();
        for event in self.0.iter().take_while(|e| e.revision <= revision) {
            let key = event.object.key();
            if event.gone {
                state.remove(&key);
            } else {
                state.insert(key, event.object.clone());
            }
        }
        state
    }

    /// Opens a file, which must be a beginning of this history, complete up to `acknowledged` at
    /// least, and writes to it. Returns how far it reaches.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) async fn check(&self, file: &Path, acknowledged: u64) -> Result<u64, String> {
        let store = SqliteStore::open(file, &Options::default())
            .await
            .map_err(|e| format!("it cannot be opened: {e}"))?;
        let checked = self.check_opened(&store, acknowledged).await;
        let closed = store.close().await;
        let reached = checked?;
        closed.map_err(|e| format!("it cannot be closed: {e}"))?;
        Ok(reached)
    }

    async fn check_opened(&self, store: &SqliteStore, acknowledged: u64) -> Result<u64, String> {
        let failed = |e: StoreError| e.to_string();
        let mut there = BTreeMap::new();
        let mut reached = None;
        for kind in Kind::ALL {
            let page = store
                .list(kind, &ListOptions::default())
                .await
                .map_err(failed)?;
            if let Some(e) = page.corrupt.first() {
                return Err(e.to_string());
            }
            reached = Some(page.revision.0);
            there.extend(page.items.into_iter().map(|o| (o.key(), Arc::new(o))));
        }
        let reached = reached.ok_or("there are no kinds")?;
        if reached < acknowledged {
            return Err(format!(
                "it reaches to {reached}, but {acknowledged} was acknowledged"
            ));
        }
        let expected = self.state_at(reached);
        if let Some(difference) = difference(&expected, &there) {
            return Err(format!("at {reached}: {difference}"));
        }
        let from = reached.saturating_sub(TAIL).max(EMPTY);
        let told = events(store, from).await.map_err(failed)?;
        let after = self.0.partition_point(|e| e.revision <= from);
        let until = self.0.partition_point(|e| e.revision <= reached);
        if told != self.0[after..until] {
            return Err(format!(
                "the history from {from} to {reached} is another one"
            ));
        }
        let mut new = self.0[0].object.as_ref().clone();
        new.metadata = Default::default();
        new.metadata.name = "after-the-crash".to_owned();
        let written = store.create(new).await.map_err(failed)?;
        if written.revision() <= Some(Revision(reached)) {
            return Err(format!(
                "a write after {reached} is at {:?}",
                written.revision()
            ));
        }
        Ok(reached)
    }
}

/// The first object that is not as expected.
fn difference(
    expected: &BTreeMap<Key, Arc<Object>>,
    there: &BTreeMap<Key, Arc<Object>>,
) -> Option<String> {
    let mut keys = expected.keys().chain(there.keys());
    let key = keys.find(|key| expected.get(key) != there.get(key))?;
    let tell = |object: Option<&Arc<Object>>| object.map(|o| o.to_value().to_string());
    Some(format!(
        "{key} is {:?}, not {:?}",
        tell(there.get(key)),
        tell(expected.get(key))
    ))
}

/// All events after a revision, of all kinds, in order.
async fn events(store: &SqliteStore, from: u64) -> Result<Vec<Event>, StoreError> {
    let mut all = Vec::new();
    for kind in Kind::ALL {
        let end = store.barrier(kind).await?;
        let options = WatchOptions::all(WatchFrom::After(Revision(from)));
        let mut stream = store.watch(kind, &options).await?;
        let mut told = Revision(from);
        while told < end {
            let event = stream.next().await.unwrap_or_else(|| {
                let reason = format!("the watch of {kind} has ended at {told}");
                Err(StoreError::Internal { reason })
            })?;
            told = event.revision();
            let (gone, object) = match event {
                WatchEvent::Applied(object) => (false, object),
                WatchEvent::Deleted(object) => (true, object),
                WatchEvent::Unreadable { key, reason, .. } => {
                    return Err(StoreError::Corrupt { key, reason });
                }
                WatchEvent::Bookmark(_) | WatchEvent::Synced(_) => continue,
            };
            all.push(Event {
                revision: told.0,
                gone,
                object,
            });
        }
    }
    all.sort_by_key(|e| e.revision);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use sqlx::sqlite::SqliteConnectOptions;
    use sqlx::{ConnectOptions, Connection};

    use super::*;

    async fn ledger(file: &Path) {
        let store = SqliteStore::open(file, &Options::default()).await.unwrap();
        for n in 0..5 {
            let class = serde_json::json!({
                "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClass",
                "metadata": {"name": format!("c-{n}")}, "spec": {"provisioner": "example.com/none"},
            });
            store
                .create(Object::from_value(class).unwrap())
                .await
                .unwrap();
        }
        store.close().await.unwrap();
    }

    async fn sql(file: &Path, text: &'static str) {
        let options = SqliteConnectOptions::new().filename(file);
        let mut connection = options.connect().await.unwrap();
        sqlx::raw_sql(text).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    /// What the check says after these statements have changed the file.
    async fn after(statements: &'static str, acknowledged: u64) -> Result<u64, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("l.db");
        ledger(&file).await;
        let history = History::of(&file).await;
        assert_eq!(history.end(), 6);
        sql(&file, statements).await;
        history.check(&file, acknowledged).await
    }

    #[tokio::test]
    async fn a_beginning_of_the_history_is_one_only_if_nothing_is_half_there() {
        const OBJECT: &str = "DELETE FROM objects WHERE revision = 6;";
        const EVENT: &str = "DELETE FROM events WHERE revision = 6;";
        const COUNTERS: &str =
            "UPDATE counters SET value = 5 WHERE name IN ('revision', 'IPAddressClass');";
        let whole = [OBJECT, EVENT, COUNTERS].concat().leak();
        assert_eq!(after(whole, 5).await, Ok(5));
        assert_eq!(after("", 6).await, Ok(6));
        let lost = after(whole, 6).await.unwrap_err();
        assert!(
            lost.contains("reaches to 5, but 6 was acknowledged"),
            "{lost}"
        );
        for half in [
            [OBJECT, EVENT],
            [OBJECT, COUNTERS],
            [EVENT, COUNTERS],
            [EVENT, ""],
        ] {
            let refused = after(half.concat().leak(), 0).await;
            assert!(refused.is_err(), "{half:?}: {refused:?}");
        }
    }
}
