//! Commands against the real API over the store of the core, in one process.

mod apply;
mod serve;

use std::sync::Arc;

use ipledger_core::api::{Key, Kind, Object};
use ipledger_core::store::{MemoryStore, Part, ReadAt, Store};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch as flag;

use super::client::{ClientError, Scope};
use super::follow::{Follower, Seen};
use super::output::tests::{Captured, captured};
use super::*;
use crate::api::ApiState;

/// A server, a client of it, and what commands write.
struct Bench {
    store: Arc<MemoryStore>,
    client: Client,
    terminal: Terminal,
    out: Captured,
    err: Captured,
    stop: flag::Sender<bool>,
}

impl Bench {
    async fn new() -> Bench {
        let store = Arc::new(MemoryStore::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let stop = flag::channel(false).0;
        let state = ApiState::new(Arc::clone(&store) as Arc<dyn Store>).with_stop(stop.subscribe());
        let mut stopped = stop.subscribe();
        let server =
            axum::serve(listener, crate::api::router(state)).with_graceful_shutdown(async move {
                let _ = stopped.wait_for(|stop| *stop).await;
            });
        tokio::spawn(async move { server.await.unwrap() });
        let (terminal, out, err) = captured();
        Bench {
            store,
            client,
            terminal,
            out,
            err,
            stop,
        }
    }

    /// Runs a command line; the exit code. Errors are printed as the program prints them.
    async fn run(&mut self, words: &[&str]) -> u8 {
        let server = self.client.server();
        let words = ["ipledger", "--server", &server]
            .into_iter()
            .chain(words.iter().copied());
        let cli = Cli::try_parse_from(words).unwrap();
        self.terminal.json = cli.command.wants_json();
        match run(cli, &mut self.terminal).await {
            Ok(()) => 0,
            Err(e) => {
                self.terminal.error(&e);
                e.exit() as u8
            }
        }
    }

    async fn stored(&self, key: &Key) -> Object {
        self.store.get(key, ReadAt::Latest).await.unwrap()
    }

    /// Changes an object as somebody else would.
    async fn change(&self, key: &Key, part: Part, change: impl FnOnce(&mut Object)) {
        let mut object = self.stored(key).await;
        change(&mut object);
        self.store.update(object, part).await.unwrap();
    }
}

/// A manifest in a file that lives as long as the test.
struct File {
    _folder: tempfile::TempDir,
    path: String,
}

fn file(text: &str) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.yaml");
    std::fs::write(&path, text).unwrap();
    File {
        path: path.to_str().unwrap().to_owned(),
        _folder: folder,
    }
}

const CLAIM: &str = "\
apiVersion: local.sdn.cozystack.io/v1alpha1
kind: IPAddressClaim
metadata:
  name: web
spec:
  family: IPv6
";

fn web() -> Key {
    Key::claim("default", "web")
}

