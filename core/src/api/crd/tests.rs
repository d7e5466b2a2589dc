use std::collections::BTreeSet;

use super::*;

/// The paths of all fields, as the notes write them.
fn paths(fields: &[Field], path: &str, into: &mut BTreeSet<String>) {
    for field in fields {
        let path = if path.is_empty() {
            field.name.to_owned()
        } else {
            format!("{path}.{}", field.name)
        };
        if let Shape::Fields(inner) | Shape::List(Shape::Fields(inner)) = &field.shape {
            paths(inner, &path, into);
        }
        into.insert(path);
    }
}

#[test]
fn every_field_has_one_text_and_every_text_has_its_field() {
    for kind in Kind::ALL {
        let mut wanted = BTreeSet::new();
        paths(schema::fields(kind), "", &mut wanted);
        let noted: Vec<_> = notes::all(kind).map(|n| n.path.to_owned()).collect();
        assert_eq!(
            noted.len(),
            noted.iter().collect::<BTreeSet<_>>().len(),
            "{kind}"
        );
        assert_eq!(noted.into_iter().collect::<BTreeSet<_>>(), wanted, "{kind}");
        assert!(notes::all(kind).all(|n| n.text.ends_with('.')), "{kind}");
    }
}

/// Looks at every schema below one.
fn each(schema: &Value, path: &str, look: &mut impl FnMut(&str, &Value)) {
    look(path, schema);
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        each(inner, &format!("{path}.{name}"), look);
    }
    if schema.get("items").is_some() {
        each(&schema["items"], &format!("{path}[]"), look);
    }
}

fn schema_of(kind: Kind) -> Value {
    definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

#[test]
fn every_text_and_list_has_a_limit() {
    for kind in Kind::ALL {
        each(&schema_of(kind), "", &mut |path, schema| {
            let bounded = match schema["type"].as_str() {
                Some("array") => schema["maxItems"].as_u64().is_some_and(|n| n > 0),
                Some("string") => {
                    schema["maxLength"].as_u64().is_some_and(|n| n > 0)
                        || schema.get("enum").is_some()
                        || schema.get("format").is_some()
                        || [".apiVersion", ".kind"].contains(&path)
                }
                Some("object" | "integer") => true,
                other => panic!("{kind} {path}: {other:?}"),
            };
            assert!(bounded, "{kind} {path}");
        });
    }
}

/// A note that is found nowhere would be a rule that is never kept.
#[test]
fn rules_defaults_and_requirements_are_at_fields_that_exist() {
    let count = |kind, name: &str| {
        let mut found = 0;
        each(&schema_of(kind), "", &mut |_, schema| {
            let value = &schema[name];
            found += value
                .as_array()
                .map_or(usize::from(!value.is_null()), Vec::len);
        });
        found
    };
    for (kind, rules, defaults, patterns) in [
        (Kind::IPAddressClass, 1, 1, 1),
        (Kind::IPAddress, 6, 1, 4),
        (Kind::IPAddressClaim, 4, 2, 2),
    ] {
        assert_eq!(count(kind, "x-kubernetes-validations"), rules, "{kind}");
        assert_eq!(count(kind, "default"), defaults, "{kind}");
        assert_eq!(count(kind, "pattern"), patterns, "{kind}");
    }
}

/// A driver that applies its part of an address would otherwise drop the core's.
#[test]
fn only_the_status_of_a_claim_has_one_owner() {
    for kind in Kind::ALL {
        let mut whole = Vec::new();
        each(&schema_of(kind), "", &mut |path, schema| {
            if schema["x-kubernetes-map-type"] == "atomic" {
                whole.push(path.to_owned());
            }
        });
        let expected: &[&str] = match kind {
            Kind::IPAddressClaim => &[".status"],
            Kind::IPAddressClass | Kind::IPAddress => &[],
        };
        assert_eq!(whole, expected, "{kind}");
    }
}

#[test]
fn every_selectable_field_is_a_text_of_the_schema() {
    for kind in Kind::ALL {
        let fields = columns::selectable(kind);
        assert!(fields.len() <= 8);
        for field in fields {
            let path = field["jsonPath"]
                .as_str()
                .unwrap()
                .replace('.', "/properties/");
            let schema = schema_of(kind);
            assert_eq!(schema.pointer(&path).unwrap()["type"], "string", "{path}");
        }
    }
}
