//! `kill -9` of the server while it binds claims: what was acknowledged is there afterwards, all
//! claims bind, no address is given twice.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::tempdir;

use ipledger_tests::program::{Server, api, claim, class, wait_for};

const CLAIMS: usize = 500;

/// Sends claims until the server dies under it; returns the names that were acknowledged.
fn send_claims(server: &Server, from: usize, acknowledged: &AtomicUsize) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for n in from..CLAIMS {
        let name = format!("k{n:03}");
        let path = api("namespaces/default/ipaddressclaims");
        match server.ask("POST", &path, Some(&claim(&name, "c"))) {
            Ok((201 | 409, _)) => {
                names.insert(name);
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            _ => break,
        }
    }
    names
}

#[test]
fn a_server_killed_in_the_middle_of_500_claims_loses_nothing_and_gives_no_address_twice() {
    for kill_at in [1, 60, 180, 333, 480] {
        let dir = tempdir().unwrap();
        let db = dir.path().join("l.db");
        let server = Server::start(&db, &[]);
        let class = class("c", &["10.0.0.0/22"], "Delete");
        assert_eq!(
            server
                .ask("POST", &api("ipaddressclasses"), Some(&class))
                .unwrap()
                .0,
            201
        );
        let acknowledged = AtomicUsize::new(0);
        let pid = server.pid();
        let names = std::thread::scope(|scope| {
            let sender = scope.spawn(|| send_claims(&server, 0, &acknowledged));
            wait_for("so many are acknowledged", || {
                acknowledged.load(Ordering::Relaxed) >= kill_at || sender.is_finished()
            });
            ipledger_tests::program::signal(pid, "KILL");
            sender.join().unwrap()
        });
        drop(server);
        check_after(&db, &names, kill_at);
    }
}

fn check_after(db: &Path, names: &BTreeSet<String>, kill_at: usize) {
    let server = Server::start(db, &[]);
    let there: BTreeSet<String> = server
        .claims("default")
        .into_iter()
        .map(|c| c.name)
        .collect();
    let lost: Vec<_> = names.difference(&there).collect();
    assert!(
        lost.is_empty(),
        "acknowledged and gone after a kill at {kill_at}: {lost:?}"
    );
    // The rest is asked for again, by the same names.
    let sent = send_claims(&server, names.len().saturating_sub(1), &AtomicUsize::new(0));
    assert!(sent.contains(&format!("k{:03}", CLAIMS - 1)));
    wait_for("all claims are bound", || {
        let claims = server.claims("default");
        claims.len() == CLAIMS && claims.iter().all(|c| c.phase == "Bound")
    });
    let ips: Vec<String> = server
        .claims("default")
        .into_iter()
        .flat_map(|c| c.ips)
        .collect();
    let distinct: BTreeSet<&String> = ips.iter().collect();
    assert_eq!((ips.len(), distinct.len()), (CLAIMS, CLAIMS));
    // No address object without its claim.
    let addresses = server.get("ipaddresses");
    assert_eq!(addresses["items"].as_array().unwrap().len(), CLAIMS);
    assert!(server.stop().success());
}

#[test]
fn a_server_killed_again_and_again_while_it_binds_ends_with_every_claim_bound_once() {
    let dir = tempdir().unwrap();
    let db = dir.path().join("l.db");
    let server = Server::start(&db, &[]);
    let class = class("c", &["10.0.0.0/22"], "Delete");
    assert_eq!(
        server
            .ask("POST", &api("ipaddressclasses"), Some(&class))
            .unwrap()
            .0,
        201
    );
    let mut seen = std::collections::BTreeMap::new();
    let mut server = Some(server);
    for round in 0..20 {
        let running = server.take().unwrap();
        for n in 0..10 {
            let name = format!("k{round:02}-{n}");
            let path = api("namespaces/default/ipaddressclaims");
            assert_eq!(
                running
                    .ask("POST", &path, Some(&claim(&name, "c")))
                    .unwrap()
                    .0,
                201
            );
        }
        // What a tenant was told once must stay true.
        for claim in running
            .claims("default")
            .into_iter()
            .filter(|c| c.phase == "Bound")
        {
            let before = seen
                .entry(claim.name.clone())
                .or_insert_with(|| claim.ips.clone());
            assert_eq!(*before, claim.ips, "{} in round {round}", claim.name);
        }
        running.kill();
        server = Some(Server::start(&db, &[]));
    }
    let server = server.unwrap();
    wait_for("all are bound", || {
        let claims = server.claims("default");
        claims.len() == 200 && claims.iter().all(|c| c.phase == "Bound")
    });
    let claims = server.claims("default");
    for claim in &claims {
        if let Some(before) = seen.get(&claim.name) {
            assert_eq!(*before, claim.ips);
        }
    }
    let distinct: BTreeSet<&String> = claims.iter().flat_map(|c| &c.ips).collect();
    assert_eq!(distinct.len(), 200);
}
