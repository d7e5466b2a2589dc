//! The etcd store while etcd fails, is compacted, or cannot be used.
// A case fails by panicking, as every test does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod behind;
mod cluster;
mod compaction;
mod large;
mod opening;
mod outage;
mod store;

use std::pin::Pin;
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};

/// How long a case may take.
const LIMIT: Duration = Duration::from_secs(120);

/// A case in words, and what it does.
type Case = (&'static str, fn() -> Pin<Box<dyn Future<Output = ()>>>);

/// Collects the cases of a file. A case that is not named here is a compiler warning.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(crate) fn cases() -> Vec<crate::Case> {
            vec![$((stringify!($name), || Box::pin($name()))),*]
        }
    };
}
pub(crate) use cases;

fn main() {
    let arguments = Arguments::from_args();
    let built = ["etcd", "kine"].map(|tool| ipledger_tests::tools::folder(tool).is_some());
    let built = built == [true, true];
    if !built {
        eprintln!("not all servers are built, the cases are skipped: tests/tools/build etcd kine");
    }
    let cases = [
        outage::cases(),
        compaction::cases(),
        cluster::cases(),
        large::cases(),
        opening::cases(),
        behind::cases(),
    ]
    .concat();
    let trials = cases.into_iter().map(|(name, run)| {
        let trial = Trial::test(format!("chaos::{name}"), move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?;
            let outcome = runtime.block_on(async { tokio::time::timeout(LIMIT, run()).await });
            runtime.shutdown_timeout(Duration::from_secs(5));
            outcome.map_err(|_| format!("not done after {LIMIT:?}").into())
        });
        trial.with_ignored_flag(!built)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
