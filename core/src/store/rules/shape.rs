//! The forms that Kubernetes asks of names, labels, annotations and finalizers.

use crate::api::{Key, ObjectMeta};
use crate::store::FieldError;

const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// Everything in the metadata that has a form.
pub(super) fn check(key: &Key, meta: &ObjectMeta) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut note = |field: &str, result: Result<(), String>| {
        if let Err(message) = result {
            errors.push(FieldError::new(field, message));
        }
    };
    note("metadata.name", check_name(&key.name));
    let namespace = match (key.kind.namespaced(), key.namespace.as_str()) {
        (true, namespace) => check_namespace(namespace),
        (false, "") => Ok(()),
        (false, _) => Err(format!(
            "{} objects have no namespace; leave it out",
            key.kind
        )),
    };
    note("metadata.namespace", namespace);
    for (name, value) in &meta.labels {
        note("metadata.labels", qualified(name));
        note(
            "metadata.labels",
            label_value(value).map_err(|e| format!("`{name}`: {e}")),
        );
    }
    let mut size = 0;
    for (name, value) in &meta.annotations {
        // Kubernetes compares annotation names without regard to case here, and only here.
        note(
            "metadata.annotations",
            qualified(&name.to_ascii_lowercase()),
        );
        size += name.len() + value.len();
    }
    if size > ANNOTATIONS_MAX {
        let message = format!("have {size} bytes together; at most {ANNOTATIONS_MAX} are possible");
        note("metadata.annotations", Err(message));
    }
    for name in &meta.finalizers {
        note("metadata.finalizers", qualified(name));
    }
    errors
}

/// Whether this can be the name of an object: a DNS-1123 subdomain.
///
/// # Errors
/// What a name must look like.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a name is required".to_owned());
    }
    if is_subdomain(name) {
        return Ok(());
    }
    Err(format!(
        "`{name}` must be at most {NAME_MAX} lower-case letters, digits, `-` and `.`, with a \
         letter or digit at both ends of each part (for example `ip-192-0-2-1`)"
    ))
}

/// Whether this can be a namespace: a DNS-1123 label.
///
/// # Errors
/// What a namespace must look like.
pub fn check_namespace(namespace: &str) -> Result<(), String> {
    if namespace.is_empty() {
        return Err("a namespace is required".to_owned());
    }
    if namespace.len() <= LABEL_MAX && is_label(namespace) {
        return Ok(());
    }
    Err(format!(
        "`{namespace}` must be at most {LABEL_MAX} lower-case letters, digits and `-`, with a \
         letter or digit at both ends (for example `team-a`)"
    ))
}

/// `name` or `domain/name`, as for the keys of labels and annotations and for finalizers.
pub(in crate::store) fn qualified(text: &str) -> Result<(), String> {
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    if domain.is_none_or(is_subdomain) && name.len() <= LABEL_MAX && word(name) {
        return Ok(());
    }
    Err(format!(
        "`{text}` must be NAME or DOMAIN/NAME, NAME at most {LABEL_MAX} letters, digits, `-`, `_` \
         and `.` (for example `example.com/owner`)"
    ))
}

/// The value of a label.
pub(in crate::store) fn label_value(text: &str) -> Result<(), String> {
    if text.is_empty() || (text.len() <= LABEL_MAX && word(text)) {
        return Ok(());
    }
    Err(format!(
        "`{text}` must be empty or at most {LABEL_MAX} letters, digits, `-`, `_` and `.`, with a \
         letter or digit at both ends"
    ))
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= NAME_MAX && text.split('.').all(is_label)
}

fn is_label(text: &str) -> bool {
    ends_alphanumeric(text)
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn word(text: &str) -> bool {
    ends_alphanumeric(text)
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn ends_alphanumeric(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.iter()
        .all(|b| b.is_some_and(|b| b.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_1123_subdomains() {
        let long = "a".repeat(253);
        for good in [
            "a",
            "ip-192-0-2-1",
            "ip-2001-db8--7",
            "a.b-c.9",
            "0",
            long.as_str(),
        ] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        let long = "a".repeat(254);
        for bad in [
            "", "A", "a_b", "-a", "a-", "a..b", ".a", "a.", "a.-b", "ä", "a b", "a/b", &long,
        ] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn namespaces_are_dns_1123_labels() {
        let long = "a".repeat(63);
        for good in ["a", "team-a", "0", long.as_str()] {
            assert_eq!(check_namespace(good), Ok(()), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", "a.b", "Team", "-a", "a-", "a/b", &long] {
            assert!(check_namespace(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_of_labels_and_the_like_are_qualified_names() {
        for good in ["a", "A_b.c", "example.com/a", "example.com/A-b"] {
            assert_eq!(qualified(good), Ok(()), "{good}");
        }
        let long = format!("example.com/{}", "a".repeat(64));
        for bad in ["", "/a", "a/", "a/b/c", "Example.com/a", "-a", "a b", &long] {
            assert!(qualified(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_bad_field_of_the_metadata_is_named() {
        let meta = ObjectMeta {
            labels: [
                ("-".to_owned(), "a".to_owned()),
                ("b".to_owned(), "c c".to_owned()),
            ]
            .into(),
            annotations: [
                ("x/".to_owned(), String::new()),
                ("Y/z".to_owned(), String::new()),
            ]
            .into(),
            finalizers: vec!["f f".to_owned()],
            ..ObjectMeta::default()
        };
        let key = Key::claim("", "UP");
        let fields: Vec<_> = check(&key, &meta).into_iter().map(|e| e.field).collect();
        assert_eq!(
            fields,
            [
                "metadata.name",
                "metadata.namespace",
                "metadata.labels",
                "metadata.labels",
                "metadata.annotations",
                "metadata.finalizers"
            ]
        );
    }

    #[test]
    fn annotations_have_a_common_limit() {
        let mut meta = ObjectMeta::default();
        meta.annotations
            .insert("a".to_owned(), "x".repeat(ANNOTATIONS_MAX - 1));
        assert_eq!(check(&Key::class("a"), &meta), []);
        meta.annotations.insert("b".to_owned(), String::new());
        assert_eq!(check(&Key::class("a"), &meta).len(), 1);
    }

    #[test]
    fn a_cluster_kind_with_a_namespace_is_refused() {
        let key = Key {
            namespace: "n".to_owned(),
            ..Key::class("a")
        };
        assert_eq!(
            check(&key, &ObjectMeta::default())[0].field,
            "metadata.namespace"
        );
    }
}
