//! The parameters of a class, read strictly.

use std::time::Duration;

use ipledger_core::api::validate::nearest;
use ipledger_core::mutant::{Mutant, active, either};
use ipledger_core::net::{Family, IpRange, RangeError, RangeSet};
use serde_json::{Map, Value};

/// Keys that this driver reads.
const KEYS: [&str; 5] = [
    "addresses",
    "exclude",
    "reserveFirstLast",
    "order",
    "reuseAfter",
];

/// Keys of the same class that the association reads.
const KEYS_OF_OTHERS: [&str; 1] = ["pin"];

/// Longest piece of an admin's text that an error repeats, in characters.
const SHOWN_CHARS: usize = 64;

/// In which order free addresses are handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The lowest free address first.
    #[default]
    Lowest,
    /// From a starting point that a hash of the claim's uid gives, so that a choice can be repeated.
    Random,
}

/// What a class hands out (`IPAddressClass.spec.parameters`, design page 4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The addresses to hand out. One that several items list counts once; with `reserveFirstLast`
    /// it is handed out if at least one of those items offers it.
    pub usable: RangeSet,
    /// The listed addresses that `exclude` or `reserveFirstLast` leaves out.
    pub excluded: RangeSet,
    /// In which order they are handed out.
    pub order: Order,
    /// How long an IP rests after its release; zero means not at all.
    pub reuse_after: Duration,
}

/// Why parameters cannot be used: key, list index, item, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// There are none, or they are no object.
    #[error(
        "the class has no parameters object: write at least `addresses`, a list such as [\"192.0.2.0/24\"]"
    )]
    NotAnObject,
    /// A key that no driver reads; a wrong `exclude` would hand out what must not be handed out.
    #[error("unknown parameter `{key}`: {} {}", advice(*nearest), known())]
    UnknownKey {
        /// The key.
        key: String,
        /// The known key that was probably meant.
        nearest: Option<&'static str>,
    },
    /// `addresses` is missing or empty.
    #[error(
        "parameter `addresses` lists nothing: write the addresses to hand out, such as [\"192.0.2.0/24\"]"
    )]
    NoAddresses,
    /// A value of the wrong type or outside the choice.
    #[error("parameter `{key}` is {value}: write {expected}")]
    Value {
        /// The key, with the index in a list (from 0).
        key: String,
        /// The value as JSON, shortened.
        value: String,
        /// What is possible.
        expected: &'static str,
    },
    /// An item of `addresses` or `exclude`.
    #[error("parameter `{key}[{index}]`: {error}")]
    Item {
        /// The list.
        key: &'static str,
        /// The index in the list, from 0.
        index: usize,
        /// What is wrong with the item.
        error: RangeError,
    },
}

impl Parameters {
    /// Reads the parameters of a class. Keys of the association (`pin`) are left alone.
    ///
    /// # Errors
    /// [`ParameterError`] for the first thing that is wrong; nothing may be handed out then.
    pub fn parse(parameters: Option<&Value>) -> Result<Parameters, ParameterError> {
        let Some(Value::Object(map)) = parameters else {
            return Err(ParameterError::NotAnObject);
        };
        if let Some(key) = map.keys().find(|k| !is_known(k)) {
            return Err(ParameterError::UnknownKey {
                key: shown(key),
                nearest: nearest(key, keys()),
            });
        }
        let reserve = match map.get("reserveFirstLast") {
            None => false,
            Some(Value::Bool(flag)) => *flag && !active(Mutant::EndsHandedOut),
            Some(other) => return Err(wrong("reserveFirstLast", other, "true or false")),
        };
        // An item always keeps a usable address, see `ParsedItem::usable`.
        let (listed, usable) = ranges(map, "addresses", reserve)?;
        if listed == RangeSet::new() {
            return Err(ParameterError::NoAddresses);
        }
        let (exclude, _) = ranges(map, "exclude", false)?;
        let usable = either(Mutant::ExcludeIgnored, usable.subtract(&exclude), usable);
        Ok(Parameters {
            excluded: listed.subtract(&usable),
            usable,
            order: order(map)?,
            reuse_after: reuse_after(map)?,
        })
    }

    /// Whether the class lists any address of the family, excluded ones included.
    pub fn lists(&self, family: Family) -> bool {
        !self.usable.is_empty(family) || !self.excluded.is_empty(family)
    }
}

