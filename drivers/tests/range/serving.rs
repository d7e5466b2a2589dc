//! Claims are served, refused and woken (D2, D3, D4, D6, R14).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ipledger_core::api::{ClaimFamily, ClaimPhase, ClaimRef, IPAddress, Key, Kind};
use ipledger_core::store::{Part, StoreError, StoreExt};
use serde_json::json;

use crate::faults::{Fault, Write};
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn a_claim_gets_one_prebound_address_and_nothing_more() {
    let world = World::new();
    world
        .class("c", json!({"addresses": ["10.0.0.0/29", "fd00::/64"]}))
        .await;
    world.claim("dual", ClaimFamily::Dual, "c").await;
    let four = world.claim4("four").await;
    let drivers = [world.drive()];
    world.settled(&drivers).await;
    let expected = ["10.0.0.0 dual", "10.0.0.1 four", "fd00:: dual"];
    assert_eq!(world.holders().await, expected);
    let address = &world.addresses().await[1];
    assert_eq!(address.metadata.name, "ip-10-0-0-1");
    assert_eq!(address.spec.claim_ref.as_ref().unwrap().uid, four.uid());
    // The core binds it.
    world.phase("four", ClaimPhase::Bound, "c").await;
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_leads_to_exactly_one_address_whenever_the_write_lands() {
    let faults: [fn(&Key) -> Fault; 4] = [
        |_| Fault::LoseAnswer,
        |_| Fault::ApplyLate(Duration::from_millis(1)),
        |_| Fault::ApplyLate(Duration::from_secs(5)),
        |key| {
            Fault::Refuse(StoreError::OutcomeUnknown {
                key: key.clone(),
                reason: "the request was lost".to_owned(),
            })
        },
    ];
    for fault in faults {
        let world = World::new();
        world
            .class("c", json!({"addresses": ["10.0.0.0/24"]}))
            .await;
        let mut left = 3;
        world.store.plan(move |write, key| {
            let hit = write == Write::Create(Kind::IPAddress) && left > 0;
            left -= i32::from(hit);
            hit.then(|| fault(key))
        });
        let drivers = [world.drive()];
        world.settled(&drivers).await;
        world.claim4("one").await;
        world.claim4("two").await;
        world.settled(&drivers).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(world.holders().await, ["10.0.0.0 one", "10.0.0.1 two"]);
    }
}

#[tokio::test(start_paused = true)]
async fn d2_a_create_that_may_still_land_is_repeated_also_after_one_that_was_refused() {
    let world = World::new();
    world
        .class("c", json!({"addresses": ["10.0.0.1-10.0.0.2"]}))
        .await;
    let mut by_hand = IPAddress::default();
    by_hand.metadata.name = "ip-10-0-0-1".to_owned();
    by_hand.spec.address = "10.0.0.1".to_owned();
    world.store.create_resource(&by_hand).await.unwrap();
    let drivers = [world.drive()];
    world.settled(&drivers).await;
    // The first one is under way for long; those after it do not even reach the store.
    let mut creates = 0;
    world.store.plan(move |write, _| {
        creates += i32::from(write == Write::Create(Kind::IPAddress));
        match (write, creates) {
            (Write::Create(Kind::IPAddress), 1) => Some(Fault::ApplyLate(Duration::from_secs(60))),
            (Write::Create(Kind::IPAddress), 2..=8) => {
                Some(Fault::Refuse(StoreError::Unavailable {
                    reason: "out of order".to_owned(),
                }))
            }
            _ => None,
        }
    });
    world.claim4("one").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    // A better one becomes free.
    world.delete(&Key::address("ip-10-0-0-1")).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, ["10.0.0.2 one"]);
}

