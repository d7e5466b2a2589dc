//! R5 (never silently re-provisioned) and R7 (parked).

use std::sync::atomic::Ordering;

use ipledger_core::api::{AddressPhase, ClaimPhase, Kind, find_condition, names};
use ipledger_core::runtime::Work;

use crate::world::{World, bound_message, delete_policy, dual, names_claim, of_class};

async fn bound_world() -> World {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    w
}

#[tokio::test]
async fn r5_a_lost_family_is_not_matched_again() {
    let mut w = bound_world().await;
    w.force_delete_address("192.0.2.1").await;
    w.address("192.0.2.2", "c").await;
    w.settle_and_stay_quiet().await;
    w.assert_lost("a").await;
    let status = w.get_claim("a").await.status.unwrap();
    assert_eq!(status.lost_addresses[0].address, "192.0.2.1");
    assert!(status.addresses.is_empty());
    w.assert_phase("192.0.2.2", AddressPhase::Available).await;
    assert!(bound_message(&w.get_claim("a").await).contains("192.0.2.1"));
}

#[tokio::test]
async fn r5_an_address_in_phase_lost_makes_the_claim_lost_and_it_heals() {
    let mut w = bound_world().await;
    for phase in [AddressPhase::Lost, AddressPhase::Bound] {
        w.edit_address_status("192.0.2.1", |a| {
            a.status.get_or_insert_default().phase = Some(phase);
        })
        .await;
        w.settle_and_stay_quiet().await;
        if phase == AddressPhase::Lost {
            w.assert_lost("a").await;
        }
    }
    w.assert_bound("a", &["192.0.2.1"]).await;
}

#[tokio::test]
async fn r5_conflict_does_not_break_a_binding() {
    let mut w = bound_world().await;
    w.edit_address_status("192.0.2.1", |a| {
        a.status.get_or_insert_default().phase = Some(AddressPhase::Conflict);
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    w.assert_phase("192.0.2.1", AddressPhase::Conflict).await;
}

#[tokio::test]
async fn r5_a_claim_ref_that_an_admin_cleared_under_a_live_claim_makes_it_lost() {
    let mut w = bound_world().await;
    w.edit_address("192.0.2.1", |a| a.spec.claim_ref = None)
        .await;
    w.settle_and_stay_quiet().await;
    w.assert_lost("a").await;
    // Given to nobody by that alone? It is available, as the admin asked.
    w.assert_phase("192.0.2.1", AddressPhase::Available).await;
    w.edit_address("192.0.2.1", |a| a.spec.claim_ref = names_claim("a", ""))
        .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
}

#[tokio::test]
async fn r5_a_dual_claim_that_loses_one_family_keeps_the_other() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.address("2001:db8::1", "c").await;
    w.claim_with("a", dual("c")).await;
    w.settle().await;
    w.force_delete_address("2001:db8::1").await;
    w.address("2001:db8::2", "c").await;
    w.settle_and_stay_quiet().await;
    w.assert_lost("a").await;
    let status = w.get_claim("a").await.status.unwrap();
    assert_eq!(status.address_text, "192.0.2.1");
    assert_eq!(status.lost_addresses[0].name, "ip-2001-db8--1");
    assert!(
        w.get_address("192.0.2.1")
            .await
            .metadata
            .has_finalizer(names::ADDRESS_PROTECTION)
    );
}

#[tokio::test]
async fn r5_where_a_server_prunes_our_additions_the_lost_entry_stays_in_the_addresses() {
    let mut w = World::new().await;
    w.core.store.prunes.store(true, Ordering::Relaxed);
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle_and_stay_quiet().await;
    w.force_delete_address("192.0.2.1").await;
    w.settle_and_stay_quiet().await;
    w.assert_lost("a").await;
    let status = w.get_claim("a").await.status.unwrap();
    assert_eq!(status.addresses[0].name, "ip-192-0-2-1");
    w.address_with("192.0.2.1", "c", |a| {
        a.spec.claim_ref = names_claim("a", "")
    })
    .await;
    w.settle_and_stay_quiet().await;
    assert_eq!(w.get_claim("a").await.phase(), Some(ClaimPhase::Bound));
}

#[tokio::test]
async fn r5_the_stamp_is_gone_before_lost_is_published() {
    let mut w = bound_world().await;
    let before = w.core.writes();
    w.force_delete_address("192.0.2.1").await;
    w.settle().await;
    assert_eq!(
        w.core.log()[before..],
        ["IPAddressClaim ns/a main", "IPAddressClaim ns/a status"]
    );
}

#[tokio::test]
async fn r5_a_dual_claim_that_was_never_whole_is_pending_and_matched_again() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", dual("c")).await;
    w.settle().await;
    w.force_delete_address("192.0.2.1").await;
    w.address("192.0.2.2", "c").await;
    w.address("2001:db8::1", "c").await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.2", "2001:db8::1"]).await;
}

