//! What an object says in the words of the ledger that it comes to: there claims have other uids,
//! and generations begin anew.

use std::borrow::Cow;
use std::collections::HashMap;

use ipledger_core::api::{Object, ObjectMeta};
use serde_json::Value;

/// The new uid of each claim, by its old one.
#[derive(Debug, Default)]
pub(super) struct Uids(HashMap<String, String>);

impl Uids {
    pub(super) fn add(&mut self, old: &str, new: &str) {
        if !old.is_empty() {
            self.0.insert(old.to_owned(), new.to_owned());
        }
    }

    /// Replaces uids of claims where an object can carry them: in the claimRef, in annotations (the
    /// core's marks, with what an admin may have appended, and whatever other drivers keep there)
    /// and in the messages of conditions. A uid of a claim that is gone stays, and stays that of no
    /// claim.
    pub(super) fn replace_in(&self, object: &mut Object) {
        for value in object.metadata.annotations.values_mut() {
            self.replace(value);
        }
        let claim_ref = object.fields.get_mut("spec");
        let claim_ref = claim_ref.and_then(|spec| spec.get_mut("claimRef"));
        if let Some(Value::String(uid)) = claim_ref.and_then(|r| r.get_mut("uid")) {
            // Of a foreign form, it is one uid all the same.
            if let Some(new) = self.0.get(uid) {
                new.clone_into(uid);
            }
        }
        for condition in conditions(object) {
            if let Some(Value::String(message)) = condition.get_mut("message") {
                self.replace(message);
            }
        }
    }

    fn replace(&self, text: &mut String) {
        if let Cow::Owned(replaced) = self.replaced(text) {
            *text = replaced;
        }
    }

    /// Each word that is an old uid becomes the new one.
    fn replaced<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let in_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if !text.split(|c| !in_word(c)).any(|w| self.0.contains_key(w)) {
            return Cow::Borrowed(text);
        }
        let pieces = text.split_inclusive(|c| !in_word(c)).map(|piece| {
            let word = piece.trim_end_matches(|c| !in_word(c));
            let end = piece.strip_prefix(word).unwrap_or_default();
            match self.0.get(word) {
                Some(new) => format!("{new}{end}"),
                None => piece.to_owned(),
            }
        });
        Cow::Owned(pieces.collect())
    }
}

/// Says of each condition what generation it was computed from, when the object has another
/// generation now: it is as far behind as it was.
pub(super) fn observe(object: &mut Object, generation: u64) {
    let old = object.metadata.generation;
    for condition in conditions(object) {
        let Some(fields) = condition.as_object_mut() else {
            continue;
        };
        let Some(observed) = fields.get("observedGeneration").and_then(Value::as_u64) else {
            continue;
        };
        let behind = old.saturating_sub(observed);
        match generation.checked_sub(behind).filter(|g| *g > 0) {
            Some(observed) => fields.insert("observedGeneration".to_owned(), observed.into()),
            None => fields.remove("observedGeneration"),
        };
    }
}

fn conditions(object: &mut Object) -> impl Iterator<Item = &mut Value> {
    let status = object.fields.get_mut("status");
    let conditions = status.and_then(|status| status.get_mut("conditions"));
    let conditions = conditions.and_then(Value::as_array_mut);
    conditions.into_iter().flatten()
}

/// The metadata that a writer gives; the rest is given by the store.
pub(super) fn given(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        labels: metadata.labels.clone(),
        annotations: metadata.annotations.clone(),
        finalizers: metadata.finalizers.clone(),
        extra: metadata.extra.clone(),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn uids() -> Uids {
        let mut uids = Uids::default();
        uids.add("a-1", "b-1");
        uids.add("a-2", "b-2");
        uids.add("", "never");
        uids
    }

    #[test]
    fn a_uid_is_replaced_where_it_is_a_whole_word() {
        for (text, replaced) in [
            ("a-1", "b-1"),
            ("a-1/serve", "b-1/serve"),
            (
                "held by claim n/a-1 with uid a-2",
                "held by claim n/b-1 with uid b-2",
            ),
            (
                r#"{"claim":"a-1","of":["a-2"]}"#,
                r#"{"claim":"b-1","of":["b-2"]}"#,
            ),
            ("a-1,a-1", "b-1,b-1"),
            ("a-10 xa-1 a-1-2", "a-10 xa-1 a-1-2"),
            ("a-3", "a-3"),
            ("ü a-1 ü", "ü b-1 ü"),
            ("", ""),
        ] {
            assert_eq!(uids().replaced(text), replaced, "{text}");
        }
    }

    #[test]
    fn uids_are_replaced_in_claim_refs_annotations_and_messages_and_nowhere_else() {
        let object = |one: &str, two: &str| {
            let value = json!({
                "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddress",
                "metadata": {"name": "a-1", "labels": {"l": "a-1"},
                    "annotations": {"example.com/claim": one}},
                "spec": {"address": "a-1", "claimRef": {"namespace": "a-1", "name": "a-1", "uid": two}},
                "status": {"conditions": [{"type": "a-1", "message": format!("with uid {two}")}]}
            });
            Object::from_value(value).unwrap()
        };
        let mut remapped = object("a-1", "a-2");
        uids().replace_in(&mut remapped);
        assert_eq!(remapped, object("b-1", "b-2"));
    }

    #[test]
    fn a_uid_of_several_words_is_replaced_whole_in_a_claim_ref() {
        let mut uids = uids();
        uids.add("urn:a-1", "c-1");
        for (old, new) in [("urn:a-1", "c-1"), ("urn:a-2", "urn:a-2"), ("a-1", "b-1")] {
            let value = json!({
                "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddress",
                "metadata": {"name": "a"}, "spec": {"claimRef": {"uid": old}}
            });
            let mut object = Object::from_value(value).unwrap();
            uids.replace_in(&mut object);
            assert_eq!(object.fields["spec"]["claimRef"]["uid"], new);
        }
    }

    #[test]
    fn a_condition_stays_as_far_behind_as_it_was() {
        let object = |generation: u64, observed: serde_json::Value| {
            let value = json!({
                "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddressClaim",
                "metadata": {"name": "a", "namespace": "n", "generation": generation},
                "status": {"conditions": [observed, {"type": "None"}]}
            });
            Object::from_value(value).unwrap()
        };
        for (was, now, observed) in [
            (7, 1, json!({"observedGeneration": 1})),
            (6, 1, json!({})),
            (6, 2, json!({"observedGeneration": 1})),
        ] {
            let mut remapped = object(7, json!({"observedGeneration": was}));
            observe(&mut remapped, now);
            assert_eq!(remapped, object(7, observed), "{was} {now}");
        }
    }
}
