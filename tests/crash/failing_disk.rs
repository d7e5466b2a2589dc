//! The disk stops taking writes while the server runs, and takes them again: a volume that turned
//! read-only, as the system does with one that it no longer trusts, or one that is broken.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use ipledger_tests::program::{Server, api, class, free_port, serve, wait_for};
use ipledger_tests::random::Random;
use serde_json::Value;

use crate::book::{Sort, objects};
use crate::load::{Client, create_classes, load};
use crate::shim::Shim;

/// EROFS
const READ_ONLY: i32 = 30;
/// EIO
const BROKEN: i32 = 5;

#[test]
fn a_file_that_turns_read_only_under_load_loses_nothing_and_says_what_to_do() {
    fails_and_recovers(READ_ONLY, "read-only");
}

#[test]
fn a_disk_that_fails_under_load_loses_nothing_and_says_what_to_do() {
    fails_and_recovers(BROKEN, "check the disk");
}

fn fails_and_recovers(errno: i32, word: &str) {
    let (shim, folder) = (Shim::build(), tempfile::tempdir().unwrap());
    let db = folder.path().join("ledger.db");
    let port = free_port();
    let mut server = serve(port);
    server.arg("--db").arg(&db);
    shim.attach(&mut server, folder.path());
    let server = Server::launch(server, port);
    create_classes(&server);
    let mut clients = Client::several(4, &mut Random::new(6), 400);
    for _ in 0..3 {
        load(server.address(), &mut clients, 60, &|_| {});
        shim.refuse(errno);
        assert_refuses(&server, &mut clients, word);
        shim.relent();
        wait_for("writes work again", || create_class(&server).0 == 201);
        let path = api("ipaddressclasses/later");
        assert_eq!(server.ask("DELETE", &path, None).unwrap().0, 200);
        // Also of what was not known until now.
        compare(&server, &mut clients);
    }
    server.kill();
    let server = Server::start(&db, &[]);
    compare(&server, &mut clients);
    assert!(server.stop().success());
}

fn create_class(server: &Server) -> (u16, Value) {
    let class = class("later", &["192.0.2.0/24"], "Delete");
    server
        .ask("POST", &api("ipaddressclasses"), Some(&class))
        .unwrap()
}

/// Under load, nothing can be written and everything can be read.
fn assert_refuses(server: &Server, clients: &mut [Client], word: &str) {
    let over = AtomicBool::new(false);
    let answers = std::thread::scope(|scope| {
        for client in clients {
            scope.spawn(|| client.work(server.address(), &over, &|_| {}));
        }
        let answers: Vec<_> = (0..10).map(|_| create_class(server)).collect();
        over.store(true, SeqCst);
        answers
    });
    for (code, answer) in answers {
        let message = answer["message"].as_str().unwrap_or_default();
        let advice = message.contains("check the disk") || message.contains("writable");
        let says = advice && message.contains(word);
        assert!(matches!(code, 503 | 504) && says, "{code} {answer}");
    }
    let classes = server.get("ipaddressclasses");
    assert_eq!(classes["items"].as_array().unwrap().len(), 2, "{classes}");
}

fn compare(server: &Server, clients: &mut [Client]) {
    for sort in Sort::ALL {
        let there = objects(&server.get(sort.path()));
        for client in &mut *clients {
            client
                .book
                .compare(sort, &there)
                .unwrap_or_else(|e| panic!("{e}"));
        }
    }
}
