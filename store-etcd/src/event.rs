//! What a change in the keyspace is to a watch.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipledger_core::api::Key;
use ipledger_core::store::{Filter, Revision, WatchEvent, rules};

use crate::value::Value;

/// Whether it is there and asked for. What cannot be read matches every selector: it might be what is
/// looked for.
pub(crate) fn matches(filter: &Filter, key: &Key, value: &Value) -> bool {
    filter.covers(key)
        && match value {
            Value::Object(object) => filter.selects(object),
            Value::Unreadable { .. } => true,
            Value::Gone(_) => false,
        }
}

/// What stood under a key before a change.
#[derive(Debug)]
pub(crate) enum Before {
    Nothing,
    Value(Value),
    /// Something, but the history that knew it is compacted.
    Forgotten,
}

/// A change of one key.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) key: Key,
    pub(crate) revision: u64,
    pub(crate) before: Before,
    /// Nothing if the key was deleted, be it a grave that was cleared away or somebody's own hand.
    pub(crate) after: Option<Value>,
}

/// What the event is cannot be told, because the history before it is compacted.
#[derive(Debug, PartialEq)]
pub(crate) struct Forgotten;

/// Turns the changes of one stream, in their order, into its events.
pub(crate) struct Events {
    pub(crate) filter: Filter,
    /// The graves that the stream has seen and that are not cleared away yet.
    graves: BTreeSet<Key>,
}

impl Events {
    pub(crate) fn new(filter: Filter) -> Events {
        Events {
            filter,
            graves: BTreeSet::new(),
        }
    }

    /// Something that existed when the watch was opened.
    pub(crate) fn existing(
        &mut self,
        key: &Key,
        revision: u64,
        value: Value,
    ) -> Option<WatchEvent> {
        if let Value::Gone(_) = value {
            self.graves.insert(key.clone());
        }
        if !matches(&self.filter, key, &value) {
            return None;
        }
        match value {
            Value::Object(object) => Some(WatchEvent::Applied(object)),
            Value::Unreadable { reason, .. } => Some(unreadable(key, revision, reason)),
            Value::Gone(_) => None,
        }
    }

    /// The event of a change, if it is one to this watch.
    pub(crate) fn event(&mut self, change: Change) -> Result<Option<WatchEvent>, Forgotten> {
        let Change {
            key,
            revision,
            before,
            after,
        } = change;
        if !self.filter.covers(&key) {
            return Ok(None);
        }
        let known_grave = self.graves.remove(&key);
        match after {
            Some(Value::Object(object)) if self.filter.selects(&object) => {
                return Ok(Some(WatchEvent::Applied(object)));
            }
            Some(Value::Unreadable { reason, .. }) => {
                return Ok(Some(unreadable(&key, revision, reason)));
            }
            _ => {}
        }
        // Now it is a deletion if the watch knows the object.
        let known = match before {
            Before::Nothing | Before::Value(Value::Gone(_)) => None,
            Before::Value(Value::Object(object)) => self.filter.selects(&object).then_some(object),
            Before::Value(Value::Unreadable { uid, .. }) => {
                Some(Arc::new(rules::remains(&key, &uid)))
            }
            Before::Forgotten => match &after {
                None if known_grave => None,
                Some(Value::Gone(last)) if self.filter.selects_all() => Some(last.clone()),
                _ => return Err(Forgotten),
            },
        };
        let last = match after {
            Some(Value::Gone(last)) => {
                self.graves.insert(key);
                known.map(|_| last)
            }
            // It has left the selector, or was deleted by somebody's own hand: what the watch knew.
            _ => known.map(|object| {
                let mut last = Arc::unwrap_or_clone(object);
                last.metadata.resource_version = Some(Revision(revision));
                Arc::new(last)
            }),
        };
        Ok(last.map(WatchEvent::Deleted))
    }
}