/// All addresses of a list, and those that may be handed out.
fn ranges(
    map: &Map<String, Value>,
    key: &'static str,
    reserve: bool,
) -> Result<(RangeSet, RangeSet), ParameterError> {
    let items = match map.get(key) {
        None => return Ok((RangeSet::new(), RangeSet::new())),
        Some(Value::Array(items)) => items,
        Some(other) => return Err(wrong(key, other, "a list of addresses, ranges and CIDRs")),
    };
    let mut parsed = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let Value::String(text) = item else {
            let key = format!("{key}[{index}]");
            return Err(wrong(key, item, "a string such as \"192.0.2.0/24\""));
        };
        let item =
            IpRange::parse(text).map_err(|error| ParameterError::Item { key, index, error })?;
        parsed.push(item);
    }
    let all = RangeSet::from_ranges(parsed.iter().map(|item| item.range));
    let usable = RangeSet::from_ranges(parsed.iter().filter_map(|item| item.usable(reserve)));
    Ok((all, usable))
}

fn order(map: &Map<String, Value>) -> Result<Order, ParameterError> {
    match map.get("order") {
        None => Ok(Order::Lowest),
        Some(Value::String(word)) if word == "lowest" => Ok(Order::Lowest),
        Some(Value::String(word)) if word == "random" => Ok(Order::Random),
        Some(other) => Err(wrong("order", other, "`lowest` or `random`")),
    }
}

fn reuse_after(map: &Map<String, Value>) -> Result<Duration, ParameterError> {
    const EXPECTED: &str = "a duration with its unit, such as \"30m\" or \"1h\"";
    match map.get("reuseAfter") {
        None => Ok(Duration::ZERO),
        Some(Value::String(text)) => humantime::parse_duration(text)
            .map_err(|_| wrong("reuseAfter", &Value::String(text.clone()), EXPECTED)),
        Some(other) => Err(wrong("reuseAfter", other, EXPECTED)),
    }
}

fn is_known(key: &str) -> bool {
    KEYS.contains(&key) || KEYS_OF_OTHERS.contains(&key)
}

fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.into_iter().chain(KEYS_OF_OTHERS)
}

fn known() -> String {
    keys().collect::<Vec<_>>().join(", ")
}

fn advice(nearest: Option<&str>) -> String {
    match nearest {
        Some(nearest) => format!("did you mean `{nearest}`? Known are"),
        None => "known are".to_owned(),
    }
}

fn wrong(key: impl Into<String>, value: &Value, expected: &'static str) -> ParameterError {
    ParameterError::Value {
        key: key.into(),
        value: shown(&value.to_string()),
        expected,
    }
}

