//! `ipledger bench store`: durable writes a second and how soon a watch hears of them, beside what the
//! same rows cost without the store.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use ipledger_core::api::{Kind, Object, ObjectMeta, Timestamp};
use ipledger_core::net::{Family, Ip};
use ipledger_core::store::{
    Part, Revision, Store, StoreError, WatchEvent, WatchFrom, WatchOptions,
};
use serde_json::{Map, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::machine;
use super::milliseconds;
use super::sqlite::Sqlite;
use super::subject::{Probe, Row, Subject};
use crate::cli::exit::CliError;
use crate::cli::folder::Folder;
use crate::cli::output::Terminal;
use crate::ledger::Location;

/// A measurement that has not done all its writes by then ends with those that it has done.
const AT_MOST: Duration = Duration::from_secs(20);
/// An event that is not there by then has been lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// More objects than this have no name of their own.
const MAX_WRITES: usize = 1 << 23;

/// The size of a run.
#[derive(Clone, Debug)]
pub(in crate::cli) struct StoreSize {
    /// Callers that write at once; each number is a measurement of its own.
    pub(in crate::cli) writers: Vec<usize>,
    /// Objects to create, and then to update, in each.
    pub(in crate::cli) writes: usize,
    /// Where the throw-away ledgers are.
    pub(in crate::cli) folder: PathBuf,
}

/// Measures the store of a ledger, SQLite if none is named. That ledger itself is left alone.
///
/// # Errors
/// The folder cannot be written; a write failed; a watch has lost an event; there is no such store.
pub(in crate::cli) async fn store(
    beside: Option<Location>,
    size: &StoreSize,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    match beside {
        None => measure(&Sqlite, size, terminal).await,
        Some(Location::File(file)) => Err(CliError::Usage(format!(
            "{}: name the folder of a ledger file with --dir",
            file.display()
        ))),
        #[cfg(feature = "etcd")]
        Some(Location::Etcd(etcd)) => {
            let subject = super::etcd::Etcd::beside(&etcd).await?;
            let measured = measure(&subject, size, terminal).await;
            subject.clear().await?;
            measured
        }
        #[cfg(not(feature = "etcd"))]
        Some(Location::Etcd(_)) => Err(crate::ledger::not_built().into()),
    }
}

async fn measure(
    subject: &dyn Subject,
    size: &StoreSize,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    if size.writes == 0 || size.writes > MAX_WRITES || size.writers.contains(&0) {
        return Err(CliError::Usage(format!(
            "writers and writes must be at least 1, writes at most {MAX_WRITES}"
        )));
    }
    let outer = Folder::within(&size.folder, "bench")?;
    let mut head = String::new();
    let facts = machine::facts(outer.path())?;
    let example = row(0, 0).body.len();
    let size_of_work = format!(
        "for each number of writers {} creates, {} updates and {} watched updates of objects of \
         {example} bytes, each part at most {} s; the same for the rows alone",
        size.writes,
        size.writes,
        watched(size.writes),
        AT_MOST.as_secs(),
    );
    let named = [("store", subject.name()), ("work", size_of_work)];
    for (name, value) in named.iter().chain(&facts) {
        let _ = writeln!(head, "{name:<16}{value}");
    }
    terminal.print(&format!("{head}\n{HEADER}"))?;
    if ["tmpfs", "ramfs"].contains(&machine::file_system(outer.path()).as_str()) {
        terminal.warn("this folder is in memory, where nothing is synced; choose one with --dir");
    }
    for writers in &size.writers {
        let folder = Folder::within(outer.path(), "run")?;
        let measured = run(subject, &folder, *writers, size.writes).await?;
        terminal.print(&measured.line(*writers))?;
    }
    Ok(())
}

/// Events are counted from the moment at which the write was asked for, and from its answer.
const HEADER: &str = concat!(
    "        | creates                                 | updates                                 | \
     events, ms\n",
    "writers |  a second  p50 ms  p99 ms  rows alone/s |  a second  p50 ms  p99 ms  rows alone/s | \
     after write   answer\n",
    "        |                                         |                                         | \
     \x20 p50    p99     p99\n",
);

fn watched(writes: usize) -> usize {
    writes.div_ceil(4)
}

struct Measured {
    creates: Rate,
    updates: Rate,
    events: Events,
    raw_creates: Rate,
    raw_updates: Rate,
}

impl Measured {
    fn line(&self, writers: usize) -> String {
        let part = |ours: &Rate, alone: &Rate| {
            format!(
                "{:>9.0} {:>7.2} {:>7.2} {:>6.0} ({:>3.0} %)",
                ours.a_second(),
                milliseconds(&ours.each, 50),
                milliseconds(&ours.each, 99),
                alone.a_second(),
                100.0 * ours.a_second() / alone.a_second()
            )
        };
        format!(
            "{writers:>7} | {} | {} | {:>5.2} {:>6.2} {:>7.2}\n",
            part(&self.creates, &self.raw_creates),
            part(&self.updates, &self.raw_updates),
            milliseconds(&self.events.after_write, 50),
            milliseconds(&self.events.after_write, 99),
            milliseconds(&self.events.after_answer, 99),
        )
    }
}

async fn run(
    subject: &dyn Subject,
    folder: &Folder,
    writers: usize,
    writes: usize,
) -> Result<Measured, CliError> {
    let ours = Arc::new(Ledger {
        store: subject.open(folder.path()).await?,
        objects: (0..writes).map(|_| Mutex::default()).collect(),
        answered: Mutex::default(),
    });
    let alone = Arc::new(Rows {
        probe: subject.probe(folder.path()).await?,
        creates: (0..writes).map(|n| row(n, 0)).collect(),
        updates: (0..writes).map(|n| row(n, 1)).collect(),
    });
    // One after the other in each part, so that a slow minute of the machine hits both.
    let creates = each(&ours, writers, writes, Ledger::create).await?;
    let raw_creates = each(&alone, writers, writes, Rows::create).await?;
    let updates = each(&ours, writers, creates.done(), Ledger::update).await?;
    let raw_updates = each(&alone, writers, raw_creates.done(), Rows::update).await?;
    let events = events(&ours, writers, watched(writes).min(updates.done())).await?;
    Ok(Measured {
        creates,
        updates,
        events,
        raw_creates,
        raw_updates,
    })
}

/// How long the writes of a measurement took.
struct Rate {
    took: Duration,
    /// Of each write, sorted.
    each: Vec<Duration>,
}

impl Rate {
    fn done(&self) -> usize {
        self.each.len()
    }

    fn a_second(&self) -> f64 {
        self.done() as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// Does pieces of work by their numbers, several at once, until all are done or the time is up.
async fn each<C, F>(
    context: &Arc<C>,
    writers: usize,
    count: usize,
    work: fn(Arc<C>, usize) -> F,
) -> Result<Rate, CliError>
where
    C: Send + Sync + 'static,
    F: Future<Output = Result<(), CliError>> + Send + 'static,
{
    let next = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..writers {
        let (context, next) = (Arc::clone(context), Arc::clone(&next));
        callers.spawn(async move {
            let mut times = Vec::new();
            while began.elapsed() < AT_MOST {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    break;
                }
                let sent = Instant::now();
                work(Arc::clone(&context), n).await?;
                times.push(sent.elapsed());
            }
            Ok::<_, CliError>(times)
        });
    }
    let mut each = Vec::with_capacity(count);
    while let Some(times) = callers.join_next().await {
        each.extend(times.map_err(std::io::Error::other)??);
    }
    let took = began.elapsed();
    each.sort_unstable();
    Ok(Rate { took, each })
}

/// How long after its write each event has come, sorted. It lies between the two: the commit is
/// after the write was asked for and before its answer.
struct Events {
    after_write: Vec<Duration>,
    /// 0 for those that came first.
    after_answer: Vec<Duration>,
}

async fn events(ledger: &Arc<Ledger>, writers: usize, count: usize) -> Result<Events, CliError> {
    let last = ledger.store.barrier(Kind::IPAddress).await?;
    let options = WatchOptions::all(WatchFrom::After(last));
    let mut watch = ledger.store.watch(Kind::IPAddress, &options).await?;
    let reader = tokio::spawn(async move {
        let mut seen = HashMap::new();
        while seen.len() < count {
            // The end of the writes, if the time was up.
            let Ok(Some(event)) = timeout(PATIENCE, watch.next()).await else {
                break;
            };
            if let WatchEvent::Applied(object) = event?
                && let Some(revision) = object.revision()
            {
                seen.insert(revision, Instant::now());
            }
        }
        Ok::<_, StoreError>(seen)
    });
    lock(&ledger.answered).clear();
    each(ledger, writers, count, Ledger::update).await?;
    let seen = reader.await.map_err(std::io::Error::other)??;
    let answered = std::mem::take(&mut *lock(&ledger.answered));
    let lost =
        |revision| CliError::TimeOut(format!("the watch has not heard of revision {revision}"));
    let mut events = Events {
        after_write: Vec::with_capacity(answered.len()),
        after_answer: Vec::with_capacity(answered.len()),
    };
    for answer in answered {
        let heard = seen.get(&answer.revision);
        let heard = heard.ok_or_else(|| lost(answer.revision))?;
        let after = |at| heard.saturating_duration_since(at);
        events.after_write.push(after(answer.sent));
        events.after_answer.push(after(answer.at));
    }
    events.after_write.sort_unstable();
    events.after_answer.sort_unstable();
    Ok(events)
}

/// A ledger, and what is in it: object N is written by one caller at a time.
struct Ledger {
    store: Arc<dyn Store>,
    objects: Vec<Mutex<Option<Object>>>,
    answered: Mutex<Vec<Answer>>,
}

/// An update that was made.
struct Answer {
    revision: Revision,
    sent: Instant,
    at: Instant,
}

impl Ledger {
    fn slot(&self, n: usize) -> Result<MutexGuard<'_, Option<Object>>, CliError> {
        let slot = self.objects.get(n).map(lock);
        slot.ok_or_else(|| CliError::Usage(format!("there is no object {n}")))
    }

    async fn create(self: Arc<Self>, n: usize) -> Result<(), CliError> {
        let stored = self.store.create(object(n, 0)).await?;
        *self.slot(n)? = Some(stored);
        Ok(())
    }

    async fn update(self: Arc<Self>, n: usize) -> Result<(), CliError> {
        let Some(mut next) = self.slot(n)?.take() else {
            return Ok(());
        };
        next.fields = object(n, next.metadata.generation).fields;
        let sent = Instant::now();
        let stored = self.store.update(next, Part::Main).await?;
        if let Some(revision) = stored.revision() {
            let at = Instant::now();
            lock(&self.answered).push(Answer { revision, sent, at });
        }
        *self.slot(n)? = Some(stored);
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same rows without a store.
struct Rows {
    probe: Arc<dyn Probe>,
    creates: Vec<Row>,
    updates: Vec<Row>,
}

impl Rows {
    async fn create(self: Arc<Self>, n: usize) -> Result<(), CliError> {
        match self.creates.get(n) {
            Some(row) => self.probe.create(row.clone()).await,
            None => Ok(()),
        }
    }

    async fn update(self: Arc<Self>, n: usize) -> Result<(), CliError> {
        match self.updates.get(n) {
            Some(row) => self.probe.update(row.clone()).await,
            None => Ok(()),
        }
    }
}

/// An address object with a name of its own. Names are scattered, as addresses of many classes are.
fn object(n: usize, generation: u64) -> Object {
    // An odd factor: a different number for each `n`.
    let scattered = (n as u128).wrapping_mul(0x9e_3779) & 0x00ff_ffff;
    let ip = Ip::from_number(Family::V4, (10 << 24) | scattered);
    let name = ip.map_or_else(|| format!("ip-{n}"), |ip| ip.object_name());
    let spec = json!({
        "address": ip.map(|ip| ip.to_string()), "className": "bench", "reclaimPolicy": "Delete",
        "claimRef": {"namespace": "bench", "name": format!("claim-{n:07}"),
            "uid": format!("00000000-0000-4000-8000-{generation:012}")},
        "source": {"fromClass": {}}
    });
    Object {
        kind: Kind::IPAddress,
        metadata: ObjectMeta {
            name,
            finalizers: vec!["local.sdn.cozystack.io/address-protection".to_owned()],
            ..ObjectMeta::default()
        },
        fields: Map::from_iter([("spec".to_owned(), spec)]),
    }
}

/// The row of such an object, as the store writes it.
fn row(n: usize, generation: u64) -> Row {
    let body = |generation: u64| {
        let mut object = object(n, generation);
        object.metadata.uid = format!("00000000-0000-4000-8000-{n:012}");
        object.metadata.generation = generation + 1;
        object.metadata.resource_version = Some(Revision(1_000_000));
        object.metadata.creation_timestamp = Some(Timestamp::from_unix(1));
        (object.metadata.clone(), object.to_value().to_string())
    };
    let (metadata, text) = body(generation);
    Row {
        name: metadata.name,
        uid: metadata.uid,
        body: text,
        before: generation.checked_sub(1).map(|before| body(before).1),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cli::output::tests::captured;

    #[test]
    fn each_object_has_a_name_of_its_own_and_the_row_that_the_store_writes() {
        let names: BTreeSet<String> = (0..10_000).map(|n| row(n, 0).name).collect();
        assert_eq!(names.len(), 10_000);
        let (first, second) = (row(7, 0), row(7, 1));
        assert_eq!(second.before, Some(first.body.clone()));
        assert_ne!(second.body, first.body);
        let read = Object::from_value(serde_json::from_str(&first.body).unwrap()).unwrap();
        assert_eq!(read.fields, object(7, 0).fields);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_small_run_prints_its_size_and_a_line_for_each_number_of_writers() {
        let folder = tempfile::tempdir().unwrap();
        let (mut terminal, out, _) = captured();
        let size = StoreSize {
            writers: vec![1, 3],
            writes: 10,
            folder: folder.path().to_owned(),
        };
        store(None, &size, &mut terminal).await.unwrap();
        let text = out.text();
        assert!(
            text.contains("10 creates, 10 updates and 3 watched updates"),
            "{text}"
        );
        for needed in ["synchronous=FULL", "cores", "sync of 4 KiB", "file system"] {
            assert!(text.contains(needed), "{needed}: {text}");
        }
        let lines = text.lines().skip_while(|l| !l.starts_with("writers"));
        let writers = lines.skip(2).map(|l| l.split_whitespace().next().unwrap());
        assert_eq!(writers.collect::<Vec<_>>(), ["1", "3"]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn no_writers_or_no_writes_are_refused() {
        let (mut terminal, _, _) = captured();
        for (writers, writes) in [(0, 1), (1, 0), (1, MAX_WRITES + 1)] {
            let size = StoreSize {
                writers: vec![writers],
                writes,
                folder: std::env::temp_dir(),
            };
            let e = store(None, &size, &mut terminal).await.unwrap_err();
            assert!(matches!(e, CliError::Usage(_)), "{e}");
        }
    }
}
