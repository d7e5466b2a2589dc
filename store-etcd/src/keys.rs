//! Where an object lies in the keyspace.
//!
//! `/PREFIX/PLURAL/NAME`, for example `/ipledger/ipaddresses/ip-192-0-2-1`, and for a kind with
//! namespaces `/PREFIX/PLURAL/NAMESPACE,NAME`. The comma is less than every character of a name, so
//! that the order of the keys is that of namespace, then name (with a `/`, `a-b` would come before
//! `a`). The slash behind the prefix keeps the ledger `a` apart from the ledger `ab`.
//!
//! `/PREFIX/leader` and `/PREFIX/import` say who works on the ledger (see `election.rs`, `import.rs`).

use ipledger_core::api::{Key, Kind};

const SEPARATOR: char = ',';
/// The one after [`SEPARATOR`], so that a range up to it ends with the namespace.
const AFTER_SEPARATOR: char = '-';
/// Longest prefix in bytes: a key is sent several times with each write.
const PREFIX_MAX: usize = 256;

/// From the first key to the one behind the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

/// The part of the keyspace that belongs to one ledger.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// Begins and ends with a slash.
    root: String,
}

impl Keys {
    /// # Errors
    /// Why this cannot be the prefix of a ledger.
    pub(crate) fn new(prefix: &str) -> Result<Keys, String> {
        let prefix = prefix.trim_matches('/');
        if prefix.len() > PREFIX_MAX {
            return Err(format!("it has more than {PREFIX_MAX} bytes"));
        }
        for segment in prefix.split('/') {
            if segment.is_empty() {
                return Err(
                    "it must be one or more names joined by `/`, for example `ipledger`".to_owned(),
                );
            }
            if Kind::ALL.iter().any(|k| k.plural() == segment) {
                return Err(format!(
                    "`{segment}` is where a ledger keeps its objects, so that this one could lie inside another"
                ));
            }
            if segment.chars().any(|c| c.is_control() || c.is_whitespace()) {
                return Err("it must not contain spaces or control characters".to_owned());
            }
        }
        Ok(Keys {
            root: format!("/{prefix}/"),
        })
    }

    /// The key of the object.
    pub(crate) fn of(&self, key: &Key) -> Vec<u8> {
        let mut text = self.folder(key.kind);
        if key.kind.namespaced() {
            text.push_str(&key.namespace);
            text.push(SEPARATOR);
        }
        text.push_str(&key.name);
        text.into_bytes()
    }

    /// The keys of a kind, and of a namespace if the kind has any.
    pub(crate) fn range(&self, kind: Kind, namespace: Option<&str>) -> Range {
        let folder = self.folder(kind);
        match namespace.filter(|_| kind.namespaced()) {
            Some(namespace) => Range {
                first: format!("{folder}{namespace}{SEPARATOR}").into_bytes(),
                end: format!("{folder}{namespace}{AFTER_SEPARATOR}").into_bytes(),
            },
            None => Range {
                end: format!("{}0", folder.trim_end_matches('/')).into_bytes(),
                first: folder.into_bytes(),
            },
        }
    }

    /// Whose key this is; nothing if no object of this kind can have it.
    pub(crate) fn parse(&self, kind: Kind, key: &[u8]) -> Option<Key> {
        let rest = std::str::from_utf8(key)
            .ok()?
            .strip_prefix(&self.folder(kind))?;
        let (namespace, name) = if kind.namespaced() {
            rest.split_once(SEPARATOR)?
        } else {
            ("", rest)
        };
        Some(Key {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Where the name of the server lies whose controllers work. No kind has its name.
    pub(crate) fn leader(&self) -> Vec<u8> {
        format!("{}leader", self.root).into_bytes()
    }

    /// Where the mark of an import lies that is not complete.
    pub(crate) fn import(&self) -> Vec<u8> {
        format!("{}import", self.root).into_bytes()
    }

    fn folder(&self, kind: Kind) -> String {
        format!("{}{}/", self.root, kind.plural())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(range: &Range, key: &[u8]) -> bool {
        range.first.as_slice() <= key && key < range.end.as_slice()
    }

    #[test]
    fn a_key_reads_back_the_same() {
        let keys = Keys::new("/a/b/").unwrap();
        for key in [
            Key::claim("team-a", "web.1"),
            Key::class("public"),
            Key::address("ip-192-0-2-1"),
        ] {
            assert_eq!(keys.parse(key.kind, &keys.of(&key)), Some(key.clone()));
            assert!(inside(&keys.range(key.kind, None), &keys.of(&key)));
        }
        assert_eq!(keys.of(&Key::claim("n", "a")), b"/a/b/ipaddressclaims/n,a");
    }

    #[test]
    fn keys_are_in_the_order_of_namespace_then_name() {
        let keys = Keys::new("x").unwrap();
        let wanted = [
            ("a", "b.c"),
            ("a", "y"),
            ("a", "y-1"),
            ("a", "y.1"),
            ("a-b", "x"),
            ("a0", "a"),
            ("b", "10"),
        ];
        let wanted: Vec<_> = wanted
            .iter()
            .map(|(n, m)| keys.of(&Key::claim(*n, *m)))
            .collect();
        let mut sorted = wanted.clone();
        sorted.sort();
        assert_eq!(sorted, wanted);
    }

    #[test]
    fn no_ledger_and_no_namespace_reaches_into_another() {
        let [a, ab] = ["a", "ab"].map(|p| Keys::new(p).unwrap());
        let nested = Keys::new("a/b").unwrap();
        for kind in Kind::ALL {
            for other in [&ab, &nested] {
                let foreign = other.of(&Key {
                    kind,
                    namespace: "n".to_owned(),
                    name: "x".to_owned(),
                });
                assert!(
                    Kind::ALL
                        .iter()
                        .all(|k| !inside(&a.range(*k, None), &foreign))
                );
            }
        }
        let team = a.range(Kind::IPAddressClaim, Some("team"));
        assert!(inside(&team, &a.of(&Key::claim("team", "x"))));
        for other in ["team-a", "tea", "team0"] {
            assert!(!inside(&team, &a.of(&Key::claim(other, "x"))), "{other}");
        }
    }

    #[test]
    fn a_prefix_that_could_mix_ledgers_is_refused() {
        for bad in ["", "/", "a//b", "a/ipaddresses", "a b", &"x".repeat(300)] {
            assert!(Keys::new(bad).is_err(), "{bad}");
        }
    }
}
