//! A status may be absent, wholly or in part, at any moment: what is held stays held.

use ipledger_core::api::{AddressPhase, ConditionStatus, IPAddressClaim, find_condition, names};

use crate::world::{World, names_claim, of_class};

type Wipe = fn(&mut IPAddressClaim);

/// The ways in which a claim's status was seen to be wiped.
const WIPES: [Wipe; 4] = [
    |c| c.status = None,
    |c| c.status = Some(Default::default()),
    |c| {
        let kept = c.status.take().unwrap_or_default();
        c.status = Some(ipledger_core::api::IPAddressClaimStatus {
            phase: kept.phase,
            ..Default::default()
        });
    },
    |c| {
        let kept = c.status.take().unwrap_or_default();
        c.status = Some(ipledger_core::api::IPAddressClaimStatus {
            conditions: kept.conditions,
            ..Default::default()
        });
    },
];

async fn bound_world() -> World {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.5", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.address("192.0.2.1", "c").await;
    w.settle().await;
    w.assert_bound("a", &["192.0.2.5"]).await;
    w
}

#[tokio::test]
async fn r2_a_wiped_claim_keeps_an_address_that_is_marked_for_deletion() {
    for wipe in WIPES {
        let mut w = bound_world().await;
        w.delete_address("192.0.2.5").await;
        w.settle().await;
        w.edit_claim_status("a", wipe).await;
        w.settle_and_stay_quiet().await;
        w.assert_bound("a", &["192.0.2.5"]).await;
        let claim = w.get_claim("a").await;
        assert!(find_condition(claim.conditions(), "AddressDeleting").is_some());
        w.assert_phase("192.0.2.1", AddressPhase::Available).await;
    }
}

