//! The writer: one task that takes everything that waits in its queue into one transaction, and
//! answers when that is on disk.
//!
//! Callers only send a request and wait; a caller that gives up changes nothing here.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ipledger_core::store::{Revision, StoreError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::batch::{Done, Request};
use crate::compact::Compactor;
use crate::error::{Fault, disk_advice, unavailable};
use crate::prepare::{Prepared, Statements, prepare};
use crate::session::{Session, run};
use crate::shared::Shared;

/// How many writes share one transaction at most.
const MAX_BATCH: usize = 512;
/// How many wait before callers have to.
pub(crate) const QUEUE: usize = 1_024;
/// After another process was seen to write, for how long and how far the writer steps back after
/// each batch, so that the other one finds the lock free.
const CONTENDED_FOR: Duration = Duration::from_secs(1);
const STEP_BACK: Duration = Duration::from_millis(2);

pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

pub(crate) enum Command {
    Write(Box<Request>, Reply<Done>),
    /// Forget the history up to a revision.
    Compact(Revision, Reply<Revision>),
    /// Finish what came before, and end.
    Close(Reply<()>),
}

pub(crate) struct Writer {
    shared: Arc<Shared>,
    session: Session,
    queue: mpsc::Receiver<Command>,
    compactor: Compactor,
    statements: Statements,
    /// The revision after the last batch.
    last: u64,
    contended_until: Option<Instant>,
}

/// What has waited in the queue.
#[derive(Default)]
struct Drained {
    requests: Vec<Request>,
    replies: Vec<Reply<Done>>,
    close: Option<Reply<()>>,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        session: Session,
        queue: mpsc::Receiver<Command>,
        revision: u64,
    ) -> Writer {
        Writer {
            compactor: Compactor::new(shared.options.compaction_interval),
            shared,
            session,
            queue,
            statements: Statements::new(),
            last: revision,
            contended_until: None,
        }
    }

    /// Runs until it is told to close, or nobody can send any more.
    pub(crate) async fn run(mut self) {
        loop {
            if self.compactor.is_due() {
                self.compactor.step(&self.shared, &mut self.session).await;
                self.session.checkpoint_if_large().await;
            }
            let first = tokio::select! {
                biased;
                command = self.queue.recv() => command,
                () = tokio::time::sleep_until(self.compactor.due()) => continue,
            };
            let Some(first) = first else { break };
            let drained = self.drain(first);
            if !drained.requests.is_empty() {
                self.write(drained.requests, drained.replies).await;
                self.session.checkpoint_if_large().await;
                self.step_back().await;
            }
            if let Some(reply) = drained.close {
                let closed = self.session.close().await;
                let path = self.shared.readers.path();
                let _ = reply.send(closed.map_err(|e| unavailable(path, &e)));
                return;
            }
        }
        if let Err(e) = self.session.close().await {
            tracing::warn!(error = %e, "the database did not close well; nothing is lost");
        }
    }

    /// Everything that waits, up to the bound. Writes whose caller has gone are left out.
    fn drain(&mut self, first: Command) -> Drained {
        let mut drained = Drained::default();
        let mut next = Some(first);
        while let Some(command) = next {
            match command {
                Command::Write(_, reply) if reply.is_closed() => {}
                Command::Write(request, reply) => {
                    drained.requests.push(*request);
                    drained.replies.push(reply);
                }
                Command::Compact(revision, reply) => self.compactor.force(revision, reply),
                Command::Close(reply) => {
                    drained.close = Some(reply);
                    break;
                }
            }
            if drained.requests.len() == MAX_BATCH {
                break;
            }
            next = self.queue.try_recv().ok();
        }
        drained
    }

    async fn write(&mut self, requests: Vec<Request>, replies: Vec<Reply<Done>>) {
        let answers = match self.transact(requests).await {
            Ok(answers) => answers,
            // The batch as a whole has failed.
            Err(e) => vec![Err(e); replies.len()],
        };
        for (reply, answer) in replies.into_iter().zip(answers) {
            // A caller that has gone does not want to know.
            let _ = reply.send(answer);
        }
        // Those that were answered may send their next write into the next batch.
        tokio::task::yield_now().await;
    }

    /// Runs a batch as one transaction. Whatever happens, the connection is outside of a
    /// transaction afterwards.
    async fn transact(
        &mut self,
        requests: Vec<Request>,
    ) -> Result<Vec<Result<Done, StoreError>>, StoreError> {
        let shared = &self.shared;
        let prepared = match self.session.begin(shared.options.busy_timeout).await {
            Ok(connection) => prepare(connection, &self.statements, &shared.options, requests)
                .await
                .map(|prepared| (prepared, connection)),
            Err(e) => Err(e),
        };
        let (prepared, connection) = match prepared {
            Ok(prepared) => prepared,
            Err(e) => {
                self.session.roll_back().await;
                return Err(shared.fail(&e));
            }
        };
        let Prepared {
            decided,
            changes,
            from,
            to,
        } = prepared;
        if from != self.last {
            self.contended_until = Some(Instant::now() + CONTENDED_FOR);
        }
        self.last = to;
        if changes.is_empty() {
            self.session.roll_back().await;
            return Ok(decided.into_iter().map(|d| d.answer).collect());
        }
        if let Err(lost) = shared.identity.check() {
            self.session.roll_back().await;
            return Err(lost.into());
        }
        if let Err(e) = run(connection, "COMMIT").await {
            self.session.roll_back().await;
            if Fault::of(&e).is_certain_at_commit() {
                return Err(shared.fail(&e));
            }
            tracing::error!(error = %e, "a commit failed; whether it was written is not known");
            let advice = disk_advice(shared.readers.path());
            let unknown = decided.into_iter().map(|d| Err(d.unknown(&e, advice)));
            return Ok(unknown.collect());
        }
        shared.stats.writes.fetch_add(changes.len() as u64, Relaxed);
        shared.stats.commits.fetch_add(1, Relaxed);
        let events = changes
            .into_iter()
            .map(|change| Arc::new(change.into_event()));
        shared.feed.append(from, to, events.collect());
        Ok(decided.into_iter().map(|d| d.answer).collect())
    }

    /// Leaves the lock to another process, if one has written lately.
    async fn step_back(&mut self) {
        if self
            .contended_until
            .is_some_and(|until| Instant::now() < until)
        {
            tokio::time::sleep(STEP_BACK).await;
        }
    }
}
