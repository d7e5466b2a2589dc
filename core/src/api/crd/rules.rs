//! What the definitions refuse, in CEL, and what they add. The same rules as in [`validate`], which
//! our own server keeps.
//!
//! [`validate`]: crate::api::validate

use serde_json::{Value, json};

use crate::api::Kind;

/// A DNS-1123 subdomain, as names of objects are.
const NAME: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
/// A DNS-1123 label, as names of namespaces are.
const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

/// What an absent field becomes.
pub(super) fn default(kind: Kind, path: &str) -> Option<Value> {
    match (kind, path) {
        (Kind::IPAddressClaim, "spec") => Some(json!({})),
        (Kind::IPAddressClaim, "spec.family") => Some(json!("IPv4")),
        (Kind::IPAddress | Kind::IPAddressClass, "spec.reclaimPolicy") => Some(json!("Retain")),
        _ => None,
    }
}

/// Fields that are required although our types can do without them.
pub(super) fn is_required(kind: Kind, path: &str) -> bool {
    let required: &[&str] = match kind {
        Kind::IPAddressClass => &["spec", "spec.provisioner"],
        Kind::IPAddress => &[
            "spec",
            "spec.address",
            "spec.className",
            "spec.claimRef.namespace",
            "spec.claimRef.name",
            "spec.source.providerRef.id",
        ],
        Kind::IPAddressClaim => &[],
    };
    required.contains(&path)
}

/// The form of a text.
pub(super) fn pattern(kind: Kind, path: &str) -> Option<String> {
    match (kind, path) {
        (Kind::IPAddressClass, "spec.provisioner")
        | (Kind::IPAddress, "spec.source.providerRef.id") => Some("^.".to_owned()),
        (Kind::IPAddress, "spec.className" | "spec.claimRef.name") => Some(format!("^{NAME}$")),
        (Kind::IPAddress, "spec.claimRef.namespace") => Some(format!("^{LABEL}$")),
        (Kind::IPAddressClaim, "spec.className" | "spec.addressName") => {
            Some(format!("^({NAME})?$"))
        }
        _ => None,
    }
}

/// The CEL rules at a field; those of the object as a whole are at the empty path.
pub(super) fn of(kind: Kind, path: &str) -> Vec<Value> {
    match (kind, path) {
        (Kind::IPAddressClass, "spec.provisioner") => vec![immutable()],
        (Kind::IPAddress, "") => vec![name_of_address()],
        (Kind::IPAddress, "spec") => vec![rule(
            "!has(oldSelf.source) || (has(self.source) && self.source == oldSelf.source)",
            "source cannot be changed; delete the object and create it anew",
        )],
        (Kind::IPAddress, "spec.address") => address(),
        (Kind::IPAddress, "spec.source") => vec![rule(
            "has(self.fromClass) != has(self.providerRef)",
            "must have exactly one of fromClass and providerRef",
        )],
        (Kind::IPAddressClaim, "") => frozen(),
        (Kind::IPAddressClaim, "spec") => vec![rule(
            "!has(self.addressName) || self.addressName == '' || !has(self.family) || self.family != 'Dual'",
            "addressName names one address and cannot be used with family Dual; leave it out, or ask \
             for IPv4 or IPv6",
        )],
        _ => Vec::new(),
    }
}

fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

fn immutable() -> Value {
    rule(
        "self == oldSelf",
        "cannot be changed; delete the object and create it anew",
    )
}

/// On creation, an address object has the name that its IP gives: so one IP has one object (R1).
fn name_of_address() -> Value {
    let base = "'ip-' + self.spec.address.replace('.', '-').replace(':', '-')";
    let name = format!("({base} + (self.spec.address.endsWith(':') ? '0' : ''))");
    json!({
        "rule": format!("oldSelf.hasValue() || self.metadata.name == {name}"),
        "optionalOldSelf": true,
        "message": "the name of an address object comes from its address: ip- and the address with - \
                    for . and :",
        "messageExpression": format!(
            "'metadata.name must be ' + {name} + ': the name of an address object comes from its \
             address, so that one address has one object only'"
        ),
    })
}

fn address() -> Vec<Value> {
    vec![
        immutable(),
        // (To say which form would be right is beyond what the server lets a message cost.)
        rule(
            "isIP(self) && ip.isCanonical(self)",
            "must be an IP address in its canonical form, for example 192.0.2.7 or 2001:db8::7",
        ),
        rule(
            "!isIP(self) || ((ip(self).isGlobalUnicast() || ip(self).isLinkLocalUnicast()) && \
             !self.startsWith('0.'))",
            "must be the address of one host: unspecified, loopback, multicast and broadcast addresses \
             cannot be claimed",
        ),
    ]
}

/// The spec of a claim is frozen once it is bound (R9). (Written out, because what `orValue` gives has
/// no limit for the server, which then refuses the rule as too costly.)
fn frozen() -> Vec<Value> {
    let open = "!has(oldSelf.status) || !has(oldSelf.status.phase) || \
                !(oldSelf.status.phase in ['Bound', 'Lost'])";
    ["className", "family", "addressName"]
        .map(|field| {
            let [new, old] = ["self", "oldSelf"].map(|of| format!("{of}.spec.{field}"));
            let same = format!("has({new}) && has({old}) && {new} == {old}");
            let empty = |text: &str| format!("(!has({text}) || {text} == '')");
            json!({
                "rule": format!("{open} || ({same}) || ({} && {})", empty(&new), empty(&old)),
                "message": format!(
                    "{field} cannot be changed while the claim is Bound or Lost; delete the claim and \
                     create it anew"
                ),
                "fieldPath": format!(".spec.{field}"),
            })
        })
        .into()
}
