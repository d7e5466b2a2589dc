//! A ledger that goes from one store to another: every binding stays, and nobody works on a part of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use ipledger_tests::etcd::{Etcd, EtcdOptions, client};
use ipledger_tests::kine::Kine;
use ipledger_tests::program::{Server, api, binary, claim, class, cli, wait_for};

struct World {
    folder: TempDir,
    etcd: Etcd,
    store: String,
}

fn world() -> World {
    let etcd = Etcd::start(&EtcdOptions::default()).expect("tests/tools/build etcd");
    let store = format!("etcd://{}/moved", etcd.endpoint());
    World {
        folder: tempdir().unwrap(),
        etcd,
        store,
    }
}

impl World {
    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An export of a ledger in which so many claims are bound, one waits for an address, and one
    /// address has outlived its claim.
    fn exported(&self, claims: usize) -> PathBuf {
        let (db, file) = (self.file("a.db"), self.file("a.jsonl"));
        let server = Server::start(&db, &[]);
        for class in [
            class("c", &["10.0.0.0/20"], "Delete"),
            class("kept", &["10.1.0.0/24"], "Retain"),
            class("empty", &["10.2.0.0/32"], "Delete"),
        ] {
            create(&server, "ipaddressclasses", &class);
        }
        let all = "namespaces/default/ipaddressclaims";
        for n in 0..claims {
            create(&server, all, &claim(&format!("c-{n:04}"), "c"));
        }
        create(&server, all, &claim("gone", "kept"));
        for name in ["first", "waits"] {
            create(&server, all, &claim(name, "empty"));
            wait_for("it has its state", || {
                server
                    .claims("default")
                    .iter()
                    .any(|c| c.name == name && !c.phase.is_empty())
            });
        }
        wait_for("the claims are bound", || {
            let claims = server.claims("default");
            claims
                .iter()
                .all(|c| c.name == "waits" || c.phase == "Bound")
        });
        assert_eq!(
            server
                .ask("DELETE", &api(&format!("{all}/gone")), None)
                .unwrap()
                .0,
            200
        );
        wait_for("its address is released", || {
            let addresses = server.get("ipaddresses");
            let addresses = addresses["items"].as_array().unwrap();
            addresses.iter().any(|a| a["status"]["phase"] == "Released")
        });
        at_rest(&server);
        assert!(server.stop().success());
        ok(&["export", "--db", text(&db), "-o", text(&file)]);
        file
    }
}

