//! Watches. Each is a task that follows its part of the keyspace and fills a bounded queue.
//!
//! The client library never opens a watch again: a stream of it ends, or hangs on a dead peer. So the
//! task remembers the last revision that it has passed on and opens the next watch behind it. When
//! its reader is slow and the queue is full, it gives the watch back to etcd, and opens it again
//! when there is room: the history is the queue. Nothing is dropped, and no slow reader fills up the
//! connection, which all watches share.
//!
//! How far a watch without events has got, etcd tells when it is asked (a progress request). It is
//! asked whenever something is known to be committed that the watch has not reached: when it is
//! opened, at a barrier, and when the probe of the store finds that. An etcd that does not answer
//! then is left for the next member.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    EventType, WatchOptions as EtcdWatchOptions, WatchResponse, WatchStream as EtcdWatch,
};
use futures::StreamExt as _;
use ipledger_core::api::{Key, Kind};
use ipledger_core::store::{
    Filter, Revision, StoreError, WatchEvent, WatchFrom, WatchOptions, WatchStream,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::event::{Before, Change, Events, Forgotten};
use crate::failure::{Failure, unavailable};
use crate::keys::Range;
use crate::kv::{self, Raw, revision};
use crate::list::Scan;
use crate::value::Value;
use crate::{Inner, Signal};

/// Room in the queue of a watch: one unit for an event, and one for each so many bytes of it.
const QUEUE: u32 = 1_024;
const UNIT: usize = 16 * 1_024;
/// Answers up to this size are taken. etcd cuts them near 2 MiB, kine does not.
const ANSWER_MAX: usize = 256 << 20;
/// An unanswered progress request is repeated so often: etcd is silent while a watch catches up.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// The wait before a watch is opened again, doubled each time that it does not get further.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

type Item = (Result<WatchEvent, StoreError>, Option<OwnedSemaphorePermit>);

/// What the watch begins with.
struct Begin {
    /// What exists, in the order of its revisions.
    existing: Vec<Raw>,
    /// Everything up to here is in `existing`, or known to the caller.
    position: u64,
    /// Committed before the watch was opened.
    sync_at: u64,
}

impl Inner {
    pub(crate) async fn watch(
        self: &Arc<Self>,
        kind: Kind,
        options: &WatchOptions,
    ) -> Result<WatchStream, StoreError> {
        let filter = Filter::of_watch(kind, options);
        let range = self.keys.range(kind, options.namespace.as_deref());
        let of_kind = Key::cluster(kind, "");
        let begin = match options.from {
            WatchFrom::Start => self.existing(range.clone()).await,
            WatchFrom::After(at) => {
                let last = kv::check_revision(&self.members, &range.first, at.0).await;
                last.map(|last| Begin {
                    existing: Vec::new(),
                    position: at.0,
                    sync_at: last.max(at.0),
                })
            }
        };
        let begin = begin.map_err(|failure| failure.of_read(&of_kind))?;
        let (queue, reader) = mpsc::unbounded_channel();
        let (opened, open) = oneshot::channel();
        let follower = Follower {
            inner: self.clone(),
            signals: self.signals.subscribe(),
            range,
            events: Events::new(filter),
            position: begin.position,
            partly: Partly::default(),
            told: begin.position,
            sync_at: Some(begin.sync_at),
            queue,
            room: Arc::new(Semaphore::new(QUEUE as usize)),
            opened: Some(opened),
        };
        let replays = !begin.existing.is_empty();
        tokio::spawn(follower.run(begin.existing));
        // From here on a compaction must not hurt it. (What exists is read first, so that the reader
        // must be given its stream.)
        let patience = self.options.request_timeout;
        if !replays && timeout(patience, open).await.is_err() {
            return Err(unavailable(format!(
                "etcd has not opened a watch within {patience:?}"
            )));
        }
        let stream =
            futures::stream::unfold(reader, |mut reader: mpsc::UnboundedReceiver<Item>| async {
                // Taking it out frees its room.
                let (event, _room) = reader.recv().await?;
                Some((event, reader))
            });
        Ok(stream.boxed())
    }

    async fn existing(&self, range: Range) -> Result<Begin, Failure> {
        let mut scan = Scan::new(range, None);
        let mut existing = Vec::new();
        while let Some(values) = scan.next(self, usize::MAX).await? {
            existing.extend(values);
        }
        existing.sort_unstable_by_key(|raw| raw.revision);
        Ok(Begin {
            existing,
            position: scan.revision(),
            sync_at: scan.revision(),
        })
    }
}

struct Follower {
    inner: Arc<Inner>,
    signals: watch::Receiver<Signal>,
    range: Range,
    events: Events,
    /// Every event up to here was put into the queue.
    position: u64,
    /// The revision behind it of which some events were put there.
    partly: Partly,
    /// How far the reader knows that.
    told: u64,
    /// Until `Synced` was sent: the revision that it tells.
    sync_at: Option<u64>,
    queue: mpsc::UnboundedSender<Item>,
    room: Arc<Semaphore>,
    /// Told once that etcd has opened the watch.
    opened: Option<oneshot::Sender<()>>,
}

/// A revision that may have more events: a transaction or a request for a range makes several.
#[derive(Default)]
struct Partly {
    revision: u64,
    /// How many of its events were put into the queue. They come in the same order again when the
    /// watch is opened again.
    passed: usize,
    /// How many of them the watch that is open now has brought.
    brought: usize,
}

/// Why a watch of etcd is not followed any more.
enum End {
    /// Nobody reads any more, or the store is closed.
    Over,
    /// The queue is full.
    Full,
    /// It broke; another one may work.
    Broken(String),
    /// No other one can go on from here.
    Failed(StoreError),
}

impl From<Forgotten> for End {
    fn from(Forgotten: Forgotten) -> End {
        End::Failed(StoreError::Expired {
            reason: "etcd has compacted the state before a change".to_owned(),
        })
    }
}

impl Follower {
    async fn run(mut self, existing: Vec<Raw>) {
        let mut signals = self.signals.clone();
        let queue = self.queue.clone();
        tokio::select! {
            () = self.follow(existing) => {}
            // Fails only when the store is gone.
            _ = signals.wait_for(|s| s.closed) => {}
            () = queue.closed() => {}
        }
    }

    async fn follow(&mut self, existing: Vec<Raw>) {
        for raw in existing {
            if let Some(key) = self.key(&raw.key) {
                let (size, at) = (raw.value.len(), raw.revision);
                let value = Value::read(&key, at, &raw.value);
                if let Some(event) = self.events.existing(&key, at, value) {
                    let Ok(room) = self.room.clone().acquire_many_owned(units(size)).await else {
                        return;
                    };
                    let _ = self.queue.send((Ok(event), Some(room)));
                }
            }
        }
        let mut wait = FIRST_WAIT;
        loop {
            let before = self.position;
            let member = self.inner.members.current();
            match self.one_watch(member).await {
                End::Over => return,
                End::Full => {
                    // Half of the queue is read before etcd is bothered again.
                    let Ok(_room) = self.room.clone().acquire_many_owned(QUEUE / 2).await else {
                        return;
                    };
                }
                End::Failed(error) => {
                    let _ = self.queue.send((Err(error), None));
                    return;
                }
                End::Broken(reason) => {
                    self.inner.members.leave(member);
                    tracing::debug!(position = self.position, reason, "a watch is opened again");
                    if self.position > before {
                        wait = FIRST_WAIT;
                    }
                    sleep(wait).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
            }
        }
    }

    /// Opens one watch of etcd behind the position and follows it as long as it goes.
    async fn one_watch(&mut self, member: usize) -> End {
        match kv::check_revision(&self.inner.members, &self.range.first, self.position).await {
            Ok(_) => {}
            Err(Failure::Compacted) => {
                return End::Failed(Failure::Compacted.of_read(&self.kind()));
            }
            Err(Failure::Future) => {
                return End::Failed(StoreError::Expired {
                    reason: format!("etcd was set back to before revision {}", self.position),
                });
            }
            Err(Failure::Denied(reason)) => {
                return End::Failed(unavailable(format!("etcd refuses the watch: {reason}")));
            }
            Err(failure) => return End::Broken(format!("{failure:?}")),
        }
        let patience = self.inner.options.member_timeout;
        let watch = match timeout(patience, self.open(member)).await {
            Ok(Ok(watch)) => watch,
            Ok(Err(reason)) => return End::Broken(reason),
            Err(_) => return End::Broken(format!("no watch within {patience:?}")),
        };
        match self.read(watch).await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn open(&mut self, member: usize) -> Result<EtcdWatch, String> {
        let client = self
            .inner
            .members
            .client(member)
            .await
            .map_err(|f| format!("{f:?}"))?;
        self.partly.brought = 0;
        let start = i64::try_from(self.position + 1).unwrap_or(i64::MAX);
        let options = EtcdWatchOptions::new()
            .with_range(self.range.end.clone())
            .with_start_revision(start)
            .with_prev_key()
            .with_fragment()
            // kine answers progress requests only for watches that were opened with it.
            .with_progress_notify();
        let mut client = client.watch_client().max_decoding_message_size(ANSWER_MAX);
        let watch = client.watch(self.range.first.clone(), Some(options)).await;
        watch.map_err(|e| e.to_string())
    }

    async fn read(&mut self, mut watch: EtcdWatch) -> Result<std::convert::Infallible, End> {
        let mut signals = self.signals.clone();
        let mut created = false;
        // When the watch was last heard of, or caught up.
        let mut heard = Instant::now();
        let mut ask_at = Instant::now();
        loop {
            let committed = signals.borrow_and_update().committed;
            if committed > self.told && committed <= self.position {
                self.bookmark()?;
            }
            let target = committed.max(self.sync_at.unwrap_or(0));
            let behind = target > self.position;
            if created && !behind {
                heard = Instant::now();
            }
            let give_up_at = heard + self.inner.options.member_timeout;
            tokio::select! {
                biased;
                answer = watch.message() => {
                    heard = Instant::now();
                    match answer {
                        Ok(Some(answer)) => {
                            created = true;
                            self.take(&answer)?;
                        }
                        Ok(None) => return Err(End::Broken("etcd ended the stream".to_owned())),
                        Err(e) => return Err(End::Broken(e.to_string())),
                    }
                }
                _ = signals.changed() => ask_at = Instant::now(),
                // Before the watch is created, kine would answer for a stream without one.
                () = sleep_until(ask_at), if created && behind => {
                    ask_at = Instant::now() + ASK_AGAIN;
                    let asked = watch.request_progress().await;
                    asked.map_err(|e| End::Broken(e.to_string()))?;
                }
                () = sleep_until(give_up_at), if behind || !created => {
                    return Err(End::Broken(format!("stuck at {} before {target}", self.position)));
                }
            }
        }
    }

    fn take(&mut self, answer: &WatchResponse) -> Result<(), End> {
        if answer.compact_revision() > 0 {
            return Err(End::Failed(Failure::Compacted.of_read(&self.kind())));
        }
        if answer.canceled() {
            return Err(End::Broken(format!(
                "etcd cancelled it: {}",
                answer.cancel_reason()
            )));
        }
        if answer.created() {
            let opened = self.opened.take();
            let _ = opened.map(|o| o.send(()));
            return self.sync_if_reached();
        }
        if answer.events().is_empty() {
            // The header of any other answer may be ahead of its events.
            let reached = answer.header().map_or(0, |h| revision(h.revision()));
            return self.reached(reached);
        }
        for event in answer.events() {
            let Some(kv) = event.kv() else { continue };
            let at = revision(kv.mod_revision());
            if at <= self.position {
                continue;
            }
            if at > self.partly.revision {
                self.end_revision();
                self.partly.revision = at;
                self.partly.passed = 0;
                self.partly.brought = 0;
            }
            self.partly.brought += 1;
            if self.partly.brought <= self.partly.passed {
                continue;
            }
            if let Some(key) = self.key(kv.key()) {
                let before = match event.prev_kv() {
                    Some(old) => {
                        Before::Value(Value::read(&key, revision(old.mod_revision()), old.value()))
                    }
                    None if kv.create_revision() == kv.mod_revision() => Before::Nothing,
                    None => Before::Forgotten,
                };
                let after = (event.event_type() == EventType::Put)
                    .then(|| Value::read(&key, at, kv.value()));
                let size = kv.value().len();
                let change = Change {
                    key,
                    revision: at,
                    before,
                    after,
                };
                self.pass(change, size)?;
            }
            self.partly.passed = self.partly.brought;
        }
        // etcd cuts an answer anywhere, so that the next one may go on with this revision.
        if !answer.0.fragment {
            self.end_revision();
        }
        self.sync_if_reached()
    }

    /// The revision that was last seen has no more events.
    fn end_revision(&mut self) {
        self.position = self.position.max(self.partly.revision);
    }

    /// Passes a change on, if it is an event to this watch.
    fn pass(&mut self, change: Change, size: usize) -> Result<(), End> {
        if let Some(sync_at) = self.sync_at
            && change.revision > sync_at
        {
            // `Synced` comes before what was written after the watch was opened.
            self.sync(sync_at)?;
        }
        // Room first: what does not fit must be turned into an event again later.
        let room = self
            .room
            .clone()
            .try_acquire_many_owned(units(size))
            .map_err(|_| End::Full)?;
        if let Some(event) = self.events.event(change)? {
            self.queue
                .send((Ok(event), Some(room)))
                .map_err(|_| End::Over)?;
        }
        Ok(())
    }

    /// There are no more events up to here.
    fn reached(&mut self, reached: u64) -> Result<(), End> {
        if reached > self.position {
            self.position = reached;
            self.bookmark()?;
        }
        self.sync_if_reached()
    }

    fn bookmark(&mut self) -> Result<(), End> {
        // `Synced` will tell it.
        if self.sync_at.is_some() {
            return Ok(());
        }
        let room = self.room.clone().try_acquire_owned();
        let room = room.map_err(|_| End::Full)?;
        let bookmark = WatchEvent::Bookmark(Revision(self.position));
        self.queue
            .send((Ok(bookmark), Some(room)))
            .map_err(|_| End::Over)?;
        self.told = self.position;
        Ok(())
    }

    fn sync_if_reached(&mut self) -> Result<(), End> {
        match self.sync_at {
            Some(sync_at) if self.position >= sync_at => self.sync(self.position),
            _ => Ok(()),
        }
    }

    fn sync(&mut self, revision: u64) -> Result<(), End> {
        self.sync_at = None;
        self.told = revision;
        let synced = WatchEvent::Synced(Revision(revision));
        self.queue.send((Ok(synced), None)).map_err(|_| End::Over)
    }

    fn key(&self, key: &[u8]) -> Option<Key> {
        let parsed = self.inner.keys.parse(self.events.filter.kind, key);
        if parsed.is_none() {
            tracing::warn!(key = %key.escape_ascii(), "a key that is none of ours is left out");
        }
        parsed
    }

    /// What errors of the whole watch are about.
    fn kind(&self) -> Key {
        Key::cluster(self.events.filter.kind, "")
    }
}

fn units(size: usize) -> u32 {
    u32::try_from(1 + size / UNIT).unwrap_or(QUEUE).min(QUEUE)
}
