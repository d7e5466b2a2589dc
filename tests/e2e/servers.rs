//! Several servers on one ledger in etcd: the controllers of one work, and another one follows it. In
//! whatever way it goes, no address is given twice.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};
use serde_json::Value;

use ipledger_tests::etcd::{self, Etcd, EtcdOptions};
use ipledger_tests::http;
use ipledger_tests::kine::Kine;
use ipledger_tests::program::{Server, api, claim, class, signal, wait_for};

/// How long after its death a leader is followed at most (design of the lease: 8 s, and a second until
/// it is noticed), with room for a slow machine.
const FOLLOWED: Duration = Duration::from_secs(15);

const IMPORT: &str = "/x/import";

struct World {
    store: String,
    etcd: Etcd,
}

fn world() -> World {
    let etcd = Etcd::start(&EtcdOptions::default()).expect("tests/tools/build etcd");
    let store = format!("etcd://{}/x", etcd.endpoint());
    World { store, etcd }
}

/// Does something behind the back of the servers.
fn behind(endpoint: &str, what: impl AsyncFnOnce(Client)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .unwrap()
        .block_on(async { what(etcd::client(endpoint).await.unwrap()).await });
}

/// Puts the mark of an import there, as an import does (kine takes transactions only).
fn mark_import(endpoint: &str) {
    behind(endpoint, async |mut etcd| {
        let created = Txn::new()
            .when([Compare::mod_revision(IMPORT, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(IMPORT, "somebody", None)])
            .or_else([TxnOp::get(IMPORT, None)]);
        assert!(etcd.txn(created).await.unwrap().succeeded());
    });
}

fn unmark_import(endpoint: &str) {
    behind(endpoint, async |mut etcd| {
        let there = etcd.get(IMPORT, None).await.unwrap();
        let revision = there.kvs()[0].mod_revision();
        let deleted = Txn::new()
            .when([Compare::mod_revision(IMPORT, CompareOp::Equal, revision)])
            .and_then([TxnOp::delete(IMPORT, None)])
            .or_else([TxnOp::get(IMPORT, None)]);
        assert!(etcd.txn(deleted).await.unwrap().succeeded());
    });
}

/// Whether nobody leads in the next seconds, in which each server looks several times whether it can.
fn assert_nobody_leads(servers: &[&Server]) {
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        assert!(servers.iter().all(|s| !s.leads()));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn create_class(server: &Server) {
    let class = class("c", &["10.0.0.0/20"], "Delete");
    let answer = server
        .ask("POST", &api("ipaddressclasses"), Some(&class))
        .unwrap();
    assert_eq!(answer.0, 201, "{answer:?}");
}

/// Creates claims through a server, and now and then deletes one, until told to stop; returns how many
/// there must be.
fn load(address: &str, name: &str, over: &AtomicBool) -> usize {
    let path = api("namespaces/default/ipaddressclaims");
    let mut left = 0;
    for n in 0.. {
        if over.load(SeqCst) {
            break;
        }
        let name = format!("{name}-{n:04}");
        let created = http::ask(address, "POST", &path, Some(&claim(&name, "c")));
        assert_eq!(created.as_ref().map(|c| c.0), Ok(201), "{created:?}");
        if n % 4 == 0 {
            let deleted = http::ask(address, "DELETE", &format!("{path}/{name}"), None);
            assert_eq!(deleted.as_ref().map(|d| d.0), Ok(200), "{deleted:?}");
        } else {
            left += 1;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    left
}

/// Waits until so many claims are there, each bound to an address that nobody else has.
fn assert_bound_once(server: &Server, claims: usize) {
    wait_for("every claim is bound", || {
        let all = server.claims("default");
        all.len() == claims && all.iter().all(|c| c.phase == "Bound")
    });
    let ips = |server: &Server| -> Vec<String> {
        server
            .claims("default")
            .into_iter()
            .flat_map(|c| c.ips)
            .collect()
    };
    let distinct: BTreeSet<String> = ips(server).into_iter().collect();
    assert_eq!((ips(server).len(), distinct.len()), (claims, claims));
    // Two range drivers at once may both provide an address for one claim; the core keeps the one that is
    // too many aside, for nobody else, until the claim is deleted.
    let is_parked = |address: &Value| {
        let kept_for = &address["metadata"]["annotations"]["local.sdn.cozystack.io/parked-for"];
        kept_for.is_string() && *kept_for == address["spec"]["claimRef"]["uid"]
    };
    wait_for("no address is there without its claim", || {
        let addresses = server.get("ipaddresses");
        let addresses = addresses["items"].as_array().unwrap();
        addresses.iter().filter(|a| !is_parked(a)).count() == claims
    });
}

#[test]
fn of_two_servers_one_leads_and_both_serve_and_the_next_one_follows_a_stop_at_once() {
    let world = world();
    let a = Server::start_on(&world.store, "a");
    let b = Server::start_on(&world.store, "b");
    assert!(a.leads() && !b.leads());
    create_class(&b);
    for (server, name) in [(&a, "one"), (&b, "two")] {
        let path = api("namespaces/default/ipaddressclaims");
        let answer = server.ask("POST", &path, Some(&claim(name, "c"))).unwrap();
        assert_eq!(answer.0, 201, "{answer:?}");
    }
    assert_bound_once(&b, 2);
    assert!(a.metric("ipledger_core_writes_total") > 0);
    assert_eq!(b.metric("ipledger_core_writes_total"), 0);
    assert!(a.stop().success());
    let stopped = Instant::now();
    wait_for("the other one leads", || b.leads());
    assert!(
        stopped.elapsed() < Duration::from_secs(5),
        "{:?}",
        stopped.elapsed()
    );
    assert!(b.stop().success());
}

#[test]
fn a_leader_that_is_killed_under_load_is_followed_and_nothing_is_given_twice() {
    let world = world();
    let a = Server::start_on(&world.store, "a");
    let b = Server::start_on(&world.store, "b");
    create_class(&a);
    let over = AtomicBool::new(false);
    let left = std::thread::scope(|scope| {
        let clients = ["x", "y"].map(|name| {
            let (b, over) = (b.address(), &over);
            scope.spawn(move || load(b, name, over))
        });
        wait_for("the leader binds", || {
            a.metric("ipledger_core_writes_total") > 50
        });
        a.kill();
        let killed = Instant::now();
        wait_for("the other one leads", || b.leads());
        let took = killed.elapsed();
        println!("followed after {took:.1?}");
        assert!(took < FOLLOWED, "{took:?}");
        over.store(true, SeqCst);
        clients.map(|c| c.join().unwrap()).iter().sum::<usize>()
    });
    assert!(left > 50, "{left}");
    assert_bound_once(&b, left);
    assert!(b.stop().success());
}

#[test]
fn a_leader_that_was_frozen_and_goes_on_late_gives_nothing_twice() {
    let world = world();
    let a = Server::start_on(&world.store, "a");
    let b = Server::start_on(&world.store, "b");
    create_class(&a);
    let over = AtomicBool::new(false);
    let left = std::thread::scope(|scope| {
        let clients = ["x", "y"].map(|name| {
            let (b, over) = (b.address(), &over);
            scope.spawn(move || load(b, name, over))
        });
        wait_for("the leader binds", || {
            a.metric("ipledger_core_writes_total") > 50
        });
        signal(a.pid(), "STOP");
        wait_for("the other one leads", || b.leads());
        wait_for("it binds", || b.metric("ipledger_core_writes_total") > 50);
        // In the middle of the work of the other one, and with passes in its own hands.
        signal(a.pid(), "CONT");
        wait_for("it hears that its time is over", || !a.leads());
        let after = b.metric("ipledger_core_writes_total");
        wait_for("the other one works on", || {
            b.metric("ipledger_core_writes_total") > after + 50
        });
        over.store(true, SeqCst);
        clients.map(|c| c.join().unwrap()).iter().sum::<usize>()
    });
    assert_bound_once(&b, left);
    assert!(b.leads() && !a.leads());
    assert!(a.stop().success() && b.stop().success());
}

#[test]
fn a_leader_whose_key_is_deleted_by_hand_makes_way() {
    let world = world();
    let a = Server::start_on(&world.store, "a");
    let b = Server::start_on(&world.store, "b");
    behind(&world.etcd.endpoint(), async |mut etcd| {
        etcd.delete("/x/leader", None).await.unwrap();
    });
    wait_for("the other one leads", || b.leads() && !a.leads());
    assert!(a.stop().success() && b.stop().success());
}

#[test]
fn on_kine_the_controllers_of_all_servers_work_and_nothing_is_given_twice() {
    let kine = Kine::start().expect("tests/tools/build kine");
    let store = format!("etcd://{}/x", kine.endpoint());
    let a = Server::start_on(&store, "a");
    let b = Server::start_on(&store, "b");
    assert!(a.leads() && b.leads());
    create_class(&a);
    let over = AtomicBool::new(false);
    let left = std::thread::scope(|scope| {
        let clients = [(&a, "x"), (&b, "y")].map(|(server, name)| {
            let (address, over) = (server.address(), &over);
            scope.spawn(move || load(address, name, over))
        });
        wait_for("both have worked", || {
            let writes = |s: &Server| s.metric("ipledger_core_writes_total");
            writes(&a) > 20 && writes(&b) > 20
        });
        over.store(true, SeqCst);
        clients.map(|c| c.join().unwrap()).iter().sum::<usize>()
    });
    assert_bound_once(&b, left);
    assert!(a.stop().success() && b.stop().success());
}

#[test]
fn a_leader_whose_lease_is_revoked_makes_way_before_its_time() {
    let world = world();
    let a = Server::start_on(&world.store, "a");
    let b = Server::start_on(&world.store, "b");
    assert!(a.leads() && !b.leads());
    create_class(&a);
    let revoked = Instant::now();
    behind(&world.etcd.endpoint(), async |mut etcd| {
        let leader = etcd.get("/x/leader", None).await.unwrap();
        let lease = leader.kvs()[0].lease();
        etcd.lease_revoke(lease).await.unwrap();
    });
    wait_for("the other one leads", || b.leads() && !a.leads());
    let took = revoked.elapsed();
    println!("it made way after {took:.1?}");
    // It asks for more time three times in the 8 s of its lease, and is refused the first time.
    assert!(took < Duration::from_secs(6), "{took:?}");
    wait_for("it says why", || {
        a.printed().contains("etcd has ended the lease")
    });
    let path = api("namespaces/default/ipaddressclaims");
    let answer = a.ask("POST", &path, Some(&claim("one", "c"))).unwrap();
    assert_eq!(answer.0, 201, "{answer:?}");
    assert_bound_once(&a, 1);
    assert!(a.stop().success() && b.stop().success());
}

#[test]
fn while_an_import_is_under_way_nobody_leads() {
    let world = world();
    let a = Server::start_on(&world.store, "a");
    let b = Server::start_on(&world.store, "b");
    assert!(a.leads() && !b.leads());
    mark_import(&world.etcd.endpoint());
    behind(&world.etcd.endpoint(), async |mut etcd| {
        etcd.delete("/x/leader", None).await.unwrap();
    });
    wait_for("the leader hears of it", || {
        assert!(!b.leads());
        !a.leads()
    });
    assert_nobody_leads(&[&a, &b]);
    unmark_import(&world.etcd.endpoint());
    wait_for("one leads", || a.leads() != b.leads());
    assert!(a.stop().success() && b.stop().success());
}

#[test]
fn on_kine_all_servers_stop_leading_when_an_import_begins_and_lead_again_after_it() {
    let kine = Kine::start().expect("tests/tools/build kine");
    let store = format!("etcd://{}/x", kine.endpoint());
    let a = Server::start_on(&store, "a");
    let b = Server::start_on(&store, "b");
    assert!(a.leads() && b.leads());
    let marked = Instant::now();
    mark_import(&kine.endpoint());
    wait_for("nobody leads", || !a.leads() && !b.leads());
    let took = marked.elapsed();
    println!("they stopped after {took:.1?}");
    // An import waits for 4 s, so that a server that looks each 2 s has seen the mark.
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert_nobody_leads(&[&a, &b]);
    unmark_import(&kine.endpoint());
    wait_for("both lead again", || a.leads() && b.leads());
    assert!(a.stop().success() && b.stop().success());
}
