//! What the server counts, in the Prometheus text format.

use std::fmt::Write;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ipledger_core::runtime::ControllerStats;
use ipledger_store_sqlite::SqliteStore;

type Read = Box<dyn Fn() -> ControllerStats + Send + Sync>;

/// Reads the counters of the parts of a server.
pub(crate) struct Metrics {
    store: Arc<SqliteStore>,
    controllers: Mutex<Vec<(&'static str, Read)>>,
    core_writes: OnceLock<Box<dyn Fn() -> u64 + Send + Sync>>,
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
    pub(crate) fn new(store: Arc<SqliteStore>) -> Metrics {
        Metrics {
            store,
            controllers: Mutex::default(),
            core_writes: OnceLock::new(),
        }
    }

    /// Where the writes of the binding core are read; the first one counts.
    pub(crate) fn add_core(&self, writes: impl Fn() -> u64 + Send + Sync + 'static) {
        let _ = self.core_writes.set(Box::new(writes));
    }

    pub(crate) fn add_controller(
        &self,
        name: &'static str,
        stats: impl Fn() -> ControllerStats + Send + Sync + 'static,
    ) {
        let mut controllers = self
            .controllers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        controllers.push((name, Box::new(stats)));
    }

    fn controllers(&self) -> Vec<(&'static str, ControllerStats)> {
        let controllers = self
            .controllers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        controllers
            .iter()
            .map(|(name, stats)| (*name, stats()))
            .collect()
    }

    /// Whether the store works and every controller has seen the whole ledger; if not, what is wrong.
    pub(crate) fn ready(&self) -> Result<(), String> {
        self.store.health()?;
        match self
            .controllers()
            .into_iter()
            .find(|(_, stats)| !stats.synced)
        {
            Some((name, _)) => Err(format!("the {name} has not read the ledger yet")),
            None => Ok(()),
        }
    }

    /// All series.
    pub(crate) fn text(&self) -> String {
        let stats = self.store.stats();
        let mut text = String::new();
        for (name, help, value) in [
            (
                "ipledger_store_writes_total",
                "Writes of objects that were committed",
                stats.writes,
            ),
            (
                "ipledger_store_commits_total",
                "Transactions that carried them",
                stats.commits,
            ),
            (
                "ipledger_core_writes_total",
                "Writes of objects that the binding core made",
                self.core_writes.get().map_or(0, |read| read()),
            ),
        ] {
            head(&mut text, name, "counter", help);
            let _ = writeln!(text, "{name} {value}");
        }
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
    use std::time::Duration;

    #[tokio::test]
    async fn a_server_whose_database_file_is_gone_is_not_ready_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let store = SqliteStore::open(&path, &Default::default()).await.unwrap();
        let metrics = Metrics::new(Arc::new(store));
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
