//! Kubernetes itself: what the store does while the API server fails, and what our definitions make
//! of the API, seen with the real kubectl. (That the store keeps the Store contract is in
//! `contract`.)
// A case fails by panicking, as every test does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod accounts;
mod bench;
mod binding;
mod chart;
mod cluster;
mod components;
mod controllers;
mod definitions;
mod deployed;
mod events;
mod golden;
mod installation;
mod kubectl;
mod leases;
mod node;
mod outage;
mod probes;
mod rights;
mod roles;
mod rules;
mod show;
mod storm;
mod tenants;
mod third_party;
mod upgrade;
mod values;

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cluster::Cluster;
use installation::{Installation, Replicas, Spare};
use libtest_mimic::{Arguments, Trial};

/// How long a case may take.
const LIMIT: Duration = Duration::from_secs(180);

type Work = Pin<Box<dyn Future<Output = ()>>>;
/// A case in words, and what it does on a cluster that is its own.
type Alone = (&'static str, fn(Cluster) -> Work);
/// A case in words, and what it does on a cluster that others use too.
type Shared = (&'static str, fn(Arc<Cluster>) -> Work);
/// A case in words, and what it does with a cluster that it starts itself, and so many of each component.
type Own = (&'static str, fn(Replicas));
/// A case in words, and what it does with the chart on a cluster that it leaves as it found it.
type Installed = (&'static str, fn(&mut Installation));

/// Collects the cases of a file. A case that is not named here is a compiler warning.
macro_rules! cases {
    (Alone: $($name:ident),* $(,)?) => {
        cases![async Alone: $($name),*];
    };
    (Shared: $($name:ident),* $(,)?) => {
        cases![async Shared: $($name),*];
    };
    (async $as:ident: $($name:ident),*) => {
        pub(crate) fn cases() -> Vec<crate::$as> {
            vec![$((stringify!($name), |cluster| Box::pin($name(cluster)))),*]
        }
    };
    ($as:ident: $($name:ident),* $(,)?) => {
        pub(crate) fn cases() -> Vec<crate::$as> {
            vec![$((stringify!($name), $name)),*]
        }
    };
}
pub(crate) use cases;

fn main() {
    let arguments = Arguments::from_args();
    let built = ["etcd", "kubernetes", "helm", "driver"]
        .map(|tool| ipledger_tests::tools::folder(tool).is_some());
    let built = built == [true; 4];
    if !built {
        eprintln!(
            "the cases are skipped, build the servers: tests/tools/build etcd kubernetes helm driver"
        );
    }
    let cluster = Arc::new(OnceLock::new());
    let shared = [
        chart::cases(),
        definitions::cases(),
        rules::cases(),
        show::cases(),
    ]
    .concat();
    let shared = shared.into_iter().map(|(name, run)| {
        let cluster = cluster.clone();
        trial(name, move || {
            run(cluster.get_or_init(|| Arc::new(Cluster::start())).clone())
        })
    });
    let spare = Arc::new(Spare::default());
    // What comes of it is the same whether one of each works, or two of each without an election.
    let same = [
        accounts::cases(),
        binding::cases(),
        events::cases(),
        kubectl::cases(),
        storm::cases(),
        tenants::cases(),
        third_party::cases(),
    ];
    let same = same.concat();
    let groups = [
        ("with_one_of_each::", Replicas::One),
        ("with_two_without_election::", Replicas::TwoWithoutElection),
    ];
    let own = groups.into_iter().flat_map(|(group, replicas)| {
        upgrade::cases().into_iter().map(move |(name, run)| {
            let work = move || Box::pin(async move { run(replicas) }) as Work;
            trial(&format!("{group}{name}"), work)
        })
    });
    // What these need they start themselves.
    let themselves = [
        bench::cases(),
        controllers::cases(),
        leases::cases(),
        rights::cases(),
    ];
    let themselves = ("", Replicas::None, themselves.concat());
    let installed = groups.map(|(group, replicas)| (group, replicas, same.clone()));
    let installed = installed.into_iter().chain([themselves]);
    let installed = installed.flat_map(|(group, replicas, cases)| {
        let spare = spare.clone();
        cases.into_iter().map(move |(name, run)| {
            let (spare, name) = (spare.clone(), format!("{group}{name}"));
            trial(&name, move || {
                Box::pin(async move { spare.run(replicas, run) })
            })
        })
    });
    let alone = [
        deployed::cases(),
        outage::cases(),
        probes::cases(),
        roles::cases(),
        values::cases(),
    ];
    let alone = alone.concat();
    let alone = alone
        .into_iter()
        .map(|(name, run)| trial(name, move || run(Cluster::start())));
    let trials = alone
        .chain(own)
        .chain(installed)
        .chain(shared)
        .map(|trial| trial.with_ignored_flag(!built));
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn trial(name: &str, work: impl FnOnce() -> Work + Send + 'static) -> Trial {
    Trial::test(format!("kubernetes::{name}"), move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let outcome = runtime.block_on(async { tokio::time::timeout(LIMIT, work()).await });
        runtime.shutdown_timeout(Duration::from_secs(5));
        outcome.map_err(|_| format!("not done after {LIMIT:?}").into())
    })
}
