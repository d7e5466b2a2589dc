//! Seed 000 §5, step by step.

use ipledger_core::api::{AddressPhase, Key, find_condition, names};
use ipledger_core::runtime::{Next, Work};
use ipledger_core::store::{Preconditions, Store};

use crate::world::{World, delete_policy, names_claim, of_class};

#[tokio::test]
async fn step_1_a_held_address_stays_until_its_claim_is_deleted() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address_with("192.0.2.1", "c", delete_policy).await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.delete_address("192.0.2.1").await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    let claim = w.get_claim("a").await;
    assert!(find_condition(claim.conditions(), "AddressDeleting").is_some());
    w.delete_claim("a").await;
    w.settle_and_stay_quiet().await;
    assert!(w.find_claim("a").await.is_none());
    assert!(w.find_address("192.0.2.1").await.is_none());
}

#[tokio::test]
async fn step_1_claim_and_address_deleted_in_one_batch_are_both_gone() {
    for address_first in [true, false] {
        let mut w = World::new().await;
        w.class("c").await;
        w.address_with("192.0.2.1", "c", delete_policy).await;
        w.claim_with("a", of_class("c")).await;
        w.settle().await;
        if address_first {
            w.delete_address("192.0.2.1").await;
            w.delete_claim("a").await;
        } else {
            w.delete_claim("a").await;
            w.delete_address("192.0.2.1").await;
        }
        w.settle_and_stay_quiet().await;
        assert!(w.find_claim("a").await.is_none());
        assert!(w.find_address("192.0.2.1").await.is_none());
    }
}

#[tokio::test]
async fn step_1_a_free_or_released_address_is_let_go_at_once() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.address("192.0.2.2", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.delete_claim("a").await;
    w.settle().await;
    w.assert_phase("192.0.2.1", AddressPhase::Released).await;
    w.delete_address("192.0.2.1").await;
    w.delete_address("192.0.2.2").await;
    w.settle_and_stay_quiet().await;
    assert!(w.find_address("192.0.2.1").await.is_none());
    assert!(w.find_address("192.0.2.2").await.is_none());
}

#[tokio::test]
async fn step_1_a_drivers_finalizer_is_the_drivers_business() {
    let mut w = World::new().await;
    w.address_with("192.0.2.1", "c", |a| {
        a.metadata
            .finalizers
            .push("driver.example.com/teardown".to_owned());
    })
    .await;
    w.settle().await;
    w.delete_address("192.0.2.1").await;
    w.settle_and_stay_quiet().await;
    let address = w.get_address("192.0.2.1").await;
    assert_eq!(address.metadata.finalizers, ["driver.example.com/teardown"]);
}

#[tokio::test]
async fn step_2_and_5_an_unbound_address_is_protected_and_available() {
    let mut w = World::new().await;
    w.address("192.0.2.1", "c").await;
    w.settle_and_stay_quiet().await;
    w.assert_phase("192.0.2.1", AddressPhase::Available).await;
    let address = w.get_address("192.0.2.1").await;
    assert!(address.metadata.has_finalizer(names::ADDRESS_PROTECTION));
}

#[tokio::test]
async fn step_3_an_address_that_cannot_be_parsed_stays_pending_and_says_why() {
    let mut w = World::new().await;
    w.address("010.0.0.1", "c").await;
    w.settle_and_stay_quiet().await;
    let address = w.get_address("010.0.0.1").await;
    assert_eq!(address.phase(), Some(AddressPhase::Pending));
    let valid = find_condition(address.conditions(), "Valid").unwrap();
    assert_eq!(valid.reason, "InvalidAddress");
    assert!(valid.message.contains("leading zero"), "{}", valid.message);
}

#[tokio::test]
async fn step_4_the_core_neither_enters_nor_leaves_the_phases_of_drivers() {
    for phase in [AddressPhase::Conflict, AddressPhase::Lost] {
        let mut w = World::new().await;
        w.address("192.0.2.1", "c").await;
        w.settle().await;
        w.edit_address_status("192.0.2.1", |a| {
            a.status.get_or_insert_default().phase = Some(phase)
        })
        .await;
        w.settle_and_stay_quiet().await;
        w.assert_phase("192.0.2.1", phase).await;
        w.edit_address_status("192.0.2.1", |a| {
            a.status.get_or_insert_default().phase = Some(AddressPhase::Pending);
        })
        .await;
        w.settle_and_stay_quiet().await;
        w.assert_phase("192.0.2.1", AddressPhase::Available).await;
    }
}

#[tokio::test]
async fn step_5_clearing_the_claim_ref_of_a_released_address_recycles_it() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.delete_claim("a").await;
    w.settle().await;
    w.claim_with("b", of_class("c")).await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("b", "WaitingForProvisioning").await;
    w.edit_address("192.0.2.1", |a| a.spec.claim_ref = None)
        .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("b", &["192.0.2.1"]).await;
}

#[tokio::test]
async fn step_6_the_safety_net_applies_the_policy_when_a_claim_vanished() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.address_with("192.0.2.2", "c", delete_policy).await;
    w.claim_with("keeps", of_class("c")).await;
    w.settle().await;
    w.claim_with("deletes", of_class("c")).await;
    w.settle().await;
    w.force_delete_claim("keeps").await;
    w.force_delete_claim("deletes").await;
    w.settle_and_stay_quiet().await;
    w.assert_phase("192.0.2.1", AddressPhase::Released).await;
    assert!(w.find_address("192.0.2.2").await.is_none());
}

#[tokio::test]
async fn step_6_nothing_is_reclaimed_while_the_claims_are_only_not_seen_yet() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address_with("192.0.2.1", "c", delete_policy).await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    // A core that sees the addresses long before the claims.
    w.restart().await;
    let next = w
        .core
        .pass_over(Work::Address("ip-192-0-2-1".to_owned()))
        .await;
    assert_eq!(next, Some(Next::Wait));
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    assert_eq!(w.core.writes(), 0);
}

#[tokio::test]
async fn step_6_the_successor_of_a_claim_is_untouched_by_what_the_first_one_left() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address_with("192.0.2.1", "c", delete_policy).await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.delete_claim("a").await;
    w.settle().await;
    let again = w.claim_with("a", of_class("c")).await;
    w.address_with("192.0.2.1", "c", |a| {
        delete_policy(a);
        a.spec.claim_ref = names_claim("a", &again.metadata.uid);
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    // A late clean-up of the first one carries its uid and has no effect.
    let late = Preconditions {
        uid: Some("uid-of-the-first".to_owned()),
        revision: None,
    };
    assert!(
        w.store
            .delete(&Key::address("ip-192-0-2-1"), &late)
            .await
            .is_err()
    );
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
}