#[tokio::test]
async fn apply_creates_then_changes_then_leaves_alone() {
    let mut bench = Bench::new().await;
    let six = file(CLAIM);
    let four = file(&CLAIM.replace("IPv6", "IPv4"));
    assert_eq!(bench.run(&["apply", "-f", &six.path]).await, 0);
    assert_eq!(bench.run(&["apply", "-f", &six.path]).await, 0);
    let before = bench.stored(&web()).await;
    assert_eq!(
        bench.run(&["apply", "-f", &four.path, "--dry-run"]).await,
        0
    );
    assert_eq!(
        bench.stored(&web()).await,
        before,
        "a dry run writes nothing"
    );
    assert_eq!(
        bench.run(&["apply", "-f", &four.path, "-o", "json"]).await,
        0
    );
    assert_eq!(bench.stored(&web()).await.fields["spec"]["family"], "IPv4");
    assert_eq!(
        bench.out.text(),
        "\
ipaddressclaim/default/web created
ipaddressclaim/default/web unchanged
ipaddressclaim/default/web configured (dry run)
{\"object\":\"ipaddressclaim/default/web\",\"outcome\":\"configured\"}
"
    );
    assert_eq!(bench.err.text(), "");
}

#[tokio::test]
async fn apply_sends_the_good_documents_and_reports_the_bad_ones() {
    let mut bench = Bench::new().await;
    let bad = CLAIM.replace("web", "bad").replace("family", "familly");
    let mixed = file(&format!("{bad}---\n{CLAIM}---\nkind: [\n"));
    assert_eq!(bench.run(&["apply", "-f", &mixed.path]).await, 2);
    assert_eq!(bench.out.text(), "ipaddressclaim/default/web created\n");
    let err = bench.err.text().replace(&mixed.path, "m.yaml");
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(
        lines[0],
        "error: m.yaml:6: IPAddressClaim default/bad: spec.familly: is not known; did you mean `spec.family`?"
    );
    assert!(lines[1].starts_with("error: m.yaml:15: "), "{err}");
    assert_eq!(lines.len(), 2);
}

#[tokio::test]
async fn what_the_server_refuses_is_shown_with_the_line_of_the_field() {
    let mut bench = Bench::new().await;
    bench.run(&["apply", "-f", &file(CLAIM).path]).await;
    bench
        .change(&web(), Part::Status, |claim| {
            claim
                .fields
                .insert("status".to_owned(), json!({"phase": "Bound"}));
        })
        .await;
    let changed = file(&CLAIM.replace("IPv6", "IPv4"));
    assert_eq!(bench.run(&["apply", "-f", &changed.path]).await, 2);
    let err = bench.err.text().replace(&changed.path, "m.yaml");
    assert!(
        err.starts_with("error: m.yaml:6: IPAddressClaim default/web: spec"),
        "{err}"
    );
}

#[tokio::test]
async fn get_finds_objects_by_name_ip_and_label() {
    let mut bench = Bench::new().await;
    let manifest = file(&format!(
        "{CLAIM}---\n{}---\n\
         apiVersion: local.sdn.cozystack.io/v1alpha1\nkind: IPAddress\nmetadata:\n  name: ip-2001-db8--7\n\
         spec:\n  address: 2001:db8::7\n  className: c\n",
        CLAIM.replace(
            "  name: web",
            "  name: api\n  namespace: team-a\n  labels: {tier: back}"
        )
    ));
    assert_eq!(bench.run(&["apply", "-f", &manifest.path]).await, 0);
    for (words, expected) in [
        (vec!["get", "claims"], "ipaddressclaim/default/web\n"),
        (
            vec!["get", "claims", "-n", "team-a"],
            "ipaddressclaim/team-a/api\n",
        ),
        (
            vec!["get", "claims", "-A"],
            "ipaddressclaim/default/web\nipaddressclaim/team-a/api\n",
        ),
        (
            vec!["get", "claims", "-A", "-l", "tier=back"],
            "ipaddressclaim/team-a/api\n",
        ),
        (
            vec!["get", "address", "2001:DB8:0::7"],
            "ipaddress/ip-2001-db8--7\n",
        ),
        (
            vec!["get", "claim/team-a/api"],
            "ipaddressclaim/team-a/api\n",
        ),
        (vec!["get", "classes"], ""),
    ] {
        (bench.terminal, bench.out, bench.err) = captured();
        let code = bench
            .run(&[words.as_slice(), &["-o", "name"]].concat())
            .await;
        assert_eq!(
            (code, bench.out.text().as_str()),
            (0, expected),
            "{words:?}"
        );
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_not_hidden_by_a_list() {
    let mut bench = Bench::new().await;
    bench.run(&["apply", "-f", &file(CLAIM).path]).await;
    let broken = Key::claim("default", "broken");
    bench
        .store
        .inject_unreadable(&broken, "half of it is missing");
    assert_eq!(bench.run(&["get", "claims", "-o", "name"]).await, 0);
    assert!(bench.out.text().ends_with("ipaddressclaim/default/web\n"));
    let err = bench.err.text();
    assert!(
        err.starts_with("warning: left out: ") && err.contains("default/broken"),
        "{err}"
    );
}

#[tokio::test]
async fn what_is_empty_on_the_command_line_is_named() {
    let mut bench = Bench::new().await;
    for (words, part) in [
        (vec!["get", "claims", "-n", ""], "the namespace is empty"),
        (vec!["get", "claim/"], "the name is empty in `claim/`"),
        (
            vec!["get", "claim//x"],
            "the namespace is empty in `claim//x`",
        ),
    ] {
        (bench.terminal, bench.out, bench.err) = captured();
        assert_eq!(bench.run(&words).await, 2, "{words:?}");
        assert!(bench.err.text().contains(part), "{}", bench.err.text());
    }
}

#[tokio::test]
async fn what_does_not_exist_is_an_error_in_the_words_of_the_format() {
    let mut bench = Bench::new().await;
    assert_eq!(bench.run(&["get", "claim", "nobody"]).await, 3);
    assert_eq!(
        bench.run(&["get", "claim", "nobody", "-o", "json"]).await,
        3
    );
    assert_eq!(bench.run(&["describe", "claim", "nobody"]).await, 3);
    assert_eq!(bench.run(&["delete", "claim", "nobody"]).await, 3);
    let err = bench.err.text();
    let lines: Vec<&str> = err.lines().collect();
    assert!(
        lines[0].starts_with("error: ipaddressclaim/default/nobody: "),
        "{err}"
    );
    let json: Value = serde_json::from_str(lines[1]).unwrap();
    assert_eq!(
        (&json["code"], &json["retryable"]),
        (&json!(404), &json!(false))
    );
    assert_eq!(json["reason"], "NotFound");
    assert_eq!(bench.out.text(), "");
}

#[tokio::test]
async fn delete_says_whether_the_object_is_gone_or_waits() {
    let mut bench = Bench::new().await;
    let claim = file(CLAIM);
    bench.run(&["apply", "-f", &claim.path]).await;
    bench
        .change(&web(), Part::Main, |c| {
            c.metadata.add_finalizer("example.com/hold")
        })
        .await;
    assert_eq!(bench.run(&["delete", "-f", &claim.path]).await, 0);
    assert_eq!(
        bench
            .run(&["delete", "claim", "web", "--wait", "--timeout", "0"])
            .await,
        6
    );
    bench
        .change(&web(), Part::Main, |c| c.metadata.finalizers.clear())
        .await;
    bench.run(&["apply", "-f", &claim.path]).await;
    assert_eq!(bench.run(&["delete", "claim", "web", "--wait"]).await, 0);
    let out = bench.out.text();
    let lines: Vec<&str> = out.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "ipaddressclaim/default/web marked for deletion, waits for example.com/hold",
            "ipaddressclaim/default/web created",
            "ipaddressclaim/default/web deleted",
        ]
    );
    assert!(
        bench.err.text().contains("is still there after 0s"),
        "{}",
        bench.err.text()
    );
}

#[tokio::test]
async fn apply_waits_for_an_object_that_is_being_deleted_to_go() {
    let mut bench = Bench::new().await;
    let claim = file(CLAIM);
    bench.run(&["apply", "-f", &claim.path]).await;
    bench
        .change(&web(), Part::Main, |c| {
            c.metadata.add_finalizer("example.com/hold")
        })
        .await;
    bench.run(&["delete", "claim", "web"]).await;
    let before = bench.stored(&web()).await.metadata.uid;
    assert_eq!(
        bench.run(&["apply", "-f", &claim.path, "--dry-run"]).await,
        4
    );
    assert!(
        bench
            .err
            .text()
            .contains("waits for example.com/hold; apply again"),
        "{}",
        bench.err.text()
    );
    let store = Arc::clone(&bench.store);
    let letting_go = tokio::spawn(async move {
        let mut object = store.get(&web(), ReadAt::Latest).await.unwrap();
        object.metadata.finalizers.clear();
        store.update(object, Part::Main).await.unwrap();
    });
    assert_eq!(bench.run(&["apply", "-f", &claim.path]).await, 0);
    letting_go.await.unwrap();
    assert_ne!(bench.stored(&web()).await.metadata.uid, before);
    assert!(
        bench
            .out
            .text()
            .ends_with("ipaddressclaim/default/web created\n")
    );
}

#[tokio::test]
async fn many_documents_are_reported_in_their_order() {
    let mut bench = Bench::new().await;
    let one = |n: usize| CLAIM.replace("web", &format!("c{n:02}"));
    let manifest = file(&(0..40).map(one).collect::<Vec<_>>().join("---\n"));
    assert_eq!(bench.run(&["apply", "-f", &manifest.path]).await, 0);
    let expected = (0..40).map(|n| format!("ipaddressclaim/default/c{n:02} created\n"));
    assert_eq!(bench.out.text(), expected.collect::<String>());
}

#[tokio::test]
async fn a_list_of_many_pages_is_whole() {
    let bench = Bench::new().await;
    for n in 0..1_001 {
        let value = json!({"apiVersion": Kind::IPAddressClaim.api_version(), "kind": "IPAddressClaim",
            "metadata": {"namespace": "default", "name": format!("c{n:04}")}});
        bench
            .store
            .create(Object::from_value(value).unwrap())
            .await
            .unwrap();
    }
    let listing = bench
        .client
        .list(Kind::IPAddressClaim, &Scope::default())
        .await
        .unwrap();
    assert_eq!(listing.items.len(), 1_001);
    assert_eq!(listing.items[1_000].metadata.name, "c1000");
}

#[tokio::test]
async fn following_goes_on_where_a_watch_ended_and_lists_again_where_it_must() {
    let mut bench = Bench::new().await;
    bench.run(&["apply", "-f", &file(CLAIM).path]).await;
    let mut follower = Follower::new(bench.client.clone(), Kind::IPAddressClaim, Scope::default());
    let Seen::Listed(first) = follower.next().await.unwrap() else {
        panic!("the first thing to see is a list");
    };
    assert_eq!(first.len(), 1);
    let label = |value: &'static str| {
        move |c: &mut Object| {
            c.metadata.labels.insert("n".to_owned(), value.to_owned());
        }
    };
    bench.change(&web(), Part::Main, label("1")).await;
    let seen = follower.next().await.unwrap();
    assert!(matches!(seen, Seen::Applied(o) if o.metadata.labels["n"] == "1"));

    bench.store.break_watches();
    bench.change(&web(), Part::Main, label("2")).await;
    let seen = follower.next().await.unwrap();
    assert!(matches!(seen, Seen::Applied(o) if o.metadata.labels["n"] == "2"));

    bench.store.break_watches();
    bench.change(&web(), Part::Main, label("3")).await;
    let now = bench.stored(&web()).await.revision().unwrap();
    bench.store.compact(now);
    let seen = follower.next().await.unwrap();
    assert!(
        matches!(&seen, Seen::Listed(all) if all[0].metadata.labels["n"] == "3"),
        "{seen:?}"
    );
}

#[tokio::test]
async fn a_stop_ends_watches_and_then_the_server_is_gone() {
    let bench = Bench::new().await;
    let mut follower = Follower::new(bench.client.clone(), Kind::IPAddressClaim, Scope::default());
    follower.next().await.unwrap();
    let following = tokio::spawn(async move { follower.next().await });
    bench.stop.send_replace(true);
    let error = following.await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(
        error.to_string().ends_with("is `ipledger serve` running?"),
        "{error}"
    );
    assert_eq!(CliError::Client(error).exit(), Exit::Unavailable);
}

#[test]
fn a_server_that_is_no_url_is_refused() {
    for server in ["7440", "https://127.0.0.1", "http://", "ftp://x"] {
        let error = Client::new(server).unwrap_err();
        assert!(matches!(error, ClientError::BadServer { .. }), "{server}");
    }
}
