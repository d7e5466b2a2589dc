//! One process: a shipped reconciler with its view and its queue, moved one step at a time.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use ipledger_core::api::Kind;
use ipledger_core::runtime::{
    Change, Clock, Listing, Mirror, Next, Pass, Progress, Reconciler, WorkQueue,
};
use ipledger_core::store::{
    ListOptions, MemoryStore, Store, WatchEvent, WatchFrom, WatchOptions, WatchStream,
};

use crate::client::{Client, Death, Time};
use crate::order::Order;

/// What a process can do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Hear the next news of a kind: first what is there, then one event at a time.
    Hear(Kind),
    /// Begin a pass, or go on with it to the next request or its end.
    Work,
}

impl Doing {
    pub const ALL: [Doing; 4] = [
        Doing::Hear(Kind::IPAddressClass),
        Doing::Hear(Kind::IPAddress),
        Doing::Hear(Kind::IPAddressClaim),
        Doing::Work,
    ];
}

/// A process of either sort.
pub trait Process {
    /// Does that, if there is anything of it to do.
    fn step(&mut self, doing: Doing) -> bool;
    /// When it has to do something again without news.
    fn next_deadline(&self) -> Option<Duration>;
    /// Asks for a pass over everything.
    fn resync(&mut self);
    /// Dies and starts with empty memory.
    fn restart(&mut self);
    /// Dies and starts again; what is there is heard of object by object in this order, whatever
    /// the kinds.
    fn restart_hearing_in(&mut self, order: &mut dyn FnMut(&mut Vec<Change>));
    /// Dies at the write after so many.
    fn dies_after(&mut self, writes: u64, death: Death);
    /// Whether it has died, and was not started again.
    fn is_dead(&self) -> bool;
    /// Each of its writes loses its first race from now on.
    fn loses_races(&mut self);
    /// What it has written since the beginning.
    fn log(&self) -> Vec<String>;
}

/// The stream of a kind, and its next event.
struct Feed {
    kind: Kind,
    stream: Option<WatchStream>,
    next: Option<WatchEvent>,
}

type Running<K> = Pin<Box<dyn Future<Output = Pass<K>> + Send>>;
type Make<R> = Box<dyn Fn(Arc<dyn Store>, Progress) -> R>;

/// A process that runs this reconciler.
pub struct Host<R: Reconciler> {
    ledger: MemoryStore,
    time: Arc<Time>,
    make: Make<R>,
    client: Arc<Client>,
    reconciler: Arc<R>,
    mirror: Mirror,
    progress: Progress,
    queue: WorkQueue<R::Key>,
    feeds: Vec<Feed>,
    work: Option<(R::Key, Running<R::Key>)>,
    /// The pass waits for its view: there is no use in asking it again before news.
    waits_for_news: bool,
    log: Arc<Mutex<Vec<String>>>,
}

impl<R: Reconciler> Host<R> {
    pub fn new(ledger: MemoryStore, time: Arc<Time>, make: Make<R>) -> Host<R> {
        let (progress, log) = (Progress::new(), Arc::default());
        let client = Client::new(ledger.clone(), Arc::clone(&log));
        let reconciler = Arc::new(make(client.clone(), progress.clone()));
        let mut host = Host {
            ledger,
            time,
            make,
            client,
            reconciler,
            mirror: Mirror::new(),
            progress,
            queue: WorkQueue::new(),
            feeds: Vec::new(),
            work: None,
            waits_for_news: false,
            log,
        };
        host.restart();
        host
    }

    /// What is there of a kind now, after which its events follow.
    fn list(&mut self, kind: Kind) -> Vec<Change> {
        let page = now(self.ledger.list(kind, &ListOptions::default())).unwrap();
        let from = WatchOptions::all(WatchFrom::After(page.revision));
        let stream = now(self.ledger.watch(kind, &from)).unwrap();
        let feed = self.feeds.iter_mut().find(|f| f.kind == kind).unwrap();
        feed.stream = Some(stream);
        self.mirror.replace(kind, Listing::new(page).unwrap())
    }

    fn observe(&mut self, changes: &[Change]) {
        for change in changes {
            for key in self.reconciler.observe(change) {
                self.queue.add(&key);
            }
        }
    }

    fn reached(&mut self, kind: Kind) {
        let revision = self.mirror.reached(kind);
        self.queue.reached(kind, revision);
        self.progress.advance(kind, revision);
        self.waits_for_news = false;
    }

