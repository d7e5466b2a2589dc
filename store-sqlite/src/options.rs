use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use ipledger_core::api::Timestamp;

/// How a [`SqliteStore`](crate::SqliteStore) works. The default is right for a server.
#[derive(Clone)]
pub struct Options {
    /// How long opening, and later each write, waits for another process that holds the database.
    pub busy_timeout: Duration,
    /// An event is kept at least this long, as far as [`Options::max_history_bytes`] allows.
    pub history_min_age: Duration,
    /// At least this many events are kept, as far as [`Options::max_history_bytes`] allows.
    pub history_min_revisions: u64,
    /// When the bodies in the history have more bytes than this, the oldest go, however young.
    pub max_history_bytes: u64,
    /// How often the history is looked through for what may go.
    pub compaction_interval: Duration,
    /// How often writes of other processes are looked for; they reach a watch that much later.
    pub poll_interval: Duration,
    /// How long a watch that has nothing to deliver waits at least before it says with a bookmark
    /// that it has got further.
    pub bookmark_interval: Duration,
    /// Largest object in bytes of JSON.
    pub max_object_bytes: usize,
    /// Whether opening reads the whole file and refuses a damaged one (about a second a gigabyte).
    pub check_on_open: bool,
    /// At most this many pages of 4096 bytes, as on a full disk; `None` means no limit.
    pub max_page_count: Option<u32>,
    /// The clock, for creation and deletion times and the age of the history.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            busy_timeout: Duration::from_secs(5),
            history_min_age: Duration::from_secs(5 * 60),
            history_min_revisions: 100_000,
            max_history_bytes: 1 << 30,
            compaction_interval: Duration::from_secs(10),
            poll_interval: Duration::from_millis(25),
            bookmark_interval: Duration::from_secs(2),
            max_object_bytes: 1_536 * 1_024,
            check_on_open: true,
            max_page_count: None,
            now: Arc::new(|| Timestamp::from(SystemTime::now())),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("busy_timeout", &self.busy_timeout)
            .field("history_min_age", &self.history_min_age)
            .field("history_min_revisions", &self.history_min_revisions)
            .field("max_history_bytes", &self.max_history_bytes)
            .field("compaction_interval", &self.compaction_interval)
            .field("poll_interval", &self.poll_interval)
            .field("bookmark_interval", &self.bookmark_interval)
            .field("max_object_bytes", &self.max_object_bytes)
            .field("check_on_open", &self.check_on_open)
            .field("max_page_count", &self.max_page_count)
            .finish_non_exhaustive()
    }
}

/// What a store has done since it was opened, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Writes of objects that were committed (creates, updates and deletes; not no-ops).
    pub writes: u64,
    /// Transactions that carried them: the fewer, the more writes shared one sync.
    pub commits: u64,
    /// Events that compaction has removed from the history.
    pub events_compacted: u64,
    /// Compaction steps that failed and are tried again.
    pub compaction_failures: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) writes: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) events_compacted: AtomicU64,
    pub(crate) compaction_failures: AtomicU64,
}
