//! Starting, stopping, starting again.

use std::path::Path;

use tempfile::tempdir;

use ipledger_tests::program::{Server, api, cli, free_port, wait_for};

fn quickstart() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quickstart.yaml");
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_quickstart_ends_with_all_claims_but_one_bound_and_that_one_says_why() {
    let dir = tempdir().unwrap();
    let server = Server::start(&dir.path().join("l.db"), &["--apply", &quickstart()]);
    wait_for("the table is printed", || {
        server.printed().contains("FamilyUnavailable")
    });
    let claims = server.claims("default");
    let pending: Vec<_> = claims.iter().filter(|c| c.phase != "Bound").collect();
    assert_eq!(pending.len(), 1, "{claims:#?}");
    assert_eq!(
        (pending[0].phase.as_str(), pending[0].reason.as_str()),
        ("Pending", "FamilyUnavailable")
    );
    assert!(
        claims.len() >= 4 && claims.iter().any(|c| c.ips.len() == 2),
        "{claims:#?}"
    );
    for claim in claims.iter().filter(|c| c.phase == "Bound") {
        for ip in &claim.ips {
            assert!(server.printed().contains(ip), "{ip} stands in the table");
        }
    }
}

#[test]
fn started_again_every_claim_has_the_same_addresses_and_nothing_is_written() {
    let dir = tempdir().unwrap();
    let db = dir.path().join("l.db");
    let server = Server::start(&db, &["--apply", &quickstart()]);
    wait_for("the claims are settled", || {
        let claims = server.claims("default");
        claims.len() >= 4
            && claims
                .iter()
                .all(|c| c.phase == "Bound" || c.reason == "FamilyUnavailable")
    });
    // The class status is the last to be written.
    wait_for("the counter comes to rest", || {
        let before = server.writes();
        std::thread::sleep(std::time::Duration::from_secs(3));
        server.writes() == before
    });
    let objects = |server: &Server| {
        [
            server.get("ipaddressclaims"),
            server.get("ipaddresses"),
            server.get("ipaddressclasses"),
        ]
        .map(|list| list["items"].clone())
    };
    let before = objects(&server);
    assert!(
        server.stop().success(),
        "a stop that was asked for is no failure"
    );
    for again in 0..3 {
        let server = Server::start(&db, &["--apply", &quickstart()]);
        std::thread::sleep(std::time::Duration::from_secs(3));
        assert_eq!(objects(&server), before, "start {again}");
        assert_eq!(server.writes(), 0, "start {again}");
        assert!(server.stop().success());
    }
}

#[test]
fn an_address_that_is_not_loopback_is_refused() {
    let dir = tempdir().unwrap();
    let db = dir.path().join("l.db");
    let out = cli(
        "",
        &[
            "serve",
            "--db",
            db.to_str().unwrap(),
            "--listen",
            "0.0.0.0:7440",
        ],
    );
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{text}");
    assert!(
        text.contains("0.0.0.0:7440") && text.contains("127.0.0.1"),
        "{text}"
    );
    assert!(!db.exists(), "nothing was touched");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let dir = tempdir().unwrap();
    let first = Server::start(&dir.path().join("a.db"), &[]);
    let listen = first.url.strip_prefix("http://").unwrap();
    let db = dir.path().join("b.db");
    let out = cli(
        "",
        &["serve", "--db", db.to_str().unwrap(), "--listen", listen],
    );
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success());
    assert!(text.contains(listen), "{text}");
}

#[test]
fn two_servers_on_one_file_serve_the_same_ledger() {
    let dir = tempdir().unwrap();
    let db = dir.path().join("l.db");
    let one = Server::start(&db, &[]);
    let two = Server::start(&db, &[]);
    let class = ipledger_tests::program::class("c", &["192.0.2.0/28"], "Delete");
    assert_eq!(
        one.ask("POST", &api("ipaddressclasses"), Some(&class))
            .unwrap()
            .0,
        201
    );
    for n in 0..16 {
        let claim = ipledger_tests::program::claim(&format!("k{n}"), "c");
        let server = if n % 2 == 0 { &one } else { &two };
        let path = api("namespaces/default/ipaddressclaims");
        assert_eq!(server.ask("POST", &path, Some(&claim)).unwrap().0, 201);
    }
    wait_for("all are bound", || {
        two.claims("default").iter().all(|c| c.phase == "Bound")
    });
    let mut ips: Vec<String> = two
        .claims("default")
        .into_iter()
        .flat_map(|c| c.ips)
        .collect();
    ips.sort();
    ips.dedup();
    assert_eq!(ips.len(), 16);
    wait_for("both show the same", || {
        one.claims("default") == two.claims("default")
    });
}

#[test]
fn the_command_line_says_when_no_server_answers() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let out = cli(&url, &["get", "claims"]);
    assert_eq!(out.status.code(), Some(8));
    assert!(String::from_utf8_lossy(&out.stderr).contains("ipledger serve"));
}

#[test]
fn an_address_kept_for_a_claim_that_does_not_come_goes_after_the_grace_that_was_set() {
    let dir = tempdir().unwrap();
    let kept = |ip: &str, policy: &str, annotations: &str| {
        format!(
            "apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAddress\nmetadata: {{name: ip-{}, \
             annotations: {{{annotations}}}}}\nspec: {{address: {ip}, className: static, reclaimPolicy: \
             {policy}, claimRef: {{namespace: default, name: later}}, source: {{fromClass: {{}}}}}}\n---\n",
            ip.replace('.', "-")
        )
    };
    let reserved = "local.sdn.cozystack.io/reserved: 'true'";
    let manifest = dir.path().join("kept.yaml");
    let text = [
        kept("192.0.2.1", "Delete", ""),
        kept("192.0.2.2", "Delete", reserved),
        kept("192.0.2.3", "Retain", ""),
    ];
    std::fs::write(&manifest, text.concat()).unwrap();
    let manifest = manifest.to_str().unwrap();
    let names = |server: &Server| -> Vec<String> {
        let list = server.get("ipaddresses");
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|a| a["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let db = dir.path().join("l.db");
    let server = Server::start(&db, &["--prebound-grace", "0s", "--apply", manifest]);
    wait_for("all three are there", || names(&server).len() == 3);
    server.stop();
    let server = Server::start(&db, &["--prebound-grace", "1s"]);
    wait_for("what may go is gone", || {
        names(&server) == ["ip-192-0-2-2", "ip-192-0-2-3"]
    });
    server.stop();
}
