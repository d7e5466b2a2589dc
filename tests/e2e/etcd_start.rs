//! `serve` on etcd: what it needs, and what it says when it cannot start.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use etcd_client::{Client, Permission, PermissionType};
use tempfile::tempdir;

use ipledger_tests::certificates::Authority;
use ipledger_tests::etcd::{Etcd, EtcdOptions, ServerTls, client, cluster};
use ipledger_tests::program::{PATIENCE, Server, api, binary, claim, class, free_port, wait_for};

fn etcd(options: &EtcdOptions) -> Etcd {
    Etcd::start(options).expect("tests/tools/build etcd")
}

/// `serve` with these arguments ends with this exit code and an error that has these words.
fn refused(args: &[&str], code: i32, words: &[&str]) -> String {
    let mut command = Command::new(binary());
    command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(args);
    let out = command
        .env_remove("IPLEDGER_STORE_PASSWORD")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "{args:?}: {text}");
    for word in words {
        assert!(
            text.contains(word),
            "{args:?}: `{word}` is missing in: {text}"
        );
    }
    assert!(!text.contains("panicked"), "{text}");
    text
}

fn bind_one(server: &Server, name: &str) {
    let path = api("namespaces/default/ipaddressclaims");
    let answer = server.ask("POST", &path, Some(&claim(name, "c"))).unwrap();
    assert_eq!(answer.0, 201, "{answer:?}");
    wait_for("the claim is bound", || {
        let claims = server.claims("default");
        claims.iter().any(|c| c.name == name && c.phase == "Bound")
    });
}

fn create_class(server: &Server) {
    let class = class("c", &["10.0.0.0/24"], "Delete");
    let answer = server
        .ask("POST", &api("ipaddressclasses"), Some(&class))
        .unwrap();
    assert_eq!(answer.0, 201, "{answer:?}");
}

#[test]
fn a_ledger_in_etcd_is_served_again_after_an_orderly_stop() {
    let etcd = etcd(&EtcdOptions::default());
    let store = format!("etcd://{}/site/ledger", etcd.endpoint());
    let server = Server::start_on(&store, "a");
    create_class(&server);
    bind_one(&server, "web");
    assert!(server.leads());
    assert!(server.writes() > 0);
    let before = server.claims("default");
    assert!(server.stop().success());
    let server = Server::start_on(&store, "a");
    assert_eq!(server.claims("default"), before);
    bind_one(&server, "db");
    assert!(server.stop().success());
}

#[test]
fn a_server_is_not_ready_while_its_etcd_is_gone_and_goes_on_when_it_is_back() {
    let mut etcd = etcd(&EtcdOptions::default());
    let server = Server::start_on(&format!("etcd://{}/x", etcd.endpoint()), "a");
    create_class(&server);
    bind_one(&server, "web");
    etcd.kill();
    let ready = || server.ask("GET", "/readyz", None).unwrap();
    wait_for("it says that etcd is gone", || {
        let (code, text) = ready();
        code == 503 && text.as_str().is_some_and(|t| t.contains(&etcd.endpoint()))
    });
    etcd.start_again();
    wait_for("it is ready again", || ready().0 == 200);
    bind_one(&server, "db");
    assert!(server.stop().success());
}

#[test]
fn what_is_wrong_with_the_options_is_a_usage_error() {
    let url = "etcd://127.0.0.1:1/x";
    refused(
        &["--store", "etcd://127.0.0.1:1"],
        2,
        &["prefix", "etcd://HOST:PORT"],
    );
    for (scheme, why) in [
        ("etcd", "user and password"),
        ("redis", "there is no such store"),
    ] {
        let with_password = format!("{scheme}://admin:hunter2@127.0.0.1:1/x");
        let text = refused(&["--store", &with_password], 2, &[why, "127.0.0.1:1/x"]);
        assert!(!text.contains("hunter2"), "{text}");
    }
    refused(
        &["--store", "redis://a:1/x"],
        2,
        &["there is no such store", "etcd://HOST:PORT"],
    );
    let missing = ["--store-ca", "/nowhere/ca.pem"];
    refused(
        &[&["--store", "etcds://127.0.0.1:1/x"], &missing[..]].concat(),
        2,
        &missing,
    );
    refused(
        &[&["--store", url], &missing[..]].concat(),
        2,
        &["etcds://"],
    );
    refused(
        &["--store", url, "--store-user", "u"],
        2,
        &["--store-password-file"],
    );
    let folder = tempdir().unwrap();
    let text = folder.path().join("ca.pem");
    std::fs::write(&text, "no certificate").unwrap();
    let args = [
        "--store",
        "etcds://127.0.0.1:1/x",
        "--store-ca",
        text.to_str().unwrap(),
    ];
    refused(&args, 2, &["no certificate in PEM form"]);
}

