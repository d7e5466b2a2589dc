//! One process: a reconciler with its view of the ledger, its queue and its passes in work, run as
//! the controller of `core/src/runtime` runs it, but one step at a time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ipledger_core::api::Kind;
use ipledger_core::runtime::{Change, Clock, Mirror, Pass, Progress, Reconciler, WorkQueue};
use ipledger_core::store::ListPage;

use crate::clock::ProcessClock;
use crate::desk::{Caller, Client, Desk, Sight};
use crate::feed::{Delivery, Feed};
use crate::ledger::{Ledger, Who};

/// Makes the reconciler of a process that starts.
pub type Make<R> = Box<dyn Fn(Arc<Client>, Arc<ProcessClock>, Progress) -> R>;

/// A process of any sort.
pub trait Process {
    fn name(&self) -> &str;
    fn who(&self) -> Who;
    fn clock(&self) -> &Arc<ProcessClock>;
    fn feeds(&mut self) -> &mut [Feed];
    /// One step of the feed of this number.
    fn feed_step(&mut self, feed: usize, ledger: &Ledger, page: usize, old: Option<&ListPage>);
    /// Delivers one of the last events of the feed once more.
    fn feed_repeat(&mut self, feed: usize, back: usize);
    /// Whether a pass could be started now.
    fn can_start(&mut self) -> bool;
    /// Starts a pass; names it.
    fn start(&mut self) -> Option<String>;
    /// Lets the passes in work go on as far as they can.
    fn poke(&mut self);
    /// When the next delayed pass is due.
    fn next_deadline(&self) -> Option<Duration>;
    /// Asks for a pass over everything.
    fn resync(&mut self);
    /// Dies and starts with empty memory.
    fn restart(&mut self);
    /// Whether every kind was listed and nothing is to be done now.
    fn is_idle(&self) -> bool;
}

struct InWork<K> {
    pass: u64,
    since: Sight,
    key: K,
    future: Pin<Box<dyn Future<Output = Pass<K>> + Send>>,
}

/// A process that runs this reconciler.
pub struct Host<R: Reconciler> {
    name: String,
    number: usize,
    who: Who,
    workers: usize,
    desk: Desk,
    clock: Arc<ProcessClock>,
    make: Make<R>,
    reconciler: Arc<R>,
    mirror: Mirror,
    progress: Progress,
    queue: WorkQueue<R::Key>,
    feeds: Vec<Feed>,
    in_work: Vec<InWork<R::Key>>,
    last_pass: u64,
    /// How often it has started.
    life: u64,
    /// When it has started.
    born: Duration,
}

impl<R: Reconciler> Host<R> {
    pub fn new(
        name: String,
        number: usize,
        who: Who,
        workers: usize,
        desk: Desk,
        clock: Arc<ProcessClock>,
        make: Make<R>,
    ) -> Host<R> {
        let progress = Progress::new();
        let client = Arc::new(Client(desk.clone()));
        let reconciler = Arc::new(make(client, clock.clone(), progress.clone()));
        Host {
            name,
            number,
            who,
            workers,
            desk,
            clock,
            make,
            feeds: reconciler.kinds().iter().map(|k| Feed::new(*k)).collect(),
            reconciler,
            mirror: Mirror::new(),
            progress,
            queue: WorkQueue::new(),
            in_work: Vec::new(),
            last_pass: 0,
            life: 0,
            born: Duration::ZERO,
        }
    }

    fn sight(&self) -> Sight {
        Sight::new(|kind| self.mirror.reached(kind))
    }

    fn is_synced(&self) -> bool {
        self.feeds
            .iter()
            .all(|f| self.progress.reached(f.kind).is_some())
    }

    fn observe(&mut self, kind: Kind, changes: &[Change]) {
        for change in changes {
            for key in self.reconciler.observe(change) {
                self.queue.add(&key);
            }
        }
        let revision = self.mirror.reached(kind);
        self.queue.reached(kind, revision);
        self.progress.advance(kind, revision);
    }

