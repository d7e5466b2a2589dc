//! An import keeps every binding: the real core and driver find nothing to do in the new ledger, and
//! go on from there as they would have in the old one.

mod world;

use std::sync::Arc;

use ipledger_core::api::{AddressPhase, IPAddress, ReclaimPolicy, WorkloadRef, names};
use ipledger_core::store::{Part, Store};
use serde_json::json;
use tempfile::TempDir;

use super::load::{LoadError, load};
use super::*;
use crate::cli::output::tests::captured;
use world::{Hand, Watched, World, assert_same, key, memory, names_claim, objects, summary};

/// A ledger at rest with everything in it that an address or a claim can be.
async fn source() -> Arc<dyn Store> {
    let store = memory();
    let world = World::start(store.clone());
    let hand = Hand(&*store);
    let lab = json!({"addresses": ["192.0.2.0/29", "2001:db8::/125"], "reuseAfter": "1h"});
    hand.class("lab", ReclaimPolicy::Delete, Some(lab)).await;
    let tight = json!({"addresses": ["198.51.100.0/31"]});
    hand.class("tight", ReclaimPolicy::Retain, Some(tight))
        .await;
    hand.class("hand", ReclaimPolicy::Retain, None).await;
    for (name, spec) in [
        ("web", json!({"className": "lab"})),
        ("dual", json!({"className": "lab", "family": "Dual"})),
        ("rests", json!({"className": "lab"})),
        ("kept", json!({"className": "tight"})),
        ("last", json!({"className": "tight"})),
    ] {
        hand.claim(name, spec).await;
        world.bound(name).await;
    }
    hand.claim("none-left", json!({"className": "tight"})).await;
    hand.claim("nowhere", json!({"className": "none"})).await;
    hand.named("static", "203.0.113.1").await;
    hand.address("203.0.113.2", |_| ()).await;
    hand.address("203.0.113.3", |a| {
        a.spec.claim_ref = names_claim("future", "")
    })
    .await;
    hand.address("203.0.113.4", |a| {
        a.spec.claim_ref = names_claim("later", "");
        a.spec.reclaim_policy = ReclaimPolicy::Delete;
        let reserved = (names::RESERVED.to_owned(), "true".to_owned());
        a.metadata.annotations.extend([reserved]);
    })
    .await;
    for (name, ip) in [
        ("soft", "203.0.113.5"),
        ("lost", "203.0.113.8"),
        ("sick", "203.0.113.9"),
        ("clash", "203.0.113.10"),
        ("leaving", "203.0.113.11"),
        ("stays", "203.0.113.12"),
        ("again", "203.0.113.14"),
    ] {
        hand.named(name, ip).await;
    }
    hand.address("203.0.113.13", |a| a.metadata.name = "odd".to_owned())
        .await;
    hand.edit_claim("stays", |c| c.metadata.add_finalizer("example.com/hold"))
        .await;
    world.settle().await;

    for name in ["rests", "kept", "soft", "stays", "again"] {
        hand.delete_claim(name).await;
    }
    world.settle().await;
    hand.edit("203.0.113.5", Part::Main, |a| {
        a.spec.claim_ref.as_mut().unwrap().uid.clear();
        let reserved = (names::RESERVED.to_owned(), "true".to_owned());
        a.metadata.annotations.extend([reserved]);
    })
    .await;
    hand.claim("again", json!({"className": "lab", "family": "IPv6"}))
        .await;
    let (web, dual) = (hand.find_claim("web").await, hand.find_claim("dual").await);
    hand.address("203.0.113.6", |a| {
        a.spec.claim_ref = names_claim("web", web.uid())
    })
    .await;
    hand.address("203.0.113.7", |a| {
        a.spec.claim_ref = names_claim("dual", dual.uid())
    })
    .await;
    hand.force_delete("203.0.113.8").await;
    hand.edit("203.0.113.9", Part::Status, |a| {
        a.status.as_mut().unwrap().phase = Some(AddressPhase::Lost);
    })
    .await;
    hand.edit("203.0.113.10", Part::Status, |a| {
        let status = a.status.as_mut().unwrap();
        status.phase = Some(AddressPhase::Conflict);
        status.associated_to = Some(WorkloadRef {
            kind: "Service".to_owned(),
            namespace: "a".to_owned(),
            name: "s".to_owned(),
            ..WorkloadRef::default()
        });
    })
    .await;
    hand.delete(&key("203.0.113.11")).await;
    world.settle().await;
    hand.edit("203.0.113.7", Part::Main, |a| {
        let parked = a.metadata.annotations.get_mut(names::PARKED_FOR).unwrap();
        parked.push_str(names::SERVE_SUFFIX);
    })
    .await;
    world.settle().await;
    world.stop().await;
    store
}

