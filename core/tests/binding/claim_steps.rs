//! Seed 000 §4, step by step.

use ipledger_core::api::{AddressPhase, ClaimFamily, ConditionStatus, find_condition, names};

use crate::world::{World, bound_message, dual, names_claim, of_class};

#[tokio::test]
async fn step_1_a_claim_that_is_deleted_before_the_core_saw_it_is_simply_gone() {
    let mut w = World::new().await;
    w.claim("a").await;
    w.delete_claim("a").await;
    w.settle_and_stay_quiet().await;
    assert!(w.find_claim("a").await.is_none());
}

#[tokio::test]
async fn step_2_every_claim_carries_the_protection_finalizer() {
    let mut w = World::new().await;
    w.claim("a").await;
    w.settle().await;
    assert_eq!(
        w.get_claim("a").await.metadata.finalizers,
        [names::CLAIM_PROTECTION]
    );
}

#[tokio::test]
async fn step_3_an_address_of_an_earlier_claim_of_that_name_is_not_adopted() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address_with("192.0.2.1", "c", |a| {
        a.spec.claim_ref = names_claim("a", "an-earlier-uid")
    })
    .await;
    w.claim_with("a", of_class("c")).await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "WaitingForProvisioning").await;
    w.assert_phase("192.0.2.1", AddressPhase::Released).await;
}

#[tokio::test]
async fn step_4_the_uid_of_a_pre_binding_is_completed() {
    let mut w = World::new().await;
    w.class("c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.address_with("192.0.2.1", "c", |a| {
        a.spec.claim_ref = names_claim("a", "")
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    let address = w.get_address("192.0.2.1").await;
    assert_eq!(
        address.metadata.annotation(names::BOUND_BY_CORE),
        None,
        "the core did not bind it"
    );
}

#[tokio::test]
async fn step_5_a_claim_that_has_all_it_asks_for_needs_no_class() {
    let mut w = World::new().await;
    w.address_with("192.0.2.1", "gone", |a| {
        a.spec.claim_ref = names_claim("a", "")
    })
    .await;
    w.claim_with("a", of_class("gone")).await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    assert!(find_condition(w.get_claim("a").await.conditions(), "ClassResolved").is_none());
}

#[tokio::test]
async fn step_6_the_class_in_the_spec_wins_over_the_sticky_one() {
    let mut w = World::new().await;
    w.default_class("first").await;
    w.claim("a").await;
    w.settle().await;
    assert_eq!(w.get_claim("a").await.stamp(), Some("first.example.com"));
    w.class("second").await;
    w.edit_claim("a", |c| c.spec.class_name = "second".to_owned())
        .await;
    w.settle_and_stay_quiet().await;
    let claim = w.get_claim("a").await;
    assert_eq!(
        (claim.resolved_class(), claim.stamp()),
        ("second", Some("second.example.com"))
    );
}

#[tokio::test]
async fn step_6_a_resolved_claim_does_not_follow_the_default() {
    let mut w = World::new().await;
    w.default_class("first").await;
    w.claim("a").await;
    w.settle().await;
    w.default_class("second").await;
    w.edit_class("first", |c| c.metadata.annotations.clear())
        .await;
    w.settle_and_stay_quiet().await;
    let claim = w.get_claim("a").await;
    assert_eq!(
        (claim.resolved_class(), claim.stamp()),
        ("first", Some("first.example.com"))
    );
    w.claim("b").await;
    w.settle().await;
    assert_eq!(w.get_claim("b").await.resolved_class(), "second");
}

#[tokio::test]
async fn step_6_without_a_default_the_claim_waits_and_resolves_when_one_appears() {
    let mut w = World::new().await;
    w.claim("a").await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "NoDefaultClass").await;
    w.default_class("c").await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "WaitingForProvisioning").await;
    assert!(bound_message(&w.get_claim("a").await).contains("c.example.com"));
}

