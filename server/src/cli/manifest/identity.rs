//! Which object a document means: kind, namespace, name.

use ipledger_core::api::{Kind, Object, validate};
use ipledger_core::store::FieldError;
use ipledger_core::store::rules::{check_name, check_namespace};
use serde_json::Value;

use crate::cli::lines::{Node, Tree};

/// The kind of a document.
///
/// # Errors
/// It has none, or none that is kept here: the field and what to write.
pub(super) fn kind_of(node: &Node) -> Result<Kind, FieldError> {
    let text = |field: &str, example: &str| match node.get(field) {
        None => Err(FieldError::new(
            field,
            format!("is missing; write `{field}: {example}`"),
        )),
        Some(value) => value.text().ok_or_else(|| {
            let message = format!("must be text such as `{example}`, not {}", value.describe());
            FieldError::new(field, message)
        }),
    };
    let kind = text("kind", Kind::IPAddressClaim.name())?;
    let named = Kind::ALL.into_iter().find(|k| k.name() == kind);
    let example = named.unwrap_or(Kind::IPAddressClaim).api_version();
    let api_version = text("apiVersion", &example)?;
    match (Kind::find(api_version, kind), named) {
        (Some(kind), _) => Ok(kind),
        (None, Some(named)) => Err(FieldError::new(
            "apiVersion",
            format!(
                "`{api_version}` has no {named} here; write `{}`",
                named.api_version()
            ),
        )),
        (None, None) => {
            let advice = nearest_kind(kind)
                .map_or(String::new(), |k| format!("did you mean `{}`? ", k.name()));
            Err(FieldError::new(
                "kind",
                format!(
                    "`{kind}` of `{api_version}` is not kept here; {advice}known kinds are {}",
                    Kind::ALL.map(Kind::name).join(", ")
                ),
            ))
        }
    }
}

fn nearest_kind(word: &str) -> Option<Kind> {
    Kind::find_resource(word).or_else(|| {
        let name = validate::nearest(word, Kind::ALL.map(Kind::name))?;
        Kind::ALL.into_iter().find(|k| k.name() == name)
    })
}

/// What in the metadata cannot be read at all.
pub(super) fn metadata_errors(node: &Node) -> Vec<FieldError> {
    let Some(metadata) = node.get("metadata") else {
        let message = "is missing; write `metadata:` with a `name:` below it";
        return vec![FieldError::new("metadata", message)];
    };
    if !matches!(metadata.tree, Tree::Map(_)) {
        let message = format!(
            "must be a mapping with a `name:`, not {}",
            metadata.describe()
        );
        return vec![FieldError::new("metadata", message)];
    }
    let mut errors = Vec::new();
    match metadata.get("name") {
        Some(name) if name.text().is_some_and(|t| !t.is_empty()) => {}
        Some(name) if matches!(name.tree, Tree::Scalar(Value::Number(_) | Value::Bool(_))) => {
            errors.push(quotes_needed("metadata.name", name));
        }
        _ => errors.push(FieldError::new(
            "metadata.name",
            "is missing; every object has a name",
        )),
    }
    if let Some(namespace) = metadata.get("namespace")
        && namespace.text().is_none()
        && !namespace.is_null()
    {
        errors.push(quotes_needed("metadata.namespace", namespace));
    }
    for map in ["labels", "annotations"] {
        let path = format!("metadata.{map}");
        let Some(value) = metadata.get(map).filter(|v| !v.is_null()) else {
            continue;
        };
        if !matches!(value.tree, Tree::Map(_)) {
            let message = format!(
                "must be a mapping of names to text, not {}",
                value.describe()
            );
            errors.push(FieldError::new(path, message));
            continue;
        }
        for field in value.fields() {
            if field.value.text().is_none() && !field.value.is_null() {
                errors.push(quotes_needed(
                    &format!("{path}.{}", field.name),
                    &field.value,
                ));
            }
        }
    }
    errors
}

fn quotes_needed(path: &str, node: &Node) -> FieldError {
    let advice = match &node.tree {
        Tree::Scalar(value) => {
            let written = node.written.clone().unwrap_or_else(|| value.to_string());
            format!("; write it in quotes: \"{written}\"")
        }
        Tree::List(_) | Tree::Map(_) => String::new(),
    };
    FieldError::new(
        path,
        format!("must be text, not {}{advice}", node.describe()),
    )
}

/// `IPAddressClaim default/web`, from what can be read of it.
pub(super) fn label(node: &Node, default_namespace: &str) -> String {
    fn text(node: Option<&Node>) -> Option<&str> {
        node.and_then(Node::text).filter(|t| !t.is_empty())
    }
    let metadata = |field: &str| text(node.get("metadata").and_then(|m| m.get(field)));
    let kind = text(node.get("kind"));
    let namespaced = Kind::ALL
        .iter()
        .any(|k| Some(k.name()) == kind && k.namespaced());
    let namespace = metadata("namespace").or(namespaced.then_some(default_namespace));
    let name = metadata("name").map(|name| match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    });
    kind.map(str::to_owned)
        .into_iter()
        .chain(name)
        .collect::<Vec<_>>()
        .join(" ")
}

/// What keeps namespace and name from being parts of a path.
pub(super) fn identity_errors(object: &Object) -> Vec<FieldError> {
    let meta = &object.metadata;
    let name = check_name(&meta.name).map_err(|e| FieldError::new("metadata.name", e));
    let namespace = if object.kind.namespaced() {
        check_namespace(&meta.namespace).map_err(|e| FieldError::new("metadata.namespace", e))
    } else {
        Ok(())
    };
    name.err().into_iter().chain(namespace.err()).collect()
}
