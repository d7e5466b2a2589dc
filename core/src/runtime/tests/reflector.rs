use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::script::{Call, Script, Then, expired, page, unavailable};
use super::{Clock, PausedClock, applied, claim, deleted};
use crate::api::{Key, Kind};
use crate::runtime::Listing;
use crate::runtime::reflector::{Reflector, Sink};
use crate::store::{ListPage, Revision, StoreError, WatchEvent};

/// Writes down what it is given: `list@REVISION:names`, `event@REVISION`.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Sink for Notes {
    fn replace(&self, _: Kind, listing: Listing) {
        let names: Vec<_> = listing
            .objects
            .keys()
            .map(|key| key.name.as_str())
            .collect();
        let note = format!("list@{}:{}", listing.revision(), names.join(","));
        self.0.lock().unwrap().push(note);
    }

    fn event(&self, _: Kind, event: &WatchEvent) {
        self.0
            .lock()
            .unwrap()
            .push(format!("event@{}", event.revision()));
    }
}

/// Lets a reflector work on the script for that many virtual seconds; returns its notes.
async fn run(clock: &Arc<PausedClock>, script: &Arc<Script>, seconds: u64) -> Vec<String> {
    let sink = Arc::new(Notes::default());
    let reflector = Reflector {
        store: Arc::clone(script) as _,
        clock: Arc::clone(clock) as _,
        kind: Kind::IPAddressClaim,
        sink: Arc::clone(&sink),
    };
    tokio::select! {
        biased;
        never = reflector.run() => match never {},
        () = clock.sleep(Duration::from_secs(seconds)) => {}
    }
    sink.0.lock().unwrap().clone()
}

fn empty(revision: u64) -> Result<ListPage, StoreError> {
    Ok(page(revision, vec![], None))
}

fn list() -> Call {
    Call::List {
        limit: Some(500),
        token: None,
    }
}

fn watch(revision: u64) -> Call {
    Call::Watch(Revision(revision))
}

