//! The rounds of a run: start, look at what is there, put load on it, kill.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use ipledger_tests::program::{Server, api, free_port, serve, wait_for};
use ipledger_tests::random::Random;
use serde_json::json;

use crate::book::{NUMBER, Seen, Sort, TWIN, objects, revision};
use crate::load::{Acknowledged, Client, create_classes};
use crate::place::Place;
use crate::watcher::{Watcher, fold, uninterrupted};

/// The moments of the kills and what the clients do come from it, unless `IPLEDGER_CRASH_SEED` is
/// set. (How far the server gets until then does not.)
const SEED: u64 = 20_260_501;
const CLIENTS: usize = 4;
/// How long the load lasts at most before a kill, in milliseconds.
const LOAD: usize = 500;
/// How long a server that is killed while it starts lives at most, in milliseconds.
const START: usize = 120;
/// Objects that the test itself writes, so that a watch of any sort has something to reach.
const MARKERS: [(Sort, &str); 2] = [(Sort::Claim, "marker"), (Sort::Address, "ip-10-99-0-1")];

struct Run<'a> {
    place: &'a dyn Place,
    random: Random,
    clients: Vec<Client>,
    watchers: [Watcher; 2],
    compared: [Compared; 2],
    /// The highest revision that anybody was told.
    highest: AtomicU64,
    acknowledged: AtomicU64,
}

/// How far the ledger was compared with what watchers were told of one sort.
#[derive(Default)]
struct Compared {
    revision: u64,
    /// What there was then.
    objects: BTreeMap<String, Seen>,
    events: usize,
}

/// Runs so many rounds, each with a kill under load, and then lets the ledger come to rest.
pub(crate) fn run(place: &dyn Place, kills: usize) {
    let seed = std::env::var("IPLEDGER_CRASH_SEED").map_or(SEED, |s| s.parse().unwrap());
    println!("seed {seed}");
    let began = Instant::now();
    let mut random = Random::new(seed);
    let server = place.start();
    create_classes(&server);
    let created = MARKERS.map(|(sort, _)| create_marker(&server, sort));
    server.kill();
    let mut run = Run {
        place,
        clients: Client::several(CLIENTS, &mut random, 400),
        random,
        watchers: std::array::from_fn(|i| Watcher::after(MARKERS[i].0, created[i].revision - 1)),
        compared: created.map(|marker| Compared {
            revision: marker.revision - 1,
            ..Compared::default()
        }),
        highest: AtomicU64::new(0),
        acknowledged: AtomicU64::new(0),
    };
    let mut killed_starting = 0;
    for round in 1..=kills {
        if round % 4 == 0 {
            run.kill_while_starting();
            killed_starting += 1;
        }
        run.round(true);
    }
    run.round(false);
    let acknowledged = run.acknowledged.into_inner();
    let events = run.compared.iter().map(|c| c.events).sum::<usize>();
    println!(
        "{kills} kills under load and {killed_starting} while starting, {acknowledged} writes \
         acknowledged, {events} events, revision {}, {:.0?}",
        run.highest.into_inner(),
        began.elapsed()
    );
    let markers = MARKERS.len() * (kills + 1);
    assert!(
        acknowledged > kills as u64 && events > markers + kills,
        "hardly any load: {acknowledged} writes acknowledged and {events} events in {kills} rounds"
    );
}

fn create_marker(server: &Server, sort: Sort) -> Seen {
    let marker = match sort {
        Sort::Claim => json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1",
            "kind": "IPAddressClaim", "metadata": {"name": MARKERS[0].1},
            "spec": {"className": "none"}}),
        Sort::Address => json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1",
            "kind": "IPAddress", "metadata": {"name": MARKERS[1].1},
            "spec": {"address": "10.99.0.1", "className": "none"}}),
    };
    match server.ask("POST", &api(sort.path()), Some(&marker)) {
        Ok((201, created)) => Seen::read(&created),
        other => panic!("{other:?}"),
    }
}

