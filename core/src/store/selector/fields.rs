use std::fmt;

use serde_json::Value;

use super::SelectorError;
use crate::api::Object;

/// Which values fields must have: `path=value`, `path==value`, `path!=value`, joined by commas. A
/// path is `metadata.name`, `metadata.namespace` or leads through the object, for example
/// `spec.claimRef.name`. A field that is absent has the empty value. A backslash stands before
/// each comma, equals sign and backslash of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldRequirement {
    path: String,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Reads a selector; the empty one matches everything.
    ///
    /// # Errors
    /// The text is none. Whether a kind can be selected by a path is not looked at.
    pub fn parse(text: &str) -> Result<FieldSelector, SelectorError> {
        let mut requirements = Vec::new();
        for term in split_unescaped(text, ',').filter(|t| !t.is_empty()) {
            let requirement = parse_field(term).map_err(|reason| SelectorError {
                selector: text.to_owned(),
                reason,
            })?;
            requirements.push(requirement);
        }
        Ok(FieldSelector { requirements })
    }

    /// Whether the object's fields have such values.
    pub fn matches(&self, object: &Object) -> bool {
        self.requirements
            .iter()
            .all(|r| (field(object, &r.path) == r.value) == r.equal)
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The paths that it looks at, for an edge that allows only some.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.requirements.iter().map(|r| r.path.as_str())
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, FieldRequirement { path, equal, value }) in self.requirements.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let sign = if *equal { "=" } else { "!=" };
            write!(f, "{comma}{path}{sign}")?;
            for c in value.chars() {
                if matches!(c, ',' | '=' | '\\') {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

fn split_unescaped(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |c| {
        let splits = c == separator && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
}

fn parse_field(term: &str) -> Result<FieldRequirement, String> {
    let Some(at) = term.find('=') else {
        return Err(format!("`{term}` must look like PATH=VALUE or PATH!=VALUE"));
    };
    let (left, right) = term.split_at(at);
    let (path, equal, text) = match (left.strip_suffix('!'), right.strip_prefix("==")) {
        (Some(path), _) => (path, false, right.strip_prefix('=').unwrap_or_default()),
        (None, Some(value)) => (left, true, value),
        (None, None) => (left, true, right.strip_prefix('=').unwrap_or_default()),
    };
    let path = path.trim();
    if path.is_empty() || path.split('.').any(str::is_empty) {
        return Err(format!("`{path}` is no path such as `spec.className`"));
    }
    let mut value = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some(c @ (',' | '=' | '\\')) => value.push(c),
                _ => return Err(format!("`{term}`: `\\` must stand before `,`, `=` or `\\`")),
            },
            ('=', _) => {
                return Err(format!(
                    "`{term}`: write `\\=` for an equals sign in a value"
                ));
            }
            _ => value.push(c),
        }
    }
    Ok(FieldRequirement {
        path: path.to_owned(),
        equal,
        value,
    })
}

fn field(object: &Object, path: &str) -> String {
    match path {
        "metadata.name" => return object.metadata.name.clone(),
        "metadata.namespace" => return object.metadata.namespace.clone(),
        _ => {}
    }
    let mut steps = path.split('.');
    let first = steps.next().and_then(|step| object.fields.get(step));
    let found = steps.fold(first, |value, step| value?.get(step));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
        _ => String::new(),
    }
}