#[tokio::test]
async fn r7_a_second_pre_binding_is_parked_with_one_event_and_reclaimed_with_the_claim() {
    let mut w = bound_world().await;
    let uid = w.get_claim("a").await.metadata.uid;
    w.address_with("192.0.2.0", "c", |a| {
        delete_policy(a);
        a.spec.claim_ref = names_claim("a", &uid);
    })
    .await;
    w.address_with("192.0.2.3", "c", |a| {
        a.spec.claim_ref = names_claim("a", "")
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    for ip in ["192.0.2.0", "192.0.2.3"] {
        let parked = w.get_address(ip).await;
        assert_eq!(
            parked.metadata.annotation(names::PARKED_FOR),
            Some(uid.as_str())
        );
        assert!(parked.spec.claim_ref.is_some(), "its claimRef is kept");
    }
    let parked: Vec<_> = w
        .core
        .events()
        .into_iter()
        .filter(|e| e.reason == "AddressParked")
        .collect();
    assert_eq!(parked.len(), 2, "one event each: {parked:?}");
    w.delete_claim("a").await;
    w.settle_and_stay_quiet().await;
    assert!(w.find_address("192.0.2.0").await.is_none());
    w.assert_phase("192.0.2.3", AddressPhase::Released).await;
}

#[tokio::test]
async fn r7_an_extra_of_another_family_is_parked() {
    let mut w = bound_world().await;
    let uid = w.get_claim("a").await.metadata.uid;
    w.address_with("2001:db8::1", "c", |a| {
        a.spec.claim_ref = names_claim("a", &uid)
    })
    .await;
    w.settle_and_stay_quiet().await;
    let extra = w.get_address("2001:db8::1").await;
    assert_eq!(
        extra.metadata.annotation(names::PARKED_FOR),
        Some(uid.as_str())
    );
}

#[tokio::test]
async fn r7_while_pending_another_object_than_the_named_one_does_not_count() {
    let mut w = World::new().await;
    w.claim_with("a", |c| c.spec.address_name = "ip-192-0-2-9".to_owned())
        .await;
    w.address_with("192.0.2.1", "c", |a| {
        a.spec.claim_ref = names_claim("a", "")
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "AddressNotFound").await;
    w.address("192.0.2.9", "c").await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.9"]).await;
    let uid = w.get_claim("a").await.metadata.uid;
    let other = w.get_address("192.0.2.1").await;
    assert_eq!(
        other.metadata.annotation(names::PARKED_FOR),
        Some(uid.as_str())
    );
}

#[tokio::test]
async fn r7_a_parked_address_serves_only_when_an_admin_says_so() {
    let mut w = bound_world().await;
    let uid = w.get_claim("a").await.metadata.uid;
    w.address_with("192.0.2.7", "c", |a| {
        a.spec.claim_ref = names_claim("a", &uid)
    })
    .await;
    w.settle().await;
    w.force_delete_address("192.0.2.1").await;
    w.settle_and_stay_quiet().await;
    w.assert_lost("a").await;
    let serve = format!("{uid}/serve");
    w.edit_address("192.0.2.7", |a| {
        a.metadata
            .annotations
            .insert(names::PARKED_FOR.to_owned(), serve.clone());
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.7"]).await;
    let served = w.get_address("192.0.2.7").await;
    assert_eq!(
        served.metadata.annotation(names::PARKED_FOR),
        Some(serve.as_str())
    );
    // It is held now, as any other.
    w.delete_address("192.0.2.7").await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.7"]).await;
}

#[tokio::test]
async fn r7_one_that_may_serve_does_not_replace_a_reported_address_that_is_well() {
    let mut w = bound_world().await;
    let uid = w.get_claim("a").await.metadata.uid;
    w.address_with("192.0.2.0", "c", |a| {
        a.spec.claim_ref = names_claim("a", &uid);
        a.metadata
            .annotations
            .insert(names::PARKED_FOR.to_owned(), format!("{uid}/serve"));
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
}

#[tokio::test]
async fn r7_a_parked_address_that_an_admin_deletes_loses_its_protection() {
    let mut w = bound_world().await;
    let uid = w.get_claim("a").await.metadata.uid;
    w.address_with("192.0.2.7", "c", |a| {
        a.spec.claim_ref = names_claim("a", &uid)
    })
    .await;
    w.settle().await;
    assert!(
        w.get_address("192.0.2.7")
            .await
            .metadata
            .has_finalizer(names::ADDRESS_PROTECTION)
    );
    w.delete_address("192.0.2.7").await;
    w.settle_and_stay_quiet().await;
    assert!(w.find_address("192.0.2.7").await.is_none());
    w.assert_bound("a", &["192.0.2.1"]).await;
}

#[tokio::test]
async fn r7_a_mark_for_another_claim_is_void() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address_with("192.0.2.1", "c", |a| {
        a.metadata
            .annotations
            .insert(names::PARKED_FOR.to_owned(), "an-earlier-uid".to_owned());
        a.spec.claim_ref = names_claim("a", "");
    })
    .await;
    w.claim_with("a", of_class("c")).await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
}

#[tokio::test]
async fn a_reported_address_that_is_being_deleted_is_not_replaced() {
    let mut w = bound_world().await;
    w.address("192.0.2.2", "c").await;
    w.delete_address("192.0.2.1").await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    w.assert_phase("192.0.2.2", AddressPhase::Available).await;
    let claim = w.get_claim("a").await;
    let deleting = find_condition(claim.conditions(), "AddressDeleting").unwrap();
    assert!(deleting.message.contains("ip-192-0-2-1"));
}

#[tokio::test]
async fn a_partly_wiped_status_is_recomputed_from_what_is_bound() {
    let mut w = bound_world().await;
    w.edit_claim_status("a", |c| {
        if let Some(status) = &mut c.status {
            status.addresses.clear();
            status.address_text.clear();
        }
    })
    .await;
    w.restart().await;
    // The address is not in view yet: that alone must not make the claim lost.
    w.core
        .sync_only(&[Kind::IPAddressClaim, Kind::IPAddressClass]);
    let claim = w.get_claim("a").await.key();
    w.core.pass_over(Work::Claim(claim)).await;
    assert_eq!(w.core.writes(), 0);
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
}
