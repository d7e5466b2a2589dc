//! What a class of the range driver hands out, read from its parameters without the code that is
//! judged, and counted one by one: the classes of this world are small.

use std::collections::BTreeSet;

use ipledger_core::api::IPAddressClass;
use ipledger_core::net::{Family, Ip};
use serde_json::Value;

/// The addresses of a class.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Those that it lists, what is left out of them included.
    pub listed: BTreeSet<Ip>,
    /// Those that it hands out.
    pub usable: BTreeSet<Ip>,
}

impl Pool {
    /// `None` if the parameters cannot be read.
    pub fn of(class: &IPAddressClass) -> Option<Pool> {
        let parameters = class.spec.parameters.as_ref()?;
        let keeps_ends = parameters["reserveFirstLast"].as_bool() == Some(true);
        let mut pool = Pool::default();
        for item in items(&parameters["addresses"])? {
            let (mut all, is_cidr) = addresses(item)?;
            pool.listed.extend(all.iter().copied());
            if keeps_ends && is_cidr && all.len() > 2 {
                all.pop();
                all.remove(0);
            }
            pool.usable.extend(all);
        }
        for item in items(&parameters["exclude"]).unwrap_or_default() {
            for ip in addresses(item)?.0 {
                pool.usable.remove(&ip);
            }
        }
        Some(pool)
    }

    pub fn of_family(all: &BTreeSet<Ip>, family: Family) -> impl Iterator<Item = Ip> {
        all.iter().copied().filter(move |ip| ip.family() == family)
    }
}

fn items(list: &Value) -> Option<Vec<&str>> {
    list.as_array()?.iter().map(Value::as_str).collect()
}

/// The addresses of one item in order, and whether it is a CIDR.
fn addresses(item: &str) -> Option<(Vec<Ip>, bool)> {
    let ip = |text: &str| Ip::parse(text).ok();
    let (first, count, is_cidr) = if let Some((first, length)) = item.split_once('/') {
        let first = ip(first)?;
        let free_bits = u32::from(first.family().bits()) - length.parse::<u32>().ok()?;
        (first, 1 << free_bits, true)
    } else if let Some((first, last)) = item.split_once('-') {
        let (first, last) = (ip(first)?, ip(last)?);
        (first, last.number() - first.number() + 1, false)
    } else {
        (ip(item)?, 1, false)
    };
    let numbers = first.number()..first.number() + count;
    let all: Option<Vec<Ip>> = numbers
        .map(|number| Ip::from_number(first.family(), number))
        .collect();
    Some((all?, is_cidr))
}