    fn hear(&mut self, kind: Kind) -> bool {
        let feed = self.feeds.iter_mut().find(|f| f.kind == kind).unwrap();
        let Some(stream) = &mut feed.stream else {
            let changes = self.list(kind);
            self.observe(&changes);
            self.reached(kind);
            return true;
        };
        if feed.next.is_none() {
            feed.next = stream
                .next()
                .now_or_never()
                .map(|item| item.expect("the watch goes on").expect("the watch is well"));
        }
        let Some(event) = feed.next.take() else {
            return false;
        };
        let changes = self.mirror.apply(kind, &event);
        self.observe(&changes);
        self.reached(kind);
        true
    }

    fn work(&mut self) -> bool {
        if self.work.is_none() {
            if self.feeds.iter().any(|f| f.stream.is_none()) {
                return false;
            }
            let Some(key) = self.queue.next(self.time.monotonic()) else {
                return false;
            };
            let (reconciler, of) = (self.reconciler.clone(), key.clone());
            let pass = Box::pin(async move { reconciler.reconcile(&of).await });
            self.work = Some((key, pass));
            self.waits_for_news = false;
        }
        if self.waits_for_news {
            return false;
        }
        let (key, pass) = self.work.as_mut().expect("a pass is in work");
        self.client.at_gate.store(false, Ordering::Relaxed);
        match pass.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => self.waits_for_news = !self.client.at_gate.load(Ordering::Relaxed),
            Poll::Ready(pass) => {
                let key = key.clone();
                self.work = None;
                self.finish(&key, pass);
            }
        }
        true
    }

    /// As the controller books the end of a pass.
    fn finish(&mut self, key: &R::Key, pass: Pass<R::Key>) {
        let now = self.time.monotonic();
        self.queue.hold(key, &pass.wrote);
        match pass.next {
            Next::Wait => self.queue.succeeded(key),
            Next::After(wait) => {
                self.queue.succeeded(key);
                self.queue.add_after(key, now + wait);
            }
            Next::Again => {
                self.queue.retry_soon(key, now);
            }
            Next::Failed(_) => {
                self.queue.retry(key, now);
            }
        }
        self.queue.done(key);
        for other in &pass.wake {
            self.queue.add(other);
        }
    }
}

impl<R: Reconciler> Process for Host<R> {
    fn step(&mut self, doing: Doing) -> bool {
        match doing {
            _ if self.is_dead() => false,
            Doing::Hear(kind) => self.hear(kind),
            Doing::Work => self.work(),
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.queue.next_deadline().filter(|_| !self.is_dead())
    }

    fn resync(&mut self) {
        for key in self.reconciler.all_keys() {
            self.queue.add(&key);
        }
    }

    fn restart(&mut self) {
        self.work = None;
        self.waits_for_news = false;
        self.progress = Progress::new();
        self.client = Client::new(self.ledger.clone(), self.log.clone());
        self.reconciler = Arc::new((self.make)(self.client.clone(), self.progress.clone()));
        self.mirror = Mirror::new();
        self.queue = WorkQueue::new();
        self.feeds = Kind::ALL
            .map(|kind| Feed {
                kind,
                stream: None,
                next: None,
            })
            .into();
    }

    fn restart_hearing_in(&mut self, order: &mut dyn FnMut(&mut Vec<Change>)) {
        self.restart();
        let mut changes: Vec<Change> = Kind::ALL.into_iter().flat_map(|k| self.list(k)).collect();
        order(&mut changes);
        self.observe(&changes);
        for kind in Kind::ALL {
            self.reached(kind);
        }
    }

    fn dies_after(&mut self, writes: u64, death: Death) {
        *self.client.dies.lock().unwrap() = Some((writes, death));
    }

    fn is_dead(&self) -> bool {
        self.client.is_dead.load(Ordering::Relaxed)
    }

    fn loses_races(&mut self) {
        *self.client.races.lock().unwrap() = Some(Vec::new());
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

/// The ledger in memory answers at once.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the ledger answers at once")
}

/// The four things that a process does, in an order of preference: it hears of any one of the kinds
/// last, and works before it hears anything more or after it has heard all.
pub fn preferences(order: &mut Order) -> [Doing; 4] {
    let [hear @ .., work] = Doing::ALL;
    let mut hear = hear;
    hear.rotate_left(order.choose(3));
    let [a, b, c] = hear;
    order.pick(&[[a, b, c, work], [work, a, b, c]])
}
