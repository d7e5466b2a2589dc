//! What `kubectl get` shows, and by which fields it selects.

use serde_json::{Value, json};

use crate::api::Kind;

/// Columns of `kubectl get`; those with a lower priority only with `-o wide`.
pub(super) fn printed(kind: Kind) -> Vec<Value> {
    let columns: &[(&str, &str, &str)] = match kind {
        Kind::IPAddressClass => &[
            ("Provisioner", ".spec.provisioner", ""),
            ("Policy", ".spec.reclaimPolicy", ""),
            (
                "Default",
                r".metadata.annotations.ipaddressclass\.local\.sdn\.cozystack\.io/is-default-class",
                "",
            ),
        ],
        Kind::IPAddress => &[
            ("Address", ".spec.address", ""),
            ("Phase", ".status.phase", ""),
            ("Class", ".spec.className", ""),
            (
                "Namespace",
                ".spec.claimRef.namespace",
                "The namespace of the claim that holds it.",
            ),
            ("Claim", ".spec.claimRef.name", "The claim that holds it."),
        ],
        Kind::IPAddressClaim => &[
            ("Phase", ".status.phase", ""),
            ("Family", ".spec.family", ""),
            (
                "Class",
                ".status.className",
                "The class that the claim was resolved to.",
            ),
            (
                "Addresses",
                ".status.addressText",
                "The addresses that it holds.",
            ),
        ],
    };
    let wide: &[(&str, &str)] = match kind {
        Kind::IPAddressClass => &[("Ready", ".status.conditions[?(@.type==\"Ready\")].status")],
        // (A long IPv6 address stands in a line twice, and leaves room for no more than the claim.)
        Kind::IPAddress => &[
            ("Policy", ".spec.reclaimPolicy"),
            ("Workload", ".status.associatedTo.name"),
            ("Reason", ".status.conditions[?(@.type==\"Bound\")].reason"),
        ],
        Kind::IPAddressClaim => &[
            ("Wants", ".spec.addressName"),
            ("Reason", ".status.conditions[?(@.type==\"Bound\")].reason"),
        ],
    };
    let mut all: Vec<Value> = Vec::new();
    for (name, path, description) in columns {
        let mut column = json!({"name": name, "type": "string", "jsonPath": path});
        if !description.is_empty() {
            column["description"] = (*description).into();
        }
        all.push(column);
    }
    for (name, path) in wide {
        all.push(json!({"name": name, "type": "string", "jsonPath": path, "priority": 1}));
    }
    all.push(json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}));
    all
}

/// Fields that `--field-selector` takes, beside name and namespace: at most eight.
pub(super) fn selectable(kind: Kind) -> Vec<Value> {
    let paths: &[&str] = match kind {
        Kind::IPAddressClass => &[".spec.provisioner"],
        Kind::IPAddress => &[
            ".spec.address",
            ".spec.className",
            ".spec.claimRef.namespace",
            ".spec.claimRef.name",
            ".spec.claimRef.uid",
            ".status.phase",
        ],
        Kind::IPAddressClaim => &[
            ".spec.className",
            ".spec.addressName",
            ".status.className",
            ".status.phase",
        ],
    };
    paths.iter().map(|path| json!({"jsonPath": path})).collect()
}
