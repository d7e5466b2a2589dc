use std::sync::Arc;
use std::time::Duration;

use super::script::Script;
use super::{Clock, PausedClock};
use crate::api::Kind;
use crate::runtime::Progress;
use crate::store::{MemoryStore, Revision, StoreError};

const KIND: Kind = Kind::IPAddressClaim;
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn progress_never_goes_back() {
    let progress = Progress::new();
    assert_eq!(progress.reached(KIND), None);
    progress.advance(KIND, Revision(5));
    progress.advance(KIND, Revision(3));
    assert_eq!(progress.reached(KIND), Some(Revision(5)));
    assert_eq!(progress.reached(Kind::IPAddress), None);
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_until_its_revision_was_observed() {
    let clock = PausedClock::new();
    let progress = Progress::new();
    let writer = async {
        for revision in 1..=3 {
            clock.sleep(SECOND).await;
            progress.advance(KIND, Revision(revision));
        }
    };
    let reader = progress.wait_for(KIND, Revision(2), &*clock, 10 * SECOND);
    let reader = async {
        reader.await.unwrap();
        clock.monotonic()
    };
    let ((), at) = tokio::join!(writer, reader);
    assert_eq!(at.as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_empty_kind_is_waited_for_until_it_was_listed() {
    let clock = PausedClock::new();
    let progress = Progress::new();
    let wait = || progress.wait_for(KIND, Revision(0), &*clock, SECOND);
    assert!(wait().await.is_err());
    progress.advance(KIND, Revision(0));
    wait().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_too_long_gets_unavailable_with_both_revisions() {
    let clock = PausedClock::new();
    let progress = Progress::new();
    progress.advance(KIND, Revision(4));
    let e = progress
        .wait_for(KIND, Revision(9), &*clock, SECOND)
        .await
        .unwrap_err();
    assert!(matches!(e, StoreError::Unavailable { .. }));
    let text = e.to_string();
    assert!(
        text.contains("revision 4") && text.contains("revision 9"),
        "{text}"
    );
    assert_eq!(clock.monotonic(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_barrier_that_the_store_does_not_answer_is_bounded() {
    let clock = PausedClock::new();
    let script = Script::new(&clock, vec![], vec![]);
    let e = Progress::new()
        .barrier(&*script, KIND, &*clock, SECOND)
        .await
        .unwrap_err();
    assert!(matches!(e, StoreError::Unavailable { .. }), "{e}");
    assert_eq!(clock.monotonic(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_barrier_takes_its_revision_from_the_store() {
    let clock = PausedClock::new();
    let store = Arc::new(MemoryStore::default());
    let progress = Progress::new();
    progress.advance(KIND, Revision(1_000));
    progress
        .barrier(&*store, KIND, &*clock, SECOND)
        .await
        .unwrap();
}
