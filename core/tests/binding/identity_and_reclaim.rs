//! R1 to R4 and R8: which objects count, what is held, what needs proof, what waits.

use std::sync::atomic::Ordering;

use ipledger_core::api::{
    AddressPhase, ClaimFamily, IPAddress, Key, Kind, WorkloadRef, find_condition, names,
};
use ipledger_core::runtime::Work;
use ipledger_core::store::{ReadAt, StoreExt};

use crate::world::{World, delete_policy, names_claim, of_class};

#[tokio::test]
async fn r1_an_object_under_another_name_is_never_bound_or_completed() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address_with("203.0.113.7", "c", |a| a.metadata.name = "my-ip".to_owned())
        .await;
    w.address_with("203.0.113.8", "c", |a| {
        a.metadata.name = "other-ip".to_owned();
        a.spec.claim_ref = names_claim("a", "");
    })
    .await;
    w.claim_with("a", of_class("c")).await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "WaitingForProvisioning").await;
    for name in ["my-ip", "other-ip"] {
        let found = w.store.find(&Key::address(name), ReadAt::Latest).await;
        let address: IPAddress = found.unwrap().unwrap();
        assert_eq!(address.phase(), Some(AddressPhase::Pending));
        let valid = find_condition(address.conditions(), "Valid").unwrap();
        assert_eq!(valid.reason, "NameMismatch");
        assert!(valid.message.contains("ip-203-0-113-"), "{}", valid.message);
    }
}

#[tokio::test]
async fn r1_another_spelling_of_the_same_address_is_compared_by_its_canonical_form() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("2001:DB8:0:0::1", "c").await;
    w.claim_with("a", |c| {
        c.spec.class_name = "c".to_owned();
        c.spec.family = ClaimFamily::IPv6;
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["2001:db8::1"]).await;
}

#[tokio::test]
async fn r2_a_wiped_status_does_not_make_a_held_address_deletable() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    for phase in [None, Some(AddressPhase::Conflict)] {
        w.edit_address_status("192.0.2.1", |a| {
            a.status = None;
            if phase.is_some() {
                a.status.get_or_insert_default().phase = phase;
            }
        })
        .await;
        if phase.is_none() {
            w.delete_address("192.0.2.1").await;
        }
        w.settle_and_stay_quiet().await;
        let address = w.get_address("192.0.2.1").await;
        assert!(address.metadata.has_finalizer(names::ADDRESS_PROTECTION));
    }
    w.assert_bound("a", &["192.0.2.1"]).await;
}

#[tokio::test]
async fn r2_an_address_marked_for_deletion_is_never_matched_and_never_completed() {
    let mut w = World::new().await;
    w.class("c").await;
    for (ip, claim) in [("192.0.2.1", None), ("192.0.2.2", names_claim("a", ""))] {
        w.address_with(ip, "c", |a| {
            a.spec.claim_ref = claim;
            a.metadata
                .finalizers
                .push("driver.example.com/teardown".to_owned());
        })
        .await;
        w.delete_address(ip).await;
    }
    w.claim_with("a", of_class("c")).await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "WaitingForProvisioning").await;
}

#[tokio::test]
async fn r3_a_claim_is_called_lost_only_after_a_read_at_latest() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    // A fresh core that has been shown the claim and not yet the address.
    w.restart().await;
    w.core
        .sync_only(&[Kind::IPAddressClass, Kind::IPAddressClaim]);
    w.core.pass_over(Work::Claim(Key::claim("ns", "a"))).await;
    assert_eq!(w.core.store.reads.load(Ordering::Relaxed), 1);
    assert_eq!(w.core.writes(), 0);
    // The address is really gone, and the cache does not know it yet.
    w.core.sync();
    w.force_delete_address("192.0.2.1").await;
    w.core.pass_over(Work::Claim(Key::claim("ns", "a"))).await;
    assert_eq!(
        w.core.writes(),
        0,
        "nothing is published on what the cache happens to show"
    );
    w.settle_and_stay_quiet().await;
    w.assert_lost("a").await;
}

#[tokio::test]
async fn r4_a_pre_bound_address_waits_for_its_claim_and_is_matched_to_nobody_else() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address_with("192.0.2.1", "c", |a| {
        a.spec.claim_ref = names_claim("a", "")
    })
    .await;
    w.claim_with("b", of_class("c")).await;
    w.clock.advance(1_000_000);
    w.settle_and_stay_quiet().await;
    w.assert_pending("b", "WaitingForProvisioning").await;
    w.assert_phase("192.0.2.1", AddressPhase::Pending).await;
    let address = w.get_address("192.0.2.1").await;
    let bound = find_condition(address.conditions(), "Bound").unwrap();
    assert_eq!(bound.reason, "WaitingForClaim");
    // It is taken although a free one has a smaller name.
    w.address("192.0.2.0", "other").await;
    w.claim_with("a", of_class("c")).await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
}

