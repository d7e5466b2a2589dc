//! One run of the real server under load, with everything that it did to its disk and everything
//! that it acknowledged.

use std::fmt;
use std::path::Path;
use std::sync::Mutex;

use ipledger_tests::program::{Server, api, free_port, serve, wait_for};
use ipledger_tests::random::Random;
use serde_json::json;

use super::disk::{self, Disk, Kept};
use super::journal::{self, Act, Record};
use crate::history::History;
use crate::load::{Acknowledged, Client, create_classes, load};
use crate::shim::Shim;

const SEED: u64 = 3;
const CLIENTS: usize = 4;
/// The log comes into the main file when it has 8 MiB; large objects get it there.
const PAYLOAD: usize = 16_000;
/// Acknowledged writes of each of the three runs of the server.
const WRITES: [usize; 3] = [150, 500, 50];

pub(super) struct Recording {
    pub(super) records: Vec<Record>,
    pub(super) history: History,
    /// The length of the journal when a revision was acknowledged, in order.
    acknowledged: Vec<(u64, u64)>,
}

impl Recording {
    /// Runs the server three times on one new file: it dies, stops in order, and dies again.
    pub(super) fn make() -> Recording {
        let folder = tempfile::tempdir().unwrap();
        let shim = Shim::build();
        let mut clients = Client::several(CLIENTS, &mut Random::new(SEED), PAYLOAD);
        let acknowledged = Mutex::new(Vec::new());
        for (run, writes) in WRITES.into_iter().enumerate() {
            let server = start(&shim, folder.path());
            if run == 0 {
                create_classes(&server);
            }
            let note = |about| {
                let at = std::fs::metadata(shim.journal()).unwrap().len();
                acknowledged.lock().unwrap().push((at, about));
            };
            load(server.address(), &mut clients, writes, &note);
            if run == 1 {
                assert!(server.stop().success());
            } else {
                end(&server, &shim);
            }
        }
        let records = journal::read(&shim.journal());
        // The journal has everything: what it rebuilds is what there is.
        let mut disk = Disk::new(|_| false);
        records.iter().for_each(|record| disk.apply(record));
        let rebuilt = disk.after_cut(Kept::All, &mut Random::new(0));
        assert!(
            rebuilt == disk::read(folder.path()),
            "the journal misses something"
        );

        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let history = runtime
            .unwrap()
            .block_on(History::of(&folder.path().join("ledger.db")));
        let mut acknowledged: Vec<_> = acknowledged
            .into_inner()
            .unwrap()
            .into_iter()
            .map(|(at, about)| (at, revision(&history, &about)))
            .collect();
        acknowledged.sort_unstable();
        Recording {
            records,
            history,
            acknowledged,
        }
    }

    /// The highest revision that was acknowledged when the journal had this length.
    pub(super) fn acknowledged_at(&self, length: u64) -> u64 {
        let before = self.acknowledged.iter().take_while(|(at, _)| *at <= length);
        before.map(|(_, revision)| *revision).max().unwrap_or(0)
    }
}

impl fmt::Display for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |what: fn(&Act) -> bool| self.records.iter().filter(|r| what(&r.act)).count();
        write!(
            f,
            "{} writes acknowledged, {} committed; {} records, {} of them syncs, {} truncations, \
             {} names; {} bytes",
            self.acknowledged.len(),
            self.history.end() - 1,
            self.records.len(),
            count(|a| matches!(a, Act::Sync { .. })),
            count(|a| matches!(a, Act::Truncate { .. })),
            count(|a| matches!(a, Act::Create | Act::Unlink | Act::Rename { .. })),
            self.records.last().map_or(0, |r| r.end),
        )
    }
}

fn start(shim: &Shim, folder: &Path) -> Server {
    let port = free_port();
    let mut server = serve(port);
    server.arg("--db").arg(folder.join("ledger.db"));
    shim.attach(&mut server, folder);
    Server::launch(server, port)
}

/// Lets the server die at the next thing that it does to its disk.
fn end(server: &Server, shim: &Shim) {
    shim.end_program();
    let mut number = 0;
    wait_for("the server is gone", || {
        number += 1;
        let patch =
            json!({"metadata": {"annotations": {"crash.example.com/last": number.to_string()}}});
        server
            .ask("PATCH", &api("ipaddressclasses/static"), Some(&patch))
            .is_err()
    });
    shim.relent();
}

/// Finds what was acknowledged in the history, where it must be as it was acknowledged.
fn revision(history: &History, about: &Acknowledged) -> u64 {
    match about {
        Acknowledged::Gone { uid } => history
            .end_of(uid)
            .unwrap_or_else(|| panic!("{uid} was acknowledged to be gone")),
        Acknowledged::At { revision, number } => {
            let object = history.at(*revision);
            let written = object.and_then(|o| o.metadata.annotations.get(crate::book::NUMBER));
            assert_eq!(
                written,
                Some(&number.to_string()),
                "at {revision}: {object:?}"
            );
            *revision
        }
    }
}