#[tokio::test]
async fn r5_a_wiped_claim_whose_address_is_lost_is_lost_and_not_given_another() {
    let mut w = bound_world().await;
    w.edit_address_status("192.0.2.5", |a| {
        a.status.get_or_insert_default().phase = Some(AddressPhase::Lost);
    })
    .await;
    w.settle().await;
    w.edit_claim_status("a", |c| c.status = None).await;
    w.settle_and_stay_quiet().await;
    w.assert_lost("a").await;
    w.assert_phase("192.0.2.1", AddressPhase::Available).await;
    w.edit_address_status("192.0.2.5", |a| {
        a.status.get_or_insert_default().phase = Some(AddressPhase::Bound);
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.5"]).await;
}

#[tokio::test]
async fn r6_a_retained_address_of_a_wiped_claim_is_released_and_not_given_away() {
    for wipe in WIPES {
        let mut w = bound_world().await;
        w.edit_claim_status("a", wipe).await;
        w.delete_claim("a").await;
        w.settle_and_stay_quiet().await;
        assert!(w.find_claim("a").await.is_none());
        w.assert_phase("192.0.2.5", AddressPhase::Released).await;
    }
}

#[tokio::test]
async fn r6_an_emptied_status_is_no_reason_to_choose_before_all_addresses_are_in_view() {
    use ipledger_core::api::{Key, Kind};
    use ipledger_core::runtime::Work;
    for wipe in WIPES {
        let mut w = bound_world().await;
        w.edit_claim_status("a", wipe).await;
        w.restart().await;
        w.core
            .sync_only(&[Kind::IPAddressClaim, Kind::IPAddressClass]);
        w.core.pass_over(Work::Claim(Key::claim("ns", "a"))).await;
        assert_eq!(w.core.writes(), 0);
        w.settle_and_stay_quiet().await;
        w.assert_bound("a", &["192.0.2.5"]).await;
    }
}

#[tokio::test]
async fn r2_a_marked_address_that_lost_its_protection_no_longer_counts() {
    let mut w = World::new().await;
    w.class("c").await;
    let claim = w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.address_with("192.0.2.1", "c", |a| {
        a.metadata
            .finalizers
            .push("driver.example.com/teardown".to_owned());
        a.spec.claim_ref = names_claim("a", &claim.metadata.uid);
    })
    .await;
    w.settle().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    w.delete_address("192.0.2.1").await;
    w.edit_address("192.0.2.1", |a| {
        a.metadata.finalizers = vec!["driver.example.com/teardown".to_owned()];
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_lost("a").await;
}

#[tokio::test]
async fn an_address_that_waits_for_its_driver_does_not_say_that_it_is_bound() {
    let mut w = World::new().await;
    w.class("c").await;
    let claim = w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.address_with("192.0.2.1", "c", |a| {
        crate::world::delete_policy(a);
        a.metadata
            .finalizers
            .push("driver.example.com/teardown".to_owned());
        a.spec.claim_ref = names_claim("a", &claim.metadata.uid);
    })
    .await;
    w.settle().await;
    w.delete_claim("a").await;
    w.settle_and_stay_quiet().await;
    w.assert_phase("192.0.2.1", AddressPhase::Released).await;
    let address = w.get_address("192.0.2.1").await;
    let bound = find_condition(address.conditions(), "Bound").unwrap();
    assert_eq!(bound.status, ConditionStatus::False);
    assert!(!address.metadata.has_finalizer(names::ADDRESS_PROTECTION));
}

#[tokio::test]
async fn r12_the_joined_addresses_are_written_again_where_the_server_keeps_them() {
    let mut w = bound_world().await;
    w.edit_claim_status("a", |c| {
        if let Some(status) = &mut c.status {
            status.address_text.clear();
        }
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.5"]).await;
}

#[tokio::test]
async fn r14_what_a_tenant_forges_as_a_drivers_word_is_not_shown() {
    let mut w = World::new().await;
    w.class("c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    for reason in ["Bound", "no reason", "", "1st", "x\ny"] {
        let said = serde_json::json!({"provisioner": "c.example.com", "class": "c",
            "reason": reason, "message": "m".repeat(5_000)});
        w.edit_claim("a", |c| {
            c.metadata
                .annotations
                .insert(names::PROVISIONING_STATUS.to_owned(), said.to_string());
        })
        .await;
        w.settle_and_stay_quiet().await;
        w.assert_pending("a", "WaitingForProvisioning").await;
    }
}

#[tokio::test]
async fn r5_a_status_that_lost_only_its_phase_still_decides_and_no_extra_replaces_what_it_names() {
    let mut w = bound_world().await;
    w.edit_address_status("192.0.2.5", |a| {
        a.status.get_or_insert_default().phase = Some(AddressPhase::Lost);
    })
    .await;
    w.settle().await;
    let uid = w.get_claim("a").await.metadata.uid;
    // Before anybody looks, a driver gives it another one and the phase is gone.
    w.address_with("192.0.2.9", "c", |a| {
        a.spec.claim_ref = names_claim("a", &uid);
    })
    .await;
    w.edit_claim_status("a", |c| c.status.get_or_insert_default().phase = None)
        .await;
    w.settle_and_stay_quiet().await;
    w.assert_lost("a").await;
    let status = w.get_claim("a").await.status.unwrap_or_default();
    assert_eq!(status.lost_addresses[0].name, "ip-192-0-2-5");
    let aside = w.get_address("192.0.2.9").await;
    assert_eq!(aside.metadata.annotation(names::PARKED_FOR), Some(&*uid));
}

#[tokio::test]
async fn r5_a_bound_status_that_lost_only_its_phase_keeps_the_address_that_it_names() {
    let mut w = bound_world().await;
    w.edit_claim_status("a", |c| c.status.get_or_insert_default().phase = None)
        .await;
    w.force_delete_address("192.0.2.5").await;
    w.settle_and_stay_quiet().await;
    w.assert_lost("a").await;
    w.assert_phase("192.0.2.1", AddressPhase::Available).await;
}
