//! Stores that are wrong on purpose. For each there is a case that must refuse it: so the suite is
//! itself put to the test.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ipledger_core::api::Key;
use ipledger_core::store::{MemoryStore, Revision, Store};
use libtest_mimic::{Failed, Trial};

use crate::backend::{Hooks, Ledger};
use crate::broken_store::{BrokenStore, Fault};

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Each fault, in words, and the case that must refuse it.
const FAULTS: [(Fault, &str, &str); 43] = [
    (
        Fault::IgnoresRevision,
        "overwrites_what_the_caller_has_not_seen",
        "an_update_from_an_old_revision_is_a_conflict_and_writes_nothing",
    ),
    (
        Fault::IgnoresRevision,
        "overwrites_what_other_writers_counted",
        "many_writers_on_one_counter_lose_nothing",
    ),
    (
        Fault::IgnoresRevisionOfStatus,
        "overwrites_the_status_unseen",
        "an_update_of_the_status_from_an_old_revision_is_a_conflict",
    ),
    (
        Fault::TakesMissingRevision,
        "lets_an_update_without_a_revision_win",
        "an_update_without_a_revision_is_invalid_and_writes_nothing",
    ),
    (
        Fault::IgnoresUidOfUpdate,
        "updates_another_object_of_that_name",
        "an_update_with_another_uid_fails_its_precondition",
    ),
    (
        Fault::UpdateCreates,
        "creates_by_update",
        "an_update_of_what_does_not_exist_is_not_found",
    ),
    (
        Fault::WritesNoOps,
        "writes_what_changes_nothing",
        "a_write_that_changes_nothing_makes_no_event",
    ),
    (
        Fault::StatusWritesMain,
        "writes_the_spec_with_the_status",
        "an_update_of_the_status_keeps_everything_else",
    ),
    (
        Fault::MainWritesStatus,
        "writes_the_status_with_the_spec",
        "an_update_of_the_main_part_keeps_the_stored_status",
    ),
    (
        Fault::CreateOverwrites,
        "creates_over_what_exists",
        "of_many_creates_of_one_name_exactly_one_wins",
    ),
    (
        Fault::HidesHolder,
        "hides_whose_name_it_is",
        "creating_what_exists_answers_with_the_uid_of_the_holder",
    ),
    (
        Fault::DropsUnknownFields,
        "drops_fields_that_it_does_not_know",
        "fields_that_nobody_knows_survive_at_every_level",
    ),
    (
        Fault::ReusesUids,
        "gives_a_uid_twice",
        "no_two_objects_share_a_uid",
    ),
    (
        Fault::IgnoresPreconditions,
        "deletes_another_object_of_that_name",
        "a_delete_by_the_old_uid_spares_the_object_recreated_under_its_name",
    ),
    (
        Fault::IgnoresFinalizers,
        "deletes_what_is_held",
        "a_delete_with_finalizers_only_marks",
    ),
    (
        Fault::KeepsReleased,
        "keeps_what_nobody_holds_any_more",
        "the_last_finalizer_of_a_marked_object_takes_it_away",
    ),
    (
        Fault::NoSizeLimit,
        "takes_objects_of_any_size",
        "an_object_over_the_limit_is_too_large_and_leaves_nothing_behind",
    ),
    (
        Fault::ShortHistory,
        "forgets_sooner_than_it_says",
        "a_watch_can_start_as_far_back_as_declared",
    ),
    (
        Fault::ReadsAnyRevision,
        "answers_reads_at_a_future_revision",
        "a_read_at_a_future_revision_is_unavailable_and_never_not_found",
    ),
    (
        Fault::PagesByOffset,
        "pages_through_a_moving_list",
        "pages_show_the_state_at_the_first_one_whatever_is_written_between",
    ),
    (
        Fault::HidesCorrupt,
        "hides_what_it_cannot_read",
        "a_list_names_the_unreadable_object_and_has_all_others",
    ),
    (
        Fault::CorruptStallsList,
        "fails_a_list_for_one_object",
        "a_list_names_the_unreadable_object_and_has_all_others",
    ),
    (
        Fault::WatchesFromNow,
        "watches_from_now_instead_of_the_revision",
        "a_watch_from_a_revision_brings_exactly_what_comes_after_it",
    ),
    (
        Fault::WatchesInclusively,
        "repeats_the_revision_that_a_watch_starts_from",
        "a_watch_from_a_revision_brings_exactly_what_comes_after_it",
    ),
    (
        Fault::DropsDeletes,
        "never_tells_of_deletions",
        "a_delete_between_list_and_watch_is_delivered",
    ),
    (
        Fault::DeletedWithOldRevision,
        "tells_of_a_deletion_with_the_revision_before_it",
        "a_deleted_event_carries_the_last_state_with_the_revision_of_the_deletion",
    ),
    (
        Fault::DeletedWithoutState,
        "tells_of_a_deletion_without_the_last_state",
        "a_deleted_event_carries_the_last_state_with_the_revision_of_the_deletion",
    ),
    (
        Fault::Reorders,
        "delivers_out_of_order",
        "each_write_is_one_event_with_the_object_as_it_was_stored",
    ),
    (
        Fault::Repeats,
        "delivers_twice",
        "each_write_is_one_event_with_the_object_as_it_was_stored",
    ),
    (
        Fault::DropsNowAndThen,
        "loses_an_event_now_and_then",
        "two_thousand_writes_in_a_row_all_arrive_in_order",
    ),
    (
        Fault::ExpiredIsEmpty,
        "goes_on_from_now_when_the_revision_is_too_old",
        "a_watch_from_before_a_compaction_is_expired_before_any_event",
    ),
    (
        Fault::ExpiredAfterEvents,
        "delivers_something_before_it_says_expired",
        "a_watch_from_before_a_compaction_is_expired_before_any_event",
    ),
    (
        Fault::FutureIsEmpty,
        "waits_in_silence_for_a_future_revision",
        "a_watch_from_a_future_revision_is_unavailable_and_never_empty",
    ),
    (
        Fault::BookmarksTooEarly,
        "sends_a_bookmark_before_what_it_covers",
        "each_write_is_one_event_with_the_object_as_it_was_stored",
    ),
    (
        Fault::GoesOnAfterError,
        "goes_on_after_an_error",
        "a_slow_reader_loses_nothing_in_silence",
    ),
    (
        Fault::LeavesSilently,
        "forgets_objects_that_leave_the_selector",
        "an_object_that_leaves_the_label_selector_is_deleted_with_its_previous_state",
    ),
    (
        Fault::LeavesWithNewState,
        "tells_of_one_that_left_the_selector_with_its_new_state",
        "an_object_that_leaves_the_label_selector_is_deleted_with_its_previous_state",
    ),
    (
        Fault::SyncsTwice,
        "says_synced_twice",
        "a_watch_from_the_start_brings_what_exists_then_synced_then_what_comes",
    ),
    (
        Fault::NeverSyncs,
        "never_says_synced",
        "a_watch_of_an_empty_store_is_synced_at_once",
    ),
    (
        Fault::EndsWhenSlow,
        "ends_a_slow_watch_without_an_error",
        "a_slow_reader_loses_nothing_in_silence",
    ),
    (
        Fault::WatchesAllNamespaces,
        "watches_every_namespace",
        "a_watch_of_one_namespace_sees_only_that_one",
    ),
    (
        Fault::LowBarrier,
        "has_a_barrier_that_covers_nothing",
        "a_barrier_covers_what_was_acknowledged_before",
    ),
    (
        Fault::UnreachableBarrier,
        "has_a_barrier_that_idle_watches_never_reach",
        "an_idle_watch_reaches_the_barrier_without_another_write",
    ),
];

