//! The disk is full while the server runs: what was acknowledged stays, reading goes on, every
//! refusal says what to do, and with space everything goes on.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use ipledger_tests::program::{Server, api, claim, free_port, serve, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::load::create_classes;

/// Somewhere to keep a ledger where there is not much space.
trait SmallDisk {
    /// A server on it.
    fn command(&self, port: u16) -> Command;

    fn give_space(&self, server: &Server);

    /// The codes and words of its refusals.
    fn refusals(&self) -> (&'static [u64], &'static str);

    fn start(&self) -> Server {
        let port = free_port();
        Server::launch(self.command(port), port)
    }
}

/// A volume of 16 MiB in memory, of which a filler leaves three: what is given back must be enough for
/// everything that waits. It is mounted for one process and its children only, which ends
/// with the test, and the volume with it.
struct Volume {
    holder: Child,
    mounted_on: TempDir,
}

impl Volume {
    /// `None` without the right to mount.
    fn mount() -> Option<Volume> {
        let mounted_on = tempfile::tempdir().unwrap();
        let mut holder = Command::new("unshare")
            .args(["--mount", "sh", "-c"])
            .arg(r#"mount -t tmpfs -o size=16m tmpfs "$0" && echo mounted && exec cat"#)
            .arg(mounted_on.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let output = holder.stdout.take().unwrap();
        let volume = Volume { holder, mounted_on };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).unwrap();
        if line.is_empty() {
            return None;
        }
        std::fs::write(volume.filler(), vec![0; 13 << 20]).unwrap();
        Some(volume)
    }

    /// A file on it that is in the way, as it is seen from outside.
    fn filler(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        let folder = self.mounted_on.path().strip_prefix("/").unwrap();
        root.join(folder).join("filler")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl SmallDisk for Volume {
    fn command(&self, port: u16) -> Command {
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.holder.id());
        let db = self.mounted_on.path().join("ledger.db");
        let mut command = wrapped("nsenter", &[&namespace], &serve(port));
        command.arg("--db").arg(db);
        command
    }

    fn give_space(&self, _: &Server) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn refusals(&self) -> (&'static [u64], &'static str) {
        (&[503], "free space")
    }
}

/// No file of the server may be larger than 1 MB: needs no rights.
struct Limit(TempDir);

impl SmallDisk for Limit {
    fn command(&self, port: u16) -> Command {
        // By default the signal ends the process.
        let limits = ["--ignore-signal=XFSZ", "prlimit", "--fsize=1000000:"];
        let mut command = wrapped("env", &limits, &serve(port));
        command.arg("--db").arg(self.0.path().join("ledger.db"));
        command
    }

    fn give_space(&self, server: &Server) {
        let pid = server.pid().to_string();
        let raise = ["--pid", &pid, "--fsize=unlimited:"];
        assert!(
            Command::new("prlimit")
                .args(raise)
                .status()
                .unwrap()
                .success()
        );
    }

    /// To SQLite this is an error of writing like any other.
    fn refusals(&self) -> (&'static [u64], &'static str) {
        (&[503, 504], "check the disk")
    }
}

/// Runs a command through another one.
fn wrapped(by: &str, arguments: &[&str], command: &Command) -> Command {
    let mut wrapped = Command::new(by);
    wrapped.args(arguments);
    wrapped.arg(command.get_program()).args(command.get_args());
    wrapped
}

/// Asks for a claim that takes about 16 kB.
fn create(server: &Server, n: usize) -> (u16, Value) {
    let mut claim = claim(&format!("c-{n}"), "range");
    claim["metadata"]["annotations"] = json!({"crash.example.com/x": "x".repeat(16_000)});
    server
        .ask(
            "POST",
            &api("namespaces/default/ipaddressclaims"),
            Some(&claim),
        )
        .unwrap()
}

/// The numbers of the claims that there are.
fn there(server: &Server) -> Vec<usize> {
    let names = server.claims("default").into_iter().map(|c| c.name);
    let mut numbers: Vec<usize> = names.map(|name| name[2..].parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

fn fills_up(disk: &dyn SmallDisk) {
    let server = disk.start();
    create_classes(&server);
    let acknowledged = fill(disk, &server, 0);
    assert!(acknowledged > 3, "it was full from the beginning");
    server.kill();

    // A start may find a little space again, where the log was.
    let server = disk.start();
    let acknowledged = fill(disk, &server, acknowledged);
    disk.give_space(&server);
    wait_for("a claim is accepted again", || {
        matches!(create(&server, acknowledged).0, 201 | 409)
    });
    wait_for("all claims are bound", || {
        let claims = server.claims("default");
        claims.len() > acknowledged && claims.iter().all(|c| c.phase == "Bound")
    });
    assert!(server.stop().success());
    let server = disk.start();
    assert!(there(&server).into_iter().eq(0..=acknowledged));
}

/// Creates claims from this number on until none is accepted any more, and returns the next number.
/// Everything can be read meanwhile, and each refusal says what to do. A single refusal is not yet the
/// end: the claim may have shared its commit with others that were too much.
fn fill(disk: &dyn SmallDisk, server: &Server, from: usize) -> usize {
    let (codes, advice) = disk.refusals();
    let (mut next, mut refusals) = (from, 0);
    while refusals < 20 {
        assert!(next < 5_000, "it does not fill up");
        let (code, answer) = create(server, next);
        // A refusal whose outcome was not known may have been none.
        if code == 201 || code == 409 {
            next += 1;
            refusals = 0;
            continue;
        }
        refusals += 1;
        let (code, message) = (answer["code"].as_u64(), answer["message"].as_str());
        assert!(code.is_some_and(|c| codes.contains(&c)), "{answer}");
        assert!(message.is_some_and(|m| m.contains(advice)), "{answer}");
    }
    let there = there(server);
    assert!(there.iter().copied().eq(0..there.len()));
    assert!(
        there.len() == next || there.len() == next + 1,
        "{} of {next}",
        there.len()
    );
    there.len()
}

#[test]
fn on_a_full_disk_nothing_is_lost_and_with_space_everything_goes_on() {
    match Volume::mount() {
        Some(volume) => fills_up(&volume),
        None => {
            println!("no right to mount a volume; a limit on the size of files takes its place");
            fills_up(&Limit(tempfile::tempdir().unwrap()));
        }
    }
}

#[test]
fn a_file_that_may_not_grow_loses_nothing_and_when_it_may_everything_goes_on() {
    fills_up(&Limit(tempfile::tempdir().unwrap()));
}
