//! R9 and R10: what is asked for, and when a driver is asked.

use ipledger_core::api::{ClaimFamily, IPAddressClaim};

use crate::world::{World, bound_message, delete_policy, names_claim, of_class};

#[tokio::test]
async fn an_ip_in_place_of_an_object_s_name_is_told_the_name() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", |c| c.spec.address_name = "192.0.2.1".to_owned())
        .await;
    w.settle_and_stay_quiet().await;
    w.assert_pending("a", "AddressNotFound").await;
    let message = bound_message(&w.get_claim("a").await);
    assert!(message.ends_with("is ip-192-0-2-1"), "{message}");

    w.edit_claim("a", |c| c.spec.address_name = "ip-192-0-2-1".to_owned())
        .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
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

/// As in metallb#321: two want the same fixed IP, its holder is deleted, and the other never gets it.
#[tokio::test]
async fn r9_who_waits_for_a_named_address_gets_it_when_it_is_made_again() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address_with("192.0.2.1", "c", delete_policy).await;
    for name in ["a", "b"] {
        w.claim_with(name, |c| c.spec.address_name = "ip-192-0-2-1".to_owned())
            .await;
        w.settle().await;
    }
    w.assert_pending("b", "AddressInUse").await;
    w.delete_claim("a").await;
    w.settle_and_stay_quiet().await;
    assert!(w.find_address("192.0.2.1").await.is_none());
    w.assert_pending("b", "AddressNotFound").await;
    w.address("192.0.2.1", "c").await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("b", &["192.0.2.1"]).await;
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
async fn r3_a_core_with_an_old_view_does_not_contradict_what_another_said_about_the_class() {
    let mut w = World::new().await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.assert_pending("a", "ClassNotFound").await;
    let mut other = w.another_core().await;
    other.sync();
    w.class("c").await;
    w.settle().await;
    w.assert_pending("a", "WaitingForProvisioning").await;
    // It sees what was written about the claim, and not yet the class.
    other.sync_only(&[ipledger_core::api::Kind::IPAddressClaim]);
    other.pass().await;
    assert_eq!(other.writes(), 0);
    other.settle().await;
    assert_eq!(other.writes(), 0);
}
