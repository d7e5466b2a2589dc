//! The kinds as Kubernetes CustomResourceDefinitions: the fields are those of [`validate`], the
//! rules are its rules in CEL, and every field has a text for `kubectl explain`.
//!
//! What the edge of our own server refuses, a Kubernetes API server refuses by these definitions.
//! (That the annotations of an object leave room for those of the ledger cannot be said in them.)
//!
//! [`validate`]: super::validate

mod columns;
mod notes;
mod rules;

use serde_json::{Map, Value, json};

use super::validate::schema::{self, Field, Shape};
use super::{GROUP, Kind, VERSION};
use notes::Note;

/// The definition of a kind, as `kubectl apply` takes it.
pub fn definition(kind: Kind) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{GROUP}", kind.plural())},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.name(), "listKind": format!("{}List", kind.name()),
                "plural": kind.plural(), "singular": kind.singular(),
                "shortNames": [kind.short_name()], "categories": ["ipledger"],
            },
            "scope": if kind.namespaced() { "Namespaced" } else { "Cluster" },
            "versions": [{
                "name": VERSION, "served": true, "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns::printed(kind),
                "selectableFields": columns::selectable(kind),
                "schema": {"openAPIV3Schema": root(kind)},
            }],
        },
    })
}

/// Fields of Kubernetes itself; its own texts explain them.
fn root(kind: Kind) -> Value {
    let mut root = object(kind, schema::fields(kind), "");
    root["description"] = notes::of_kind(kind).into();
    for field in ["apiVersion", "kind"] {
        root["properties"][field] = json!({"type": "string"});
    }
    root["properties"]["metadata"] = json!({"type": "object"});
    root
}

fn object(kind: Kind, fields: &[Field], path: &str) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields {
        let path = if path.is_empty() {
            field.name.to_owned()
        } else {
            format!("{path}.{}", field.name)
        };
        let note = notes::find(kind, &path);
        let mut schema = of_shape(kind, &field.shape, &path, note);
        schema["description"] = note.map_or("", |n| n.text).into();
        if let Some(default) = rules::default(kind, &path) {
            schema["default"] = default;
        }
        add_rules(&mut schema, kind, &path);
        if field.required || rules::is_required(kind, &path) {
            required.push(field.name);
        }
        properties.insert(field.name.to_owned(), schema);
    }
    let mut schema = json!({"type": "object"});
    if !properties.is_empty() {
        // The server would drop an empty map, and find the definition changed at each apply.
        schema["properties"] = properties.into();
    }
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if is_written_whole(kind, path) {
        schema["x-kubernetes-map-type"] = "atomic".into();
    }
    if path.is_empty() {
        add_rules(&mut schema, kind, "");
    }
    schema
}

/// The core alone writes the status of a claim, and all of it. So the server need not keep in
/// `metadata.managedFields` who wrote which field in it, which is a good part of what a write costs.
fn is_written_whole(kind: Kind, path: &str) -> bool {
    kind == Kind::IPAddressClaim && path == "status"
}

fn add_rules(schema: &mut Value, kind: Kind, path: &str) {
    let rules = rules::of(kind, path);
    if !rules.is_empty() {
        schema["x-kubernetes-validations"] = rules.into();
    }
}

fn of_shape(kind: Kind, shape: &Shape, path: &str, note: Option<&Note>) -> Value {
    let max = note.map_or(0, |n| n.max);
    match shape {
        Shape::Text => {
            let mut schema = json!({"type": "string", "maxLength": max});
            if let Some(pattern) = rules::pattern(kind, path) {
                schema["pattern"] = pattern.into();
            }
            schema
        }
        Shape::Words(words) => json!({"type": "string", "enum": words}),
        Shape::Count => json!({"type": "integer", "format": "int64", "minimum": 0}),
        Shape::Time => json!({"type": "string", "format": "date-time"}),
        Shape::Fields(fields) => object(kind, fields, path),
        Shape::Opaque => {
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
        }
        Shape::List(Shape::Fields(fields)) if path == "status.conditions" => json!({
            "type": "array", "maxItems": max, "items": object(kind, fields, path),
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        }),
        Shape::List(Shape::Fields(fields)) => json!({
            "type": "array", "maxItems": max, "items": object(kind, fields, path),
            "x-kubernetes-list-type": "atomic",
        }),
        Shape::List(_) => json!({
            "type": "array", "maxItems": max, "items": {"type": "string", "maxLength": 253},
            "x-kubernetes-list-type": "atomic",
        }),
        // Those of metadata, which is not in a definition.
        Shape::Flag | Shape::Revision | Shape::Texts | Shape::Any => json!({"type": "string"}),
    }
}

#[cfg(test)]
mod tests;