    fn finish(&mut self, key: R::Key, pass: Pass<R::Key>) {
        let now = self.clock.monotonic();
        self.queue.book(&key, &pass, self.reconciler.kinds(), now);
        for other in &pass.wake {
            self.queue.add(other);
        }
    }
}

impl<R: Reconciler> Process for Host<R> {
    fn name(&self) -> &str {
        &self.name
    }

    fn who(&self) -> Who {
        self.who
    }

    fn clock(&self) -> &Arc<ProcessClock> {
        &self.clock
    }

    fn feeds(&mut self) -> &mut [Feed] {
        &mut self.feeds
    }

    fn feed_step(&mut self, feed: usize, ledger: &Ledger, page: usize, old: Option<&ListPage>) {
        let kind = self.feeds[feed].kind;
        let changes = match self.feeds[feed].step(ledger, page, old) {
            Delivery::Nothing => return,
            Delivery::Listing(listing) => self.mirror.replace(kind, listing),
            Delivery::Event(event) => self.mirror.apply(kind, &event),
        };
        self.observe(kind, &changes);
        self.poke();
    }

    fn feed_repeat(&mut self, feed: usize, back: usize) {
        let kind = self.feeds[feed].kind;
        if let Some(event) = self.feeds[feed].repeated(back) {
            let changes = self.mirror.apply(kind, &event);
            self.observe(kind, &changes);
        }
    }

    fn can_start(&mut self) -> bool {
        let due = self
            .queue
            .next_deadline()
            .is_some_and(|at| at <= self.clock.monotonic());
        self.is_synced() && self.in_work.len() < self.workers && (due || !self.queue.is_empty())
    }

    fn start(&mut self) -> Option<String> {
        let key = self.queue.next(self.clock.monotonic())?;
        self.last_pass += 1;
        let (reconciler, of) = (self.reconciler.clone(), key.clone());
        let future = Box::pin(async move { reconciler.reconcile(&of).await });
        let name = key.to_string();
        // No two passes of the world have one number.
        let pass = self.last_pass * 64 + self.number as u64;
        let since = self.sight();
        self.in_work.push(InWork {
            pass,
            since,
            key,
            future,
        });
        self.poke();
        Some(name)
    }

    fn poke(&mut self) {
        let mut done = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        let caller = Caller {
            process: self.number,
            life: self.life,
            born: self.born,
            now: self.sight(),
            wall: self.clock.now(),
            alone: self.workers == 1,
            ..Caller::default()
        };
        self.in_work.retain_mut(|work| {
            self.desk.enter(Caller {
                pass: work.pass,
                since: work.since,
                ..caller
            });
            match work.future.as_mut().poll(&mut context) {
                Poll::Pending => true,
                Poll::Ready(pass) => {
                    self.desk.leave(work.pass);
                    done.push((work.key.clone(), pass));
                    false
                }
            }
        });
        for (key, pass) in done {
            self.finish(key, pass);
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.queue.next_deadline()
    }

    fn resync(&mut self) {
        for key in self.reconciler.all_keys() {
            self.queue.add(&key);
        }
    }

    fn restart(&mut self) {
        self.in_work.clear();
        self.life += 1;
        self.born = self.clock.monotonic();
        self.progress = Progress::new();
        let client = Arc::new(Client(self.desk.clone()));
        self.reconciler = Arc::new((self.make)(
            client,
            self.clock.clone(),
            self.progress.clone(),
        ));
        self.mirror = Mirror::new();
        self.queue = WorkQueue::new();
        self.feeds = self
            .reconciler
            .kinds()
            .iter()
            .map(|k| Feed::new(*k))
            .collect();
    }

    fn is_idle(&self) -> bool {
        self.is_synced() && self.in_work.is_empty() && self.queue.is_idle()
    }
}