/// That ledger. Both addresses of `hand` that are bound beside those of `web` and `dual` are parked.
const AT_REST: &str = "
192.0.2.0 Bound web
192.0.2.1 Bound dual
192.0.2.2 Released rests
198.51.100.0 Released kept
198.51.100.1 Bound last
2001:db8:: Bound dual
2001:db8::1 Bound again
203.0.113.1 Bound static
203.0.113.10 Conflict clash
203.0.113.11 Bound leaving
203.0.113.12 Released stays
203.0.113.14 Released again
203.0.113.2 Available -
203.0.113.3 Pending future
203.0.113.4 Pending later
203.0.113.5 Pending soft
203.0.113.6 Bound web
203.0.113.7 Bound dual
203.0.113.9 Lost sick
203.0.113.13 Pending -
again Bound Bound 2001:db8::1
clash Bound Bound 203.0.113.10
dual Bound Bound 192.0.2.1,2001:db8::
last Bound Bound 198.51.100.1
leaving Bound Bound 203.0.113.11
lost Lost AddressLost -
none-left Pending PoolExhausted -
nowhere Pending ClassNotFound -
sick Lost AddressLost -
static Bound Bound 203.0.113.1
stays Bound Bound 203.0.113.12
web Bound Bound 192.0.2.0";

/// What happens to a ledger afterwards.
async fn go_on(store: &Arc<dyn Store>) {
    let world = World::start(store.clone());
    let hand = Hand(&**store);
    world.settle().await;
    // The parked address goes with its claim; the one that may serve takes the place of the lost.
    hand.delete_claim("web").await;
    hand.force_delete("192.0.2.1").await;
    // The lost address is back; the reserved ones are taken by the claims that they wait for.
    let lost = |a: &mut IPAddress| a.spec.claim_ref = names_claim("lost", "");
    hand.address("203.0.113.8", lost).await;
    for name in ["soft", "future", "later"] {
        hand.claim(name, json!({"className": "hand"})).await;
    }
    hand.edit("203.0.113.9", Part::Status, |a| {
        a.status.as_mut().unwrap().phase = None;
    })
    .await;
    hand.delete_claim("leaving").await;
    hand.edit_claim("stays", |c| {
        c.metadata.remove_finalizer("example.com/hold");
    })
    .await;
    world.settle().await;
    world.stop().await;
}

/// What has become of it then.
const LATER: &str = "
192.0.2.0 Released web
192.0.2.2 Released rests
198.51.100.0 Released kept
198.51.100.1 Bound last
2001:db8:: Bound dual
2001:db8::1 Bound again
203.0.113.1 Bound static
203.0.113.10 Conflict clash
203.0.113.12 Released stays
203.0.113.14 Released again
203.0.113.2 Available -
203.0.113.3 Bound future
203.0.113.4 Bound later
203.0.113.5 Bound soft
203.0.113.6 Released web
203.0.113.7 Bound dual
203.0.113.8 Bound lost
203.0.113.9 Bound sick
203.0.113.13 Pending -
again Bound Bound 2001:db8::1
clash Bound Bound 203.0.113.10
dual Bound Bound 2001:db8::,203.0.113.7
future Bound Bound 203.0.113.3
last Bound Bound 198.51.100.1
later Bound Bound 203.0.113.4
lost Bound Bound 203.0.113.8
none-left Pending PoolExhausted -
nowhere Pending ClassNotFound -
sick Bound Bound 203.0.113.9
soft Bound Bound 203.0.113.5
static Bound Bound 203.0.113.1";