#[tokio::test(start_paused = true)]
async fn one_lost_race_for_each_write_is_not_noticed() {
    let world = World::new();
    world.class("c", json!({"addresses": ["10.0.0.1"]})).await;
    world.store.plan({
        let mut hit = std::collections::BTreeSet::new();
        move |write, key| {
            // The core's own writes in this test are not disturbed.
            let ours = matches!(
                write,
                Write::Update(Kind::IPAddressClaim, Part::Main)
                    | Write::Update(Kind::IPAddressClass, Part::Status)
                    | Write::Update(Kind::IPAddress, _)
            );
            (ours && hit.insert((format!("{write:?}"), key.clone())))
                .then(|| Fault::Refuse(StoreError::Conflict { key: key.clone() }))
        }
    });
    let drivers = [world.drive()];
    world.claim4("one").await;
    world.settled(&drivers).await;
    world.claim4("two").await;
    world.settled(&drivers).await;
    assert_eq!(world.reason("two").await, "PoolExhausted");
    world.delete(&Key::address("ip-10-0-0-1")).await;
    world.delete(&Key::claim("a", "one")).await;
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, ["10.0.0.1 two"]);
    assert_eq!(world.reason("two").await, "");
    assert_eq!(drivers[0].controller.stats().failures, 0);
}

#[tokio::test(start_paused = true)]
async fn an_ip_that_is_taken_by_hand_under_any_name_is_passed_over() {
    let world = World::new();
    world
        .class("c", json!({"addresses": ["10.0.0.1-10.0.0.4"]}))
        .await;
    let mut by_hand = IPAddress::default();
    by_hand.metadata.name = "my-ip".to_owned();
    by_hand.spec.address = "10.0.0.1".to_owned();
    world.store.create_resource(&by_hand).await.unwrap();
    let drivers = [world.drive()];
    world.settled(&drivers).await;
    // These appear while the driver runs and does not know of them yet.
    world
        .store
        .inner
        .inject_unreadable(&Key::address("ip-10-0-0-2"), "damaged");
    world.claim4("one").await;
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, ["10.0.0.1 -", "10.0.0.3 one"]);
}

