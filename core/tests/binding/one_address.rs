//! R6: one address a family, also with several cores at work.

use ipledger_core::api::{AddressPhase, Key, Kind, names};
use ipledger_core::runtime::Work;

use crate::store::Fault;
use crate::world::{World, delete_policy, names_claim, of_class};

fn claim_work() -> Work {
    Work::Claim(Key::claim("ns", "a"))
}

#[tokio::test]
async fn r6_two_cores_bind_two_addresses_and_the_claims_status_decides() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.settle().await;
    w.claim_with("a", of_class("c")).await;
    let mut other = w.another_core().await;
    w.core.sync();
    other.sync();
    // One core gets as far as binding the address, then stops for a while.
    *w.core.store.fault.lock().unwrap() = Fault::CrashAfter(w.core.writes() as u64 + 2);
    w.core.pass_over(claim_work()).await;
    // A smaller address appears; the other core has not seen the first binding yet.
    w.address("192.0.2.0", "c").await;
    other.sync_only(&[Kind::IPAddressClaim]);
    *w.core.store.fault.lock().unwrap() = Fault::None;
    for _ in 0..20 {
        other.sync();
        other.pass().await;
        w.core.sync();
        w.core.pass().await;
    }
    other.settle().await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    w.assert_phase("192.0.2.0", AddressPhase::Available).await;
}

#[tokio::test]
async fn r6_an_extra_that_the_core_bound_is_undone_and_given_to_the_next() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    let uid = w.get_claim("a").await.metadata.uid;
    // What a core with an old view leaves behind.
    w.address_with("192.0.2.2", "c", |a| {
        a.spec.claim_ref = names_claim("a", &uid);
        a.metadata
            .annotations
            .insert(names::BOUND_BY_CORE.to_owned(), uid.clone());
    })
    .await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    let undone = w.get_address("192.0.2.2").await;
    assert_eq!(undone.spec.claim_ref, None);
    assert_eq!(undone.metadata.annotation(names::BOUND_BY_CORE), None);
    w.assert_phase("192.0.2.2", AddressPhase::Available).await;
    w.claim_with("b", of_class("c")).await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("b", &["192.0.2.2"]).await;
}

#[tokio::test]
async fn r6_an_extra_that_an_admin_deletes_goes_once_the_status_decides_for_another() {
    for by_core in [true, false] {
        let mut w = World::new().await;
        w.class("c").await;
        let claim = w.claim_with("a", of_class("c")).await;
        w.settle().await;
        // Bound by a core that got no further, or by a driver; then an admin deletes it.
        w.address_with("192.0.2.2", "c", |a| {
            a.spec.claim_ref = names_claim("a", &claim.metadata.uid);
            if by_core {
                let uid = claim.metadata.uid.clone();
                a.metadata
                    .annotations
                    .insert(names::BOUND_BY_CORE.to_owned(), uid);
            }
            a.metadata.add_finalizer(names::ADDRESS_PROTECTION);
        })
        .await;
        w.delete_address("192.0.2.2").await;
        w.settle_and_stay_quiet().await;
        // As long as the claim waits, a core that knows less may still count it.
        assert!(w.find_address("192.0.2.2").await.is_some());
        w.address("192.0.2.1", "c").await;
        w.settle_and_stay_quiet().await;
        w.assert_bound("a", &["192.0.2.1"]).await;
        assert_eq!(
            w.find_address("192.0.2.2").await,
            None,
            "by core: {by_core}"
        );
    }
}

#[tokio::test]
async fn r6_an_extra_is_left_alone_while_the_claim_is_only_bound_in_an_old_view() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    let claim = w.get_claim("a").await;
    // The cache shows the claim bound to .1; in truth its status was wiped since.
    w.edit_claim_status("a", |c| c.status = None).await;
    w.address_with("192.0.2.2", "c", |a| {
        a.spec.claim_ref = names_claim("a", &claim.metadata.uid);
        a.metadata
            .annotations
            .insert(names::BOUND_BY_CORE.to_owned(), claim.metadata.uid.clone());
    })
    .await;
    w.core.sync_only(&[Kind::IPAddress]);
    let before = w.core.writes();
    w.core.pass_over(claim_work()).await;
    assert_eq!(
        w.core.log()[before..]
            .iter()
            .filter(|l| l.contains("ip-192-0-2-2 main"))
            .count(),
        0
    );
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
}

#[tokio::test]
async fn r6_without_a_status_the_announced_one_counts_and_is_fenced_against_late_undoing() {
    let mut w = World::new().await;
    w.class("c").await;
    let claim = w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.edit_claim_status("a", |c| c.status = None).await;
    for (ip, announced) in [("192.0.2.1", false), ("192.0.2.2", true)] {
        w.address_with(ip, "c", |a| {
            a.spec.claim_ref = names_claim("a", &claim.metadata.uid);
            a.metadata
                .annotations
                .insert(names::BOUND_BY_CORE.to_owned(), claim.metadata.uid.clone());
        })
        .await;
        if announced {
            w.edit_address_status(ip, |a| {
                a.status.get_or_insert_default().associated_to = Some(Default::default());
            })
            .await;
        }
    }
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.2"]).await;
    let winner = w.get_address("192.0.2.2").await;
    assert_eq!(winner.metadata.annotation(names::BOUND_BY_CORE), None);
    w.assert_phase("192.0.2.1", AddressPhase::Available).await;
}

