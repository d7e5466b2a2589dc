//! What a watch does when it cannot go on: too old, too new, too slow, cut off.

use ipledger_core::api::Kind;
use ipledger_core::store::{ReadAt, Revision, StoreError, WatchFrom, WatchOptions};

use crate::backend::Ledger;
use crate::case::cases;
use crate::make::*;
use crate::reader::{Reader, told};

cases![
    a_watch_from_before_a_compaction_is_expired_before_any_event,
    a_watch_from_the_compacted_revision_itself_still_works,
    a_watch_from_the_start_works_after_a_compaction,
    an_open_watch_goes_on_across_a_compaction,
    an_idle_watch_is_not_hurt_by_a_compaction,
    compacting_twice_and_into_the_future_hurts_nobody,
    reads_writes_and_lists_go_on_after_a_compaction,
    a_watch_from_a_future_revision_is_unavailable_and_never_empty,
    a_future_revision_that_is_reached_meanwhile_can_be_watched,
    a_jump_of_the_revision_is_followed_at_once,
    a_restore_that_jumps_and_compacts_expires_what_is_older,
    a_slow_reader_loses_nothing_in_silence,
    a_slow_reader_holds_up_no_other,
    a_broken_watch_resumes_without_hole_or_repeat,
    a_watch_broken_again_and_again_sees_every_write_once,
    a_watch_can_be_opened_after_all_were_broken,
];

fn from(revision: Revision) -> WatchOptions {
    WatchOptions::all(WatchFrom::After(revision))
}

/// Opens a watch that must end in `Expired` with nothing before it.
async fn assert_expired(l: &Ledger, revision: Revision) {
    let opened = Reader::open(&*l.store, Kind::IPAddressClaim, &from(revision)).await;
    let error = match opened {
        Err(e) => e,
        Ok(mut reader) => {
            let (events, error) = reader.end().await;
            assert_eq!(events, [], "events before the error");
            error.expect("a watch from before the history ends in an error")
        }
    };
    assert!(matches!(error, StoreError::Expired { .. }), "{error}");
}

async fn a_watch_from_before_a_compaction_is_expired_before_any_event(l: Ledger) {
    let start = list_claims(&*l.store).await.revision;
    let writes = create_claims(&*l.store, &["a", "b", "c", "d"]).await;
    if !l.compact(revision(&writes[2])).await {
        return;
    }
    for old in [start, revision(&writes[0]), revision(&writes[1])] {
        assert_expired(&l, old).await;
    }
}

async fn a_watch_from_the_compacted_revision_itself_still_works(l: Ledger) {
    let writes = create_claims(&*l.store, &["a", "b", "c", "d"]).await;
    l.compact(revision(&writes[1])).await;
    for (seen, wanted) in [(1, vec!["+c", "+d"]), (2, vec!["+d"]), (3, vec![])] {
        let from = WatchFrom::After(revision(&writes[seen]));
        let mut reader = Reader::claims(&*l.store, from).await;
        assert_eq!(told(&reader.reach(revision(&writes[3])).await), wanted);
    }
}

async fn a_watch_from_the_start_works_after_a_compaction(l: Ledger) {
    let writes = create_claims(&*l.store, &["a", "b", "c"]).await;
    delete(&*l.store, &key("b")).await;
    l.compact(revision(&writes[2])).await;
    let mut reader = Reader::claims(&*l.store, WatchFrom::Start).await;
    let mut told = told(&reader.synced().await.0);
    told.sort();
    assert_eq!(told, ["+a", "+c"]);
}

async fn an_open_watch_goes_on_across_a_compaction(l: Ledger) {
    let mut reader = Reader::claims_from_now(&*l.store).await;
    let writes = create_claims(&*l.store, &["a", "b"]).await;
    assert_eq!(
        told(&reader.reach(revision(&writes[1])).await),
        ["+a", "+b"]
    );
    l.compact(revision(&writes[1])).await;
    let gone = delete(&*l.store, &key("a")).await;
    let last = create(&*l.store, claim("c")).await;
    l.compact(revision(&gone)).await;
    assert_eq!(told(&reader.reach(revision(&last)).await), ["-a", "+c"]);
}

