//! A claim that waits is woken by the event that can help it, and one impossible claim delays
//! no other.

use ipledger_core::api::{AddressPhase, ClaimFamily, ClaimPhase, IPAddressClass, Key};
use ipledger_core::runtime::{Next, Work};
use ipledger_core::store::{Part, StoreExt};

use crate::world::{World, of_class};

#[tokio::test]
async fn one_free_address_wakes_one_of_a_thousand_waiting_claims() {
    let mut w = World::new().await;
    w.class("c").await;
    for n in 0..1_000 {
        w.claim_with(&format!("a{n:04}"), of_class("c")).await;
    }
    w.settle().await;
    let before = w.core.passes;
    w.address("192.0.2.1", "c").await;
    w.settle().await;
    w.assert_bound("a0000", &["192.0.2.1"]).await;
    let passes = w.core.passes - before;
    assert!(passes < 20, "{passes} passes for one address");
}

#[tokio::test]
async fn as_many_waiting_claims_are_served_as_addresses_appear() {
    let mut w = World::new().await;
    w.class("c").await;
    for n in 0..40 {
        w.claim_with(&format!("a{n:02}"), of_class("c")).await;
    }
    w.settle().await;
    for n in 1..=30 {
        w.address(&format!("192.0.2.{n}"), "c").await;
    }
    w.settle_and_stay_quiet().await;
    let mut bound = 0;
    for n in 0..40 {
        let claim = w.get_claim(&format!("a{n:02}")).await;
        bound += usize::from(claim.phase() == Some(ClaimPhase::Bound));
    }
    assert_eq!(bound, 30);
}

#[tokio::test]
async fn a_claim_that_was_woken_and_is_gone_passes_the_address_on() {
    let mut w = World::new().await;
    w.class("c").await;
    for name in ["a", "b"] {
        w.claim_with(name, of_class("c")).await;
    }
    w.settle().await;
    w.address("192.0.2.1", "c").await;
    // The address becomes available, which wakes the first claim; that goes before its pass.
    w.core.sync();
    w.core.queue.retain(|work| matches!(work, Work::Address(_)));
    w.core.pass().await;
    w.core.sync();
    w.delete_claim("a").await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("b", &["192.0.2.1"]).await;
}

#[tokio::test]
async fn an_impossible_claim_at_the_head_delays_no_other() {
    let mut w = World::new().await;
    w.class("c").await;
    w.claim_with("a", |c| {
        c.spec.class_name = "c".to_owned();
        c.spec.family = ClaimFamily::IPv6;
    })
    .await;
    for name in ["b", "d", "e"] {
        w.claim_with(name, of_class("c")).await;
    }
    w.settle().await;
    for n in 1..=3 {
        w.address(&format!("192.0.2.{n}"), "c").await;
    }
    w.settle_and_stay_quiet().await;
    for name in ["b", "d", "e"] {
        assert_eq!(
            w.get_claim(name).await.phase().map(|p| p.as_str()),
            Some("Bound")
        );
    }
    w.assert_pending("a", "WaitingForProvisioning").await;
}

#[tokio::test]
async fn claims_that_cannot_use_an_address_do_not_wake_each_other_for_ever() {
    let mut w = World::new().await;
    // The class is not there, so the free address of that class helps none of them.
    w.class("c").await;
    for name in ["a", "b", "d"] {
        w.claim_with(name, of_class("c")).await;
    }
    w.settle().await;
    w.delete_class("c").await;
    w.settle().await;
    w.address("192.0.2.1", "c").await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "ClassNotFound").await;
    w.assert_phase("192.0.2.1", AddressPhase::Available).await;
    w.class("c").await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
}

#[tokio::test]
async fn who_loses_the_race_for_an_address_wakes_nobody_until_its_view_has_moved() {
    let mut w = World::new().await;
    w.class("c").await;
    for name in ["a", "b", "d"] {
        w.claim_with(name, of_class("c")).await;
    }
    w.settle().await;
    w.address("192.0.2.1", "c").await;
    // It is protected and available, and the first in line is woken for it.
    w.core.sync();
    w.core.pass().await;
    w.core.sync();
    // Another core gives it to the last one; this one does not hear of it.
    let mut other = w.another_core().await;
    other.sync();
    other.pass_over(Work::Claim(Key::claim("ns", "d"))).await;
    let first = Work::Claim(Key::claim("ns", "a"));
    w.core.queue.clear();
    for _ in 0..20 {
        let next = w.core.pass_over(first.clone()).await;
        assert_eq!(next, Some(Next::Again));
        assert_eq!(w.core.queue.iter().collect::<Vec<_>>(), [&first]);
    }
    other.settle().await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("d", &["192.0.2.1"]).await;
    // And no turn is lost.
    w.address("192.0.2.2", "c").await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.2"]).await;
}

#[tokio::test]
async fn what_a_driver_reports_in_a_class_wakes_no_claim() {
    let mut w = World::new().await;
    w.class("c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    let before = w.core.passes;
    let report = |c: &mut IPAddressClass| {
        c.status.get_or_insert_default().out_of_range = vec!["ip-192-0-2-1".to_owned()];
        true
    };
    w.store
        .update_with(&Key::class("c"), Part::Status, report)
        .await
        .unwrap();
    w.settle().await;
    assert_eq!(w.core.passes, before);
}
