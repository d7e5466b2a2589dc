//! A cluster of three of which one fails.

use std::time::{Duration, Instant};

use ipledger_core::api::Kind;
use ipledger_core::runtime::Term;
use ipledger_core::store::{ListOptions, Store};
use ipledger_tests::etcd::{Etcd, EtcdOptions, cluster, leader};
use ipledger_tests::load::{History, Load, eventually};

use crate::cases;
use crate::store::open;

cases![
    a_cluster_that_loses_its_leader_under_load_loses_no_write_and_no_event,
    a_cluster_whose_leader_is_frozen_goes_on,
    a_frozen_member_in_use_is_left_for_another,
    a_member_that_is_down_from_the_start_is_passed_over,
    a_server_goes_on_leading_while_the_cluster_loses_a_member,
];

fn three() -> Vec<Etcd> {
    cluster(3, &EtcdOptions::default()).unwrap()
}

/// All members, this one first, so that it is the one in use.
fn endpoints(members: &[Etcd], first: usize) -> Vec<String> {
    let places = (0..members.len()).map(|n| (first + n) % members.len());
    places.map(|n| members[n].endpoint()).collect()
}

async fn a_cluster_that_loses_its_leader_under_load_loses_no_write_and_no_event() {
    let mut members = three();
    let first = leader(&members).await;
    let store = open(endpoints(&members, first)).await;
    let load = Load::start(store.clone(), History::Kept).await;
    for _ in 0..2 {
        load.more(50).await;
        let place = leader(&members).await;
        members[place].kill();
        load.more(50).await;
        members[place].start_again();
    }
    load.more(50).await;
    load.finish().await;
}

async fn a_cluster_whose_leader_is_frozen_goes_on() {
    let members = three();
    let place = leader(&members).await;
    // A member that only follows is in use.
    let store = open(endpoints(&members, (place + 1) % 3)).await;
    let load = Load::start(store.clone(), History::Kept).await;
    load.more(50).await;
    members[place].freeze();
    load.more(50).await;
    members[place].thaw();
    load.more(50).await;
    load.finish().await;
}

async fn a_frozen_member_in_use_is_left_for_another() {
    let members = three();
    let used = (leader(&members).await + 1) % 3;
    let store = open(endpoints(&members, used)).await;
    let load = Load::start(store.clone(), History::Kept).await;
    load.more(50).await;
    members[used].freeze();
    load.more(50).await;
    load.finish().await;
    members[used].thaw();
}

async fn a_member_that_is_down_from_the_start_is_passed_over() {
    let mut members = three();
    let down = (leader(&members).await + 1) % 3;
    members[down].stop();
    let start = Instant::now();
    let store = open(endpoints(&members, down)).await;
    let options = ListOptions::default();
    eventually(|| store.list(Kind::IPAddressClaim, &options)).await;
    let took = start.elapsed();
    assert!(took < Duration::from_secs(3), "it took {took:?}");
}

/// One that is killed leads the cluster; one that is frozen is the one in use.
async fn a_server_goes_on_leading_while_the_cluster_loses_a_member() {
    let mut members = three();
    let first = leader(&members).await;
    let store = open(endpoints(&members, first)).await;
    let mut term = store.election("a").win(&|_| {}).await;
    members[first].kill();
    stays(&mut *term).await;
    members[first].start_again();
    let follower = (leader(&members).await + 1) % 3;
    let store = open(endpoints(&members, follower)).await;
    let mut term = store.election("a").win(&|_| {}).await;
    members[follower].freeze();
    stays(&mut *term).await;
    members[follower].thaw();
}

/// Longer than a lease that is not prolonged.
async fn stays(term: &mut dyn Term) {
    let over = tokio::time::timeout(Duration::from_secs(12), term.over()).await;
    assert!(over.is_err(), "it leads no more: {over:?}");
}
