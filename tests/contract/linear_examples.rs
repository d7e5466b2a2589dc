//! Histories of which is known whether they are linearizable: the checker is itself checked.

use libtest_mimic::Trial;

use crate::linear_checker::Answer::{Absent, Changed, Exists, Unknown};
use crate::linear_checker::Op::{Create, Delete, Get, Update};
use crate::linear_checker::{Answer, Call, Op, Version, check};

/// A call about object 0 from one moment to another.
fn call(began: u64, answered: u64, op: Op, answer: Answer) -> Call {
    Call {
        key: 0,
        op,
        answer,
        began,
        answered,
    }
}

/// The same about object 1.
fn other(call: Call) -> Call {
    Call { key: 1, ..call }
}

/// A value at ten times its revision, of the object that began with this value.
fn is(value: u64, object: u64) -> Answer {
    at(value, value * 10, object)
}

fn at(value: u64, revision: u64, object: u64) -> Answer {
    Answer::Is(Version {
        value,
        revision,
        uid: format!("uid-{object}"),
    })
}

fn good() -> Vec<(&'static str, Vec<Call>)> {
    let created = || call(1, 2, Create { value: 1 }, is(1, 1));
    let updated = || call(3, 4, Update { base: 1, value: 2 }, is(2, 1));
    vec![
        ("nothing_at_all", vec![]),
        (
            "one_call_after_the_other",
            vec![
                call(1, 2, Get, Absent),
                call(3, 4, Create { value: 1 }, is(1, 1)),
                call(5, 6, Create { value: 9 }, Exists("uid-1".to_owned())),
                call(7, 8, Update { base: 1, value: 2 }, is(2, 1)),
                call(9, 10, Update { base: 1, value: 9 }, Changed),
                call(11, 12, Delete { base: Some(1) }, Changed),
                call(13, 14, Delete { base: Some(2) }, at(2, 25, 1)),
                call(15, 16, Delete { base: None }, Absent),
                call(17, 18, Create { value: 3 }, is(3, 3)),
            ],
        ),
        (
            "a_read_during_a_write_sees_it_or_does_not",
            vec![
                created(),
                call(3, 9, Update { base: 1, value: 2 }, is(2, 1)),
                call(4, 5, Get, is(1, 1)),
                call(6, 7, Get, is(2, 1)),
            ],
        ),
        (
            "calls_at_one_time_take_effect_in_any_order",
            vec![
                created(),
                call(3, 9, Update { base: 2, value: 3 }, is(3, 1)),
                call(4, 10, Update { base: 1, value: 2 }, is(2, 1)),
                call(5, 11, Delete { base: None }, at(3, 35, 1)),
            ],
        ),
        (
            "a_write_without_an_answer_has_happened",
            vec![
                created(),
                call(3, 4, Update { base: 1, value: 2 }, Unknown),
                call(5, 6, Get, is(2, 1)),
            ],
        ),
        (
            "a_write_without_an_answer_has_not_happened",
            vec![
                created(),
                call(3, 4, Update { base: 1, value: 2 }, Unknown),
                call(5, 6, Update { base: 1, value: 3 }, is(3, 1)),
                call(7, 8, Get, is(3, 1)),
            ],
        ),
        (
            "a_write_without_an_answer_happens_late",
            vec![
                call(1, 2, Create { value: 1 }, Unknown),
                call(3, 4, Get, Absent),
                call(5, 6, Get, is(1, 1)),
                call(7, 8, Delete { base: None }, Unknown),
                call(9, 10, Get, is(1, 1)),
                call(11, 12, Get, Absent),
            ],
        ),
        (
            "two_objects_have_one_order_of_revisions",
            vec![
                created(),
                other(call(3, 4, Create { value: 2 }, is(2, 2))),
                call(5, 6, Update { base: 1, value: 3 }, is(3, 1)),
                other(call(7, 8, Get, is(2, 2))),
            ],
        ),
        ("an_object_that_was_updated", vec![created(), updated()]),
    ]
}

