//! Laws of the ledger over random histories in a small world.

use proptest::prelude::*;

use super::*;
use crate::range::waiting::Need;

#[derive(Clone, Debug)]
enum Step {
    Class {
        name: u8,
        shape: u8,
    },
    ClassGone {
        name: u8,
    },
    Address {
        ip: u8,
        holder: u8,
        how: u8,
    },
    AddressGone {
        ip: u8,
    },
    Claim {
        name: u8,
        family: u8,
        class: u8,
        phase: u8,
        uid: u8,
    },
    ClaimGone {
        name: u8,
    },
    Begin {
        name: u8,
    },
    GiveBack {
        name: u8,
    },
    Start,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0..2_u8, 0..6_u8).prop_map(|(name, shape)| Step::Class { name, shape }),
        1 => (0..2_u8).prop_map(|name| Step::ClassGone { name }),
        4 => (0..6_u8, 0..5_u8, 0..5_u8).prop_map(|(ip, holder, how)| Step::Address { ip, holder, how }),
        3 => (0..6_u8).prop_map(|ip| Step::AddressGone { ip }),
        5 => (0..5_u8, 0..3_u8, 0..2_u8, 0..5_u8, 0..8_u8).prop_map(|(name, family, class, phase, uid)| {
            Step::Claim { name, family, class, phase, uid }
        }),
        2 => (0..5_u8).prop_map(|name| Step::ClaimGone { name }),
        4 => (0..5_u8).prop_map(|name| Step::Begin { name }),
        1 => (0..5_u8).prop_map(|name| Step::GiveBack { name }),
        1 => Just(Step::Start),
    ];
    proptest::collection::vec(step, 0..60)
}

const IPS: [&str; 6] = [
    "10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2", "10.0.0.9",
];

fn class_at(name: u8, shape: u8) -> IPAddressClass {
    let parameters = match shape {
        0 => json!({"addresses": ["10.0.0.1-10.0.0.3", "fd00::1-fd00::2"]}),
        1 => {
            json!({"addresses": ["10.0.0.1-10.0.0.3", "fd00::1-fd00::2"], "exclude": ["10.0.0.2"]})
        }
        2 => json!({"addresses": ["10.0.0.2-10.0.0.3"]}),
        3 => json!({"addresses": ["10.0.0.1-10.0.0.3", "fd00::1"], "order": "random"}),
        4 => json!({"addresses": ["10.0.0.1", "fd00::2"]}),
        _ => json!({"adresses": ["10.0.0.1"]}),
    };
    class(["c", "d"][usize::from(name)], parameters)
}

/// The change that a step is, if it is one.
fn change(step: &Step) -> Option<Change> {
    let claim_name = |n: u8| format!("k{n}");
    Some(match *step {
        Step::Class { name, shape } => class_at(name, shape).seen(),
        Step::ClassGone { name } => class_at(name, 0).gone(),
        Step::Address { ip, holder, how } => {
            let mut address = held(IPS[usize::from(ip)], &claim_name(holder));
            match how {
                0 => address = deleting(address),
                1 => address.spec.claim_ref = None,
                2 => address.spec.class_name = "d".to_owned(),
                _ => {}
            }
            address.seen()
        }
        Step::AddressGone { ip } => address(IPS[usize::from(ip)]).gone(),
        Step::Claim {
            name,
            family,
            class,
            phase,
            uid,
        } => {
            let families = [ClaimFamily::IPv4, ClaimFamily::IPv6, ClaimFamily::Dual];
            let mut claim = claim(&claim_name(name), families[usize::from(family)]);
            if uid == 0 {
                claim.metadata.uid = "successor".to_owned();
            }
            let status = claim.status.as_mut().unwrap();
            status.class_name = ["c", "d"][usize::from(class)].to_owned();
            if phase == 0 {
                status.phase = Some(ClaimPhase::Bound);
            }
            claim.seen()
        }
        Step::ClaimGone { name } => claim4(&claim_name(name)).gone(),
        Step::Begin { .. } | Step::GiveBack { .. } | Step::Start => return None,
    })
}

