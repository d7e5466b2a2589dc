//! Seed 000 §6.

use ipledger_core::api::{AddressPhase, find_condition};

use crate::world::{World, delete_policy, dual, names_claim, of_class};

#[tokio::test]
async fn retain_keeps_the_object_and_its_claim_ref_and_gives_it_to_nobody() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    let claim = w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.delete_claim("a").await;
    w.settle_and_stay_quiet().await;
    assert!(w.find_claim("a").await.is_none());
    w.assert_phase("192.0.2.1", AddressPhase::Released).await;
    let address = w.get_address("192.0.2.1").await;
    assert_eq!(
        address.spec.claim_ref.as_ref().unwrap().uid,
        claim.metadata.uid
    );
    // Not even to a claim of the same name.
    w.claim_with("a", of_class("c")).await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "WaitingForProvisioning").await;
}

#[tokio::test]
async fn delete_removes_the_object_behind_the_drivers_finalizer() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address_with("192.0.2.1", "c", |a| {
        delete_policy(a);
        a.metadata
            .finalizers
            .push("driver.example.com/teardown".to_owned());
    })
    .await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.delete_claim("a").await;
    w.settle_and_stay_quiet().await;
    assert!(
        w.find_claim("a").await.is_none(),
        "the claim does not wait for the driver"
    );
    let address = w.get_address("192.0.2.1").await;
    assert!(address.metadata.is_deleting());
    assert_eq!(address.metadata.finalizers, ["driver.example.com/teardown"]);
}

#[tokio::test]
async fn the_policy_on_the_address_counts_and_not_the_class() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.address_with("2001:db8::1", "c", delete_policy).await;
    w.claim_with("a", dual("c")).await;
    w.settle().await;
    w.delete_class("c").await;
    w.delete_claim("a").await;
    w.settle_and_stay_quiet().await;
    w.assert_phase("192.0.2.1", AddressPhase::Released).await;
    assert!(w.find_address("2001:db8::1").await.is_none());
}

#[tokio::test]
async fn the_claims_finalizer_goes_last() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    let before = w.core.writes();
    w.delete_claim("a").await;
    w.settle().await;
    assert_eq!(
        w.core.log()[before..],
        ["IPAddress ip-192-0-2-1 status", "IPAddressClaim ns/a main"]
    );
}

#[tokio::test]
async fn a_claim_that_never_got_anything_goes_at_once() {
    let mut w = World::new().await;
    w.claim("a").await;
    w.settle().await;
    w.delete_claim("a").await;
    w.settle_and_stay_quiet().await;
    assert!(w.find_claim("a").await.is_none());
}

#[tokio::test]
async fn a_claim_whose_class_is_gone_can_be_deleted() {
    let mut w = World::new().await;
    w.class("c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.delete_class("c").await;
    w.delete_claim("a").await;
    w.settle_and_stay_quiet().await;
    assert!(w.find_claim("a").await.is_none());
}

#[tokio::test]
async fn binding_and_deleting_fifty_times_leaves_nothing_behind() {
    let mut w = World::new().await;
    w.class("c").await;
    for _ in 0..50 {
        let claim = w.claim_with("a", of_class("c")).await;
        w.settle().await;
        w.address_with("192.0.2.1", "c", |a| {
            delete_policy(a);
            a.spec.claim_ref = names_claim("a", &claim.metadata.uid);
        })
        .await;
        w.settle().await;
        w.assert_bound("a", &["192.0.2.1"]).await;
        w.delete_claim("a").await;
        w.settle().await;
        assert!(w.find_address("192.0.2.1").await.is_none());
    }
}

/// The claim is deleted before, while and after a driver creates its address.
#[tokio::test]
async fn no_address_dangles_however_the_deletion_falls_between_a_drivers_steps() {
    for (moment, policy_delete) in [
        (0, true),
        (1, true),
        (2, true),
        (0, false),
        (1, false),
        (2, false),
    ] {
        let mut w = World::new().await;
        w.class("c").await;
        let claim = w.claim_with("a", of_class("c")).await;
        w.settle().await;
        let provide = |a: &mut ipledger_core::api::IPAddress| {
            a.spec.claim_ref = names_claim("a", &claim.metadata.uid);
            if policy_delete {
                delete_policy(a);
            }
        };
        if moment == 0 {
            w.delete_claim("a").await;
            w.settle().await;
        }
        w.address_with("192.0.2.1", "c", provide).await;
        if moment == 1 {
            w.delete_claim("a").await;
        }
        w.settle().await;
        if moment == 2 {
            w.delete_claim("a").await;
        }
        w.restart().await;
        w.settle_and_stay_quiet().await;
        assert!(w.find_claim("a").await.is_none());
        if policy_delete {
            assert!(
                w.find_address("192.0.2.1").await.is_none(),
                "moment {moment}"
            );
        } else {
            w.assert_phase("192.0.2.1", AddressPhase::Released).await;
        }
    }
}

#[tokio::test]
async fn class_claim_and_address_deleted_in_any_order_end_the_same() {
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut w = World::new().await;
        w.class("c").await;
        w.address_with("192.0.2.1", "c", delete_policy).await;
        w.claim_with("a", of_class("c")).await;
        w.settle().await;
        for what in order {
            match what {
                0 => w.delete_class("c").await,
                1 => w.delete_claim("a").await,
                _ if w.find_address("192.0.2.1").await.is_some() => {
                    w.delete_address("192.0.2.1").await;
                }
                _ => {}
            }
            w.settle().await;
        }
        w.settle_and_stay_quiet().await;
        assert!(w.find_claim("a").await.is_none());
        assert!(w.find_address("192.0.2.1").await.is_none());
    }
}

#[tokio::test]
async fn an_admin_may_delete_a_released_address() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.delete_claim("a").await;
    w.settle().await;
    let message = find_condition(w.get_address("192.0.2.1").await.conditions(), "Bound")
        .unwrap()
        .message
        .clone();
    assert!(message.contains("clear spec.claimRef"), "{message}");
    w.delete_address("192.0.2.1").await;
    w.settle_and_stay_quiet().await;
    assert!(w.find_address("192.0.2.1").await.is_none());
}
