//! Label and field selectors in the Kubernetes string form. The default ones match everything.

mod fields;
mod labels;

pub use fields::FieldSelector;
pub use labels::LabelSelector;

/// A selector that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the selector `{selector}` cannot be read: {reason}")]
pub struct SelectorError {
    /// The selector as it was given.
    pub selector: String,
    /// What is wrong and what to write instead.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::Object;

    fn object() -> Object {
        Object::from_value(json!({
            "apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": "IPAddress",
            "metadata": {"name": "ip-192-0-2-1", "labels": {"tier": "gold", "example.com/zone": "a", "none": ""}},
            "spec": {"className": "public", "claimRef": {"name": "web", "ports": [1]}, "n": 7, "on": true, "odd": "a,b=c\\d"},
        }))
        .unwrap()
    }

    #[test]
    fn label_selectors_match_as_in_kubernetes() {
        for (text, matches) in [
            ("", true),
            (" ", true),
            ("tier=gold", true),
            ("tier==gold", true),
            (" tier = gold , example.com/zone = a ", true),
            ("tier=silver", false),
            ("tier!=silver", true),
            ("tier!=gold", false),
            ("absent!=x", true),
            ("absent=", false),
            ("none=", true),
            ("none", true),
            ("!none", false),
            ("tier", true),
            ("!absent", true),
            ("absent", false),
            ("tier in (silver, gold)", true),
            ("tier in (silver)", false),
            ("tier notin (silver)", true),
            ("tier notin (silver,gold)", false),
            ("absent notin (x)", true),
            ("absent in (x)", false),
            ("none in (,x)", true),
            ("tier=gold,example.com/zone in (b)", false),
            ("in in (in,notin)", false),
        ] {
            assert_eq!(
                LabelSelector::parse(text).unwrap().matches(&object()),
                matches,
                "{text}"
            );
        }
    }

    #[test]
    fn label_selectors_that_cannot_be_read_are_refused_with_their_text() {
        for text in [
            ",",
            "a,",
            ",a",
            "a,,b",
            "=b",
            "a=b=c",
            "a b",
            "a in",
            "a in x",
            "a in ()",
            "a in (x",
            "a in (x y)",
            "a notin",
            "!a=b",
            "!",
            "a>1",
            "a<1",
            "a/b/c",
            "a=b c",
            "a=ä",
            "(a)",
            "a)",
        ] {
            let e = LabelSelector::parse(text).unwrap_err();
            assert_eq!(e.selector, text);
        }
    }

    #[test]
    fn field_selectors_compare_the_text_of_a_field() {
        for (text, matches) in [
            ("", true),
            ("metadata.name=ip-192-0-2-1", true),
            ("metadata.name!=ip-192-0-2-1", false),
            ("metadata.namespace=", true),
            ("spec.className==public", true),
            ("spec.className=private", false),
            ("spec.className=public,spec.claimRef.name=web", true),
            ("spec.className=public,spec.claimRef.name!=web", false),
            ("spec.n=7", true),
            ("spec.on=true", true),
            ("status.phase=", true),
            ("status.phase!=Bound", true),
            ("spec.claimRef=", true),
            ("spec.className.more=", true),
            ("spec.odd=a\\,b\\=c\\\\d", true),
            ("spec.odd!=a\\,b\\=c\\\\d,", false),
        ] {
            assert_eq!(
                FieldSelector::parse(text).unwrap().matches(&object()),
                matches,
                "{text}"
            );
        }
    }

    #[test]
    fn field_selectors_that_cannot_be_read_are_refused_with_their_text() {
        for text in [
            "a", "=b", "!=b", "a=b=c", "a..b=c", "a=b\\", "a=\\x", "a=1,b",
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().selector, text);
        }
    }

    #[test]
    fn a_selector_is_printed_so_that_it_reads_back_the_same() {
        for text in [
            "",
            "a=b",
            "a!=b",
            "a=",
            "a in (x,y)",
            "a notin (,x)",
            "a,!b,c=d",
        ] {
            let selector = LabelSelector::parse(text).unwrap();
            assert_eq!(selector.to_string(), text);
            assert_eq!(
                LabelSelector::parse(&selector.to_string()).unwrap(),
                selector
            );
        }
        for text in ["", "a=b", "a.b!=c", "a=", "a=x\\,y\\=z\\\\,b=c"] {
            let selector = FieldSelector::parse(text).unwrap();
            assert_eq!(selector.to_string(), text);
            assert_eq!(
                FieldSelector::parse(&selector.to_string()).unwrap(),
                selector
            );
        }
    }
}