fn unreadable(key: &Key, revision: u64, reason: String) -> WatchEvent {
    WatchEvent::Unreadable {
        key: key.clone(),
        revision: Revision(revision),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ipledger_core::api::{Kind, Object};
    use ipledger_core::store::{LabelSelector, WatchFrom, WatchOptions};

    fn claim(tier: &str) -> Arc<Object> {
        let value = json!({
            "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClaim",
            "metadata": {"name": "web", "namespace": "n", "labels": {"tier": tier}},
        });
        Arc::new(Object::from_value(value).unwrap())
    }

    fn object(tier: &str) -> Value {
        Value::Object(claim(tier))
    }

    fn change(before: Before, after: Option<Value>) -> Change {
        Change {
            key: Key::claim("n", "web"),
            revision: 7,
            before,
            after,
        }
    }

    /// What the change is to a new watch: `+` applied, `-` deleted, `?` forgotten, or nothing.
    fn told(events: &mut Events, change: Change) -> &'static str {
        match events.event(change) {
            Ok(None) => "",
            Ok(Some(WatchEvent::Applied(_))) => "+",
            Ok(Some(WatchEvent::Deleted(last))) => {
                assert_eq!(last.metadata.name, "web");
                "-"
            }
            Ok(Some(other)) => panic!("{other:?}"),
            Err(Forgotten) => "?",
        }
    }

    fn events(selector: &str) -> Events {
        let mut options = WatchOptions::all(WatchFrom::Start);
        options.labels = LabelSelector::parse(selector).unwrap();
        Events::new(Filter::of_watch(Kind::IPAddressClaim, &options))
    }

    fn grave() -> Value {
        Value::Gone(claim("gold"))
    }

    fn corrupt() -> Value {
        Value::Unreadable {
            uid: "u".to_owned(),
            reason: "x".to_owned(),
        }
    }

    #[test]
    fn each_change_is_what_the_selector_makes_of_it() {
        use Before::{Forgotten, Nothing, Value as Was};
        for (selector, before, after, wanted) in [
            ("", Nothing, Some(object("gold")), "+"),
            ("", Was(grave()), Some(object("gold")), "+"),
            ("", Was(object("gold")), Some(grave()), "-"),
            ("", Was(corrupt()), Some(grave()), "-"),
            ("", Was(grave()), None, ""),
            // By somebody's own hand.
            ("", Was(object("gold")), None, "-"),
            ("", Was(corrupt()), None, "-"),
            (
                "tier=gold",
                Was(object("gold")),
                Some(object("silver")),
                "-",
            ),
            (
                "tier=gold",
                Was(object("silver")),
                Some(object("silver")),
                "",
            ),
            ("tier=gold", Was(object("silver")), Some(grave()), ""),
            ("tier=gold", Nothing, Some(object("silver")), ""),
            // What was there is compacted.
            ("", Forgotten, Some(object("gold")), "+"),
            ("", Forgotten, Some(grave()), "-"),
            ("", Forgotten, None, "?"),
            ("tier=gold", Forgotten, Some(object("silver")), "?"),
            ("tier=gold", Forgotten, Some(grave()), "?"),
        ] {
            let what = format!("{selector:?} {before:?} {after:?}");
            let got = told(&mut events(selector), change(before, after));
            assert_eq!(got, wanted, "{what}");
        }
    }

    #[test]
    fn a_grave_that_the_watch_has_seen_is_cleared_away_in_silence() {
        let mut followed = events("");
        let was = Before::Value(object("gold"));
        assert_eq!(told(&mut followed, change(was, Some(grave()))), "-");
        assert_eq!(told(&mut followed, change(Before::Forgotten, None)), "");
        assert_eq!(told(&mut followed, change(Before::Forgotten, None)), "?");
        let mut opened = events("");
        assert_eq!(opened.existing(&Key::claim("n", "web"), 5, grave()), None);
        assert_eq!(told(&mut opened, change(Before::Forgotten, None)), "");
    }

    #[test]
    fn what_has_left_the_selector_is_told_as_it_was_with_the_new_revision() {
        let was = Before::Value(object("gold"));
        let event = events("tier=gold").event(change(was, Some(object("silver"))));
        match event.unwrap().unwrap() {
            WatchEvent::Deleted(last) => {
                assert_eq!(last.metadata.labels["tier"], "gold");
                assert_eq!(last.revision(), Some(Revision(7)));
            }
            other => panic!("{other:?}"),
        }
    }
}
