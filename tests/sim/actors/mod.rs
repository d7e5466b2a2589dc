//! People: tenants, admins, and the hands of drivers that this simulation does not run. Each act
//! is one step on the ledger as it is at that moment.

mod admin;
mod hand;
mod tenant;

use ipledger_core::api::{IPAddressClass, Key, ReclaimPolicy, names};
use serde_json::json;

use crate::ledger::{Ledger, Who};
use crate::rng::Rng;
use crate::third_party;

/// The class without a driver.
pub const STATIC: &str = "s";
/// The class of the driver of another make.
pub const THIRD: &str = "t";
/// The class of our range driver.
pub const RANGE: &str = "r";

/// Another class of our range driver, over the same addresses.
pub const SHARED: &str = "q";

/// The small world in which everybody acts, so that they meet often.
#[derive(Clone, Debug)]
pub struct Universe {
    /// The keys of all claims that there can be.
    pub claims: Vec<Key>,
    /// The addresses that admins make by hand.
    pub by_hand: Vec<&'static str>,
    /// Which classes there can be.
    pub classes: Vec<&'static str>,
    /// The one class that everybody wants, and of which there is little.
    pub crowded: Option<&'static str>,
    /// How likely each sort of act is.
    pub weights: Weights,
}

/// The weight of each sort of act among all acts.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    pub tenant: u32,
    pub admin: u32,
    pub hand: u32,
    /// Acts that break the rules.
    pub vandal: u32,
}

/// Does something; says what. `None` if there was nothing to do of the sort that was drawn.
pub fn act(universe: &Universe, ledger: &Ledger, rng: &mut Rng) -> Option<String> {
    let w = universe.weights;
    match rng.weighted(&[w.tenant, w.admin, w.hand, w.vandal])? {
        0 => tenant::act(universe, ledger, rng),
        1 => admin::act(universe, ledger, rng),
        2 => hand::act(ledger, rng),
        _ => tenant::break_rules(universe, ledger, rng).or_else(|| admin::break_rules(ledger, rng)),
    }
}

/// Makes the classes, one of them the default, and half of the addresses that admins make.
pub fn furnish(universe: &Universe, ledger: &Ledger, rng: &mut Rng) {
    for (n, name) in universe.classes.iter().enumerate() {
        let mut class = class(name, rng);
        if n == 0 {
            class
                .metadata
                .annotations
                .insert(names::DEFAULT_CLASS.to_owned(), "true".to_owned());
        }
        ledger.add(Who::Admin, &class);
    }
    if rng.chance(250) {
        // Enough of everything, so that claims of both families are served in one go.
        for ip in &universe.by_hand {
            admin::free_address(ip, ledger);
        }
    }
    for _ in 0..universe.by_hand.len() / 2 {
        admin::creates_address(universe, ledger, rng);
    }
}

/// A class, more often than not the one without a driver.
fn some_class(universe: &Universe, rng: &mut Rng) -> String {
    let class = if let Some(class) = universe.crowded {
        class
    } else if rng.chance(400) {
        STATIC
    } else {
        *rng.pick(&universe.classes)
    };
    class.to_owned()
}

/// A class as an admin makes it.
pub fn class(name: &str, rng: &mut Rng) -> IPAddressClass {
    let mut class = IPAddressClass::default();
    class.metadata.name = name.to_owned();
    class.spec.reclaim_policy = if rng.chance(500) {
        ReclaimPolicy::Delete
    } else {
        ReclaimPolicy::Retain
    };
    let v4 = rng.between(1, 3);
    let v6 = rng.between(0, 2);
    let list = |net: u8| {
        let mut all: Vec<String> = (1..=v4).map(|n| format!("10.{net}.0.{n}")).collect();
        all.extend((1..=v6).map(|n| format!("fd0{net}::{n}")));
        all
    };
    match name {
        THIRD => {
            class.spec.provisioner = third_party::NAME.to_owned();
            class.spec.parameters = Some(json!({ "addresses": list(1) }));
        }
        RANGE | SHARED => {
            class.spec.provisioner = ipledger_drivers::range::NAME.to_owned();
            let mut parameters = match rng.below(3) {
                0 => blocks(rng),
                _ => json!({ "addresses": list(2) }),
            };
            if rng.chance(250) {
                parameters["order"] = json!("random");
            }
            if rng.chance(200) {
                parameters["reuseAfter"] = json!("30s");
            }
            if rng.chance(40) {
                parameters = json!({ "addresses": ["nonsense"] });
            }
            class.spec.parameters = Some(parameters);
        }
        _ => class.spec.provisioner = "nobody.example.com".to_owned(),
    }
    class
}

/// Parameters of the range driver that list no single addresses: ranges and CIDRs, with what is left
/// out of them. A few addresses are left.
fn blocks(rng: &mut Rng) -> serde_json::Value {
    let v4 = ["10.2.0.0/30", "10.2.0.1-10.2.0.3", "10.2.0.2/31"];
    let v6 = ["fd02::/126", "fd02::1-fd02::2", "fd02::2/127"];
    let mut addresses = vec![*rng.pick(&v4)];
    if rng.chance(600) {
        addresses.push(*rng.pick(&v6));
    }
    let mut parameters = json!({ "addresses": addresses });
    if rng.chance(500) {
        parameters["reserveFirstLast"] = json!(true);
    }
    if rng.chance(500) {
        let excluded = ["10.2.0.2", "10.2.0.0/31", "fd02::-fd02::1", "fd02::2"];
        parameters["exclude"] = json!([*rng.pick(&excluded)]);
    }
    parameters
}

/// One of those for which this holds.
fn one_of<'a, T>(
    rng: &mut Rng,
    all: impl IntoIterator<Item = &'a T>,
    wanted: impl Fn(&T) -> bool,
) -> Option<T>
where
    T: Clone + 'a,
{
    let fit: Vec<&T> = all.into_iter().filter(|t| wanted(t)).collect();
    if fit.is_empty() {
        None
    } else {
        Some((*rng.pick(&fit)).clone())
    }
}
