//! Rules R1-R4 and R8-R15 of the design, each by its number; R5 to R7 have files of their own.

use std::sync::atomic::Ordering;

use ipledger_core::api::{
    AddressPhase, ClaimFamily, IPAddress, IPAddressClaim, Key, Kind, WorkloadRef, find_condition,
    names,
};
use ipledger_core::binding::EventKind;
use ipledger_core::runtime::Work;
use ipledger_core::store::{ReadAt, StoreExt};

use crate::world::{
    World, bound_message, bound_reason, delete_policy, dual, names_claim, of_class,
};

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
async fn r9_a_named_address_is_taken_or_the_exact_reason_is_said() {
    let mut w = World::new().await;
    w.class("c").await;
    let name = |claim: &mut IPAddressClaim, ip: &str| {
        claim.spec.address_name = format!("ip-{}", ip.replace(['.', ':'], "-"));
    };
    w.claim_with("a", |c| name(c, "192.0.2.1")).await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "AddressNotFound").await;
    assert_eq!(
        w.get_claim("a").await.stamp(),
        None,
        "no driver is to provision"
    );

    w.address("192.0.2.1", "c").await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    let claim = w.get_claim("a").await;
    assert_eq!(
        (claim.stamp(), claim.resolved_class()),
        (Some("c.example.com"), "c")
    );

    w.claim_with("b", |c| name(c, "192.0.2.1")).await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("b", "AddressInUse").await;
    assert!(bound_message(&w.get_claim("b").await).contains("claim a"));

    w.delete_claim("a").await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("b", "AddressReleased").await;
    w.edit_address("192.0.2.1", |a| a.spec.claim_ref = None)
        .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("b", &["192.0.2.1"]).await;

    w.claim_with("six", |c| {
        name(c, "192.0.2.1");
        c.spec.family = ClaimFamily::IPv6;
    })
    .await;
    w.claim_with("gold", |c| {
        name(c, "192.0.2.1");
        c.spec.class_name = "gold".to_owned();
    })
    .await;
    w.claim_with("both", |c| {
        name(c, "192.0.2.1");
        c.spec.family = ClaimFamily::Dual;
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("six", "AddressFamilyMismatch").await;
    w.assert_pending("gold", "AddressClassMismatch").await;
    w.assert_pending("both", "InvalidSpec").await;

    w.claim_with("next", |c| name(c, "192.0.2.1")).await;
    w.delete_address("192.0.2.1").await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("next", "AddressDeleting").await;
}

#[tokio::test]
async fn r9_nothing_of_another_namespace_shows_in_a_message() {
    let mut w = World::new().await;
    w.address_with("192.0.2.1", "c", |a| {
        let mut secret = names_claim("secret-name", "").unwrap();
        secret.namespace = "secret-namespace".to_owned();
        a.spec.claim_ref = Some(secret);
    })
    .await;
    w.claim_with("a", |c| c.spec.address_name = "ip-192-0-2-1".to_owned())
        .await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "AddressInUse").await;
    assert!(!format!("{:?}", w.get_claim("a").await).contains("secret"));
}

#[tokio::test]
async fn r9_while_pending_the_spec_can_be_edited_and_the_claim_follows() {
    let mut w = World::new().await;
    w.class("c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.edit_claim("a", |c| c.spec.address_name = "ip-192-0-2-1".to_owned())
        .await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "AddressNotFound").await;
    assert_eq!(
        w.get_claim("a").await.stamp(),
        None,
        "the stamp goes with the first class"
    );
}

#[tokio::test]
async fn r10_a_free_address_is_bound_before_any_driver_sees_a_stamp() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.settle().await;
    let before = w.core.writes();
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    assert_eq!(
        w.core.log()[before..],
        [
            "IPAddressClaim ns/a main",
            "IPAddress ip-192-0-2-1 main",
            "IPAddress ip-192-0-2-1 status",
            "IPAddressClaim ns/a status",
            "IPAddressClaim ns/a main",
        ]
    );
    assert_eq!(w.get_claim("a").await.stamp(), Some("c.example.com"));
}

#[tokio::test]
async fn r10_a_claim_that_nothing_can_serve_is_stamped_at_once() {
    let mut w = World::new().await;
    w.class("c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    assert_eq!(
        w.core.log(),
        ["IPAddressClaim ns/a main", "IPAddressClaim ns/a status"]
    );
}

#[tokio::test]
async fn r10_the_stamp_goes_when_the_class_of_a_waiting_claim_is_gone() {
    let mut w = World::new().await;
    w.class("c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.delete_class("c").await;
    w.settle_and_stay_quiet().await;
    assert_eq!(w.get_claim("a").await.stamp(), None);
    w.class_with("c", |c| c.spec.provisioner = "new.example.com".to_owned())
        .await;
    w.settle_and_stay_quiet().await;
    assert_eq!(w.get_claim("a").await.stamp(), Some("new.example.com"));
}

#[tokio::test]
async fn r10_a_bound_claim_without_a_stamp_gets_it_and_one_with_a_stamp_keeps_it() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.edit_claim("a", |c| c.metadata.annotations.clear()).await;
    w.settle_and_stay_quiet().await;
    assert_eq!(w.get_claim("a").await.stamp(), Some("c.example.com"));
    w.delete_class("c").await;
    w.class_with("c", |c| c.spec.provisioner = "new.example.com".to_owned())
        .await;
    w.settle_and_stay_quiet().await;
    assert_eq!(w.get_claim("a").await.stamp(), Some("c.example.com"));
}