#[tokio::test]
async fn step_6_two_defaults_are_refused_by_name_until_one_is_left() {
    let mut w = World::new().await;
    w.default_class("gold").await;
    w.default_class("silver").await;
    w.claim("a").await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "MultipleDefaultClasses").await;
    let claim = w.get_claim("a").await;
    let resolved = find_condition(claim.conditions(), "ClassResolved").unwrap();
    assert_eq!(resolved.reason, "MultipleDefaultClasses");
    assert!(
        resolved.message.contains("gold, silver"),
        "{}",
        resolved.message
    );
    assert_eq!(claim.stamp(), None);
    w.edit_class("silver", |c| c.metadata.annotations.clear())
        .await;
    w.settle_and_stay_quiet().await;
    assert_eq!(w.get_claim("a").await.resolved_class(), "gold");
}

#[tokio::test]
async fn step_6_a_class_that_is_not_there_is_named_and_the_rest_of_the_status_is_kept() {
    let mut w = World::new().await;
    w.claim_with("a", dual("c")).await;
    w.address_with("192.0.2.1", "c", |a| {
        a.spec.claim_ref = names_claim("a", "")
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "ClassNotFound").await;
    let claim = w.get_claim("a").await;
    assert_eq!(claim.status.as_ref().unwrap().address_text, "192.0.2.1");
    let resolved = find_condition(claim.conditions(), "ClassResolved").unwrap();
    assert_eq!(resolved.status, ConditionStatus::False);
    assert!(
        resolved.message.contains("class c does not exist"),
        "{}",
        resolved.message
    );
}

#[tokio::test]
async fn step_7_the_free_address_of_class_and_family_with_the_smallest_name_is_bound() {
    let mut w = World::new().await;
    w.class("c").await;
    w.class("other").await;
    w.address("192.0.2.1", "other").await;
    w.address("2001:db8::1", "c").await;
    w.address("192.0.2.3", "c").await;
    w.address("192.0.2.2", "c").await;
    w.settle().await;
    w.claim_with("a", of_class("c")).await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.2"]).await;
    w.claim_with("six", |c| {
        c.spec.class_name = "c".to_owned();
        c.spec.family = ClaimFamily::IPv6;
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("six", &["2001:db8::1"]).await;
}

#[tokio::test]
async fn step_7_a_dual_claim_gets_one_address_of_each_family() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.address("2001:db8::1", "c").await;
    w.claim_with("a", dual("c")).await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1", "2001:db8::1"]).await;
}

#[tokio::test]
async fn step_8_a_bound_claim_whose_address_disappears_is_lost_and_heals_when_it_is_back() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.force_delete_address("192.0.2.1").await;
    w.settle_and_stay_quiet().await;
    w.assert_lost("a").await;
    w.address_with("192.0.2.1", "c", |a| {
        a.spec.claim_ref = names_claim("a", "")
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    assert_eq!(
        w.get_claim("a").await.stamp(),
        Some("c.example.com"),
        "the stamp is back"
    );
}

#[tokio::test]
async fn step_8_addresses_are_listed_by_object_name() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("2001:db8::1", "c").await;
    w.address("198.51.100.1", "c").await;
    w.claim_with("a", dual("c")).await;
    w.settle().await;
    let status = w.get_claim("a").await.status.unwrap();
    let names: Vec<&str> = status.addresses.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["ip-198-51-100-1", "ip-2001-db8--1"]);
}

#[tokio::test]
async fn deleting_a_class_leaves_bound_claims_alone_and_unbound_ones_say_so() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("bound", of_class("c")).await;
    w.settle().await;
    w.claim_with("waits", of_class("c")).await;
    w.settle().await;
    let before = w.get_claim("bound").await;
    w.delete_class("c").await;
    w.settle_and_stay_quiet().await;
    assert_eq!(w.get_claim("bound").await, before);
    w.assert_pending("waits", "ClassNotFound").await;
    w.restart().await;
    w.settle_and_stay_quiet().await;
    assert_eq!(w.get_claim("bound").await, before);
    assert_eq!(w.core.writes(), 0);
}
