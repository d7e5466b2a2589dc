//! Addresses are let go (D5, D7).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ipledger_core::api::{IPAddress, Key, Kind, find_condition, names};
use ipledger_core::store::{Part, Store, StoreError, StoreExt};
use ipledger_drivers::range::{FINALIZER, condition};
use serde_json::json;

use crate::faults::{Fault, Write};
use crate::world::World;

async fn edit(world: &World, edit: impl Fn(&mut IPAddress) + Send + Sync) {
    let change = |address: &mut IPAddress| {
        edit(address);
        true
    };
    world
        .store
        .update_with(&Key::address("ip-10-0-0-1"), Part::Main, change)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_waits_for_the_core_and_then_goes_exactly_once() {
    let world = World::new();
    world.class("c", json!({"addresses": ["10.0.0.1"]})).await;
    world.claim4("one").await;
    let drivers = [world.drive(), world.drive(), world.drive()];
    world.settled(&drivers).await;
    edit(&world, |a| {
        a.metadata.add_finalizer(names::ADDRESS_PROTECTION)
    })
    .await;
    world.delete(&Key::address("ip-10-0-0-1")).await;
    world.settled(&drivers).await;
    let address = &world.addresses().await[0];
    assert!(address.metadata.is_deleting() && address.metadata.has_finalizer(FINALIZER));
    world.delete(&Key::claim("a", "one")).await;
    // Answers to the release get lost.
    let tried = Arc::new(AtomicU64::new(0));
    let count = tried.clone();
    let writes = world.store.writes();
    edit(&world, |a| {
        a.metadata.remove_finalizer(names::ADDRESS_PROTECTION)
    })
    .await;
    world.store.plan(move |write, _| {
        let hit = write == Write::Update(Kind::IPAddress, Part::Main);
        (hit && count.fetch_add(1, Ordering::SeqCst) < 2).then_some(Fault::LoseAnswer)
    });
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, [""; 0]);
    assert!(tried.load(Ordering::SeqCst) >= 1);
    // The core's write, one release, and at most one status of the class by each driver.
    let released = world.store.writes() - writes;
    assert!((2..=5).contains(&released), "{released} writes");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_lost_its_race_never_touches_the_next_owner() {
    let world = World::new();
    world.class("c", json!({"addresses": ["10.0.0.1"]})).await;
    world.claim4("one").await;
    world.claim4("two").await;
    let drivers = [world.drive()];
    world.settled(&drivers).await;
    // The release is sent, lands late, and meanwhile somebody else has let the address go.
    world.store.plan(move |write, _| {
        let hit = write == Write::Update(Kind::IPAddress, Part::Main);
        hit.then_some(Fault::ApplyLate(Duration::from_secs(2)))
    });
    let late = world.store.inner.clone();
    world.delete(&Key::claim("a", "one")).await;
    world.delete(&Key::address("ip-10-0-0-1")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut marked = late
        .get(
            &Key::address("ip-10-0-0-1"),
            ipledger_core::store::ReadAt::Latest,
        )
        .await
        .unwrap();
    marked.metadata.finalizers.clear();
    late.update(marked, Part::Main).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.holders().await, ["10.0.0.1 two"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, ["10.0.0.1 two"]);
    assert!(world.addresses().await[0].metadata.has_finalizer(FINALIZER));
}

#[tokio::test(start_paused = true)]
async fn an_address_made_by_hand_is_not_ours_to_let_go() {
    let world = World::new();
    world.class("c", json!({"addresses": ["10.0.0.1"]})).await;
    let mut by_hand = IPAddress::default();
    by_hand.metadata.name = "ip-10-0-0-1".to_owned();
    by_hand.metadata.add_finalizer("someone/else");
    by_hand.spec.address = "10.0.0.1".to_owned();
    by_hand.spec.class_name = "c".to_owned();
    world.store.create_resource(&by_hand).await.unwrap();
    world.delete(&Key::address("ip-10-0-0-1")).await;
    let drivers = [world.drive()];
    world.settled(&drivers).await;
    assert_eq!(
        world.addresses().await[0].metadata.finalizers,
        ["someone/else"]
    );
}

#[tokio::test(start_paused = true)]
async fn claims_of_one_name_come_and_go_on_one_address() {
    let world = World::new();
    world.class("c", json!({"addresses": ["10.0.0.1"]})).await;
    let drivers = [world.drive()];
    for _ in 0..20 {
        world.claim4("one").await;
        world.settled(&drivers).await;
        assert_eq!(world.holders().await, ["10.0.0.1 one"]);
        world.delete(&Key::claim("a", "one")).await;
        world.delete(&Key::address("ip-10-0-0-1")).await;
        world.settled(&drivers).await;
        assert_eq!(world.holders().await, [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_ip_rests_for_its_cool_down_over_restarts_and_without_its_class() {
    let world = World::new();
    world
        .class("c", json!({"addresses": ["10.0.0.1"], "reuseAfter": "1h"}))
        .await;
    world.class("d", json!({"addresses": ["10.0.0.1"]})).await;
    world.claim4("one").await;
    let first = [world.drive()];
    world.settled(&first).await;
    world.claim("two", Default::default(), "d").await;
    world.delete(&Key::claim("a", "one")).await;
    world.delete(&Key::class("c")).await;
    world.delete(&Key::address("ip-10-0-0-1")).await;
    world.settled(&first).await;
    let cooling = &world.addresses().await[0];
    let said = find_condition(cooling.conditions(), condition::COOLING_DOWN).unwrap();
    assert!(
        said.message.contains("2027-01-15T09:00:0"),
        "{}",
        said.message
    );
    tokio::time::sleep(Duration::from_secs(1800)).await;
    let [driver] = first;
    driver.stop().await;
    let second = [world.drive()];
    tokio::time::sleep(Duration::from_secs(1700)).await;
    world.settled(&second).await;
    assert_eq!(world.holders().await, ["10.0.0.1 one"]);
    assert_eq!(world.reason("two").await, "PoolExhausted");
    let capacity = world.get_class("d").await.status.unwrap().capacity;
    assert_eq!(
        (capacity[0].used.as_str(), capacity[0].cooling.as_str()),
        ("1", "1")
    );
    tokio::time::sleep(Duration::from_secs(200)).await;
    world.settled(&second).await;
    assert_eq!(world.holders().await, ["10.0.0.1 two"]);
}

#[tokio::test(start_paused = true)]
async fn a_cool_down_that_cannot_be_announced_still_ends() {
    let world = World::new();
    world
        .class("c", json!({"addresses": ["10.0.0.1"], "reuseAfter": "1m"}))
        .await;
    world.claim4("one").await;
    let drivers = [world.drive()];
    world.settled(&drivers).await;
    world.store.plan(|write, key| {
        let key = key.clone();
        let reason = "no".to_owned();
        (write == Write::Update(Kind::IPAddress, Part::Status))
            .then_some(Fault::Refuse(StoreError::Forbidden { key, reason }))
    });
    world.delete(&Key::claim("a", "one")).await;
    world.delete(&Key::address("ip-10-0-0-1")).await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(world.holders().await, ["10.0.0.1 one"]);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.holders().await, [""; 0]);
}
