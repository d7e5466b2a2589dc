//! Several drivers at once, and restarts (D1, D2).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipledger_core::api::ClaimFamily;
use serde_json::json;

use crate::world::{Running, World};

fn drivers(world: &World, count: usize) -> Vec<Running> {
    (0..count).map(|_| world.drive()).collect()
}

/// Every claim has an address, and no address is there twice. Returns how many there are.
async fn check(world: &World, claims: usize) -> usize {
    let addresses = world.addresses().await;
    let mut of_claim = BTreeMap::new();
    for address in &addresses {
        let claim = address.spec.claim_ref.as_ref().unwrap();
        *of_claim.entry(claim.uid.clone()).or_insert(0) += 1;
    }
    assert_eq!(of_claim.len(), claims);
    let ips: BTreeSet<&String> = addresses.iter().map(|a| &a.spec.address).collect();
    assert_eq!(ips.len(), addresses.len());
    addresses.len()
}

async fn eight_drivers_serve_two_hundred_claims(world: World) {
    world
        .class("c", json!({"addresses": ["10.0.0.0/24"]}))
        .await;
    for n in 0..200 {
        world.claim4(&format!("k{n:03}")).await;
    }
    let drivers = drivers(&world, 8);
    world.settled(&drivers).await;
    assert_eq!(check(&world, 200).await, 200);
    for driver in &drivers {
        assert_eq!(driver.controller.stats().failures, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn eight_drivers_without_a_leader_serve_two_hundred_claims_from_a_24() {
    eight_drivers_serve_two_hundred_claims(World::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_drivers_on_several_threads_serve_two_hundred_claims_from_a_24() {
    eight_drivers_serve_two_hundred_claims(World::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_drivers_serve_claims_that_come_while_they_run() {
    let world = World::new();
    world
        .class("c", json!({"addresses": ["10.0.0.0/24"]}))
        .await;
    let drivers = drivers(&world, 8);
    let create = |n: usize| {
        let world = world.clone();
        tokio::spawn(async move { drop(world.claim4(&format!("k{n:03}")).await) })
    };
    for task in (0..150).map(create).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    world.settled(&drivers).await;
    // Views may differ for a moment, and a claim may get a surplus address, but rarely: without
    // a common order of choice it would be dozens.
    let addresses = check(&world, 150).await;
    assert!(addresses <= 165, "{addresses} addresses for 150 claims");
    for driver in &drivers {
        assert_eq!(driver.controller.stats().failures, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_view_that_lags_hands_out_nothing_twice() {
    let world = World::new();
    world
        .class("c", json!({"addresses": ["10.0.0.0/26"]}))
        .await;
    world.store.lag(Duration::from_millis(50));
    let drivers = drivers(&world, 1);
    for n in 0..50 {
        world.claim4(&format!("k{n:02}")).await;
    }
    world.settled(&drivers).await;
    assert_eq!(check(&world, 50).await, 50);
}

#[tokio::test(start_paused = true)]
async fn two_drivers_with_different_lags_fill_a_range_exactly() {
    let world = World::new();
    world
        .class(
            "c",
            json!({"addresses": ["10.0.0.0/27"], "order": "random"}),
        )
        .await;
    world.store.lag(Duration::from_millis(20));
    let slow = world.drive();
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.store.lag(Duration::from_millis(1));
    let drivers = [slow, world.drive()];
    for n in 0..32 {
        world.claim4(&format!("k{n:02}")).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    world.settled(&drivers).await;
    assert_eq!(check(&world, 32).await, 32);
}

#[tokio::test(start_paused = true)]
async fn restarts_move_nothing_and_write_nothing() {
    let world = World::new();
    world
        .class("c", json!({"addresses": ["10.0.0.1-10.0.0.5", "fd00::1"]}))
        .await;
    for name in ["h", "b", "g", "d", "e", "a", "c"] {
        world.claim4(name).await;
    }
    world.claim("dual", ClaimFamily::Dual, "c").await;
    let first = [world.drive()];
    world.settled(&first).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let holders = world.holders().await;
    assert_eq!(holders.len(), 5);
    for driver in first {
        driver.stop().await;
    }
    let writes = world.store.writes();
    for _ in 0..10 {
        let again = drivers(&world, 2);
        world.settled(&again).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        for driver in again {
            driver.stop().await;
        }
    }
    assert_eq!(world.holders().await, holders);
    assert_eq!(world.store.writes(), writes);
}