fn bad() -> Vec<(&'static str, Vec<Call>)> {
    let created = || call(1, 2, Create { value: 1 }, is(1, 1));
    let updated = || call(3, 4, Update { base: 1, value: 2 }, is(2, 1));
    vec![
        (
            "a_value_that_nobody_wrote",
            vec![created(), call(3, 4, Get, is(7, 1))],
        ),
        (
            "a_stale_read",
            vec![created(), updated(), call(5, 6, Get, is(1, 1))],
        ),
        (
            "an_acknowledged_write_that_is_lost",
            vec![created(), call(3, 4, Get, Absent)],
        ),
        (
            "two_writers_that_both_win_from_one_state",
            vec![
                created(),
                call(3, 9, Update { base: 1, value: 2 }, is(2, 1)),
                call(4, 8, Update { base: 1, value: 3 }, is(3, 1)),
            ],
        ),
        (
            "two_creates_that_both_win",
            vec![
                call(1, 9, Create { value: 1 }, is(1, 1)),
                call(2, 8, Create { value: 2 }, is(2, 2)),
            ],
        ),
        (
            "a_value_that_goes_and_comes_again",
            vec![
                created(),
                call(3, 9, Update { base: 1, value: 2 }, is(2, 1)),
                call(4, 5, Get, is(2, 1)),
                call(6, 7, Get, is(1, 1)),
            ],
        ),
        (
            "a_write_without_an_answer_that_happens_twice",
            vec![
                call(1, 2, Create { value: 1 }, Unknown),
                call(3, 4, Get, is(1, 1)),
                call(5, 6, Delete { base: None }, at(1, 15, 1)),
                call(7, 8, Get, is(1, 1)),
            ],
        ),
        (
            "a_write_without_an_answer_that_happened_and_then_has_not",
            vec![
                created(),
                call(3, 4, Update { base: 1, value: 2 }, Unknown),
                call(5, 6, Get, is(2, 1)),
                call(7, 8, Update { base: 1, value: 3 }, is(3, 1)),
            ],
        ),
        (
            "a_refusal_without_a_reason",
            vec![created(), call(3, 4, Update { base: 1, value: 2 }, Changed)],
        ),
        (
            "a_deletion_that_names_another_last_state",
            vec![
                created(),
                updated(),
                call(5, 6, Delete { base: None }, at(1, 25, 1)),
            ],
        ),
        (
            "a_deletion_of_another_state_than_asked",
            vec![
                created(),
                updated(),
                call(5, 6, Delete { base: Some(1) }, at(2, 25, 1)),
            ],
        ),
        (
            "revisions_that_go_back",
            vec![
                created(),
                call(3, 4, Update { base: 1, value: 2 }, at(2, 9, 1)),
            ],
        ),
        (
            "revisions_that_go_back_on_another_object",
            vec![
                created(),
                other(call(3, 4, Create { value: 2 }, at(2, 9, 2))),
            ],
        ),
        (
            "one_value_at_two_revisions",
            vec![created(), call(3, 4, Get, at(1, 11, 1))],
        ),
        (
            "a_create_that_answers_with_what_others_made_of_it",
            vec![
                call(1, 9, Create { value: 1 }, is(2, 1)),
                call(2, 3, Get, is(1, 1)),
                call(4, 5, Update { base: 1, value: 2 }, is(2, 1)),
            ],
        ),
        (
            "an_update_that_changes_the_uid",
            vec![
                created(),
                call(3, 4, Update { base: 1, value: 2 }, is(2, 2)),
            ],
        ),
        (
            "a_holder_that_is_somebody_else",
            vec![
                created(),
                call(3, 4, Create { value: 2 }, Exists("uid-7".to_owned())),
            ],
        ),
    ]
}

/// A trial for each of them.
pub(crate) fn trials() -> Vec<Trial> {
    let good = good().into_iter().map(|(name, calls)| {
        let name = format!("linear::the_checker_accepts::{name}");
        Trial::test(name, move || check(calls).map_err(Into::into))
    });
    let bad = bad().into_iter().map(|(name, calls)| {
        let name = format!("linear::the_checker_refuses::{name}");
        Trial::test(name, move || match check(calls) {
            Err(_) => Ok(()),
            Ok(()) => Err("it was accepted".into()),
        })
    });
    good.chain(bad).collect()
}