fn create(server: &Server, path: &str, object: &Value) {
    let answer = server.ask("POST", &api(path), Some(object)).unwrap();
    assert_eq!(answer.0, 201, "{answer:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn ok(args: &[&str]) -> String {
    let out = cli("", args);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{args:?}: {said}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn refused(args: &[&str], code: i32, words: &[&str]) {
    let out = cli("", args);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "{args:?}: {said}");
    for word in words {
        assert!(said.contains(word), "`{word}` is missing in: {said}");
    }
}

/// Waits until nothing was written for longer than the second that the status of a class may wait for.
fn at_rest(server: &Server) {
    let (mut writes, mut since) = (server.writes(), Instant::now());
    wait_for("nothing is written any more", || {
        let now = server.writes();
        if now != writes {
            (writes, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_millis(1_700)
    });
}

/// Everything that says who has which address, and nothing that a store gives itself.
fn bindings(server: &Server) -> Vec<Value> {
    let mut all = Vec::new();
    for kind in [
        "ipaddressclasses",
        "ipaddresses",
        "namespaces/default/ipaddressclaims",
    ] {
        for object in server.get(kind)["items"].as_array().unwrap() {
            let spec = &object["spec"];
            let holder = &spec["claimRef"];
            let held = json!([holder["namespace"], holder["name"]]);
            let status = &object["status"];
            all.push(json!([
                object["metadata"]["name"],
                object["metadata"]["finalizers"],
                spec["className"],
                spec["address"],
                held,
                status["phase"],
                status["addresses"],
            ]));
        }
    }
    all
}

/// A server that has nothing to do on this ledger; what is bound there.
fn serve_and_do_nothing(server: Server, leads: bool) -> Vec<Value> {
    assert_eq!(server.leads(), leads);
    at_rest(&server);
    assert_eq!(server.writes(), 0, "the controllers found something to do");
    let bindings = bindings(&server);
    assert!(server.stop().success());
    bindings
}

#[test]
fn a_ledger_goes_from_sqlite_to_etcd_and_back_with_every_binding() {
    let world = world();
    let file = world.exported(40);
    let before = serve_and_do_nothing(Server::start(&world.file("a.db"), &[]), true);
    assert!(before.len() > 80, "{}", before.len());
    ok(&["import", text(&file), "--store", &world.store, "--dry-run"]);
    ok(&["import", text(&file), "--store", &world.store]);
    let in_etcd = serve_and_do_nothing(Server::start_on(&world.store, "a"), true);
    assert_eq!(in_etcd, before);
    // Also of a ledger that is served.
    let server = Server::start_on(&world.store, "a");
    let (back, db) = (world.file("b.jsonl"), world.file("b.db"));
    ok(&["export", "--store", &world.store, "-o", text(&back)]);
    assert!(server.stop().success());
    ok(&["import", text(&back), "--db", text(&db)]);
    assert_eq!(serve_and_do_nothing(Server::start(&db, &[]), true), before);
}

#[test]
fn a_ledger_goes_to_kine_with_every_binding() {
    let world = world();
    let file = world.exported(10);
    let before = serve_and_do_nothing(Server::start(&world.file("a.db"), &[]), true);
    let kine = Kine::start().expect("tests/tools/build kine");
    let store = format!("etcd://{}/moved", kine.endpoint());
    ok(&["import", text(&file), "--store", &store]);
    assert_eq!(
        serve_and_do_nothing(Server::start_on(&store, "a"), true),
        before
    );
}

#[test]
fn an_import_waits_for_nobody_who_serves_the_ledger_and_writes_over_nothing() {
    let world = world();
    let file = world.exported(3);
    let into = ["import", text(&file), "--store", &world.store];
    let server = Server::start_on(&world.store, "the-server");
    refused(&into, 4, &["the-server", "stop all servers"]);
    create(
        &server,
        "ipaddressclasses",
        &class("other", &["10.9.0.0/24"], "Delete"),
    );
    assert!(server.stop().success());
    refused(&into, 4, &["IPAddressClass other", "there is a ledger"]);
    // It was left as it was.
    let server = Server::start_on(&world.store, "the-server");
    let classes = server.get("ipaddressclasses");
    assert_eq!(classes["items"].as_array().unwrap().len(), 1);
    assert!(server.stop().success());
}

/// Imports and is killed in the middle of it.
fn import_and_die(world: &World, file: &Path, objects: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut etcd = runtime.block_on(client(&world.etcd.endpoint())).unwrap();
    let mut import = Command::new(binary())
        .args(["import", text(file), "--store", &world.store])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("a part is there", || {
        let options = etcd_client::GetOptions::new()
            .with_prefix()
            .with_count_only();
        let there = runtime
            .block_on(etcd.get("/moved/", Some(options)))
            .unwrap();
        there.count() > i64::try_from(objects / 4).unwrap()
    });
    import.kill().unwrap();
    assert!(
        !import.wait().unwrap().success(),
        "it was done before it was killed"
    );
}

#[test]
fn a_ledger_whose_import_was_cut_off_is_not_served_before_it_is_complete() {
    let world = world();
    let file = world.exported(800);
    let before = serve_and_do_nothing(Server::start(&world.file("a.db"), &[]), true);
    import_and_die(&world, &file, before.len());
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", &world.store];
    refused(
        &serve,
        8,
        &["is not complete", "run the same `ipledger import` again"],
    );
    refused(
        &["export", "--store", &world.store],
        8,
        &["is not complete"],
    );
    // The place of the one that died is free when its time has run out.
    let mut last: Option<Output> = None;
    wait_for("the import goes on", || {
        let out = cli("", &["import", text(&file), "--store", &world.store]);
        let done = out.status.success();
        assert!(done || out.status.code() == Some(4), "{out:?}");
        last = Some(out);
        done
    });
    let said = String::from_utf8_lossy(&last.unwrap().stderr).into_owned();
    assert!(said.contains("going on with the import"), "{said}");
    let after = serve_and_do_nothing(Server::start_on(&world.store, "a"), true);
    assert_eq!(after, before);
}
