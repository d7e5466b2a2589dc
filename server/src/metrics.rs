//! What the server counts, in the Prometheus text format.

mod capacity;
mod store;

use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipledger_core::api::FamilyCapacity;
use ipledger_core::runtime::{ControllerStats, MeteredStore};

use crate::ledger::Ledger;

/// What the classes have, by name and family.
type Capacity = Vec<(String, Vec<FamilyCapacity>)>;

type Read<T> = Box<dyn Fn() -> T + Send + Sync>;

/// Reads the counters of the parts of a server.
pub(crate) struct Metrics {
    ledger: Ledger,
    store: MeteredStore,
    at_work: Mutex<AtWork>,
}

/// The controllers that work now.
#[derive(Default)]
struct AtWork {
    role: Role,
    controllers: Vec<(&'static str, Read<ControllerStats>)>,
    core_writes: Option<Read<u64>>,
    capacity: Option<Read<Capacity>>,
    /// Those of controllers that no longer work.
    earlier_core_writes: u64,
}

/// What a server is among those of its ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// It is not known yet.
    #[default]
    Undecided,
    /// Its controllers work.
    Leads,
    /// Those of another one work.
    StandsBy,
}

/// One series of a controller.
struct Series {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&ControllerStats) -> u64,
}

const CONTROLLER_SERIES: [Series; 6] = [
    Series {
        name: "ipledger_controller_passes_total",
        kind: "counter",
        help: "Passes over keys that were finished",
        value: |s| s.passes,
    },
    Series {
        name: "ipledger_controller_failures_total",
        kind: "counter",
        help: "Passes that failed and are repeated",
        value: |s| s.failures,
    },
    Series {
        name: "ipledger_controller_conflicts_total",
        kind: "counter",
        help: "Passes that lost a race and are repeated",
        value: |s| s.conflicts,
    },
    Series {
        name: "ipledger_controller_resync_found_work_total",
        kind: "counter",
        help: "Passes of the periodic resync that wrote: a change went unnoticed",
        value: |s| s.resync_found_work,
    },
    Series {
        name: "ipledger_controller_queue_length",
        kind: "gauge",
        help: "Keys that are ready for a pass",
        value: |s| s.queue_length as u64,
    },
    Series {
        name: "ipledger_controller_synced",
        kind: "gauge",
        help: "1 once every kind was listed",
        value: |s| u64::from(s.synced),
    },
];

impl Metrics {
    /// `store` is that of the ledger, as API and controllers use it.
    pub(crate) fn new(ledger: Ledger, store: MeteredStore) -> Metrics {
        Metrics {
            ledger,
            store,
            at_work: Mutex::default(),
        }
    }