#[tokio::test(start_paused = true)]
async fn a_listing_is_read_page_by_page_and_then_watched_from_its_revision() {
    let clock = PausedClock::new();
    let script = Script::new(
        &clock,
        vec![
            Ok(page(7, vec![claim("a", "1", 3)], Some("t1"))),
            Ok(page(7, vec![claim("b", "2", 5)], Some("t2"))),
            Ok(page(7, vec![claim("c", "3", 7)], None)),
        ],
        vec![Ok((
            vec![Ok(applied(claim("d", "4", 8)))],
            Then::FallSilent,
        ))],
    );
    let notes = run(&clock, &script, 1).await;
    assert_eq!(notes, ["list@7:a,b,c", "event@8"]);
    let token = |t: &str| Call::List {
        limit: Some(500),
        token: Some(t.to_owned()),
    };
    assert_eq!(script.calls(), [list(), token("t1"), token("t2"), watch(7)]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_is_resumed_from_the_last_event_or_bookmark() {
    let clock = PausedClock::new();
    let script = Script::new(
        &clock,
        vec![empty(7)],
        vec![
            Ok((
                vec![
                    Ok(applied(claim("a", "1", 8))),
                    Ok(deleted(claim("a", "1", 9))),
                ],
                Then::End,
            )),
            Ok((vec![Ok(WatchEvent::Bookmark(Revision(20)))], Then::End)),
            Ok((
                vec![Ok(WatchEvent::Synced(Revision(21))), Err(unavailable())],
                Then::End,
            )),
            Ok((vec![], Then::FallSilent)),
        ],
    );
    let notes = run(&clock, &script, 1).await;
    assert_eq!(
        notes,
        ["list@7:", "event@8", "event@9", "event@20", "event@21"]
    );
    assert_eq!(
        script.calls(),
        [list(), watch(7), watch(9), watch(20), watch(21)]
    );
    assert_eq!(
        script.times(),
        [0, 0, 0, 0, 50],
        "only an error makes it wait"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fell_out_of_the_history_is_followed_by_a_new_listing() {
    let clock = PausedClock::new();
    let script = Script::new(
        &clock,
        vec![empty(7), empty(30), empty(40)],
        vec![
            Err(expired()),
            Ok((
                vec![Ok(applied(claim("a", "1", 31))), Err(expired())],
                Then::End,
            )),
            Ok((vec![], Then::FallSilent)),
        ],
    );
    let notes = run(&clock, &script, 1).await;
    assert_eq!(notes, ["list@7:", "list@30:", "event@31", "list@40:"]);
    assert_eq!(
        script.calls(),
        [list(), watch(7), list(), watch(30), list(), watch(40)]
    );
}

#[tokio::test(start_paused = true)]
async fn failures_wait_twice_as_long_each_time_until_there_is_progress() {
    let clock = PausedClock::new();
    let script = Script::new(
        &clock,
        vec![Err(unavailable()), Err(unavailable()), empty(7)],
        vec![
            Err(unavailable()),
            Err(unavailable()),
            Ok((
                vec![Ok(applied(claim("a", "1", 8))), Err(unavailable())],
                Then::End,
            )),
            Err(unavailable()),
            Ok((vec![], Then::FallSilent)),
        ],
    );
    run(&clock, &script, 5).await;
    let times = [0, 50, 150, 150, 350, 750, 800, 900];
    assert_eq!(script.times(), times);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_away_is_asked_every_five_seconds() {
    let clock = PausedClock::new();
    let lists = (0..20).map(|_| Err(unavailable())).collect();
    let script = Script::new(&clock, lists, vec![]);
    run(&clock, &script, 60).await;
    let times = script.times();
    let waits: Vec<_> = times.windows(2).map(|w| w[1] - w[0]).collect();
    assert_eq!(waits[..8], [50, 100, 200, 400, 800, 1600, 3200, 5000]);
    assert!(waits[8..].iter().all(|w| *w == 5000), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn streams_that_end_at_once_without_news_are_not_opened_in_a_tight_loop() {
    let clock = PausedClock::new();
    let synced = || Ok((vec![Ok(WatchEvent::Synced(Revision(7)))], Then::End));
    let script = Script::new(&clock, vec![empty(7)], vec![synced(), synced(), synced()]);
    run(&clock, &script, 5).await;
    assert_eq!(script.times(), [0, 0, 50, 150, 350]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_is_replaced_by_one_from_the_same_revision() {
    let clock = PausedClock::new();
    let silent = || Ok((vec![], Then::FallSilent));
    let script = Script::new(&clock, vec![empty(7)], vec![silent(), silent(), silent()]);
    run(&clock, &script, 700).await;
    assert_eq!(script.calls(), [list(), watch(7), watch(7), watch(7)]);
    assert_eq!(script.times(), [0, 0, 300_000, 600_000]);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_is_given_up_and_made_again() {
    let clock = PausedClock::new();
    let script = Script::new(&clock, vec![empty(7)], vec![]);
    run(&clock, &script, 400).await;
    assert_eq!(script.calls(), [list(), watch(7), watch(7)]);
}

#[tokio::test(start_paused = true)]
async fn a_listing_older_than_what_was_seen_is_not_taken() {
    let clock = PausedClock::new();
    let script = Script::new(
        &clock,
        vec![empty(7), empty(8), empty(9)],
        vec![
            Ok((
                vec![Ok(applied(claim("a", "1", 9))), Err(expired())],
                Then::End,
            )),
            Ok((vec![], Then::FallSilent)),
        ],
    );
    let notes = run(&clock, &script, 1).await;
    assert_eq!(notes, ["list@7:", "event@9", "list@9:"]);
}

#[tokio::test(start_paused = true)]
async fn a_listing_whose_token_expired_is_read_again_in_one_page() {
    let clock = PausedClock::new();
    let script = Script::new(
        &clock,
        vec![
            Ok(page(7, vec![claim("a", "1", 3)], Some("t1"))),
            Err(expired()),
            Ok(page(9, vec![claim("b", "2", 9)], None)),
        ],
        vec![],
    );
    let notes = run(&clock, &script, 1).await;
    assert_eq!(notes, ["list@9:b"]);
    let whole = Call::List {
        limit: None,
        token: None,
    };
    assert_eq!(script.calls()[2..], [whole, watch(9)]);
}

#[tokio::test(start_paused = true)]
async fn objects_that_cannot_be_read_stall_neither_the_listing_nor_the_watch() {
    let clock = PausedClock::new();
    let mut first = page(7, vec![claim("a", "1", 3)], None);
    first.corrupt.push(StoreError::Corrupt {
        key: Key::claim("n", "bad"),
        reason: "as scripted".to_owned(),
    });
    let bad = WatchEvent::Unreadable {
        key: Key::claim("n", "bad"),
        revision: Revision(8),
        reason: "as scripted".to_owned(),
    };
    let script = Script::new(
        &clock,
        vec![Ok(first)],
        vec![Ok((
            vec![Ok(bad), Ok(applied(claim("b", "2", 9)))],
            Then::FallSilent,
        ))],
    );
    let notes = run(&clock, &script, 1).await;
    assert_eq!(notes, ["list@7:a", "event@8", "event@9"]);
}