/// The admin's text as an error repeats it: errors end up in conditions, which must stay short.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((cut, _)) => format!("{}...", text.get(..cut).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(value: Value) -> Parameters {
        Parameters::parse(Some(&value)).unwrap()
    }

    fn message(value: Value) -> String {
        Parameters::parse(Some(&value)).unwrap_err().to_string()
    }

    fn sizes(value: Value) -> [u128; 4] {
        let p = parse(value);
        [
            p.usable.size(Family::V4),
            p.excluded.size(Family::V4),
            p.usable.size(Family::V6),
            p.excluded.size(Family::V6),
        ]
    }

    #[test]
    fn addresses_count_once_and_excluded_ones_are_counted_apart() {
        let cases = [
            (
                json!({"addresses": ["10.0.0.0/29", "10.0.0.4-10.0.0.11"]}),
                [12, 0, 0, 0],
            ),
            (
                json!({"addresses": ["10.0.0.0/24", "fd00::/64"]}),
                [256, 0, 1 << 64, 0],
            ),
            (
                json!({"addresses": ["10.0.0.0/24"], "exclude": ["10.0.0.0-10.0.0.9", "10.0.9.1"]}),
                [246, 10, 0, 0],
            ),
            (
                json!({"addresses": ["10.0.0.0/29"], "reserveFirstLast": false}),
                [8, 0, 0, 0],
            ),
            (
                json!({"addresses": ["10.0.0.0/29"], "reserveFirstLast": true}),
                [6, 2, 0, 0],
            ),
            (
                json!({"addresses": ["10.0.0.0/31", "10.0.1.0/32"], "reserveFirstLast": true}),
                [3, 0, 0, 0],
            ),
            (
                json!({"addresses": ["10.0.0.0/30", "10.0.0.3"], "reserveFirstLast": true}),
                [3, 1, 0, 0],
            ),
            (
                json!({"addresses": ["10.0.0.0/29"], "exclude": ["10.0.0.0-10.0.0.3"], "reserveFirstLast": true}),
                [3, 5, 0, 0],
            ),
            (
                json!({"addresses": ["10.0.0.1"], "exclude": ["10.0.0.1"], "pin": "metallb"}),
                [0, 1, 0, 0],
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(sizes(value.clone()), expected, "{value}");
        }
    }

    #[test]
    fn order_and_cool_down_have_defaults_and_are_read() {
        let plain = parse(json!({"addresses": ["10.0.0.1"]}));
        assert_eq!(
            (plain.order, plain.reuse_after),
            (Order::Lowest, Duration::ZERO)
        );
        let full =
            parse(json!({"addresses": ["10.0.0.1"], "order": "random", "reuseAfter": "1h 30m"}));
        assert_eq!(
            (full.order, full.reuse_after),
            (Order::Random, Duration::from_secs(5400))
        );
        assert_eq!(
            parse(json!({"addresses": ["10.0.0.1"], "reuseAfter": "0s"})).reuse_after,
            Duration::ZERO
        );
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        let cases = [
            ("excludeAddresses", "exclude"),
            ("excluded", "exclude"),
            ("excludes", "exclude"),
            ("address", "addresses"),
            ("Addresses", "addresses"),
            ("reserveFirstAndLast", "reserveFirstLast"),
            ("reuse_after", "reuseAfter"),
            ("ordering", "order"),
            ("pins", "pin"),
        ];
        for (key, nearest) in cases {
            let message = message(json!({"addresses": ["10.0.0.1"], key: []}));
            let phrase = format!("unknown parameter `{key}`: did you mean `{nearest}`?");
            assert!(message.contains(&phrase), "{message}");
        }
    }

    #[test]
    fn an_unknown_key_that_is_like_no_known_one_is_refused_without_a_guess() {
        for key in ["", "zone", "gateway", &"x".repeat(1_000)] {
            let message = message(json!({"addresses": ["10.0.0.1"], key: []}));
            assert!(message.starts_with("unknown parameter `"), "{message}");
            assert!(
                message.ends_with(
                    "`: known are addresses, exclude, reserveFirstLast, order, reuseAfter, pin"
                ),
                "{message}"
            );
        }
    }

    #[test]
    fn each_error_names_key_index_item_and_what_to_write() {
        let cases = [
            (json!({}), "`addresses` lists nothing"),
            (json!({"addresses": []}), "`addresses` lists nothing"),
            (json!([]), "no parameters object"),
            (
                json!({"addresses": "10.0.0.1"}),
                "`addresses` is \"10.0.0.1\": write a list",
            ),
            (
                json!({"addresses": ["10.0.0.1", 7]}),
                "`addresses[1]` is 7: write a string",
            ),
            (
                json!({"addresses": ["10.0.0.1", "10.0.0.9-10.0.0.1"]}),
                "`addresses[1]`: range item \"10.0.0.9-10.0.0.1\": start is after end",
            ),
            (
                json!({"addresses": ["10.0.0.1"], "exclude": ["192.168.100.200/28"]}),
                "`exclude[0]`: range item \"192.168.100.200/28\" has host bits set",
            ),
            (
                json!({"addresses": ["10.0.0.1"], "reserveFirstLast": "yes"}),
                "`reserveFirstLast` is \"yes\": write true or false",
            ),
            (
                json!({"addresses": ["10.0.0.1"], "order": "highest"}),
                "`order` is \"highest\": write `lowest` or `random`",
            ),
            (
                json!({"addresses": ["10.0.0.1"], "reuseAfter": 5}),
                "`reuseAfter` is 5: write a duration with its unit",
            ),
            (
                json!({"addresses": ["10.0.0.1"], "reuseAfter": "soon"}),
                "`reuseAfter` is \"soon\"",
            ),
        ];
        for (value, phrase) in cases {
            let message = message(value);
            assert!(message.contains(phrase), "{phrase}: {message}");
        }
        assert_eq!(Parameters::parse(None), Err(ParameterError::NotAnObject));
    }

    #[test]
    fn an_error_stays_short_whatever_was_typed() {
        let long = "x".repeat(100_000);
        assert!(message(json!({ long.clone(): 1 })).len() < 300);
        assert!(message(json!({"addresses": ["10.0.0.1"], "order": long})).len() < 300);
    }

    #[test]
    fn ten_thousand_items_with_ten_thousand_exclusions_are_one_set() {
        let item = |n: u32| format!("10.{}.{}.0/28", n / 256, n % 256);
        let hole = |n: u32| format!("10.{}.{}.5", n / 256, n % 256);
        let addresses: Vec<String> = (0..10_000).map(item).collect();
        let exclude: Vec<String> = (0..10_000).map(hole).collect();
        let value = json!({"addresses": addresses, "exclude": exclude});
        assert_eq!(sizes(value), [150_000, 10_000, 0, 0]);
    }

    #[test]
    fn a_family_of_which_everything_is_excluded_is_still_listed() {
        let p = parse(json!({"addresses": ["10.0.0.1", "fd00::1"], "exclude": ["fd00::1"]}));
        assert!(p.lists(Family::V4) && p.lists(Family::V6));
        assert!(!parse(json!({"addresses": ["10.0.0.1"]})).lists(Family::V6));
    }
}