#[tokio::test(start_paused = true)]
async fn a_hidden_holder_is_met_at_creation_and_the_next_address_is_taken() {
    let world = World::new();
    world
        .class("c", json!({"addresses": ["10.0.0.1-10.0.0.4"]}))
        .await;
    world.store.lag(Duration::from_secs(2));
    let drivers = [world.drive()];
    world.settled(&drivers).await;
    let tried = Arc::new(AtomicU64::new(0));
    let count = tried.clone();
    world.store.plan(move |write, _| {
        count.fetch_add(
            u64::from(write == Write::Create(Kind::IPAddress)),
            Ordering::SeqCst,
        );
        None
    });
    world.claim4("one").await;
    tokio::time::sleep(Duration::from_millis(3900)).await;
    for ip in ["10.0.0.1", "10.0.0.2"] {
        let mut taken = IPAddress::default();
        taken.metadata.name = format!("ip-{}", ip.replace('.', "-"));
        taken.spec.address = ip.to_owned();
        taken.spec.claim_ref = Some(ClaimRef {
            namespace: "b".to_owned(),
            name: "other".to_owned(),
            uid: "other".to_owned(),
            ..ClaimRef::default()
        });
        world.store.inner.create_resource(&taken).await.unwrap();
    }
    world.settled(&drivers).await;
    assert_eq!(
        world.holders().await,
        ["10.0.0.1 other", "10.0.0.2 other", "10.0.0.3 one"]
    );
    // The second try is made from a view that shows both.
    assert_eq!(tried.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn exhaustion_is_said_once_and_ends_with_the_event_that_frees_an_address() {
    let world = World::new();
    world
        .class("c", json!({"addresses": ["10.0.0.1-10.0.0.2"]}))
        .await;
    let drivers = [world.drive()];
    for name in ["one", "two", "three"] {
        world.claim4(name).await;
        world.settled(&drivers).await;
    }
    let told = world.get_claim("three").await;
    let said = told.provisioning_status().unwrap();
    assert_eq!(
        (said.reason.as_str(), said.class.as_str()),
        ("PoolExhausted", "c")
    );
    assert!(said.message.contains("IPv4"), "{}", said.message);
    // Nothing that happens elsewhere writes it again.
    world.claim("other", ClaimFamily::IPv6, "c").await;
    world.settled(&drivers).await;
    assert_eq!(world.get_claim("three").await, told);
    assert_eq!(world.reason("other").await, "FamilyUnavailable");

    world.delete(&Key::claim("a", "one")).await;
    world.delete(&Key::address("ip-10-0-0-1")).await;
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, ["10.0.0.1 three", "10.0.0.2 two"]);
    assert_eq!(world.reason("three").await, "");
}

#[tokio::test(start_paused = true)]
async fn widening_and_unexcluding_serve_those_who_wait() {
    let world = World::new();
    let narrow = json!({"addresses": ["10.0.0.1-10.0.0.2"], "exclude": ["10.0.0.2"]});
    world.class("c", narrow).await;
    let drivers = [world.drive()];
    for name in ["a", "b", "c", "d"] {
        world.claim4(name).await;
    }
    world.settled(&drivers).await;
    assert_eq!(world.holders().await.len(), 1);
    world
        .parameters("c", json!({"addresses": ["10.0.0.1-10.0.0.2"]}))
        .await;
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, ["10.0.0.1 a", "10.0.0.2 b"]);
    world
        .parameters("c", json!({"addresses": ["10.0.0.0/28"]}))
        .await;
    world.settled(&drivers).await;
    assert_eq!(
        world.holders().await,
        ["10.0.0.0 c", "10.0.0.1 a", "10.0.0.2 b", "10.0.0.3 d"]
    );
    for name in ["a", "b", "c", "d"] {
        assert_eq!(world.reason(name).await, "");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dual_claim_takes_nothing_until_it_can_have_both() {
    let world = World::new();
    world
        .class("c", json!({"addresses": ["10.0.0.1-10.0.0.2", "fd00::1"]}))
        .await;
    let drivers = [world.drive()];
    world.claim("six", ClaimFamily::IPv6, "c").await;
    world.settled(&drivers).await;
    world.claim("dual", ClaimFamily::Dual, "c").await;
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, ["fd00::1 six"]);
    let said = world.get_claim("dual").await.provisioning_status().unwrap();
    assert!(said.message.contains("IPv6"), "{}", said.message);
    world.delete(&Key::claim("a", "six")).await;
    world.delete(&Key::address("ip-fd00--1")).await;
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, ["10.0.0.1 dual", "fd00::1 dual"]);
}

#[tokio::test(start_paused = true)]
async fn bad_parameters_are_said_on_claim_and_class_and_mended_by_an_edit() {
    let world = World::new();
    world
        .class(
            "c",
            json!({"addresses": ["10.0.0.0/24"], "excludeAddresses": ["10.0.0.0"]}),
        )
        .await;
    world.claim4("one").await;
    let drivers = [world.drive()];
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, [""; 0]);
    let said = world.get_claim("one").await.provisioning_status().unwrap();
    assert_eq!(said.reason, "InvalidParameters");
    assert!(
        said.message
            .contains("`excludeAddresses`: did you mean `exclude`"),
        "{}",
        said.message
    );
    let status = world.get_class("c").await.status.unwrap();
    assert_eq!(status.conditions[0].reason, "InvalidParameters");
    world
        .parameters(
            "c",
            json!({"addresses": ["10.0.0.0/24"], "exclude": ["10.0.0.0"]}),
        )
        .await;
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, ["10.0.0.1 one"]);
    assert_eq!(world.reason("one").await, "");
}

