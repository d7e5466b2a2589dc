use std::fmt;

/// The API group of classes, addresses and claims.
pub const GROUP: &str = "local.sdn.cozystack.io";
/// The version of [`GROUP`] that this crate speaks.
pub const VERSION: &str = "v1alpha1";

/// A kind of object that a store keeps.
///
/// The order of the variants is the order in which objects are listed in exports: what others
/// refer to comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Which driver, which parameters, which reclaim policy (cluster scoped).
    IPAddressClass,
    /// One concrete address: the reservation and the only record of its binding (cluster scoped).
    IPAddress,
    /// A tenant's request for one address, or for one of each family (namespaced).
    IPAddressClaim,
}

impl Kind {
    /// Every kind, in order.
    pub const ALL: [Kind; 3] = [Kind::IPAddressClass, Kind::IPAddress, Kind::IPAddressClaim];

    /// The `kind` field on the wire, for example `IPAddressClaim`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::IPAddressClass => "IPAddressClass",
            Kind::IPAddress => "IPAddress",
            Kind::IPAddressClaim => "IPAddressClaim",
        }
    }

    /// The resource name in paths, for example `ipaddressclaims`.
    pub fn plural(self) -> &'static str {
        match self {
            Kind::IPAddressClass => "ipaddressclasses",
            Kind::IPAddress => "ipaddresses",
            Kind::IPAddressClaim => "ipaddressclaims",
        }
    }

    /// The singular resource name, for example `ipaddressclaim`.
    pub fn singular(self) -> &'static str {
        match self {
            Kind::IPAddressClass => "ipaddressclass",
            Kind::IPAddress => "ipaddress",
            Kind::IPAddressClaim => "ipaddressclaim",
        }
    }

    /// The short resource name, for example `ipaddrclaim`.
    pub fn short_name(self) -> &'static str {
        match self {
            Kind::IPAddressClass => "ipaddrclass",
            Kind::IPAddress => "ipaddr",
            Kind::IPAddressClaim => "ipaddrclaim",
        }
    }

    /// The API group, for example `local.sdn.cozystack.io`.
    pub fn group(self) -> &'static str {
        GROUP
    }

    /// The API version within the group.
    pub fn version(self) -> &'static str {
        VERSION
    }

    /// The `apiVersion` field on the wire, for example `local.sdn.cozystack.io/v1alpha1`.
    pub fn api_version(self) -> String {
        format!("{}/{}", self.group(), self.version())
    }

    /// Whether objects of this kind live in a namespace.
    pub fn namespaced(self) -> bool {
        matches!(self, Kind::IPAddressClaim)
    }

    /// The kind with this `apiVersion` and `kind`, if there is one.
    pub fn find(api_version: &str, kind: &str) -> Option<Kind> {
        Kind::ALL
            .into_iter()
            .find(|k| k.name() == kind && k.api_version() == api_version)
    }

    /// The kind with this resource name in any of its forms (plural, singular, short, kind name,
    /// each also with `.GROUP` behind it), without regard to case.
    pub fn find_resource(word: &str) -> Option<Kind> {
        let word = word.to_ascii_lowercase();
        let bare = word.strip_suffix(&format!(".{GROUP}")).unwrap_or(&word);
        Kind::ALL
            .into_iter()
            .find(|k| [k.plural(), k.singular(), k.short_name()].contains(&bare))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The address of an object in a store: kind, namespace (empty for cluster-scoped kinds), name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The kind of object.
    pub kind: Kind,
    /// The namespace, empty for cluster-scoped kinds.
    pub namespace: String,
    /// The name within the namespace.
    pub name: String,
}

impl Key {
    /// A key of a cluster-scoped kind.
    pub fn cluster(kind: Kind, name: impl Into<String>) -> Key {
        Key {
            kind,
            namespace: String::new(),
            name: name.into(),
        }
    }

    /// The key of a claim.
    pub fn claim(namespace: impl Into<String>, name: impl Into<String>) -> Key {
        Key {
            kind: Kind::IPAddressClaim,
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of an address object.
    pub fn address(name: impl Into<String>) -> Key {
        Key::cluster(Kind::IPAddress, name)
    }

    /// The key of a class.
    pub fn class(name: impl Into<String>) -> Key {
        Key::cluster(Kind::IPAddressClass, name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}