fn carry_out(ledger: &mut Ledger, step: &Step) {
    match step {
        Step::Begin { name } => drop(created(ledger, &format!("k{name}"))),
        Step::GiveBack { name } => {
            let key = claim_key(&format!("k{name}"));
            let picks = ledger.claims.get(&key).map(|claim| claim.picks.clone());
            for pick in picks.unwrap_or_default().values() {
                ledger.give_back(&key, pick.ip);
            }
        }
        Step::Start => drop(ledger.start()),
        step => change(step)
            .iter()
            .for_each(|change| drop(ledger.observe(change))),
    }
}

fn check(ledger: &Ledger) {
    let mut picked = BTreeSet::new();
    for (key, claim) in &ledger.claims {
        for pick in claim.picks.values() {
            assert!(picked.insert(pick.ip), "{} is picked twice", pick.ip);
            assert!(ledger.holdings.occupied().contains(pick.ip));
        }
        let picks = Need::of(claim.picks.keys().copied());
        let need = claim.wants.as_ref().map(|(_, need)| *need);
        match &claim.stand {
            Stand::Placed => assert_eq!(picks, need, "{key} is placed"),
            Stand::Idle | Stand::Refused(_) => assert_eq!(picks, None, "{key} keeps something"),
            Stand::Unplaced => {}
        }
        let waits = ledger.waiting.first("c", |_| true) == Some(key)
            || ledger.waiting.first("d", |_| true) == Some(key);
        let exhausted =
            matches!(&claim.stand, Stand::Refused(r) if matches!(r.cause, Cause::Exhausted(_)));
        assert!(exhausted || !waits, "{key} waits for nothing");
    }
    assert_eq!(picked, ledger.holdings.picked().collect());
    for (name, class) in &ledger.classes {
        let Ok(parameters) = &class.parameters else {
            continue;
        };
        let occupied = ledger.holdings.occupied();
        let free = |family: &Family| occupied.first_free(&parameters.usable, *family).is_some();
        let helped = ledger
            .waiting
            .first(name, |need| need.families().iter().all(free));
        assert_eq!(helped, None, "somebody waits in vain for {name}");
    }
}

/// What a ledger knows, apart from its choices.
fn knowledge(ledger: &Ledger) -> impl PartialEq + std::fmt::Debug {
    let outside: Vec<_> = ledger
        .classes
        .iter()
        .map(|(n, c)| (n.clone(), c.outside.clone()))
        .collect();
    let wants: Vec<_> = ledger
        .claims
        .iter()
        .map(|(k, c)| (k.clone(), c.wants.clone()))
        .collect();
    let free: Vec<_> = IPS
        .map(|text| {
            let ip = ip(text);
            !ledger.holdings.occupied().contains(ip) || ledger.holdings.picked().any(|p| p == ip)
        })
        .into();
    (outside, wants, free, ledger.wanting.clone())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn after_every_step_no_ip_is_picked_twice_and_nobody_waits_who_can_be_helped(steps in steps()) {
        let mut ledger = Ledger::default();
        for step in &steps {
            carry_out(&mut ledger, step);
            if ledger.started {
                check(&ledger);
            }
        }
    }

    #[test]
    fn what_is_kept_step_by_step_equals_what_a_fresh_ledger_learns_from_the_end(steps in steps()) {
        let mut ledger = Ledger::default();
        let mut last = std::collections::BTreeMap::new();
        for step in &steps {
            carry_out(&mut ledger, step);
            if let Some(change) = change(step) {
                let key = match &change {
                    Change::Class { key, .. } | Change::Address { key, .. } | Change::Claim { key, .. } => key.clone(),
                };
                last.insert(key, change);
            }
        }
        ledger.start();
        let fresh = started(&last.into_values().collect::<Vec<_>>());
        prop_assert_eq!(knowledge(&ledger), knowledge(&fresh));
    }
}
