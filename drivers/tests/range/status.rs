//! The status of classes (D3, D8).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ipledger_core::api::{ConditionStatus, FamilyCapacity, Key, Kind, find_condition};
use ipledger_core::store::{Part, StoreError};
use ipledger_drivers::range::condition;
use serde_json::json;

use crate::faults::{Fault, Write};
use crate::world::World;

const STATUS: Write = Write::Update(Kind::IPAddressClass, Part::Status);

/// The capacity of a class, one line a family: family, total, used, free, cooling, excluded, outside.
pub async fn numbers(world: &World, class: &str) -> Vec<String> {
    let line = |c: FamilyCapacity| {
        let all = [
            c.family,
            c.total,
            c.used,
            c.free,
            c.cooling,
            c.excluded,
            c.out_of_range,
        ];
        all.join(" ")
    };
    let status = world.get_class(class).await.status.unwrap_or_default();
    status.capacity.into_iter().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn the_status_is_there_from_the_first_pass_and_reaches_its_final_value() {
    let world = World::new();
    let parameters = json!({
        "addresses": ["10.0.0.0/29", "10.0.0.4-10.0.0.11", "fd00::/64"], "exclude": ["fd00::"]
    });
    world.class("c", parameters).await;
    let drivers = [world.drive()];
    world.settled(&drivers).await;
    let empty = [
        "IPv4 12 0 12 0 0 0",
        "IPv6 18446744073709551615 0 18446744073709551615 0 1 0",
    ];
    assert_eq!(numbers(&world, "c").await, empty);
    for n in 0..7 {
        world.claim4(&format!("k{n}")).await;
    }
    world.settled(&drivers).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(numbers(&world, "c").await[0], "IPv4 12 7 5 0 0 0");
    let conditions = world.get_class("c").await.status.unwrap().conditions;
    let ready = find_condition(&conditions, condition::READY).unwrap();
    assert_eq!(
        (ready.status, ready.observed_generation),
        (ConditionStatus::True, Some(1))
    );
    // And then nothing is written any more.
    let writes = world.store.writes();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(world.store.writes(), writes);
}

#[tokio::test(start_paused = true)]
async fn a_class_is_written_at_most_once_a_second() {
    let world = World::new();
    world
        .class("c", json!({"addresses": ["10.0.0.0/24"]}))
        .await;
    let written = Arc::new(AtomicU64::new(0));
    let count = written.clone();
    world.store.plan(move |write, _| {
        count.fetch_add(u64::from(write == STATUS), Ordering::SeqCst);
        None
    });
    let drivers = [world.drive()];
    for n in 0..100 {
        world.claim4(&format!("k{n:02}")).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.settled(&drivers).await;
    let written = written.load(Ordering::SeqCst);
    assert!(
        (8..=13).contains(&written),
        "{written} writes in 12 seconds"
    );
    assert_eq!(numbers(&world, "c").await[0], "IPv4 256 100 156 0 0 0");
}

#[tokio::test(start_paused = true)]
async fn servers_that_keep_no_class_status_are_served_all_the_same() {
    let refusals: [fn(&Key) -> StoreError; 2] = [
        |key| StoreError::NotFound { key: key.clone() },
        |key| StoreError::Forbidden {
            key: key.clone(),
            reason: "no".to_owned(),
        },
    ];
    for refusal in refusals {
        let world = World::new();
        world
            .class("c", json!({"addresses": ["10.0.0.0/24"]}))
            .await;
        let tried = Arc::new(AtomicU64::new(0));
        let count = tried.clone();
        world.store.plan(move |write, key| {
            (write == STATUS).then(|| {
                count.fetch_add(1, Ordering::SeqCst);
                Fault::Refuse(refusal(key))
            })
        });
        let drivers = [world.drive()];
        for n in 0..30 {
            world.claim4(&format!("k{n:02}")).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        world.settled(&drivers).await;
        assert_eq!(world.holders().await.len(), 30);
        assert_eq!(drivers[0].controller.stats().failures, 0);
        assert_eq!(tried.load(Ordering::SeqCst), 1);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(tried.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_cannot_be_written_is_tried_ever_more_rarely_and_reported_once() {
    let world = World::new();
    world
        .class("c", json!({"addresses": ["10.0.0.0/22"]}))
        .await;
    let tried = Arc::new(AtomicU64::new(0));
    let count = tried.clone();
    world.store.plan(move |write, _| {
        (write == STATUS).then(|| {
            count.fetch_add(1, Ordering::SeqCst);
            Fault::Refuse(StoreError::Unavailable {
                reason: "no space is left".to_owned(),
            })
        })
    });
    let drivers = [world.drive()];
    // Each address that is handed out would be a reason to write the status.
    for n in 0..600 {
        world.claim4(&format!("k{n:03}")).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    world.settled(&drivers).await;
    let attempts = tried.load(Ordering::SeqCst);
    assert!((10..=18).contains(&attempts), "{attempts} in ten minutes");
    assert_eq!(drivers[0].controller.stats().failures, 1);
    world.store.plan(|_, _| None);
    tokio::time::sleep(Duration::from_secs(61)).await;
    world.settled(&drivers).await;
    assert_eq!(numbers(&world, "c").await[0], "IPv4 1024 600 424 0 0 0");
    // And then the pace is the usual one again.
    world.claim4("late").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(numbers(&world, "c").await[0], "IPv4 1024 601 423 0 0 0");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_was_wiped_is_written_again() {
    let world = World::new();
    world.class("c", json!({"addresses": ["10.0.0.1"]})).await;
    let drivers = [world.drive()];
    world.settled(&drivers).await;
    let before = world.get_class("c").await.status;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut wiped = world.get_class("c").await;
    wiped.status = Some(Default::default());
    let object = wiped.to_object().unwrap();
    ipledger_core::store::Store::update(&world.store, object, Part::Status)
        .await
        .unwrap();
    world.settled(&drivers).await;
    let capacity =
        |status: Option<ipledger_core::api::IPAddressClassStatus>| status.unwrap().capacity;
    assert_eq!(
        capacity(world.get_class("c").await.status),
        capacity(before)
    );
}

#[tokio::test(start_paused = true)]
async fn an_edit_renumbers_nobody_and_names_who_is_outside() {
    let world = World::new();
    world
        .class("c", json!({"addresses": ["10.0.0.0/28"]}))
        .await;
    let drivers = [world.drive()];
    for n in 0..14 {
        world.claim4(&format!("k{n:02}")).await;
    }
    world.settled(&drivers).await;
    let holders = world.holders().await;
    for (range, outside) in [("10.0.0.0/27", 0), ("10.0.0.0/30", 10), ("10.9.0.0/24", 14)] {
        world.parameters("c", json!({"addresses": [range]})).await;
        world.settled(&drivers).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(world.holders().await, holders);
        let status = world.get_class("c").await.status.unwrap();
        assert_eq!(status.capacity[0].out_of_range, outside.to_string());
        assert_eq!(status.out_of_range.len(), outside.min(10));
        let said = find_condition(&status.conditions, condition::OUT_OF_RANGE);
        assert_eq!(said.is_some(), outside > 0, "{range}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_later_of_two_overlapping_classes_says_so() {
    let world = World::new();
    world
        .class("first", json!({"addresses": ["10.0.0.0/30"]}))
        .await;
    world
        .class("second", json!({"addresses": ["10.0.0.2-10.0.0.5"]}))
        .await;
    for class in ["first", "second"] {
        for n in 0..3 {
            let name = format!("{class}-{n}");
            world.claim(&name, Default::default(), class).await;
        }
    }
    let drivers = [world.drive(), world.drive()];
    world.settled(&drivers).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.addresses().await.len(), 6);
    let said = |class: ipledger_core::api::IPAddressClass| {
        let conditions = class.status.unwrap().conditions;
        find_condition(&conditions, condition::OVERLAP).map(|c| c.message.clone())
    };
    assert_eq!(said(world.get_class("first").await), None);
    let message = said(world.get_class("second").await).unwrap();
    assert!(message.contains("older class first"), "{message}");
    assert_eq!(numbers(&world, "first").await[0], "IPv4 4 4 0 0 0 0");
    assert_eq!(numbers(&world, "second").await[0], "IPv4 4 4 0 0 0 0");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_right_is_not_even_tried() {
    let world = World::new();
    world.class("c", json!({"addresses": ["10.0.0.1"]})).await;
    let drivers = [world.drive()];
    world.settled(&drivers).await;
    world.store.plan(|write, _| {
        assert_ne!(write, STATUS);
        None
    });
    for note in ["x", "y"] {
        tokio::time::sleep(Duration::from_secs(2)).await;
        world
            .edit_class("c", |class| {
                let note = ("note".to_owned(), note.to_owned());
                class.metadata.annotations.extend([note]);
            })
            .await;
        world.settled(&drivers).await;
    }
    let [driver] = drivers;
    driver.stop().await;
}