#[tokio::test]
async fn r6_without_a_status_nothing_is_chosen_before_all_addresses_are_in_view() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.5", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    w.address("192.0.2.1", "c").await;
    w.settle().await;
    w.edit_claim_status("a", |c| c.status = None).await;
    w.restart().await;
    // The new core sees the claim and the free address with the smaller name first.
    w.core
        .sync_only(&[Kind::IPAddressClaim, Kind::IPAddressClass]);
    w.core.pass_over(claim_work()).await;
    assert_eq!(w.core.writes(), 0);
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.5"]).await;
}

#[tokio::test]
async fn r6_a_match_whose_claim_went_before_it_took_effect_is_undone() {
    for policy_delete in [false, true] {
        let mut w = World::new().await;
        w.class("c").await;
        w.address_with("192.0.2.1", "c", |a| {
            if policy_delete {
                delete_policy(a);
            }
        })
        .await;
        w.settle().await;
        w.claim_with("a", of_class("c")).await;
        w.core.sync();
        // Protection of the claim, claimRef of the address, and no further.
        *w.core.store.fault.lock().unwrap() = Fault::CrashAfter(w.core.writes() as u64 + 2);
        w.core.pass_over(claim_work()).await;
        w.force_delete_claim("a").await;
        w.restart().await;
        w.settle_and_stay_quiet().await;
        w.assert_phase("192.0.2.1", AddressPhase::Available).await;
        assert_eq!(w.get_address("192.0.2.1").await.spec.claim_ref, None);
    }
}

#[tokio::test]
async fn r6_at_reclaim_an_extra_of_the_core_that_the_status_does_not_name_is_undone() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    let uid = w.get_claim("a").await.metadata.uid;
    w.address_with("192.0.2.2", "c", |a| {
        a.spec.claim_ref = names_claim("a", &uid);
        a.metadata
            .annotations
            .insert(names::BOUND_BY_CORE.to_owned(), uid.clone());
    })
    .await;
    w.delete_claim("a").await;
    w.settle_and_stay_quiet().await;
    w.assert_phase("192.0.2.1", AddressPhase::Released).await;
    w.assert_phase("192.0.2.2", AddressPhase::Available).await;
}

#[tokio::test]
async fn r6_two_claims_never_hold_one_address_and_the_loser_takes_the_next() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.address("192.0.2.2", "c").await;
    w.settle().await;
    let mut other = w.another_core().await;
    w.claim_with("a", of_class("c")).await;
    w.claim_with("b", of_class("c")).await;
    w.core.sync();
    other.sync();
    // Both cores work from the same view, one claim each.
    w.core.pass_over(claim_work()).await;
    other.pass_over(Work::Claim(Key::claim("ns", "b"))).await;
    for _ in 0..20 {
        other.sync();
        other.pass().await;
        w.core.sync();
        w.core.pass().await;
    }
    other.settle().await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    w.assert_bound("b", &["192.0.2.2"]).await;
}

#[tokio::test]
async fn r6_a_pre_binding_is_not_completed_for_a_claim_that_lives_only_in_an_old_view() {
    let mut w = World::new().await;
    w.claim("a").await;
    w.settle().await;
    // The claim is replaced by another one of its name, and an address waits for that name.
    w.force_delete_claim("a").await;
    let second = w.claim("a").await;
    w.address_with("192.0.2.1", "c", |a| {
        a.metadata
            .annotations
            .insert(names::RESERVED.to_owned(), "true".to_owned());
        a.spec.claim_ref = names_claim("a", "");
    })
    .await;
    w.core.sync_only(&[Kind::IPAddress]);
    w.core.pass_over(claim_work()).await;
    w.settle_and_stay_quiet().await;
    w.assert_bound("a", &["192.0.2.1"]).await;
    let address = w.get_address("192.0.2.1").await;
    assert_eq!(
        address.spec.claim_ref.as_ref().unwrap().uid,
        second.metadata.uid
    );
}

#[tokio::test]
async fn r6_what_another_core_has_released_is_not_taken_back_on_an_old_view() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    let mut other = w.another_core().await;
    w.force_delete_claim("a").await;
    other.settle().await;
    w.assert_phase("192.0.2.1", AddressPhase::Released).await;
    w.core.sync_only(&[Kind::IPAddress]);
    let before = w.core.writes();
    for _ in 0..4 {
        w.core.pass().await;
    }
    assert_eq!(w.core.log()[before..], [] as [String; 0]);
    w.settle_and_stay_quiet().await;
    w.assert_phase("192.0.2.1", AddressPhase::Released).await;
}

#[tokio::test]
async fn r6_a_lost_claim_does_not_heal_on_a_view_that_has_not_seen_the_loss() {
    let mut w = World::new().await;
    w.class("c").await;
    w.address("192.0.2.1", "c").await;
    w.claim_with("a", of_class("c")).await;
    w.settle().await;
    let mut other = w.another_core().await;
    w.force_delete_address("192.0.2.1").await;
    other.settle().await;
    w.assert_lost("a").await;
    w.core.sync_only(&[Kind::IPAddressClaim]);
    let before = w.core.writes();
    w.core.pass_over(claim_work()).await;
    assert_eq!(w.core.log()[before..], [] as [String; 0]);
    w.settle_and_stay_quiet().await;
    w.assert_lost("a").await;
}
