//! R12 to R15: what is said, to whom, and how often.

use ipledger_core::api::{AddressPhase, Key, Kind, find_condition, names};
use ipledger_core::binding::EventKind;
use ipledger_core::runtime::Work;

use crate::world::{World, bound_message, bound_reason, dual, names_claim, of_class};

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
async fn r15_good_news_after_a_warning_are_told_as_such_also_by_a_core_that_did_not_warn() {
    let mut w = World::new().await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    let mut other = w.another_core().await;
    w.class("c").await;
    other.settle().await;
    w.address("192.0.2.1", "c").await;
    other.settle().await;
    let told = |events: Vec<ipledger_core::binding::Event>| -> Vec<(EventKind, String)> {
        events.into_iter().map(|e| (e.kind, e.reason)).collect()
    };
    let told_of = |kind, reason: &str| (kind, reason.to_owned());
    assert_eq!(
        told(w.core.events()),
        [told_of(EventKind::Warning, "ClassNotFound")]
    );
    assert_eq!(
        told(other.events()),
        [
            told_of(EventKind::Recovery, "WaitingForProvisioning"),
            told_of(EventKind::Normal, "Bound"),
        ]
    );
}

#[tokio::test]
async fn r12_a_core_that_has_not_seen_the_deletion_does_not_take_back_what_another_says_of_it() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    let mut other = w.another_core().await;
    other.settle().await;
    w.delete_address("192.0.2.1").await;
    w.settle().await;
    // It sees what the first one wrote into the claim, and of the address nothing new.
    other.sync_only(&[Kind::IPAddressClaim]);
    let before = other.writes();
    other.pass_over(Work::Claim(Key::claim("ns", "a"))).await;
    assert_eq!(other.writes(), before);
    let claim = w.get_claim("a").await;
    assert!(find_condition(claim.conditions(), "AddressDeleting").is_some());
}