async fn sqlite(folder: &TempDir) -> Arc<SqliteStore> {
    let path = folder.path().join("new.db");
    let store = SqliteStore::open(&path, &Options::default()).await;
    Arc::new(store.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_import_nothing_is_left_to_do_and_all_goes_on_as_it_would_have() {
    let old = source().await;
    let exported = objects(&old).await;
    assert_eq!(format!("\n{}", summary(&exported).join("\n")), AT_REST);
    assert_eq!(check::findings(&exported), Vec::<String>::new());
    let folder = tempfile::tempdir().unwrap();
    let new: Arc<dyn Store> = sqlite(&folder).await;
    load(&*new, &exported, |_| ()).await.unwrap();
    let imported = objects(&new).await;
    assert_same(&imported, &exported);

    let world = World::start(new.clone());
    world.settle().await;
    assert_eq!(*world.store.writes.lock().unwrap(), Vec::<String>::new());
    world.stop().await;
    assert_eq!(objects(&new).await, imported);

    for store in [&old, &new] {
        go_on(store).await;
        let objects = objects(store).await;
        assert_eq!(format!("\n{}", summary(&objects).join("\n")), LATER);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_was_cut_off_anywhere_goes_on_and_writes_nothing_twice() {
    let exported = objects(&source().await).await;
    let whole = Watched::new(memory());
    load(&*whole, &exported, |_| ()).await.unwrap();
    let writes = whole.count() as u64;
    assert!(writes > 60, "{writes}");
    for loses_answer in [false, true] {
        for after in 0..writes {
            let store = memory();
            let first = Watched::failing(store.clone(), after, loses_answer);
            let e = load(&*first, &exported, |_| ()).await.unwrap_err();
            assert!(matches!(e, LoadError::Store(_)), "{e}");
            let second = Watched::new(store.clone());
            load(&*second, &exported, |_| ()).await.unwrap();
            assert_same(&objects(&store).await, &exported);
            if !loses_answer {
                assert_eq!((first.count() + second.count()) as u64, writes);
            }
        }
    }
    let again = Watched::new(whole.clone());
    let mut heard = Vec::new();
    load(&*again, &exported, |done| heard.push(done))
        .await
        .unwrap();
    assert_eq!(again.count(), 0);
    assert_eq!(heard, (1..=exported.len()).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_the_export_does_not_hold_is_not_touched() {
    let store = memory();
    Hand(&*store)
        .class("mine", ReclaimPolicy::Retain, None)
        .await;
    let before = objects(&store).await;
    let e = load(&*store, &[], |_| ()).await.unwrap_err();
    assert!(e.to_string().contains("IPAddressClass mine"), "{e}");
    assert_eq!(objects(&store).await, before);
}

/// A small ledger behind a server.
async fn served() -> (Arc<dyn Store>, String) {
    let store = memory();
    let world = World::start(store.clone());
    let hand = Hand(&*store);
    hand.class("hand", ReclaimPolicy::Delete, None).await;
    hand.named("static", "203.0.113.1").await;
    world.settle().await;
    world.stop().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let router = crate::api::router(crate::api::ApiState::new(store.clone()));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (store, address)
}

/// Runs a command line: its exit code, and what it prints to standard output and error.
async fn cli(words: &[&str]) -> (u8, String, String) {
    use clap::Parser as _;
    let (mut terminal, out, err) = captured();
    let words = ["ipledger"].iter().chain(words);
    let cli = crate::cli::args::Cli::try_parse_from(words).unwrap();
    let exit = match crate::cli::run(cli, &mut terminal).await {
        Ok(()) => 0,
        Err(e) => {
            terminal.error(&e);
            e.exit() as u8
        }
    };
    (exit, out.text(), err.text())
}

struct Paths {
    folder: TempDir,
}

impl Paths {
    fn new() -> Paths {
        let folder = tempfile::tempdir().unwrap();
        Paths { folder }
    }

    fn of(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_moves_from_a_server_to_a_file_and_from_file_to_file() {
    let (old, server) = served().await;
    let paths = Paths::new();
    let (file, db) = (paths.of("all.jsonl"), paths.of("new.db"));
    let (exit, out, err) = cli(&["--server", &server, "export", "-o", &file]).await;
    assert_eq!((exit, err.as_str()), (0, ""));
    let what = "1 ipaddressclasses, 1 ipaddresses, 1 ipaddressclaims";
    assert_eq!(out, format!("{file} holds {what}\n"));
    let (exit, _, err) = cli(&["--server", &server, "export", "-o", &file]).await;
    assert_eq!(exit, 4, "not overwritten: {err}");

    let (exit, out, _) = cli(&["import", &file, "--db", &db, "--dry-run"]).await;
    assert_eq!(exit, 0);
    assert_eq!(out, format!("{file} can be imported: {what} (dry run)\n"));
    assert_eq!(std::fs::read_dir(paths.folder.path()).unwrap().count(), 1);

    let (exit, out, err) = cli(&["import", &file, "--db", &db]).await;
    assert_eq!((exit, err.as_str()), (0, ""));
    assert!(out.starts_with(&format!("{db} holds {what}; it starts at revision 1")));
    let files = std::fs::read_dir(paths.folder.path()).unwrap().count();
    assert_eq!(files, 2, "only the export and the ledger are left");
    let (exit, _, err) = cli(&["import", &file, "--db", &db]).await;
    assert_eq!(exit, 4, "not overwritten: {err}");

    let (exit, lines, _) = cli(&["export", "--db", &db]).await;
    assert_eq!(exit, 0);
    let second = paths.of("second.jsonl");
    std::fs::write(&second, lines).unwrap();
    let again = file::read(second.as_ref()).unwrap();
    let old = objects(&old).await;
    assert_same(&again, &old);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_that_lacks_a_claim_would_cost_its_address_and_is_refused() {
    let (_, server) = served().await;
    let paths = Paths::new();
    let (file, db) = (paths.of("all.jsonl"), paths.of("new.db"));
    let (_, lines, _) = cli(&["--server", &server, "export"]).await;
    for (kind, finding) in [
        ("IPAddressClaim", "would be reclaimed"),
        ("IPAddress", "would be Lost"),
    ] {
        let kind = format!("\"kind\":\"{kind}\"");
        let rest = lines.lines().filter(|l| !l.contains(&kind));
        let rest: Vec<&str> = rest.collect();
        let text = rest.join("\n").replace("\"objects\":3", "\"objects\":2");
        std::fs::write(&file, text).unwrap();
        let (exit, out, err) = cli(&["import", &file, "--db", &db]).await;
        assert_eq!((exit, out.as_str()), (2, ""));
        assert!(
            err.contains(finding) && err.contains("--accept-changes"),
            "{err}"
        );
        assert!(!std::fs::exists(&db).unwrap());
    }
    let (exit, _, _) = cli(&["import", &file, "--db", &db, "--accept-changes"]).await;
    assert_eq!(exit, 0);
}

#[tokio::test]
async fn a_file_that_is_no_whole_export_is_refused_with_its_line() {
    let paths = Paths::new();
    let (file, db) = (paths.of("all.jsonl"), paths.of("new.db"));
    let claim = json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClaim",
        "metadata": {"name": "web", "namespace": "a"}, "spec": {}})
    .to_string();
    let bad_name = claim.replace("web", "Web");
    let head = |n: u32| format!("{{\"ipledgerExport\":1,\"objects\":{n}}}");
    let with_uid = |name: &str| {
        let metadata = format!(r#"{{"uid":"u-1","name":"{name}""#);
        claim.replace(r#"{"name":"web""#, &metadata)
    };
    let same_uid = format!("{}\n{}\n{}", head(2), with_uid("web"), with_uid("db"));
    for (text, line, reason) in [
        (String::new(), 1, "no export"),
        (claim.clone(), 1, "no export"),
        (head(1).replace(":1,", ":2,"), 1, "newer version"),
        (format!("{}\n{claim}\n", head(2)), 2, "1 of 2 objects"),
        (
            format!("{}\n{}", head(1), &claim[..40]),
            2,
            "no JSON at column 40: EOF",
        ),
        (format!("{}\n\n{claim}", head(1)), 2, "export again"),
        (
            format!("{}\n{claim}\n{claim}", head(2)),
            3,
            "line 2 already",
        ),
        (same_uid, 3, "uid u-1 of the claim in line 2"),
        (format!("{}\n{bad_name}", head(1)), 2, "lower-case"),
        (format!("{}\n{{}}", head(1)), 2, "apiVersion"),
    ] {
        std::fs::write(&file, text).unwrap();
        let (exit, out, err) = cli(&["import", &file, "--db", &db]).await;
        assert_eq!((exit, out.as_str()), (2, ""));
        assert!(err.contains(&format!("{file}:{line}: ")), "{err}");
        assert!(err.contains(reason), "{err}");
        assert!(!err.contains("line 1 column"), "{err}");
        assert_eq!(std::fs::read_dir(paths.folder.path()).unwrap().count(), 1);
    }
    std::fs::write(&file, [head(1).as_bytes(), b"\n{\"a\":\"\xff\"}"].concat()).unwrap();
    let (exit, _, err) = cli(&["import", &file, "--db", &db]).await;
    assert_eq!(exit, 2);
    assert!(err.contains(&format!("{file}:2: it is not UTF-8")), "{err}");
}

#[tokio::test]
async fn a_folder_in_place_of_an_export_is_told_as_one() {
    let paths = Paths::new();
    let (exit, _, err) = cli(&["import", &paths.of(""), "--db", &paths.of("new.db")]).await;
    assert_eq!(exit, 2);
    assert!(err.contains("cannot be read: Is a directory"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_a_crash_left_is_gone_on_with() {
    let (old, server) = served().await;
    let paths = Paths::new();
    let (file, db) = (paths.of("all.jsonl"), paths.of("new.db"));
    cli(&["--server", &server, "export", "-o", &file]).await;
    let partial = partial(db.as_ref());
    let store = SqliteStore::open(&partial, &Options::default()).await;
    let store: Arc<dyn Store> = Arc::new(store.unwrap());
    let exported = objects(&old).await;
    let first = Watched::failing(store.clone(), 3, false);
    load(&*first, &exported, |_| ()).await.unwrap_err();
    drop((first, store));
    let (exit, _, err) = cli(&["import", &file, "--db", &db]).await;
    assert_eq!(exit, 0, "{err}");
    assert!(err.contains("going on with"), "{err}");
    assert!(!partial.exists());
}

#[test]
fn a_terminal_shows_how_far_it_is_and_a_file_does_not() {
    for (interactive, shown) in [(true, "importing: 1 of 9 objects"), (false, "")] {
        let (mut terminal, out, _) = captured();
        terminal.interactive = interactive;
        let mut progress = Progress::new(9, &mut terminal);
        progress.show(1);
        progress.show(2);
        progress.end();
        let text = out.text().replace("\r\u{1b}[K", "");
        assert_eq!(text, shown);
    }
}
