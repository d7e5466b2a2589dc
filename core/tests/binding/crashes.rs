//! Every prefix of every plan leaves the ledger safe: the core dies after each single write, with
//! and without its last answer lost, starts again with empty caches, and all ends as it should.

use ipledger_core::api::{AddressPhase, ClaimPhase, IPAddressClaimSpec};
use ipledger_core::store::StoreExt;

use crate::store::Fault;
use crate::world::{World, delete_policy, dual, names_claim, of_class};

/// Prepares a ledger, disturbs it, and checks the end; the core dies in between after each number
/// of writes in turn.
macro_rules! at_every_write {
    (|$w:ident| prepare $prepare:block disturb $disturb:block end $end:block) => {
        for lose_answer in [false, true] {
            for n in 0.. {
                let mut $w = World::new().await;
                $prepare
                $w.settle().await;
                $disturb
                $w.core.sync();
                let at = $w.core.writes() as u64 + n;
                let fault =
                    if lose_answer { Fault::LoseAnswerAfter(at) } else { Fault::CrashAfter(at) };
                *$w.core.store.fault.lock().unwrap() = fault;
                // Enough passes for everything that is not cut off.
                for _ in 0..30 {
                    $w.core.sync();
                    assert_safe(&$w).await;
                    if $w.core.pass().await.is_none() {
                        break;
                    }
                }
                let cut = $w.core.writes() as u64 >= at && !$w.core.queue.is_empty();
                assert_safe(&$w).await;
                $w.restart().await;
                $w.settle_and_stay_quiet().await;
                assert_safe(&$w).await;
                $end
                if !cut {
                    assert!(n > 0 || lose_answer, "the core wrote something");
                    break;
                }
            }
        }
    };
}

/// What must hold in every state that anybody can observe.
async fn assert_safe(w: &World) {
    for claim in w.store.list_all::<IPAddressClaimSpec>().await.unwrap() {
        if claim.phase() != Some(ClaimPhase::Bound) || claim.metadata.is_deleting() {
            continue;
        }
        for entry in &claim.status.as_ref().unwrap().addresses {
            if w.forced.contains(&entry.address) {
                continue;
            }
            let address = w.get_address(&entry.address).await;
            let holder = address.spec.claim_ref.clone().unwrap_or_default();
            assert_eq!(
                holder.uid, claim.metadata.uid,
                "{} is reported and held",
                entry.address
            );
            assert!(
                !address.metadata.finalizers.is_empty(),
                "{} is protected",
                entry.address
            );
        }
    }
}

#[tokio::test]
async fn r11_a_static_match_survives_a_crash_after_every_write() {
    at_every_write!(|w| prepare {
        w.class("c").await;
        w.address("192.0.2.1", "c").await;
        w.address("192.0.2.2", "c").await;
    } disturb {
        w.claim_with("a", of_class("c")).await;
    } end {
        w.assert_bound("a", &["192.0.2.1"]).await;
        w.assert_phase("192.0.2.2", AddressPhase::Available).await;
        assert_eq!(w.get_claim("a").await.stamp(), Some("c.example.com"));
    });
}

#[tokio::test]
async fn r11_a_dual_match_survives_a_crash_after_every_write() {
    at_every_write!(|w| prepare {
        w.class("c").await;
        for ip in ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"] {
            w.address(ip, "c").await;
        }
    } disturb {
        w.claim_with("a", dual("c")).await;
    } end {
        w.assert_bound("a", &["192.0.2.1", "2001:db8::1"]).await;
        w.assert_phase("192.0.2.2", AddressPhase::Available).await;
    });
}

#[tokio::test]
async fn r11_completing_a_pre_binding_survives_a_crash_after_every_write() {
    at_every_write!(|w| prepare {
        w.class("c").await;
        w.claim_with("a", of_class("c")).await;
    } disturb {
        w.address_with("192.0.2.1", "c", |a| a.spec.claim_ref = names_claim("a", "")).await;
    } end {
        w.assert_bound("a", &["192.0.2.1"]).await;
    });
}

#[tokio::test]
async fn r11_reclaim_survives_a_crash_after_every_write() {
    at_every_write!(|w| prepare {
        w.class("c").await;
        w.address("192.0.2.1", "c").await;
        w.address_with("2001:db8::1", "c", delete_policy).await;
        w.claim_with("a", dual("c")).await;
    } disturb {
        w.delete_claim("a").await;
    } end {
        assert!(w.find_claim("a").await.is_none());
        assert!(w.find_address("2001:db8::1").await.is_none());
        w.assert_phase("192.0.2.1", AddressPhase::Released).await;
    });
}

#[tokio::test]
async fn r11_becoming_lost_survives_a_crash_after_every_write() {
    at_every_write!(|w| prepare {
        w.class("c").await;
        w.address("192.0.2.1", "c").await;
        w.claim_with("a", of_class("c")).await;
    } disturb {
        w.force_delete_address("192.0.2.1").await;
        w.address("192.0.2.2", "c").await;
    } end {
        w.assert_lost("a").await;
        w.assert_phase("192.0.2.2", AddressPhase::Available).await;
    });
}

#[tokio::test]
async fn r11_a_claim_deleted_while_it_is_being_bound_leaves_nothing_at_any_crash_point() {
    at_every_write!(|w| prepare {
        w.class("c").await;
        w.address("192.0.2.1", "c").await;
    } disturb {
        w.claim_with("a", of_class("c")).await;
        w.core.sync();
        *w.core.store.fault.lock().unwrap() = Fault::CrashAfter(w.core.writes() as u64 + 2);
        for _ in 0..3 {
            w.core.pass().await;
        }
        w.restart().await;
        w.delete_claim("a").await;
    } end {
        assert!(w.find_claim("a").await.is_none());
        let address = w.get_address("192.0.2.1").await;
        assert_eq!(address.spec.claim_ref, None, "it never took effect");
        assert_eq!(address.phase(), Some(AddressPhase::Available));
    });
}

#[tokio::test]
async fn r11_recycling_survives_a_crash_after_every_write() {
    at_every_write!(|w| prepare {
        w.class("c").await;
        w.address("192.0.2.1", "c").await;
        w.claim_with("a", of_class("c")).await;
        w.settle().await;
        w.delete_claim("a").await;
        w.settle().await;
        w.claim_with("b", of_class("c")).await;
    } disturb {
        w.edit_address("192.0.2.1", |a| a.spec.claim_ref = None).await;
    } end {
        w.assert_bound("b", &["192.0.2.1"]).await;
    });
}
