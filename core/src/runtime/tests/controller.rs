use std::sync::Arc;

use super::Clock;
use super::bench::{Bench, Setup, create, seconds, touch};
use crate::api::{IPAddressClaimSpec, Key, Kind};
use crate::runtime::{ControllerError, Next, Pass};
use crate::store::{Preconditions, ReadAt, Revision, Store, StoreError, StoreExt};

const CLAIM: Kind = Kind::IPAddressClaim;

async fn settled(_: String, _: usize) -> Pass<String> {
    Pass::settled()
}

fn pass(next: Next) -> Pass<String> {
    Pass {
        next,
        ..Pass::settled()
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_handed_out_before_every_kind_was_listed() {
    let setup = Setup::new();
    setup.create("a").await;
    setup.store.lists.send_replace(false);
    let bench = setup.start(settled);
    bench.clock.sleep(seconds(10)).await;
    assert_eq!(bench.probe.notes(), [(0, "see a -->2".to_owned())]);
    assert!(!bench.controller.stats().synced && !bench.controller.is_idle());
    assert_eq!(bench.controller.stats().queue_length, 1);

    bench.store.lists.send_replace(true);
    bench.controller.wait_synced().await;
    bench.clock.sleep(seconds(1)).await;
    assert_eq!(bench.probe.passes("a"), [10_000]);
    assert!(bench.controller.stats().synced && bench.controller.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_key_rests_until_its_own_writes_are_observed() {
    let setup = Setup::new();
    setup.create("a").await;
    setup.create("b").await;
    setup.store.watches.send_replace(false);
    let store = Arc::clone(&setup.store);
    let bench = setup.start(move |key, number| {
        let store = Arc::clone(&store);
        async move {
            let mut pass = Pass::settled();
            if key == "a" && number == 1 {
                let revision = touch(&*store, "a", "first").await;
                // The key wants to go on at once, but does not see yet what it has written.
                pass.wrote.push((CLAIM, revision));
                pass.next = Next::Again;
            } else if key == "b" {
                pass.wake.push("a".to_owned());
            }
            pass
        }
    });
    bench.clock.sleep(seconds(5)).await;
    assert_eq!(bench.probe.passes("a"), [0]);
    assert_eq!(bench.probe.passes("b"), [0], "others are not held up");
    assert!(!bench.controller.is_idle());

    bench.store.watches.send_replace(true);
    bench.clock.sleep(seconds(1)).await;
    assert_eq!(bench.probe.passes("a"), [0, 5_000]);
    let notes: Vec<_> = bench
        .probe
        .notes()
        .into_iter()
        .map(|(_, note)| note)
        .collect();
    let seen = notes.iter().position(|n| n == "see a 2->4").unwrap();
    let again = notes.iter().rposition(|n| n == "pass a").unwrap();
    assert!(seen < again, "{notes:?}");
    assert!(bench.controller.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_key_does_not_rest_for_a_kind_that_is_not_observed() {
    let setup = Setup::new();
    setup.create("a").await;
    let bench = setup.start(async |_, number| Pass {
        wrote: vec![(Kind::IPAddressClass, Revision(1_000))],
        next: if number == 1 { Next::Again } else { Next::Wait },
        wake: vec![],
    });
    bench.clock.sleep(seconds(1)).await;
    assert_eq!(bench.probe.passes("a"), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_pass_says_when_the_next_one_is() {
    let setup = Setup::new();
    for name in ["after", "again", "failed"] {
        setup.create(name).await;
    }
    let bench = setup.start(async |key, number| {
        let last = number == 4;
        match key.as_str() {
            _ if last => Pass::settled(),
            "after" => pass(Next::After(seconds(60))),
            "again" => pass(Next::Again),
            _ => pass(Next::Failed("as the test wants".to_owned())),
        }
    });
    bench.clock.sleep(seconds(1)).await;
    assert!(
        bench.controller.is_idle(),
        "a pass planned for later is no work now"
    );
    bench.clock.sleep(seconds(999)).await;
    let probe = &bench.probe;
    assert_eq!(probe.passes("after"), [0, 60_000, 120_000, 180_000]);
    // tokio's timers tick in milliseconds and round up.
    assert_eq!(probe.passes("again"), [0, 0, 5, 15]);
    assert_eq!(probe.passes("failed"), [0, 5, 15, 35]);
    let stats = bench.controller.stats();
    assert_eq!((stats.passes, stats.conflicts, stats.failures), (12, 3, 3));
}

#[tokio::test(start_paused = true)]
async fn no_key_is_in_two_passes_and_no_more_passes_run_than_workers() {
    let mut setup = Setup::new();
    setup.options.workers = 3;
    for n in 0..7 {
        setup.create(&format!("c{n}")).await;
    }
    let clock = Arc::clone(&setup.clock);
    let bench = setup.start(move |_, _| {
        let clock = Arc::clone(&clock);
        async move {
            clock.sleep(seconds(10)).await;
            Pass::settled()
        }
    });
    bench.clock.sleep(seconds(1)).await;
    for value in ["x", "y", "z"] {
        touch(&*bench.store, "c0", value).await;
    }
    bench.clock.sleep(seconds(100)).await;
    let (mut most, mut at_work) = (0, Vec::new());
    for (_, note) in bench.probe.notes() {
        if let Some(key) = note.strip_prefix("pass ") {
            assert!(!at_work.contains(&key.to_owned()), "{key} twice");
            at_work.push(key.to_owned());
            most = most.max(at_work.len());
        } else if let Some(key) = note.strip_prefix("end ") {
            at_work.retain(|k| k != key);
        }
    }
    assert_eq!(most, 3);
    assert_eq!(
        bench.probe.passes("c0"),
        [0, 20_000],
        "three changes during a pass, one more pass"
    );
    assert_eq!(bench.controller.stats().passes, 8);
    assert!(bench.controller.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_the_passes_in_work_finish_and_starts_no_new_one() {
    let mut setup = Setup::new();
    setup.options.workers = 1;
    setup.create("a").await;
    setup.create("b").await;
    let (store, progress) = (Arc::clone(&setup.store), setup.progress.clone());
    let clock = Arc::clone(&setup.clock);
    let bench = setup.start(move |_, _| {
        let (store, progress, clock) = (Arc::clone(&store), progress.clone(), Arc::clone(&clock));
        async move {
            clock.sleep(seconds(10)).await;
            // What a pass needs of the controller works to the end.
            touch(&*store, "b", "late").await;
            progress
                .barrier(&*store, CLAIM, &*clock, seconds(1))
                .await
                .unwrap();
            Pass::settled()
        }
    });
    bench.clock.sleep(seconds(1)).await;
    bench.stop.send(()).unwrap();
    assert_eq!(bench.running.await.unwrap(), Ok(()));
    assert_eq!(bench.clock.monotonic(), seconds(10));
    assert_eq!(
        (bench.probe.passes("a").len(), bench.probe.passes("b").len()),
        (1, 0)
    );
    assert_eq!(bench.controller.stats().passes, 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_run_ends_its_passes() {
    let setup = Setup::new();
    setup.create("a").await;
    let clock = Arc::clone(&setup.clock);
    let bench = setup.start(move |_, _| {
        let clock = Arc::clone(&clock);
        async move {
            clock.sleep(seconds(10)).await;
            Pass::settled()
        }
    });
    bench.clock.sleep(seconds(1)).await;
    bench.running.abort();
    bench.clock.sleep(seconds(100)).await;
    let last = bench.probe.notes().pop();
    assert_eq!(last, Some((0, "pass a".to_owned())));
    assert_eq!(
        Arc::strong_count(&bench.controller),
        1,
        "no task of it is left"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_panics_ends_the_controller_with_an_error() {
    let setup = Setup::new();
    setup.create("a").await;
    setup.create("b").await;
    let clock = Arc::clone(&setup.clock);
    let bench = setup.start(move |key, _| {
        let clock = Arc::clone(&clock);
        async move {
            clock.sleep(seconds(if key == "a" { 1 } else { 5 })).await;
            assert_ne!(key, "a", "as the test wants");
            Pass::settled()
        }
    });
    let error = bench.running.await.unwrap().unwrap_err();
    let ControllerError::PassPanicked { key, message, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(key, "a");
    assert!(message.contains("as the test wants"), "{message}");
    let last = bench.probe.notes().pop();
    assert_eq!(
        last,
        Some((5_000, "end b".to_owned())),
        "other passes were finished"
    );
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_ends_the_controller_with_an_error() {
    let setup = Setup::new();
    let bench = setup.start(settled);
    bench.controller.wait_synced().await;
    create(&*bench.store, "poison").await;
    let error = bench.running.await.unwrap().unwrap_err();
    assert!(
        matches!(error, ControllerError::TaskEnded { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("cannot bear"), "{error}");
}

/// A controller with a resync every minute and one worker, whose passes write into their claim
/// when `writes` says so, and take five seconds over the claim `slow`.
fn with_resync(
    mut setup: Setup,
    writes: fn(&str, usize) -> bool,
    next: fn(&str, usize) -> Next,
) -> Bench {
    setup.options.resync = Some(seconds(60));
    setup.options.workers = 1;
    let (store, clock) = (Arc::clone(&setup.store), Arc::clone(&setup.clock));
    setup.start(move |key, number| {
        let (store, clock) = (Arc::clone(&store), Arc::clone(&clock));
        async move {
            let mut pass = pass(next(&key, number));
            if key == "slow" {
                clock.sleep(seconds(5)).await;
            }
            if writes(&key, number) {
                let revision = touch(&*store, &key, &number.to_string()).await;
                pass.wrote.push((CLAIM, revision));
            }
            pass
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_resync_gives_every_key_a_pass() {
    let setup = Setup::new();
    setup.create("a").await;
    setup.create("b").await;
    let bench = with_resync(setup, |_, _| false, |_, _| Next::Wait);
    bench.clock.sleep(seconds(200)).await;
    for key in ["a", "b"] {
        assert_eq!(bench.probe.passes(key), [0, 60_000, 120_000, 180_000]);
    }
    assert_eq!(bench.controller.stats().resync_found_work, 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_in_a_pass_that_only_a_resync_asked_for_is_counted() {
    let setup = Setup::new();
    setup.create("a").await;
    let bench = with_resync(setup, |_, number| number <= 3, |_, _| Next::Wait);
    bench.clock.sleep(seconds(50)).await;
    assert_eq!(bench.probe.passes("a"), [0, 0, 0, 0]);
    assert_eq!(
        bench.controller.stats().resync_found_work,
        0,
        "changes asked for these"
    );

    let setup = Setup::new();
    setup.create("a").await;
    let bench = with_resync(setup, |_, number| number == 2, |_, _| Next::Wait);
    bench.clock.sleep(seconds(200)).await;
    let passes = bench.probe.passes("a");
    assert_eq!(passes, [0, 60_000, 60_000, 120_000, 180_000]);
    assert_eq!(bench.controller.stats().resync_found_work, 1);
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_was_due_anyway_is_not_the_merit_of_a_resync() {
    let setup = Setup::new();
    setup.create("a").await;
    let next = |_: &str, number| match number {
        1 => Next::After(seconds(90)),
        _ => Next::Wait,
    };
    let bench = with_resync(setup, |_, number| number == 2, next);
    bench.clock.sleep(seconds(70)).await;
    assert_eq!(bench.probe.passes("a"), [0, 60_000, 60_000]);
    assert_eq!(bench.controller.stats().resync_found_work, 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_comes_before_the_pass_takes_the_merit_from_the_resync() {
    let setup = Setup::new();
    setup.create("slow").await;
    setup.create("waits").await;
    // At one minute, `waits` stands behind `slow` in the queue.
    let bench = with_resync(
        setup,
        |key, number| key == "waits" && number == 2,
        |_, _| Next::Wait,
    );
    bench.clock.sleep(seconds(61)).await;
    touch(&*bench.store, "waits", "from outside").await;
    bench.clock.sleep(seconds(10)).await;
    assert_eq!(bench.probe.passes("waits"), [5_000, 65_000, 65_000]);
    assert_eq!(bench.controller.stats().resync_found_work, 0);
}

#[tokio::test(start_paused = true)]
async fn a_barrier_returns_when_everything_before_it_was_observed() {
    let setup = Setup::new();
    let bench = setup.start(settled);
    bench.controller.wait_synced().await;
    create(&*bench.store, "a").await;
    bench.controller.barrier(CLAIM).await.unwrap();
    assert!(bench.probe.view.lock().unwrap().contains_key("a"));

    bench.store.watches.send_replace(false);
    create(&*bench.store, "b").await;
    let start = bench.clock.monotonic();
    let error = bench.controller.barrier(CLAIM).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert_eq!(bench.clock.monotonic() - start, seconds(30));
    assert!(!bench.probe.view.lock().unwrap().contains_key("b"));
}

/// Changes claims through broken watches, a compacted history and an unreadable object, and
/// returns what the probe wrote down. The probe itself checks that changes join on.
async fn rough_run() -> Vec<(u128, String)> {
    let setup = Setup::new();
    setup.create("a").await;
    setup.create("b").await;
    let bench = setup.start(settled);
    bench.controller.wait_synced().await;
    let (store, memory) = (&*bench.store, &bench.store.inner);
    for round in 0..5 {
        touch(store, "b", &format!("one {round}")).await;
        memory.break_watches();
        let _ = store
            .delete(&Key::claim("n", "a"), &Preconditions::default())
            .await
            .unwrap();
        create(store, "a").await;
        create(store, &format!("c{round}")).await;
        if round % 2 == 1 {
            // The watches are down and fall out of the history: only a listing helps.
            let now = store.barrier(CLAIM).await.unwrap();
            memory.compact(now);
        }
        bench.clock.sleep(seconds(1)).await;
        memory.inject_unreadable(&Key::claim("n", "c0"), "bits");
        touch(store, "b", &format!("two {round}")).await;
    }
    bench.controller.barrier(CLAIM).await.unwrap();
    let stored = store.list_all::<IPAddressClaimSpec>().await.unwrap();
    let stored: Vec<_> = stored
        .into_iter()
        .map(|c| (c.metadata.name, c.metadata.uid))
        .collect();
    let view = bench.probe.view.lock().unwrap().clone();
    let unreadable = store.get(&Key::claim("n", "c0"), ReadAt::Latest).await;
    assert!(matches!(unreadable, Err(StoreError::Corrupt { .. })));
    assert!(view.contains_key("c0"), "it must not look absent");
    let viewed: Vec<_> = view
        .values()
        .filter(|c| c.metadata.name != "c0")
        .map(|c| (c.metadata.name.clone(), c.metadata.uid.clone()))
        .collect();
    assert_eq!(viewed, stored);
    bench.clock.sleep(seconds(1)).await;
    assert!(bench.controller.is_idle());
    bench.probe.notes()
}

#[tokio::test(start_paused = true)]
async fn the_view_follows_the_store_through_broken_watches_and_lost_history() {
    let notes = rough_run().await;
    let gone = notes
        .iter()
        .filter(|(_, n)| n.starts_with("see a ") && n.ends_with("->-"))
        .count();
    assert_eq!(
        gone, 5,
        "each deletion was seen, those that only a listing could show as well"
    );
}

/// As in kube-rs#925 and #932: the queue is full, the watch waits for the queue, and the queue for the
/// watch.
#[tokio::test(start_paused = true)]
async fn a_flood_of_changes_from_the_start_on_stalls_neither_watch_nor_passes() {
    let setup = Setup::new();
    for n in 0..500 {
        setup.create(&format!("c{n:04}")).await;
    }
    let store = Arc::clone(&setup.store);
    // Every pass over every object changes it, ten times each.
    let bench = setup.start(move |key, number| {
        let store = Arc::clone(&store);
        async move {
            let mut pass = Pass::settled();
            if number <= 10 {
                let revision = touch(&*store, &key, &number.to_string()).await;
                pass.wrote.push((CLAIM, revision));
            }
            pass
        }
    });
    bench.clock.sleep(seconds(60)).await;
    assert!(bench.controller.is_idle());
    assert_eq!(bench.controller.stats().passes, 500 * 11);
}

#[tokio::test(start_paused = true)]
async fn a_run_on_one_thread_is_repeatable() {
    assert_eq!(rough_run().await, rough_run().await);
}
