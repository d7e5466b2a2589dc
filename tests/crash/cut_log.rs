//! The write-ahead log ends anywhere, or a bit of it is wrong: what is left is a beginning of the
//! history, up to the last write before that place.

use std::collections::BTreeSet;

use ipledger_core::api::Object;
use ipledger_core::store::{Part, Revision, Store};
use ipledger_store_sqlite::{Options, SqliteStore};
use serde_json::json;

use crate::history::History;
use crate::place::memory_folder;

/// https://www.sqlite.org/fileformat.html, section 4: a header, then frames of a head and a page.
const HEADER: usize = 32;
const FRAME: usize = 24 + 4_096;

/// A ledger that was never closed.
struct Unclosed {
    file: Vec<u8>,
    log: Vec<u8>,
    /// The length of the log when a revision was acknowledged.
    acknowledged: Vec<(usize, u64)>,
    history: History,
}

impl Unclosed {
    async fn make() -> Unclosed {
        let folder = memory_folder();
        let (file, log) = (folder.path().join("l.db"), folder.path().join("l.db-wal"));
        let store = SqliteStore::open(&file, &Options::default()).await.unwrap();
        let mut acknowledged = Vec::new();
        let mut note = |object: &Object| {
            let length = usize::try_from(std::fs::metadata(&log).unwrap().len()).unwrap();
            acknowledged.push((length, object.revision().unwrap_or(Revision(0)).0));
        };
        for n in 0..8 {
            let class = json!({
                "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClass",
                "metadata": {"name": format!("c-{n}")}, "spec": {"provisioner": "example.com/none"},
            });
            let mut class = store
                .create(Object::from_value(class).unwrap())
                .await
                .unwrap();
            note(&class);
            class
                .metadata
                .annotations
                .insert("n".to_owned(), "x".repeat(n * 1_000));
            note(&store.update(class, Part::Main).await.unwrap());
        }
        // As the files are, while the store is at rest.
        let (bytes, log) = (std::fs::read(&file).unwrap(), std::fs::read(&log).unwrap());
        store.close().await.unwrap();
        Unclosed {
            file: bytes,
            log,
            acknowledged,
            history: History::of(&file).await,
        }
    }

    /// Opens the file with another log; returns how far it reaches.
    async fn reaches_with(&self, log: &[u8]) -> Result<u64, String> {
        let folder = memory_folder();
        let file = folder.path().join("l.db");
        std::fs::write(&file, &self.file).unwrap();
        std::fs::write(folder.path().join("l.db-wal"), log).unwrap();
        self.history.check(&file, 0).await
    }

    /// The last revision that was acknowledged when the log had at most this length.
    fn acknowledged_at(&self, length: usize) -> u64 {
        let before = self.acknowledged.iter().take_while(|(at, _)| *at <= length);
        before.last().map_or(1, |(_, revision)| *revision)
    }
}

#[tokio::test]
async fn a_log_that_ends_anywhere_holds_every_write_before_its_end_and_nothing_of_the_next() {
    let ledger = Unclosed::make().await;
    let frames = (ledger.log.len() - HEADER) / FRAME;
    let mut reached = BTreeSet::new();
    for frame in 0..=frames {
        let whole = HEADER + frame * FRAME;
        // At the end of a frame, in its head, in its page.
        for length in [whole, whole + 10, whole + 1_000] {
            let log = &ledger.log[..length.min(ledger.log.len())];
            let reaches = ledger.reaches_with(log).await;
            // Every write has a commit of its own here.
            let expected = ledger.acknowledged_at(log.len());
            assert_eq!(
                reaches,
                Ok(expected),
                "{length} of {} bytes",
                ledger.log.len()
            );
            reached.insert(expected);
        }
    }
    assert!(
        reached.into_iter().eq(1..=ledger.history.end()),
        "a write was never the last"
    );
}

#[tokio::test]
async fn after_a_wrong_bit_the_log_is_not_believed() {
    let ledger = Unclosed::make().await;
    let frames = (ledger.log.len() - HEADER) / FRAME;
    for frame in (0..frames).step_by(3) {
        for within in [9, 500] {
            let mut log = ledger.log.clone();
            log[HEADER + frame * FRAME + within] ^= 1;
            let expected = ledger.acknowledged_at(HEADER + frame * FRAME);
            assert_eq!(
                ledger.reaches_with(&log).await,
                Ok(expected),
                "frame {frame}"
            );
        }
    }
}
