//! Where a kind and an object are in the API, and how a query is written.

use ipledger_core::api::{Key, Kind};
use ipledger_core::store::rules::{check_name, check_namespace};
use ipledger_core::store::{FieldSelector, LabelSelector};

/// The path of all objects of a kind, or of those of one namespace.
pub(crate) fn of_kind(kind: Kind, namespace: Option<&str>) -> String {
    let namespace = match namespace {
        Some(namespace) if kind.namespaced() => format!("/namespaces/{}", encoded(namespace)),
        _ => String::new(),
    };
    let (group, version) = (kind.group(), kind.version());
    format!("/apis/{group}/{version}{namespace}/{}", kind.plural())
}

/// The path of one object; `None` if nothing can have such a key, so that nothing else is asked for
/// by it either.
pub(crate) fn of_object(key: &Key) -> Option<String> {
    let namespace = if key.kind.namespaced() {
        check_namespace(&key.namespace).ok()?;
        Some(key.namespace.as_str())
    } else if key.namespace.is_empty() {
        None
    } else {
        return None;
    };
    check_name(&key.name).ok()?;
    let collection = of_kind(key.kind, namespace);
    Some(format!("{collection}/{}", encoded(&key.name)))
}

/// The path of a lease, or of those of a namespace.
pub(crate) fn of_lease(namespace: &str, name: Option<&str>) -> String {
    let name = name.map_or_else(String::new, |name| format!("/{}", encoded(name)));
    let namespace = encoded(namespace);
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases{name}")
}

/// The path of an Event, or of those of a namespace.
pub(crate) fn of_event(namespace: &str, name: Option<&str>) -> String {
    let name = name.map_or_else(String::new, |name| format!("/{}", encoded(name)));
    let namespace = encoded(namespace);
    format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events{name}")
}

/// A query under construction.
pub(crate) struct Query(String);

impl Query {
    pub(crate) fn new(path: String) -> Query {
        Query(path)
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Query {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.push_str(&encoded(value));
        self
    }

    pub(crate) fn selecting(mut self, labels: &LabelSelector, fields: &FieldSelector) -> Query {
        let (labels, fields) = (labels.to_string(), fields.to_string());
        for (name, selector) in [("labelSelector", labels), ("fieldSelector", fields)] {
            if !selector.is_empty() {
                self = self.with(name, &selector);
            }
        }
        self
    }

    pub(crate) fn into_path(self) -> String {
        self.0
    }
}

/// Percent-encoded, all but what RFC 3986 calls unreserved.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_kubernetes_api() {
        assert_eq!(
            of_object(&Key::claim("team-a", "web")).unwrap(),
            "/apis/local.sdn.cozystack.io/v1alpha1/namespaces/team-a/ipaddressclaims/web"
        );
        assert_eq!(
            of_object(&Key::class("public")).unwrap(),
            "/apis/local.sdn.cozystack.io/v1alpha1/ipaddressclasses/public"
        );
    }

    #[test]
    fn a_key_that_nothing_can_have_has_no_path() {
        for key in [
            Key::class(""),
            Key::class(".."),
            Key::class("a/b"),
            Key::claim("", "web"),
            Key::claim("a/b", "web"),
            Key {
                namespace: "team-a".to_owned(),
                ..Key::class("public")
            },
        ] {
            assert_eq!(of_object(&key), None, "{key}");
        }
    }

    #[test]
    fn a_query_is_percent_encoded() {
        let query = Query::new("/x".to_owned()).with("limit", "1").selecting(
            &LabelSelector::parse("tier in (a,b)").unwrap(),
            &FieldSelector::default(),
        );
        assert_eq!(
            query.into_path(),
            "/x?limit=1&labelSelector=tier%20in%20%28a%2Cb%29"
        );
    }
}
