//! The live table of `serve --apply`: what becomes of the claims of the manifests, until nothing
//! moves any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use ipledger_core::api::{
    ClaimPhase, IPAddressClaim, Key, Kind, Object, Timestamp, find_condition, names,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::client::{Client, ClientError, Scope};
use super::columns::{self, View, reason_of_claim};
use super::exit::CliError;
use super::follow::{Follower, Seen};
use super::output::Terminal;

/// Nothing must have changed for this long.
const QUIET: Duration = Duration::from_secs(1);
/// The same while a claim waits for a driver, which has to write an address first.
const QUIET_FOR_DRIVERS: Duration = Duration::from_secs(3);
/// A table with more rows is not redrawn in place: it might not fit the terminal.
const MAX_REDRAWN: usize = 18;

/// Shows the claims of these keys until they are settled: each one was looked at, and nothing has
/// changed for a moment. On a terminal a table is redrawn in place; elsewhere each change is a
/// line and the table comes at the end.
///
/// # Errors
/// The server cannot be reached or refuses; the output cannot be written.
pub(super) async fn show(
    client: &Client,
    wanted: BTreeSet<Key>,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let mut screen = Screen::new(terminal.interactive && wanted.len() <= MAX_REDRAWN);
    let mut board = Board::new(wanted);
    let (sender, mut changes) = mpsc::channel::<Result<Seen, ClientError>>(64);
    let mut tasks = JoinSet::new();
    let mut follower = Follower::new(client.clone(), Kind::IPAddressClaim, Scope::default());
    tasks.spawn(async move {
        loop {
            let seen = follower.next().await;
            let failed = seen.is_err();
            if sender.send(seen).await.is_err() || failed {
                return;
            }
        }
    });
    let mut changed_at = Instant::now();
    loop {
        let quiet_at = board.settled_after().map(|quiet| changed_at + quiet);
        let settled = async {
            match quiet_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            seen = changes.recv() => {
                let Some(seen) = seen else { break };
                let changed = board.take(seen?);
                if !changed.is_empty() {
                    changed_at = Instant::now();
                    screen.changed(&board, &changed, terminal)?;
                }
            }
            () = settled => break,
        }
    }
    screen.finish(&board, terminal)
}

/// What is known of the claims.
struct Board {
    wanted: BTreeSet<Key>,
    claims: BTreeMap<Key, Object>,
    listed: bool,
}

impl Board {
    fn new(wanted: BTreeSet<Key>) -> Board {
        Board {
            wanted,
            claims: BTreeMap::new(),
            listed: false,
        }
    }

    /// Takes what is seen in; the claims that it says something new about.
    fn take(&mut self, seen: Seen) -> Vec<Key> {
        match seen {
            Seen::Applied(object) => self.applied(object).into_iter().collect(),
            Seen::Deleted(object) => {
                let gone = self.claims.remove(&object.key());
                gone.map(|object| object.key()).into_iter().collect()
            }
            Seen::Listed(objects) => {
                self.listed = true;
                let there: BTreeSet<Key> = objects.iter().map(Object::key).collect();
                let (stay, gone) = std::mem::take(&mut self.claims)
                    .into_iter()
                    .partition::<BTreeMap<_, _>, _>(|(key, _)| there.contains(key));
                self.claims = stay;
                let new = objects
                    .into_iter()
                    .filter_map(|object| self.applied(object));
                let mut changed: Vec<Key> = new.collect();
                changed.extend(gone.into_keys());
                changed
            }
        }
    }

    fn applied(&mut self, object: Object) -> Option<Key> {
        let key = object.key();
        if !self.wanted.contains(&key) {
            return None;
        }
        let same = self.claims.get(&key) == Some(&object);
        self.claims.insert(key.clone(), object);
        (!same).then_some(key)
    }