    fn at_work(&self) -> MutexGuard<'_, AtWork> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_role(&self, role: Role) {
        self.at_work().role = role;
    }

    /// Where the writes of the binding core are read.
    pub(crate) fn set_core(&self, writes: impl Fn() -> u64 + Send + Sync + 'static) {
        self.at_work().core_writes = Some(Box::new(writes));
    }

    /// Where the capacity of the classes is read.
    pub(crate) fn set_capacity(&self, capacity: impl Fn() -> Capacity + Send + Sync + 'static) {
        self.at_work().capacity = Some(Box::new(capacity));
    }

    pub(crate) fn add_controller(
        &self,
        name: &'static str,
        stats: impl Fn() -> ControllerStats + Send + Sync + 'static,
    ) {
        self.at_work().controllers.push((name, Box::new(stats)));
    }

    /// Forgets the controllers, which do not work any more.
    pub(crate) fn end_term(&self) {
        let core_writes = self.core_writes();
        *self.at_work() = AtWork {
            role: Role::StandsBy,
            earlier_core_writes: core_writes,
            ..AtWork::default()
        };
    }

    /// Writes of the binding core.
    pub(crate) fn core_writes(&self) -> u64 {
        let at_work = self.at_work();
        at_work.earlier_core_writes + at_work.core_writes.as_ref().map_or(0, |read| read())
    }

    fn controllers(&self) -> Vec<(&'static str, ControllerStats)> {
        let at_work = self.at_work();
        let read = at_work.controllers.iter();
        read.map(|(name, stats)| (*name, stats())).collect()
    }

    /// Whether the store works and every controller has seen the whole ledger, if they are those of
    /// this server; if not, what is wrong.
    pub(crate) fn ready(&self) -> Result<(), String> {
        self.ledger.health()?;
        if self.at_work().role == Role::Undecided {
            return Err("it is not known yet which server leads".to_owned());
        }
        match self.controllers().iter().find(|(_, s)| !s.synced) {
            Some((name, _)) => Err(format!("the {name} has not read the ledger yet")),
            None => Ok(()),
        }
    }

    /// All series.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let stats = self.ledger.stats();
        let mut counters = vec![
            (
                "ipledger_store_writes_total",
                "Writes of objects that were committed",
                stats.writes,
            ),
            (
                "ipledger_core_writes_total",
                "Writes of objects that the binding core made",
                self.core_writes(),
            ),
        ];
        if let Some(file) = stats.file {
            counters.push((
                "ipledger_store_commits_total",
                "Transactions that carried them",
                file.commits,
            ));
            counters.push((
                "ipledger_store_compaction_failures_total",
                "Compactions of the history that failed and are repeated",
                file.compaction_failures,
            ));
        }
        for (name, help, value) in counters {
            head(&mut text, name, "counter", help);
            let _ = writeln!(text, "{name} {value}");
        }
        let name = "ipledger_leader";
        head(
            &mut text,
            name,
            "gauge",
            "1 if the controllers of this server work",
        );
        let leads = self.at_work().role == Role::Leads;
        let _ = writeln!(text, "{name} {}", u8::from(leads));
        store::series(&mut text, &self.store.stats());
        let capacity = self.at_work().capacity.as_ref().map(|read| read());
        capacity::series(&mut text, &capacity.unwrap_or_default());
        let controllers = self.controllers();
        for series in &CONTROLLER_SERIES {
            head(&mut text, series.name, series.kind, series.help);
            for (controller, stats) in &controllers {
                let value = (series.value)(stats);
                let controller = controller.replace(' ', "_");
                let _ = writeln!(
                    text,
                    "{}{{controller=\"{controller}\"}} {value}",
                    series.name
                );
            }
        }
        text
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    use ipledger_core::store::{ReadAt, Store};
    use ipledger_store_sqlite::SqliteStore;

    use crate::clock::SystemClock;

    fn metrics(store: SqliteStore) -> Metrics {
        let ledger = Ledger::File(Arc::new(store));
        let store = MeteredStore::new(ledger.store(), Arc::new(SystemClock::new()));
        Metrics::new(ledger, store)
    }

    #[tokio::test]
    async fn requests_are_told_as_a_histogram_that_adds_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let store = SqliteStore::open(&path, &Default::default()).await.unwrap();
        let metrics = metrics(store);
        let key = ipledger_core::api::Key::class("lan");
        metrics.store.get(&key, ReadAt::Latest).await.unwrap_err();
        let text = metrics.text();
        for line in [
            "ipledger_store_requests_total{operation=\"get\",answer=\"not_found\"} 1",
            "ipledger_store_request_duration_seconds_bucket{operation=\"get\",le=\"+Inf\"} 1",
            "ipledger_store_request_duration_seconds_count{operation=\"get\"} 1",
            "ipledger_store_watches 0",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
        }
        assert!(text.contains("operation=\"get\",le=\"0.001\"}"), "{text}");
    }

    #[tokio::test]
    async fn a_term_that_is_over_is_seen_and_its_writes_go_on_counting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let store = SqliteStore::open(&path, &Default::default()).await.unwrap();
        let metrics = metrics(store);
        assert!(metrics.ready().unwrap_err().contains("which server leads"));
        metrics.set_core(|| 3);
        metrics.add_controller("core", ControllerStats::default);
        metrics.set_role(Role::Leads);
        assert!(metrics.ready().unwrap_err().contains("has not read"));
        assert!(metrics.text().contains("\nipledger_leader 1\n"));
        metrics.end_term();
        assert_eq!(metrics.ready(), Ok(()));
        metrics.set_core(|| 2);
        let text = metrics.text();
        for line in [
            "ipledger_leader 0",
            "ipledger_core_writes_total 5",
            "ipledger_store_compaction_failures_total 0",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
        }
    }

    #[tokio::test]
    async fn a_server_whose_database_file_is_gone_is_not_ready_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let store = SqliteStore::open(&path, &Default::default()).await.unwrap();
        let metrics = metrics(store);
        metrics.set_role(Role::Leads);
        assert_eq!(metrics.ready(), Ok(()));
        std::fs::remove_file(&path).unwrap();
        let told = async {
            loop {
                match metrics.ready() {
                    Err(told) => return told,
                    Ok(()) => tokio::time::sleep(Duration::from_millis(2)).await,
                }
            }
        };
        let told = tokio::time::timeout(Duration::from_secs(20), told).await;
        assert!(told.unwrap().contains("ledger.db was deleted"));
    }
}