pub(crate) fn trials() -> Vec<Trial> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !QUIET.get() {
            hook(info);
        }
    }));
    let mut trials = vec![Trial::test(
        "contract::broken::a_store_without_a_fault_passes",
        || {
            for (_, _, case) in FAULTS {
                if let Some(complaint) = refusal(Fault::None, case)? {
                    return Err(format!("{case}: {complaint}").into());
                }
            }
            Ok(())
        },
    )];
    for (fault, words, case) in FAULTS {
        let name = format!("contract::broken::a_store_that_{words}_is_refused");
        trials.push(Trial::test(name, move || match refusal(fault, case)? {
            Some(_) => Ok(()),
            None => Err(format!("{case} does not notice").into()),
        }));
    }
    trials
}

/// What the case says against a store with this fault; `None` if it passes. The clock is a virtual
/// one, so that what never comes is not waited for.
fn refusal(fault: Fault, case: &str) -> Result<Option<String>, Failed> {
    let cases = crate::all_cases();
    let case = cases
        .iter()
        .find(|c| c.name == case)
        .ok_or(format!("there is no case {case}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    QUIET.set(true);
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let ledger = Ledger::new(Box::new(BrokenHooks::new(fault)));
            tokio::time::timeout(Duration::from_secs(3_600), (case.run)(ledger)).await
        })
    }));
    QUIET.set(false);
    Ok(match outcome {
        Ok(Ok(())) => None,
        Ok(Err(_)) => Some("it never ends".to_owned()),
        Err(panic) => Some(match panic.downcast_ref::<String>() {
            Some(message) => message.clone(),
            None => "it panics".to_owned(),
        }),
    })
}

struct BrokenHooks {
    inner: MemoryStore,
    store: Arc<BrokenStore>,
}

impl BrokenHooks {
    fn new(fault: Fault) -> BrokenHooks {
        let store = BrokenStore::new(fault);
        BrokenHooks {
            inner: store.inner.clone(),
            store: Arc::new(store),
        }
    }
}

#[async_trait]
impl Hooks for BrokenHooks {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn watch_buffer(&self) -> usize {
        crate::broken_store::WATCH_BUFFER
    }

    async fn compact(&self, revision: Revision) -> Option<()> {
        self.inner.compact(revision);
        Some(())
    }

    async fn jump(&mut self, to: Revision) {
        self.inner.advance_to(to);
    }

    async fn break_watches(&mut self) {
        self.inner.break_watches();
    }

    async fn damage(&self, key: &Key) -> Option<()> {
        self.inner.inject_unreadable(key, "damaged by the suite");
        Some(())
    }

    async fn second_client(&self) -> Option<Arc<dyn Store>> {
        Some(self.store())
    }

    async fn restart(&mut self) -> Option<()> {
        None
    }
}