#[test]
fn an_etcd_that_cannot_be_reached_is_named() {
    let endpoint = format!("127.0.0.1:{}", free_port());
    let store = format!("etcd://{endpoint}/x");
    let began = Instant::now();
    refused(
        &["--store", &store],
        8,
        &[&endpoint, "cannot be reached", "is it running"],
    );
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_cluster_without_a_majority_is_told_from_one_that_is_gone() {
    let mut members = cluster(3, &EtcdOptions::default()).expect("tests/tools/build etcd");
    members[1].kill();
    members[2].kill();
    let store = format!("etcd://{}/x", members[0].endpoint());
    // The one that is left notices it within an election time-out.
    let end = Instant::now() + PATIENCE;
    while !refused(&["--store", &store], 8, &[]).contains("has no leader: more than half") {
        assert!(Instant::now() < end, "it is not said");
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(future)
}

/// A user for each of these prefixes, who has the name of the prefix as name and password.
async fn protect(etcd: &Etcd, prefixes: &[&str]) {
    let mut admin: Client = client(&etcd.endpoint()).await.unwrap();
    admin.user_add("root", "r", None).await.unwrap();
    admin.role_add("root").await.unwrap();
    admin.user_grant_role("root", "root").await.unwrap();
    for prefix in prefixes {
        admin.user_add(*prefix, *prefix, None).await.unwrap();
        admin.role_add(*prefix).await.unwrap();
        let folder = format!("/{prefix}/");
        let permission = Permission::new(PermissionType::Readwrite, folder).with_prefix();
        admin
            .role_grant_permission(*prefix, permission)
            .await
            .unwrap();
        admin.user_grant_role(*prefix, *prefix).await.unwrap();
    }
    admin.auth_enable().await.unwrap();
}

#[test]
fn a_user_that_is_unknown_or_may_not_read_is_not_authorised_and_the_right_one_serves() {
    let etcd = etcd(&EtcdOptions::default());
    block_on(protect(&etcd, &["ours", "theirs"]));
    let folder = tempdir().unwrap();
    let file = |content: &str| {
        let path = folder.path().join(content.trim());
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let store = format!("etcd://{}/ours", etcd.endpoint());
    let (ours, theirs) = (file("ours\n"), file("theirs"));
    refused(
        &["--store", &store],
        7,
        &["refuses the user", "give the right user"],
    );
    let user = |name: &'static str, file| {
        [
            "--store",
            &store,
            "--store-user",
            name,
            "--store-password-file",
            file,
        ]
    };
    refused(&user("ours", &theirs), 7, &["refuses the user"]);
    refused(
        &user("theirs", &theirs),
        7,
        &["under `ours`", "grant its role readwrite"],
    );
    let server = Server::start_with(|command| {
        command.args(user("ours", &ours)).args(["--name", "a"]);
    });
    create_class(&server);
    bind_one(&server, "web");
    assert!(server.leads());
    assert!(server.stop().success());
    // The environment does as well.
    let server = Server::start_with(|command| {
        command.args(["--store", &store, "--store-user", "ours", "--name", "a"]);
        command.env("IPLEDGER_STORE_PASSWORD", "ours");
    });
    bind_one(&server, "db");
    assert!(server.stop().success());
}

#[test]
fn a_ledger_is_served_over_tls_and_a_wrong_authority_is_said() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let etcd = etcd(&EtcdOptions {
        tls: Some(ServerTls {
            own: servers.sign("127.0.0.1"),
            clients: Some(clients.certificate.clone()),
        }),
        ..EtcdOptions::default()
    });
    let folder = tempdir().unwrap();
    let write = |name: &str, content: &str| {
        let path: &Path = &folder.path().join(name);
        std::fs::write(path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let own = clients.sign("ledger");
    let (right, wrong) = (
        write("ca", &servers.certificate),
        write("other-ca", &clients.certificate),
    );
    let (certificate, key) = (write("cert", &own.certificate), write("key", &own.key));
    let store = format!("etcds://{}/x", etcd.endpoint());
    let with = |ca| {
        [
            "--store",
            &store,
            "--store-ca",
            ca,
            "--store-cert",
            &certificate,
            "--store-key",
            &key,
        ]
    };
    refused(&with(&wrong), 8, &["cannot be reached", "is TLS right"]);
    let server = Server::start_with(|command| {
        command.args(with(&right));
    });
    create_class(&server);
    bind_one(&server, "web");
    assert!(server.stop().success());
}

/// A way to etcd on which the version in its answers becomes an older one of the same length.
fn through_the_past(endpoint: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let etcd = TcpStream::connect(&endpoint).unwrap();
            let (from, to) = (socket.try_clone().unwrap(), etcd.try_clone().unwrap());
            std::thread::spawn(move || relay(from, to, |_| {}));
            std::thread::spawn(move || relay(etcd, socket, age));
        }
    });
    address
}

fn age(bytes: &mut [u8]) {
    for at in 0..bytes.len().saturating_sub(3) {
        if &bytes[at..at + 4] == b"3.6." {
            bytes[at + 2] = b'4';
        }
    }
}

fn relay(mut from: TcpStream, mut to: TcpStream, change: fn(&mut [u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        change(&mut buffer[..n]);
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn an_etcd_that_is_too_old_is_named_with_its_version() {
    let etcd = etcd(&EtcdOptions::default());
    let endpoint = through_the_past(etcd.endpoint());
    let store = format!("etcd://{endpoint}/x");
    refused(
        &["--store", &store],
        8,
        &[&endpoint, "3.4.", "at least 3.5"],
    );
}