#[tokio::test]
async fn r4_with_policy_delete_it_waits_ten_minutes_and_a_reserved_one_for_ever() {
    let mut w = World::new().await;
    for (ip, claim, reserved) in [
        ("192.0.2.1", "late", false),
        ("192.0.2.2", "never", false),
        ("192.0.2.3", "kept", true),
    ] {
        w.address_with(ip, "c", |a| {
            delete_policy(a);
            a.spec.claim_ref = names_claim(claim, "");
            if reserved {
                a.metadata
                    .annotations
                    .insert(names::RESERVED.to_owned(), "true".to_owned());
            }
        })
        .await;
    }
    w.settle().await;
    w.clock.advance(60);
    w.claim("late").await;
    w.settle().await;
    w.clock.advance(541);
    w.core.resync();
    w.settle_and_stay_quiet().await;
    w.assert_bound("late", &["192.0.2.1"]).await;
    assert!(w.find_address("192.0.2.2").await.is_none());
    w.assert_phase("192.0.2.3", AddressPhase::Pending).await;
}

#[tokio::test]
async fn r4_an_address_that_is_given_to_another_absent_claim_waits_anew() {
    let mut w = World::new().await;
    w.address_with("192.0.2.1", "c", |a| {
        delete_policy(a);
        a.spec.claim_ref = names_claim("first", "");
    })
    .await;
    w.settle().await;
    w.clock.advance(590);
    w.edit_address("192.0.2.1", |a| {
        a.spec.claim_ref = names_claim("second", "");
    })
    .await;
    w.settle().await;
    w.clock.advance(590);
    w.core.resync();
    w.settle().await;
    w.assert_phase("192.0.2.1", AddressPhase::Pending).await;
    w.clock.advance(11);
    w.core.resync();
    w.settle_and_stay_quiet().await;
    assert!(w.find_address("192.0.2.1").await.is_none());
}

#[tokio::test]
async fn r4_a_pre_bound_address_gets_the_dying_uid_so_that_the_successor_does_not_inherit_it() {
    let mut w = World::new().await;
    w.class("c").await;
    let claim = w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.delete_claim("a").await;
    // Pre-bound while the claim is already on its way out.
    w.address_with("192.0.2.1", "c", |a| {
        a.spec.claim_ref = names_claim("a", "")
    })
    .await;
    w.settle_and_stay_quiet().await;
    let address = w.get_address("192.0.2.1").await;
    assert_eq!(
        address.spec.claim_ref.as_ref().unwrap().uid,
        claim.metadata.uid
    );
    w.assert_phase("192.0.2.1", AddressPhase::Released).await;
    w.claim_with("a", of_class("c")).await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "WaitingForProvisioning").await;
}

#[tokio::test]
async fn r4_of_several_pre_bound_the_smallest_name_is_completed() {
    let mut w = World::new().await;
    w.claim("a").await;
    for ip in ["192.0.2.2", "192.0.2.1", "192.0.2.3"] {
        w.address_with(ip, "c", |a| a.spec.claim_ref = names_claim("a", ""))
            .await;
    }
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
}

#[tokio::test]
async fn r8_reclaim_under_a_drivers_phase_is_recorded_and_finished_when_the_driver_clears_it() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.edit_address_status("192.0.2.1", |a| {
        a.status.get_or_insert_default().phase = Some(AddressPhase::Conflict);
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    w.delete_claim("a").await;
    w.settle_and_stay_quiet().await;
    w.assert_phase("192.0.2.1", AddressPhase::Conflict).await;
    let address = w.get_address("192.0.2.1").await;
    assert!(find_condition(address.conditions(), "Reclaimed").is_some());
    w.edit_address_status("192.0.2.1", |a| {
        a.status.get_or_insert_default().phase = Some(AddressPhase::Bound);
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_phase("192.0.2.1", AddressPhase::Released).await;
}

#[tokio::test]
async fn r8_with_policy_delete_the_object_goes_whatever_its_phase() {
    for phase in [AddressPhase::Conflict, AddressPhase::Lost] {
        let mut w = World::new().await;
        w.class("c").await;
        w.address_with("192.0.2.1", "c", delete_policy).await;
        w.claim_with("a", of_class("c")).await;
        w.settle().await;
        w.edit_address_status("192.0.2.1", |a| {
            a.status.get_or_insert_default().phase = Some(phase);
        })
        .await;
        w.delete_claim("a").await;
        w.settle_and_stay_quiet().await;
        assert!(w.find_address("192.0.2.1").await.is_none());
    }
}

#[tokio::test]
async fn an_associated_address_is_never_matched_to_another_claim() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.edit_address_status("192.0.2.1", |a| {
        a.status.get_or_insert_default().associated_to = Some(WorkloadRef::default());
    })
    .await;
    w.claim_with("a", of_class("c")).await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "WaitingForProvisioning").await;
    w.edit_address_status("192.0.2.1", |a| {
        a.status.get_or_insert_default().associated_to = None;
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
}
