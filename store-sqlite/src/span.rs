//! A stretch of the names of one kind, in key order.

/// Namespace (empty for cluster-scoped kinds) and name of an object.
pub(crate) type Name = (String, String);

/// From one name (inclusive) to another (exclusive).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) from: Name,
    pub(crate) to: Name,
}

impl Span {
    /// Everything, or everything in one namespace.
    pub(crate) fn of_namespace(namespace: Option<&str>) -> Span {
        match namespace {
            Some(namespace) => Span {
                from: (namespace.to_owned(), String::new()),
                to: (format!("{namespace}\0"), String::new()),
            },
            // No namespace begins with the last character that there is.
            None => Span {
                from: Name::default(),
                to: (char::MAX.to_string(), String::new()),
            },
        }
    }

    /// Just this one.
    pub(crate) fn only(name: &Name) -> Span {
        Span {
            from: name.clone(),
            to: next(name),
        }
    }

    /// What of this stretch comes after a name.
    pub(crate) fn after(&self, name: &Name) -> Span {
        Span {
            from: next(name).max(self.from.clone()),
            to: self.to.clone(),
        }
    }

    /// What of this stretch comes up to and with a name.
    pub(crate) fn up_to(&self, name: &Name) -> Span {
        Span {
            from: self.from.clone(),
            to: next(name).min(self.to.clone()),
        }
    }
}

/// The smallest name that is greater.
fn next(name: &Name) -> Name {
    (name.0.clone(), format!("{}\0", name.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(namespace: &str, name: &str) -> Name {
        (namespace.to_owned(), name.to_owned())
    }

    fn holds(span: &Span, n: &Name) -> bool {
        span.from <= *n && *n < span.to
    }

    #[test]
    fn a_span_of_a_namespace_holds_that_namespace_only() {
        let span = Span::of_namespace(Some("b"));
        assert!(holds(&span, &name("b", "a")) && holds(&span, &name("b", "zz")));
        for other in [
            name("a", "z"),
            name("b-c", "a"),
            name("ba", "a"),
            name("c", "a"),
        ] {
            assert!(!holds(&span, &other), "{other:?}");
        }
        assert!(holds(&Span::of_namespace(None), &name("zz", "zz")));
    }

    #[test]
    fn a_span_is_cut_at_a_name_without_a_gap_or_an_overlap() {
        let all = Span::of_namespace(None);
        let cut = name("b", "m");
        let (low, high) = (all.up_to(&cut), all.after(&cut));
        for n in [
            name("a", "z"),
            name("b", "a"),
            name("b", "m"),
            name("b", "m-1"),
            name("c", "a"),
        ] {
            assert!(holds(&low, &n) != holds(&high, &n), "{n:?}");
            assert_eq!(holds(&low, &n), n <= cut, "{n:?}");
        }
        assert!(holds(&Span::only(&cut), &cut) && !holds(&Span::only(&cut), &name("b", "m-1")));
    }
}