async fn an_idle_watch_is_not_hurt_by_a_compaction(l: Ledger) {
    create(&*l.store, claim("a")).await;
    let mut reader = Reader::claims_from_now(&*l.store).await;
    reader.synced().await;
    for n in 0..5 {
        let other = create(&*l.store, class(&format!("c-{n}"))).await;
        l.compact(revision(&other)).await;
    }
    let next = create(&*l.store, claim("b")).await;
    assert_eq!(told(&reader.reach(revision(&next)).await), ["+b"]);
}

async fn compacting_twice_and_into_the_future_hurts_nobody(l: Ledger) {
    let writes = create_claims(&*l.store, &["a", "b"]).await;
    let last = revision(&writes[1]);
    for compacted in [last, last, revision(&writes[0]), Revision(last.0 + 1_000)] {
        l.compact(compacted).await;
    }
    let next = create(&*l.store, claim("c")).await;
    let mut reader = Reader::claims(&*l.store, WatchFrom::After(last)).await;
    assert_eq!(told(&reader.reach(revision(&next)).await), ["+c"]);
}

async fn reads_writes_and_lists_go_on_after_a_compaction(l: Ledger) {
    let old = create(&*l.store, claim("old")).await;
    let last = create(&*l.store, claim("last")).await;
    l.compact(revision(&last)).await;
    assert_eq!(latest(&*l.store, &key("old")).await, old);
    let at = ReadAt::NotOlderThan(revision(&old));
    assert_eq!(l.store.get(&key("old"), at).await, Ok(old.clone()));
    assert_eq!(list_claims(&*l.store).await.items.len(), 2);
    let updated = update(&*l.store, old.asking("other")).await;
    assert_eq!(latest(&*l.store, &key("old")).await, updated);
    delete(&*l.store, &key("old")).await;
    assert!(is_absent(&*l.store, &key("old")).await);
}

async fn a_watch_from_a_future_revision_is_unavailable_and_never_empty(l: Ledger) {
    let last = create(&*l.store, claim("web")).await;
    for ahead in [1, 1_000_000] {
        let future = from(Revision(revision(&last).0 + ahead));
        match Reader::open(&*l.store, Kind::IPAddressClaim, &future).await {
            Err(StoreError::Unavailable { .. }) => {}
            Err(e) => panic!("{e}"),
            Ok(mut reader) => {
                let (events, error) = reader.end().await;
                assert_eq!(events, []);
                assert!(
                    matches!(error, Some(StoreError::Unavailable { .. })),
                    "{error:?}"
                );
            }
        }
    }
}

async fn a_future_revision_that_is_reached_meanwhile_can_be_watched(l: Ledger) {
    let a = create(&*l.store, claim("a")).await;
    let b = create(&*l.store, claim("b")).await;
    let c = create(&*l.store, claim("c")).await;
    assert!(revision(&a) < revision(&b));
    let mut reader = Reader::claims(&*l.store, WatchFrom::After(revision(&b))).await;
    assert_eq!(told(&reader.reach(revision(&c)).await), ["+c"]);
}

async fn a_jump_of_the_revision_is_followed_at_once(mut l: Ledger) {
    let before = create(&*l.store, claim("a")).await;
    let far = Revision(revision(&before).0 + 1_000_000);
    l.jump(far).await;
    let mut reader = Reader::claims(&*l.store, WatchFrom::After(revision(&before))).await;
    let after = create(&*l.store, claim("b")).await;
    assert!(revision(&after) > far);
    assert_eq!(told(&reader.reach(revision(&after)).await), ["+b"]);
    let updated = update(&*l.store, before.asking("other")).await;
    assert_eq!(told(&reader.reach(revision(&updated)).await), ["+a"]);
    let page = list_claims(&*l.store).await;
    assert_eq!((page.items.len(), page.revision), (2, revision(&updated)));
}

async fn a_restore_that_jumps_and_compacts_expires_what_is_older(mut l: Ledger) {
    let before = create(&*l.store, claim("a")).await;
    let far = Revision(revision(&before).0 + 1_000_000);
    l.jump(far).await;
    if l.compact(far).await {
        assert_expired(&l, revision(&before)).await;
        assert_expired(&l, Revision(far.0 - 1)).await;
        let mut reader = Reader::claims(&*l.store, WatchFrom::After(far)).await;
        let after = create(&*l.store, claim("b")).await;
        assert_eq!(told(&reader.reach(revision(&after)).await), ["+b"]);
    }
}