    /// How long it must be quiet for the claims to be settled; `None` while one of them was not
    /// looked at in its present form.
    fn settled_after(&self) -> Option<Duration> {
        if !self.listed {
            return None;
        }
        let mut quiet = QUIET;
        for object in self.claims.values() {
            // What cannot be read will not become readable by waiting.
            let Ok(claim) = IPAddressClaim::from_object(object) else {
                continue;
            };
            let bound = find_condition(claim.conditions(), names::condition::BOUND)?;
            if claim.phase().is_none()
                || bound.observed_generation != Some(claim.metadata.generation)
            {
                return None;
            }
            if bound.reason == names::reason::WAITING_FOR_PROVISIONING {
                quiet = QUIET_FOR_DRIVERS;
            }
        }
        Some(quiet)
    }

    fn table(&self, colour: bool) -> String {
        let view = View {
            wide: false,
            now: Timestamp::from(SystemTime::now()),
        };
        let objects: Vec<Object> = self.claims.values().cloned().collect();
        columns::table(Kind::IPAddressClaim, &objects, &view).render(colour)
    }

    /// What one claim has come to, as a line.
    fn line(&self, key: &Key) -> String {
        let name = format!("{}/{}", key.namespace, key.name);
        let Some(object) = self.claims.get(key) else {
            return format!("{name} deleted");
        };
        let claim = match IPAddressClaim::from_object(object) {
            Ok(claim) => claim,
            Err(e) => return format!("{name} cannot be read: {}", e.reason),
        };
        let phase = claim.phase().map_or("new", ClaimPhase::as_str);
        let addresses = claim.status.iter().flat_map(|s| &s.addresses);
        let addresses = addresses
            .map(|a| a.address.as_str())
            .collect::<Vec<_>>()
            .join(",");
        let reason = match claim.phase() {
            Some(_) => reason_of_claim(&claim),
            None => String::new(),
        };
        let parts = [name.as_str(), phase, &addresses, &reason];
        parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// What is on the screen.
struct Screen {
    in_place: bool,
    /// Lines of the table that are there.
    lines: usize,
    /// What was last said of each claim, if the table is not redrawn in place.
    said: BTreeMap<Key, String>,
}

impl Screen {
    fn new(in_place: bool) -> Screen {
        Screen {
            in_place,
            lines: 0,
            said: BTreeMap::new(),
        }
    }

    fn changed(
        &mut self,
        board: &Board,
        changed: &[Key],
        terminal: &mut Terminal,
    ) -> Result<(), CliError> {
        if self.in_place {
            return self.redraw(board, terminal);
        }
        for key in changed {
            let line = board.line(key);
            if self.said.insert(key.clone(), line.clone()).as_ref() != Some(&line) {
                terminal.line(&line)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, board: &Board, terminal: &mut Terminal) -> Result<(), CliError> {
        let table = board.table(terminal.colour);
        if self.in_place {
            // This one stays, so that a narrow terminal may wrap its lines.
            return terminal.print(&format!("{}{table}", self.back()));
        }
        terminal.print(&format!("\n{table}"))
    }

    fn redraw(&mut self, board: &Board, terminal: &mut Terminal) -> Result<(), CliError> {
        let table = board.table(terminal.colour);
        let back = self.back();
        self.lines = table.lines().count();
        // Lines that are too long for the terminal are cut, so that each takes one row.
        terminal.print(&format!("\x1b[?7l{back}{table}\x1b[?7h"))
    }

    /// Goes up to the first line of the table and clears from there.
    fn back(&self) -> String {
        match self.lines {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\x1b[J"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(name: &str, generation: u64, status: Value) -> Object {
        let mut value = json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClaim",
            "metadata": {"namespace": "default", "name": name, "generation": generation}});
        if !status.is_null() {
            value["status"] = status;
        }
        Object::from_value(value).unwrap()
    }

    fn status(phase: &str, reason: &str, observed: u64) -> Value {
        let held = if phase == "Bound" { "True" } else { "False" };
        json!({"phase": phase, "conditions": [{"type": "Bound", "status": held, "reason": reason,
            "message": "m", "observedGeneration": observed}]})
    }

    fn board() -> Board {
        Board::new(["a", "b"].map(|name| Key::claim("default", name)).into())
    }

    #[test]
    fn claims_are_settled_when_each_was_looked_at_in_its_present_form() {
        let mut board = board();
        assert_eq!(board.settled_after(), None, "nothing was listed yet");
        board.take(Seen::Listed(vec![claim("a", 1, Value::Null)]));
        assert_eq!(board.settled_after(), None, "a has no status");
        board.take(Seen::Applied(claim("a", 1, status("Bound", "Bound", 1))));
        assert_eq!(board.settled_after(), Some(QUIET));
        board.take(Seen::Applied(claim(
            "b",
            2,
            status("Pending", "PoolExhausted", 1),
        )));
        assert_eq!(board.settled_after(), None, "b was edited since");
        board.take(Seen::Applied(claim(
            "b",
            2,
            status("Pending", "PoolExhausted", 2),
        )));
        assert_eq!(board.settled_after(), Some(QUIET));
        board.take(Seen::Applied(claim(
            "b",
            2,
            status("Pending", "WaitingForProvisioning", 2),
        )));
        assert_eq!(board.settled_after(), Some(QUIET_FOR_DRIVERS));
    }

    #[test]
    fn claims_of_others_are_not_waited_for() {
        let mut board = board();
        let changed = board.take(Seen::Listed(vec![claim("other", 1, Value::Null)]));
        assert_eq!(changed, []);
        assert_eq!(board.settled_after(), Some(QUIET));
    }

    #[test]
    fn only_what_says_something_new_is_a_change() {
        let mut board = board();
        let bound = claim("a", 1, status("Bound", "Bound", 1));
        let a = Key::claim("default", "a");
        assert_eq!(
            board.take(Seen::Listed(vec![bound.clone()])),
            vec![a.clone()]
        );
        assert_eq!(board.take(Seen::Applied(bound.clone())), []);
        assert_eq!(board.take(Seen::Listed(vec![bound.clone()])), []);
        assert_eq!(board.take(Seen::Listed(vec![])), vec![a.clone()]);
        assert_eq!(board.line(&a), "default/a deleted");
    }

    #[test]
    fn a_line_says_what_a_claim_has_come_to() {
        let mut board = board();
        let mut bound = status("Bound", "Bound", 1);
        bound["addresses"] =
            json!([{"name": "x", "address": "192.0.2.1"}, {"name": "y", "address": "2001:db8::1"}]);
        board.take(Seen::Listed(vec![
            claim("a", 1, bound),
            claim("b", 1, status("Pending", "PoolExhausted", 1)),
        ]));
        assert_eq!(
            board.line(&Key::claim("default", "a")),
            "default/a Bound 192.0.2.1,2001:db8::1"
        );
        assert_eq!(
            board.line(&Key::claim("default", "b")),
            "default/b Pending PoolExhausted: m"
        );
    }

    #[test]
    fn a_terminal_is_redrawn_in_place_and_a_file_gets_lines_and_one_table() {
        use crate::cli::output::tests::captured;
        let mut board = board();
        let changed = board.take(Seen::Listed(vec![claim(
            "a",
            1,
            status("Bound", "Bound", 1),
        )]));
        let table = "NAMESPACE  NAME  PHASE  FAMILY  CLASS  ADDRESSES  AGE\n\
             default    a     Bound  IPv4    -      -          -\n";

        let (mut terminal, out, _) = captured();
        let mut screen = Screen::new(false);
        screen.changed(&board, &changed, &mut terminal).unwrap();
        // A change that does not show is not told again.
        screen.changed(&board, &changed, &mut terminal).unwrap();
        screen.finish(&board, &mut terminal).unwrap();
        assert_eq!(out.text(), format!("default/a Bound\n\n{table}"));

        let (mut terminal, out, _) = captured();
        let mut screen = Screen::new(true);
        screen.changed(&board, &changed, &mut terminal).unwrap();
        screen.finish(&board, &mut terminal).unwrap();
        assert_eq!(
            out.text(),
            format!("\x1b[?7l{table}\x1b[?7h\x1b[2A\x1b[J{table}")
        );
    }
}