impl Run<'_> {
    fn kill_while_starting(&mut self) {
        let mut server: Command = serve(free_port());
        self.place.on(&mut server);
        server
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut server = server.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(self.random.below(START) as u64));
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Starts a server and looks whether it has kept its word. Then kills it under load, or lets
    /// it come to rest.
    fn round(&mut self, under_load: bool) {
        let Run {
            place,
            random,
            clients,
            watchers,
            compared,
            highest,
            acknowledged,
        } = self;
        let server = place.start();
        let address = server.address().to_owned();
        let over = AtomicBool::new(false);
        let note = |about| {
            acknowledged.fetch_add(1, SeqCst);
            if let Acknowledged::At { revision, .. } = about {
                highest.fetch_max(revision, SeqCst);
            }
        };
        std::thread::scope(|scope| {
            // Dropped on a failure in here, so that nobody goes on talking to it.
            let server = server;
            for watcher in &*watchers {
                scope.spawn(|| watcher.follow(&address, &over));
            }
            let mut check = || {
                for (watcher, compared) in watchers.iter().zip(&mut *compared) {
                    let list = compared.check(&server, watcher, clients);
                    let before = highest.fetch_max(list, SeqCst);
                    assert!(list >= before, "from revision {before} back to {list}");
                }
            };
            check();
            if under_load {
                for client in &mut *clients {
                    scope.spawn(|| client.work(&address, &over, &note));
                }
                std::thread::sleep(Duration::from_millis(random.below(LOAD) as u64));
            } else {
                wait_until_at_rest(&server);
                check();
            }
            over.store(true, SeqCst);
            server.kill();
        });
        for watcher in watchers {
            highest.fetch_max(watcher.last(), SeqCst);
        }
    }
}

impl Compared {
    /// Compares what there is with what clients and watchers were told; returns the revision of
    /// the list.
    fn check(&mut self, server: &Server, watcher: &Watcher, clients: &mut [Client]) -> u64 {
        let sort = watcher.sort();
        let list = server.get(sort.path());
        let there = objects(&list);
        for client in &mut *clients {
            client
                .book
                .compare(sort, &there)
                .unwrap_or_else(|e| panic!("{e}"));
        }
        for seen in there.values().filter(|s| s.number != 0) {
            let known = clients.iter().any(|c| c.book.knows(sort, &seen.name));
            assert!(
                known || MARKERS.contains(&(sort, &seen.name)),
                "nobody made {seen:?}"
            );
        }

        let from = self.revision;
        let at = revision(&list);
        self.revision = write_marker(server, sort, at);
        let told = watcher.take_up_to(self.revision);
        let whole = uninterrupted(server.address(), sort, from, self.revision);
        assert_eq!(
            told, whole,
            "a watch that was broken and one that was not, from {from}"
        );
        self.events += whole.len();
        let (before, after) = whole.split_at(whole.partition_point(|e| e.seen.revision <= at));
        fold(&mut self.objects, before);
        assert_eq!(self.objects, there, "the events and the list at {at}");
        fold(&mut self.objects, after);
        at
    }
}

/// Writes to the marker of a sort; returns the revision.
fn write_marker(server: &Server, sort: Sort, number: u64) -> u64 {
    let [name] = MARKERS
        .iter()
        .filter(|m| m.0 == sort)
        .map(|m| m.1)
        .collect::<Vec<_>>()[..]
    else {
        panic!("no marker of {sort:?}");
    };
    let number = number.to_string();
    let patch = json!({"metadata": {"annotations": {NUMBER: number, TWIN: number}}});
    let path = api(&format!("{}/{name}", sort.path()));
    match server.ask("PATCH", &path, Some(&patch)) {
        Ok((200, marker)) => revision(&marker),
        other => panic!("{other:?}"),
    }
}

/// Waits until every claim that can be served is bound, each to an address of its own.
fn wait_until_at_rest(server: &Server) {
    wait_for("every claim of the range is bound", || {
        let list = server.get(Sort::Claim.path());
        let claims = list["items"].as_array().unwrap();
        claims.iter().all(|claim| {
            let served =
                claim["spec"]["className"] != "range" || claim["status"]["phase"] == "Bound";
            served && claim["metadata"]["deletionTimestamp"].is_null()
        })
    });
    let bound = server.claims("default").into_iter().flat_map(|c| c.ips);
    let mut bound: Vec<String> = bound.collect();
    let all = bound.len();
    bound.sort_unstable();
    bound.dedup();
    assert_eq!(bound.len(), all, "an address is given twice");
    assert!(all > 0, "no claim is bound");
}