/// Either everything waits for the slow reader, or it gets what waited, then the error, and the
/// rest after resuming where the error says.
async fn a_slow_reader_loses_nothing_in_silence(l: Ledger) {
    let mut slow = Reader::claims_from_now(&*l.store).await;
    let mut current = create(&*l.store, claim("web")).await;
    let mut wanted = vec![revision(&current)];
    for n in 0..l.watch_buffer() * 2 {
        current = update(&*l.store, current.asking(&format!("class-{n}"))).await;
        wanted.push(revision(&current));
    }
    let mut got = Vec::new();
    while slow.seen < revision(&current) {
        match slow.item().await {
            Some(Ok(event)) if crate::reader::is_change(&event) => got.push(event.revision()),
            Some(Ok(_)) => {}
            Some(Err(StoreError::TooSlow { resume })) => {
                assert_eq!(resume, slow.seen, "resume where the stream stopped");
                assert!(slow.item().await.is_none(), "something follows the error");
                assert!(
                    got.len() >= l.watch_buffer(),
                    "cut off after {} events",
                    got.len()
                );
                slow = Reader::claims(&*l.store, WatchFrom::After(resume)).await;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(got, wanted);
}

async fn a_slow_reader_holds_up_no_other(l: Ledger) {
    let slow = Reader::claims_from_now(&*l.store).await;
    let mut quick = Reader::claims_from_now(&*l.store).await;
    let mut current = create(&*l.store, claim("web")).await;
    for n in 0..l.watch_buffer() * 2 {
        current = update(&*l.store, current.asking(&format!("class-{n}"))).await;
        if n % 100 == 0 {
            quick.reach(revision(&current)).await;
        }
    }
    quick.reach(revision(&current)).await;
    drop(slow);
}

async fn a_broken_watch_resumes_without_hole_or_repeat(mut l: Ledger) {
    let mut reader = Reader::claims_from_now(&*l.store).await;
    let before = create_claims(&*l.store, &["a", "b"]).await;
    reader.reach(revision(&before[1])).await;
    l.break_watches().await;
    let (late, _) = reader.end().await;
    let after = create_claims(&*l.store, &["c", "d"]).await;
    assert_eq!(late, [], "what came after the break");
    let mut resumed = Reader::claims(&*l.store, WatchFrom::After(reader.seen)).await;
    assert_eq!(
        told(&resumed.reach(revision(&after[1])).await),
        ["+c", "+d"]
    );
}

async fn a_watch_broken_again_and_again_sees_every_write_once(mut l: Ledger) {
    let mut seen = list_claims(&*l.store).await.revision;
    let mut current = create(&*l.store, claim("web")).await;
    let mut wanted = vec![revision(&current)];
    let mut got = Vec::new();
    for n in 0..60 {
        let mut reader = Reader::claims(&*l.store, WatchFrom::After(seen)).await;
        for m in 0..3 {
            current = update(&*l.store, current.asking(&format!("class-{n}-{m}"))).await;
            wanted.push(revision(&current));
        }
        // Some of what is there is read, then the connection is lost.
        for _ in 0..n % 5 {
            if reader.seen < revision(&current) {
                let event = reader.event().await;
                got.extend(crate::reader::is_change(&event).then(|| event.revision()));
            }
        }
        seen = reader.seen;
        l.break_watches().await;
    }
    let mut reader = Reader::claims(&*l.store, WatchFrom::After(seen)).await;
    got.extend(
        reader
            .reach(revision(&current))
            .await
            .iter()
            .map(|e| e.revision()),
    );
    assert_eq!(got, wanted);
}

async fn a_watch_can_be_opened_after_all_were_broken(mut l: Ledger) {
    create(&*l.store, claim("a")).await;
    l.break_watches().await;
    let mut reader = Reader::claims(&*l.store, WatchFrom::Start).await;
    assert_eq!(told(&reader.synced().await.0), ["+a"]);
    let next = create(&*l.store, claim("b")).await;
    assert_eq!(told(&reader.reach(revision(&next)).await), ["+b"]);
}
