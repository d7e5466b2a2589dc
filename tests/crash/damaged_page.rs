//! A page of the file is damaged while the server runs: what stands on it is reported with what to
//! do, everything else goes on, and a server does not start on such a file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;

use ipledger_tests::program::{Server, api, claim, free_port, serve, wait_for};
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Row};
use tempfile::tempdir;

use crate::load::create_classes;

const PAGE: usize = 4_096;
const CLAIMS: usize = 20;
/// The claim on the damaged page.
const VICTIM: &str = "c-07";
const CLAIMS_PATH: &str = "namespaces/default/ipaddressclaims";

fn create(server: &Server, name: &str) -> (u16, Value) {
    let mut claim = claim(name, "range");
    // So large that few share a page.
    claim["metadata"]["annotations"] = json!({"crash.example.com/x": "x".repeat(1_500)});
    server.ask("POST", &api(CLAIMS_PATH), Some(&claim)).unwrap()
}

fn ask(server: &Server, path: &str) -> (u16, Value) {
    server.ask("GET", &api(path), None).unwrap()
}

fn claim_path(name: &str) -> String {
    format!("{CLAIMS_PATH}/{name}")
}

/// A ledger in a file of its own, with nothing beside it.
fn make_ledger(db: &Path) {
    let server = Server::start(db, &[]);
    create_classes(&server);
    for n in 0..CLAIMS {
        assert_eq!(create(&server, &format!("c-{n:02}")).0, 201);
    }
    wait_for("all claims are bound", || {
        let claims = server.claims("default");
        claims.len() == CLAIMS && claims.iter().all(|c| c.phase == "Bound")
    });
    assert!(server.stop().success());
}

/// Where the page begins on which the victim stands.
async fn victims_page(db: &Path) -> usize {
    let options = SqliteConnectOptions::new().filename(db).read_only(true);
    let mut connection = options.connect().await.unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'objects'";
    let root: u32 = sqlx::query(sql)
        .fetch_one(&mut connection)
        .await
        .unwrap()
        .get(0);
    connection.close().await.unwrap();
    let bytes = std::fs::read(db).unwrap();
    let mut found = leaves(&bytes, root as usize).into_iter().filter(|at| {
        let text = String::from_utf8_lossy(&bytes[*at..at + PAGE]);
        text.contains(&format!("\"name\":\"{VICTIM}\""))
    });
    found.next().expect("the victim is in the file")
}

/// The leaves of a table (https://www.sqlite.org/fileformat.html, section 1.6).
fn leaves(bytes: &[u8], page: usize) -> Vec<usize> {
    let at = (page - 1) * PAGE;
    let number = |at: usize, length: usize| {
        let digits = &bytes[at..at + length];
        digits
            .iter()
            .fold(0, |n, digit| n << 8 | usize::from(*digit))
    };
    match bytes[at] {
        13 => vec![at],
        5 => {
            let cells = (0..number(at + 3, 2)).map(|n| number(at + number(at + 12 + 2 * n, 2), 4));
            let children = cells.chain([number(at + 8, 4)]);
            children.flat_map(|child| leaves(bytes, child)).collect()
        }
        other => panic!("page {page} is of type {other}"),
    }
}

fn overwrite(file: &File, at: usize, bytes: &[u8]) {
    file.write_all_at(bytes, at as u64).unwrap();
}

#[tokio::test]
async fn a_page_damaged_at_run_time_is_reported_and_hurts_only_what_stands_on_it() {
    let folder = tempdir().unwrap();
    let db = folder.path().join("ledger.db");
    make_ledger(&db);
    let at = victims_page(&db).await;
    let file = OpenOptions::new().read(true).write(true).open(&db).unwrap();
    let mut sound = vec![0; PAGE];
    file.read_exact_at(&mut sound, at as u64).unwrap();

    let server = Server::start(&db, &[]);
    overwrite(&file, at, &[0xA5; PAGE]);
    // What the server remembers of the file is valid up to the next write.
    assert_eq!(create(&server, "later-0").0, 201);
    for path in [claim_path(VICTIM), CLAIMS_PATH.to_owned()] {
        let (code, answer) = ask(&server, &path);
        let message = answer["message"].as_str().unwrap_or_default();
        assert_eq!(code, 503, "{answer}");
        for words in ["ledger.db is damaged", "restore a backup"] {
            assert!(message.contains(words), "{message}");
        }
    }
    assert_eq!(ask(&server, &claim_path("c-00")).0, 200);
    assert_eq!(create(&server, "later-1").0, 201);
    wait_for("a new claim is bound", || {
        ask(&server, &claim_path("later-1")).1["status"]["phase"] == "Bound"
    });
    overwrite(&file, at, &sound);
    assert_eq!(ask(&server, &claim_path(VICTIM)).0, 200);
    overwrite(&file, at, &[0xA5; PAGE]);
    server.kill();

    let out = serve(free_port())
        .arg("--db")
        .arg(&db)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("damaged"), "{said}");

    overwrite(&file, at, &sound);
    let server = Server::start(&db, &[]);
    assert_eq!(ask(&server, &claim_path(VICTIM)).0, 200);
    let claims = server.claims("default");
    assert_eq!(claims.len(), CLAIMS + 2);
    assert!(claims.iter().all(|c| c.phase == "Bound"), "{claims:?}");
    assert!(server.stop().success());
}
