//! The Store contract as a suite: every case runs on every backend, each time on a fresh ledger.
//!
//! A case is a sentence about what is right. To prove another backend, implement
//! [`backend::Backend`] for it and name it in `main`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a case fails by panicking, as every test does"
)]

mod backend;
mod broken;
mod broken_store;
mod capabilities;
mod case;
mod concurrency;
mod corrupt;
mod crud;
mod delete;
mod durable;
#[cfg(feature = "etcd")]
mod etcd;
mod finalizers;
#[cfg(feature = "etcd")]
mod kine;
#[cfg(feature = "kube")]
mod kubernetes;
mod linear;
mod linear_broken;
mod linear_checker;
mod linear_examples;
mod linear_faults;
mod list;
mod make;
mod memory;
mod model;
mod paging;
mod reader;
#[cfg(feature = "etcd")]
mod remote;
mod sqlite;
mod table;
mod under_writers;
mod update;
mod watch;
mod watch_faults;
mod watch_filter;
mod wrapped;

use std::sync::Arc;

use backend::Backend;
use case::Case;

fn all_cases() -> Vec<Case> {
    [
        crud::cases(),
        update::cases(),
        delete::cases(),
        finalizers::cases(),
        list::cases(),
        paging::cases(),
        watch::cases(),
        watch_filter::cases(),
        watch_faults::cases(),
        corrupt::cases(),
        durable::cases(),
        concurrency::cases(),
        under_writers::cases(),
        capabilities::cases(),
        model::cases(),
        linear::cases(),
    ]
    .concat()
}

fn main() {
    let arguments = libtest_mimic::Arguments::from_args();
    let backends: [Arc<dyn Backend>; 4] = [
        Arc::new(memory::Memory),
        Arc::new(sqlite::Sqlite),
        Arc::new(wrapped::METERED),
        Arc::new(wrapped::LATE),
    ];
    let mut trials = broken::trials();
    trials.extend(linear_examples::trials());
    trials.extend(linear_broken::trials());
    for backend in backends {
        trials.extend(
            all_cases()
                .into_iter()
                .map(|case| case.trial(backend.clone())),
        );
    }
    #[cfg(feature = "etcd")]
    {
        trials.extend(remote::trials::<ipledger_tests::etcd::Etcd>(&all_cases()));
        trials.extend(remote::trials::<ipledger_tests::kine::Kine>(&all_cases()));
    }
    #[cfg(feature = "kube")]
    trials.extend(kubernetes::trials(&all_cases()));
    let conclusion = libtest_mimic::run(&arguments, trials);
    print!("{}", table::text());
    conclusion.exit();
}
