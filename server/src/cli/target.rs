//! Which objects a command line means.

use ipledger_core::api::{Key, Kind};
use ipledger_core::net::Ip;
use ipledger_core::store::rules::{check_name, check_namespace};

use super::exit::CliError;

/// What KIND and NAME say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// All objects of the kind.
    All(Kind),
    /// One object.
    One(Key),
}

/// Reads KIND and NAME. KIND may be any form of the resource's name, or everything in one word as
/// `-o name` prints it (`ipaddressclaim/default/web`).
///
/// # Errors
/// `Usage`: the kind is not known, or the name cannot be one.
pub(super) fn target(kind: &str, name: Option<&str>, namespace: &str) -> Result<Target, CliError> {
    let parts: Vec<&str> = kind.split('/').collect();
    let (kind, name, namespace) = match (parts.as_slice(), name) {
        ([kind], name) => (*kind, name, namespace),
        ([kind, name], None) => (*kind, Some(*name), namespace),
        ([kind, namespace, name], None) => (*kind, Some(*name), *namespace),
        _ => {
            let text = format!("`{kind}` is not KIND, KIND/NAME or KIND/NAMESPACE/NAME");
            return Err(CliError::Usage(text));
        }
    };
    let written = if parts.len() > 1 {
        format!(" in `{}`", parts.join("/"))
    } else {
        String::new()
    };
    let empty = |what: &str| {
        let text = format!("the {what} is empty{written}; write KIND/NAME or KIND/NAMESPACE/NAME");
        Err(CliError::Usage(text))
    };
    let kind = find_kind(kind)?;
    if name == Some("") {
        return empty("name");
    }
    if namespace.is_empty() {
        return empty("namespace");
    }
    // A name becomes part of a path, where `..` would mean something else.
    if kind.namespaced() {
        check_namespace(namespace).map_err(|e| CliError::Usage(format!("the namespace {e}")))?;
    }
    match name {
        None => Ok(Target::All(kind)),
        Some(name) => Ok(Target::One(key(kind, name, namespace)?)),
    }
}

fn find_kind(word: &str) -> Result<Kind, CliError> {
    let short = match word.to_ascii_lowercase().as_str() {
        "claim" | "claims" => Some(Kind::IPAddressClaim),
        "address" | "addresses" => Some(Kind::IPAddress),
        "class" | "classes" => Some(Kind::IPAddressClass),
        _ => None,
    };
    short.or_else(|| Kind::find_resource(word)).ok_or_else(|| {
        let known = Kind::ALL
            .map(|k| format!("{} ({})", k.plural(), k.short_name()))
            .join(", ");
        CliError::Usage(format!(
            "`{word}` is not a kind; known are {known}, or just classes, addresses, claims"
        ))
    })
}

/// The key of one object. An address may be named by its IP in any spelling.
fn key(kind: Kind, name: &str, namespace: &str) -> Result<Key, CliError> {
    if kind == Kind::IPAddress {
        match Ip::parse(name) {
            Ok(ip) => return Ok(Key::address(ip.object_name())),
            // No object of an address is called so: the server has refused that name for it.
            Err(e) if is_meant_as_ip(name) => return Err(CliError::Usage(e.to_string())),
            Err(_) => {}
        }
    }
    check_name(name).map_err(|e| CliError::Usage(format!("the name {e}")))?;
    if !kind.namespaced() {
        return Ok(Key::cluster(kind, name));
    }
    Ok(Key {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Whether somebody who writes this means an IP, right or wrong, and not the name of an object.
fn is_meant_as_ip(name: &str) -> bool {
    let numbers = |c: char| c.is_ascii_digit() || c == '.';
    name.contains([':', '/', '%']) || (name.contains('.') && name.chars().all(numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(kind: &str, name: &str) -> Target {
        target(kind, Some(name), "default").unwrap()
    }

    #[test]
    fn a_kind_is_understood_in_any_form() {
        for word in [
            "claim",
            "Claims",
            "ipaddressclaim",
            "IPAddressClaim",
            "ipaddressclaims",
            "ipaddrclaim",
            "ipaddressclaims.local.sdn.cozystack.io",
        ] {
            assert_eq!(
                target(word, None, "n").unwrap(),
                Target::All(Kind::IPAddressClaim),
                "{word}"
            );
        }
        assert_eq!(
            target("address", None, "n").unwrap(),
            Target::All(Kind::IPAddress)
        );
        assert_eq!(
            target("classes", None, "n").unwrap(),
            Target::All(Kind::IPAddressClass)
        );
    }

    #[test]
    fn an_address_is_found_by_its_ip_in_any_spelling() {
        let expected = Target::One(Key::address("ip-2001-db8--7"));
        for name in ["ip-2001-db8--7", "2001:db8::7", "2001:DB8:0:0::7"] {
            assert_eq!(one("address", name), expected, "{name}");
        }
    }

    #[test]
    fn what_is_meant_as_an_ip_and_is_none_is_told_so_and_not_looked_for() {
        for (name, said) in [
            ("192.0.2.007", "leading zero"),
            ("192.0.2", "not an address"),
            ("::ffff:192.0.2.7", "IPv4-mapped"),
            ("fe80::1%eth0", "zone id"),
            ("192.0.2.0/24", "prefix"),
            ("127.0.0.1", "loopback"),
        ] {
            let e = target("address", Some(name), "n").unwrap_err();
            assert!(matches!(e, CliError::Usage(_)), "{name}: {e}");
            assert!(e.to_string().contains(said), "{name}: {e}");
        }
        assert_eq!(
            one("address", "1-2.example"),
            Target::One(Key::address("1-2.example"))
        );
        assert_eq!(one("class", "10.1"), Target::One(Key::class("10.1")));
    }

    #[test]
    fn a_namespace_that_cannot_be_one_is_refused_for_lists_too() {
        assert!(target("claims", None, "..").is_err());
        assert!(target("classes", None, "..").is_ok());
    }

    #[test]
    fn what_is_printed_as_a_name_is_understood_as_a_target() {
        let claim = Target::One(Key::claim("team-a", "web"));
        assert_eq!(
            target("ipaddressclaim/team-a/web", None, "default").unwrap(),
            claim
        );
        assert_eq!(target("claim/web", None, "team-a").unwrap(), claim);
        assert_eq!(
            target("class/c", None, "n").unwrap(),
            Target::One(Key::class("c"))
        );
    }

    #[test]
    fn what_is_empty_is_said_to_be() {
        for (kind, name, start) in [
            (
                "claim/",
                None,
                "the name is empty in `claim/`; write KIND/NAME",
            ),
            ("claim/a/", None, "the name is empty in `claim/a/`; "),
            ("claim//x", None, "the namespace is empty in `claim//x`; "),
            ("claim", Some(""), "the name is empty; "),
        ] {
            let e = target(kind, name, "default").unwrap_err().to_string();
            assert!(e.starts_with(start), "{e}");
        }
    }

    #[test]
    fn what_cannot_be_a_target_is_refused_before_anything_is_asked() {
        for (kind, name) in [
            ("pod", None),
            ("claim/a", Some("b")),
            ("claim/a/b/c", None),
            ("claim", Some("..")),
            ("claim", Some("a/status")),
            ("claim/../x", None),
            ("claim", Some("")),
        ] {
            let e = target(kind, name, "default").unwrap_err();
            assert!(matches!(e, CliError::Usage(_)), "{kind} {name:?}: {e}");
        }
    }
}
