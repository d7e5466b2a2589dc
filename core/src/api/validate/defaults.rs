use serde_json::{Map, Value};

use super::schema::{self, Field, Shape};
use crate::api::{Kind, Object};

/// Completes an object as a server of the kind's definition does: a known field that is `null` is
/// taken as absent, `spec.family` of a claim becomes `IPv4`, and `spec.reclaimPolicy` of an address
/// or a class becomes `Retain`. What is there stays as it is.
pub fn apply_defaults(object: &mut Object) {
    drop_nulls(&mut object.fields, schema::fields(object.kind));
    let (field, default) = match object.kind {
        Kind::IPAddressClaim => ("family", "IPv4"),
        Kind::IPAddress | Kind::IPAddressClass => ("reclaimPolicy", "Retain"),
    };
    let spec = object
        .fields
        .entry("spec")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(spec) = spec {
        spec.entry(field).or_insert_with(|| Value::from(default));
    }
}

pub(super) fn drop_nulls(map: &mut Map<String, Value>, fields: &'static [Field]) {
    map.retain(|name, value| match fields.iter().find(|f| f.name == name) {
        Some(_) if value.is_null() => false,
        Some(field) => {
            drop_nulls_in(value, &field.shape);
            true
        }
        None => true,
    });
}

fn drop_nulls_in(value: &mut Value, shape: &'static Shape) {
    match (value, shape) {
        (Value::Object(map), Shape::Fields(fields)) => drop_nulls(map, fields),
        (Value::Array(items), Shape::List(shape)) => {
            items.iter_mut().for_each(|item| drop_nulls_in(item, shape));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn completed(kind: &str, fields: Value) -> Value {
        let mut object = json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": kind});
        for (name, value) in fields.as_object().unwrap() {
            object[name] = value.clone();
        }
        let mut object = Object::from_value(object).unwrap();
        apply_defaults(&mut object);
        Value::Object(object.fields)
    }

    #[test]
    fn absent_and_null_fields_get_their_defaults() {
        for spec in [
            json!({}),
            json!({"spec": null}),
            json!({"spec": {"family": null}}),
        ] {
            let claim = completed("IPAddressClaim", spec);
            assert_eq!(claim, json!({"spec": {"family": "IPv4"}}));
        }
        let address = completed(
            "IPAddress",
            json!({"spec": {"address": "192.0.2.1", "claimRef": null}}),
        );
        assert_eq!(
            address,
            json!({"spec": {"address": "192.0.2.1", "reclaimPolicy": "Retain"}})
        );
        assert_eq!(
            completed("IPAddressClass", json!({})),
            json!({"spec": {"reclaimPolicy": "Retain"}})
        );
    }

    #[test]
    fn what_is_there_stays_as_it_is() {
        for (kind, fields) in [
            ("IPAddressClaim", json!({"spec": {"family": "Dual"}})),
            ("IPAddressClaim", json!({"spec": "wrong"})),
            ("IPAddressClaim", json!({"spec": {"family": 4}})),
            (
                "IPAddressClass",
                json!({"spec": {"reclaimPolicy": "Delete", "parameters": {"a": null}}, "x": null}),
            ),
        ] {
            assert_eq!(completed(kind, fields.clone()), fields, "{kind}");
        }
    }
}