#[tokio::test]
async fn r12_a_provisioned_bind_costs_the_core_five_writes() {
    let mut w = World::new().await;
    w.class("c").await;
    let claim = w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.address_with("192.0.2.1", "c", |a| {
        a.spec.claim_ref = names_claim("a", &claim.metadata.uid);
        a.metadata
            .finalizers
            .push("driver.example.com/teardown".to_owned());
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    assert_eq!(
        w.core.log(),
        [
            "IPAddressClaim ns/a main",
            "IPAddressClaim ns/a status",
            "IPAddress ip-192-0-2-1 main",
            "IPAddress ip-192-0-2-1 status",
            "IPAddressClaim ns/a status",
        ]
    );
}

#[tokio::test]
async fn r12_wiped_status_of_everything_is_recomputed_and_every_claim_keeps_its_address() {
    let mut w = World::new().await;
    w.class("c").await;
    for n in 1..=4 {
        w.address(&format!("192.0.2.{n}"), "c").await;
    }
    w.settle().await;
    for name in ["a", "b", "d"] {
        w.claim_with(name, of_class("c")).await;
    }
    w.settle().await;
    let mut before = Vec::new();
    for name in ["a", "b", "d"] {
        before.push(w.get_claim(name).await.status.unwrap().address_text);
        w.edit_claim_status(name, |c| c.status = None).await;
    }
    for n in 1..=4 {
        w.edit_address_status(&format!("192.0.2.{n}"), |a| a.status = None)
            .await;
    }
    w.restart().await;
    w.settle_and_stay_quiet().await;
    for (name, ip) in ["a", "b", "d"].into_iter().zip(before) {
        w.assert_bound(name, &[&ip]).await;
    }
    w.assert_phase("192.0.2.4", AddressPhase::Available).await;
}

#[tokio::test]
async fn r12_a_dual_claim_with_one_family_says_which_is_missing() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", dual("c")).await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "PartiallyBound").await;
    assert!(bound_message(&w.get_claim("a").await).contains("IPv6 is missing"));
    w.address("2001:db8::1", "c").await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1", "2001:db8::1"]).await;
}

#[tokio::test]
async fn r13_clearing_only_the_uid_gives_the_same_ip_to_the_next_claim_of_that_name() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.5", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.delete_claim("a").await;
    w.settle().await;
    w.edit_address("192.0.2.5", |a| {
        a.metadata
            .annotations
            .insert(names::RESERVED.to_owned(), "true".to_owned());
        a.spec.claim_ref.as_mut().unwrap().uid.clear();
    })
    .await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("b", of_class("c")).await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("b", &["192.0.2.1"]).await;
    w.assert_phase("192.0.2.5", AddressPhase::Pending).await;
    w.claim_with("a", of_class("c")).await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.5"]).await;
}

#[tokio::test]
async fn r13_a_satisfied_claim_leaves_a_reserved_address_of_its_name_alone() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.address_with("192.0.2.9", "c", |a| {
        a.metadata
            .annotations
            .insert(names::RESERVED.to_owned(), "true".to_owned());
        a.spec.claim_ref = names_claim("a", "");
    })
    .await;
    w.settle_and_stay_quiet().await;
    let kept = w.get_address("192.0.2.9").await;
    assert_eq!(kept.metadata.annotation(names::PARKED_FOR), None);
    w.delete_claim("a").await;
    w.settle_and_stay_quiet().await;
    assert_eq!(
        w.get_address("192.0.2.9").await.spec.claim_ref,
        names_claim("a", "")
    );
}

#[tokio::test]
async fn r14_what_the_stamped_driver_says_is_shown_and_what_another_says_is_not() {
    let mut w = World::new().await;
    w.class("c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    let say = |driver: &str, reason: &str| {
        format!(r#"{{"provisioner":"{driver}","reason":"{reason}","class":"c","message":"full"}}"#)
    };
    for (driver, shown) in [
        ("other.example.com", "WaitingForProvisioning"),
        ("c.example.com", "PoolExhausted"),
    ] {
        let text = say(driver, "PoolExhausted");
        w.edit_claim("a", |c| {
            c.metadata
                .annotations
                .insert(names::PROVISIONING_STATUS.to_owned(), text.clone());
        })
        .await;
        w.settle_and_stay_quiet().await;
        assert_eq!(bound_reason(&w.get_claim("a").await), shown);
    }
    w.edit_claim("a", |c| {
        c.metadata
            .annotations
            .insert(names::PROVISIONING_STATUS.to_owned(), "{broken".to_owned());
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "WaitingForProvisioning").await;
}

#[tokio::test]
async fn r15_events_come_on_change_only_and_to_the_owner() {
    let mut w = World::new().await;
    w.class("c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.address("192.0.2.1", "c").await;
    w.settle_and_stay_quiet().await;
    let events = w.core.events();
    let reasons: Vec<&str> = events.iter().map(|e| e.reason.as_str()).collect();
    assert_eq!(reasons, ["WaitingForProvisioning", "Bound"]);
    assert!(
        events
            .iter()
            .all(|e| e.about.name == "a" && e.kind == EventKind::Normal)
    );
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
