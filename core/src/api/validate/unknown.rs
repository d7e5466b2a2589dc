use std::fmt;

use serde_json::{Map, Value};

use super::envelope::METADATA;
use super::schema::{self, Field, Shape};
use super::suggest::nearest;
use crate::api::Object;
use crate::store::FieldError;

/// A field that the kind does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// Its path, for example `spec.familly` or `status.conditions[0].x`.
    pub path: String,
    /// The path of the field that was probably meant.
    pub nearest: Option<String>,
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown field {:?}", self.path)?;
        match &self.nearest {
            Some(nearest) => write!(f, ", did you mean {nearest:?}?"),
            None => Ok(()),
        }
    }
}

impl From<UnknownField> for FieldError {
    fn from(unknown: UnknownField) -> FieldError {
        let message = match unknown.nearest {
            Some(nearest) => format!("is not known; did you mean `{nearest}`?"),
            None => "is not known; leave it out".to_owned(),
        };
        FieldError::new(unknown.path, message)
    }
}

/// The fields that the object's kind does not have, at every level, in the order of the object.
/// The content of `spec.parameters` of a class is never unknown.
pub fn unknown_fields(object: &Object) -> Vec<UnknownField> {
    let mut found = Vec::new();
    for name in object.metadata.extra.keys() {
        if !is_metadata(name) {
            let known = METADATA.iter().map(|f| f.name);
            found.push(unknown("metadata", name, known));
        }
    }
    find(&object.fields, schema::fields(object.kind), "", &mut found);
    found
}

/// Removes what [`unknown_fields`] finds.
pub fn prune_unknown(object: &mut Object) {
    object.metadata.extra.retain(|name, _| is_metadata(name));
    prune(&mut object.fields, schema::fields(object.kind));
}

fn is_metadata(name: &str) -> bool {
    METADATA.iter().any(|f| f.name == name)
}

fn unknown<'a>(path: &str, name: &str, known: impl Iterator<Item = &'a str>) -> UnknownField {
    UnknownField {
        path: join(path, name),
        nearest: nearest(name, known).map(|n| join(path, n)),
    }
}

/// The path of a field of what is at `path`.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

pub(super) fn find(
    map: &Map<String, Value>,
    fields: &'static [Field],
    path: &str,
    found: &mut Vec<UnknownField>,
) {
    for (name, value) in map {
        match fields.iter().find(|f| f.name == name) {
            Some(field) => find_in(value, &field.shape, &join(path, name), found),
            None => found.push(unknown(path, name, fields.iter().map(|f| f.name))),
        }
    }
}

fn find_in(value: &Value, shape: &'static Shape, path: &str, found: &mut Vec<UnknownField>) {
    match (value, shape) {
        (Value::Object(map), Shape::Fields(fields)) => find(map, fields, path, found),
        (Value::Array(items), Shape::List(shape)) => {
            for (i, item) in items.iter().enumerate() {
                find_in(item, shape, &format!("{path}[{i}]"), found);
            }
        }
        _ => {}
    }
}

fn prune(map: &mut Map<String, Value>, fields: &'static [Field]) {
    map.retain(|name, value| match fields.iter().find(|f| f.name == name) {
        Some(field) => {
            prune_in(value, &field.shape);
            true
        }
        None => false,
    });
}

fn prune_in(value: &mut Value, shape: &'static Shape) {
    match (value, shape) {
        (Value::Object(map), Shape::Fields(fields)) => prune(map, fields),
        (Value::Array(items), Shape::List(shape)) => {
            items.iter_mut().for_each(|item| prune_in(item, shape));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, mut fields: Value) -> Object {
        fields["apiVersion"] = json!("local.sdn.cozystack.io/v1alpha1");
        fields["kind"] = json!(kind);
        Object::from_value(fields).unwrap()
    }

    fn shown(object: &Object) -> Vec<String> {
        unknown_fields(object)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn unknown_fields_are_found_at_every_level_with_what_was_meant() {
        let address = object(
            "IPAddress",
            json!({"metadata": {"name": "a", "lables": {}}, "spek": {}, "spec": {
                "addres": "192.0.2.1", "claimRef": {"name": "a", "uuid": "u"},
                "source": {"fromClass": {"zone": 1}, "providerRef": {"id": "x", "ID2": "y"}}},
                "status": {"x": 1, "conditions": [{"type": "A", "status": "True", "since": 1}]}}),
        );
        assert_eq!(
            shown(&address),
            [
                r#"unknown field "metadata.lables", did you mean "metadata.labels"?"#,
                r#"unknown field "spec.addres", did you mean "spec.address"?"#,
                r#"unknown field "spec.claimRef.uuid", did you mean "spec.claimRef.uid"?"#,
                r#"unknown field "spec.source.fromClass.zone""#,
                r#"unknown field "spec.source.providerRef.ID2", did you mean "spec.source.providerRef.id"?"#,
                r#"unknown field "spek", did you mean "spec"?"#,
                r#"unknown field "status.conditions[0].since""#,
                r#"unknown field "status.x""#,
            ]
        );
    }

    #[test]
    fn a_pruned_object_has_no_unknown_field_and_keeps_the_others() {
        let mut claim = object(
            "IPAddressClaim",
            json!({"metadata": {"name": "a", "x": 1, "managedFields": []}, "more": 1,
                "spec": {"family": "IPv6", "familly": "IPv4"},
                "status": {"addresses": [{"name": "n", "address": "a", "zone": "z"}], "z": 1}}),
        );
        prune_unknown(&mut claim);
        assert_eq!(shown(&claim), Vec::<String>::new());
        assert_eq!(
            Value::Object(claim.fields),
            json!({"spec": {"family": "IPv6"},
                "status": {"addresses": [{"name": "n", "address": "a"}]}})
        );
        assert_eq!(
            claim.metadata.extra.keys().collect::<Vec<_>>(),
            ["managedFields"]
        );
    }

    #[test]
    fn what_kubernetes_keeps_in_metadata_is_known() {
        let claim = object(
            "IPAddressClaim",
            json!({"metadata": {"managedFields": [{"manager": "x"}], "ownerReferences": [{"uid": "u"}],
                "selfLink": "", "generateName": "a-", "deletionGracePeriodSeconds": 0}}),
        );
        assert_eq!(shown(&claim), Vec::<String>::new());
    }

    #[test]
    fn class_parameters_are_opaque() {
        let mut class = object(
            "IPAddressClass",
            json!({"spec": {"provisioner": "p", "parameters": {"anything": {"at": ["all", {"x": 1}]}}}}),
        );
        let before = class.clone();
        assert_eq!(shown(&class), Vec::<String>::new());
        prune_unknown(&mut class);
        assert_eq!(class, before);
    }

    #[test]
    fn a_field_of_the_wrong_shape_is_left_to_the_type_check() {
        let mut claim = object(
            "IPAddressClaim",
            json!({"spec": [1], "status": {"addresses": {"x": 1}}}),
        );
        let before = claim.clone();
        assert_eq!(shown(&claim), Vec::<String>::new());
        prune_unknown(&mut claim);
        assert_eq!(claim, before);
    }
}