#[tokio::test(start_paused = true)]
async fn what_was_said_is_taken_back_when_the_claim_is_no_longer_ours() {
    let world = World::new();
    world
        .class(
            "c",
            json!({"addresses": ["10.0.0.1"], "exclude": ["10.0.0.1"]}),
        )
        .await;
    let drivers = [world.drive()];
    world.claim4("one").await;
    world.settled(&drivers).await;
    assert_eq!(world.reason("one").await, "PoolExhausted");
    // The core follows the claim to another driver's class.
    let change = |claim: &mut ipledger_core::api::IPAddressClaim| {
        let stamp = ipledger_core::api::names::PROVISIONER.to_owned();
        claim
            .metadata
            .annotations
            .insert(stamp, "another.driver".to_owned());
        true
    };
    world
        .store
        .update_with(&Key::claim("a", "one"), Part::Main, change)
        .await
        .unwrap();
    world.settled(&drivers).await;
    assert_eq!(world.reason("one").await, "");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_bound_unseen_gets_no_second_address() {
    let world = World::new();
    world
        .class("c", json!({"addresses": ["10.0.0.1-10.0.0.9"]}))
        .await;
    world.claim4("one").await;
    let drivers = [world.drive()];
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, ["10.0.0.1 one"]);
    // Claims are seen late from here on, addresses at once: the address goes while the driver
    // still takes the claim for Pending.
    world.store.hold_watches_of(Kind::IPAddressClaim);
    world.phase("one", ClaimPhase::Bound, "c").await;
    world.delete(&Key::address("ip-10-0-0-1")).await;
    drivers[0]
        .controller
        .barrier(Kind::IPAddress)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.store.release_watches();
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_creation_holds_nobody_up() {
    let world = World::new();
    world.class("c", json!({"addresses": ["10.0.0.1"]})).await;
    world.claim4("a").await;
    world.claim4("b").await;
    // The store refuses whatever is created first, which is for the first claim in order.
    let mut first = true;
    world.store.plan(move |write, key| {
        let hit = write == Write::Create(Kind::IPAddress) && std::mem::take(&mut first);
        let reason = "not for you".to_owned();
        hit.then(|| {
            Fault::Refuse(StoreError::Forbidden {
                key: key.clone(),
                reason,
            })
        })
    });
    let drivers = [world.drive()];
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, ["10.0.0.1 b"]);
    assert_eq!(world.reason("a").await, "PoolExhausted");
}

#[tokio::test(start_paused = true)]
async fn d3_a_claim_that_lost_its_address_follows_the_edit_of_its_class_after_a_refusal() {
    let world = World::new();
    world.class("c", json!({"addresses": ["10.0.0.1"]})).await;
    world.claim4("one").await;
    let drivers = [world.drive()];
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, ["10.0.0.1 one"]);
    let mut creates = 0;
    world.store.plan(move |write, _| {
        creates += i32::from(write == Write::Create(Kind::IPAddress));
        (write == Write::Create(Kind::IPAddress) && creates <= 5).then(|| {
            Fault::Refuse(StoreError::Unavailable {
                reason: "out of order".to_owned(),
            })
        })
    });
    // The address goes, and the next one for this claim is refused for a while.
    world.delete(&Key::address("ip-10-0-0-1")).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    world
        .parameters("c", json!({"addresses": ["10.0.0.2"]}))
        .await;
    world.settled(&drivers).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, ["10.0.0.2 one"]);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_came_and_went_unseen_is_created_again() {
    let world = World::new();
    world.class("c", json!({"addresses": ["10.0.0.1"]})).await;
    let drivers = [world.drive()];
    world.settled(&drivers).await;
    // The watch of addresses is stuck, and then too old to be resumed.
    world.store.hold_watches_of(Kind::IPAddress);
    world.claim4("one").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let made = world.addresses().await[0].uid().to_owned();
    let key = Key::address("ip-10-0-0-1");
    world.delete(&key).await;
    let remove = |address: &mut IPAddress| {
        address.metadata.finalizers.clear();
        true
    };
    world
        .store
        .update_with(&key, Part::Main, remove)
        .await
        .unwrap();
    world.store.restart_watches();
    world.settled(&drivers).await;
    assert_eq!(world.holders().await, ["10.0.0.1 one"]);
    assert_ne!(world.addresses().await[0].uid(), made);
}
