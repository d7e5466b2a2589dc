//! The fields of each kind with their types, as a table. The typed kinds of this crate say the
//! same; a test compares the two field by field.

use crate::api::Kind;

/// What a field may hold.
#[derive(Debug)]
pub(super) enum Shape {
    Text,
    /// One of these words.
    Words(&'static [&'static str]),
    /// A whole number of 0 or more.
    Count,
    /// RFC 3339 in UTC.
    Time,
    Flag,
    /// A `resourceVersion` as it was read.
    Revision,
    /// An object with any names whose values are texts.
    Texts,
    /// Anything: somebody else's, only carried along.
    Any,
    /// An object with exactly these fields.
    Fields(&'static [Field]),
    /// An object whose content is somebody else's.
    Opaque,
    List(&'static Shape),
}

/// One field of an object.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    /// Whether the object that has it cannot be without it.
    pub(super) required: bool,
}

pub(super) const fn may(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        shape,
        required: false,
    }
}

const fn must(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        shape,
        required: true,
    }
}

/// The fields of a kind beside `apiVersion`, `kind` and `metadata`.
pub(super) fn fields(kind: Kind) -> &'static [Field] {
    match kind {
        Kind::IPAddressClass => CLASS,
        Kind::IPAddress => ADDRESS,
        Kind::IPAddressClaim => CLAIM,
    }
}

const CLASS: &[Field] = &[
    may(
        "spec",
        Shape::Fields(&[
            may("provisioner", Shape::Text),
            may("reclaimPolicy", RECLAIM_POLICY),
            may("parameters", Shape::Opaque),
        ]),
    ),
    may(
        "status",
        Shape::Fields(&[
            may(
                "capacity",
                Shape::List(&Shape::Fields(&[
                    must("family", Shape::Text),
                    must("total", Shape::Text),
                    must("used", Shape::Text),
                    must("free", Shape::Text),
                    must("cooling", Shape::Text),
                    must("excluded", Shape::Text),
                    must("outOfRange", Shape::Text),
                ])),
            ),
            may("outOfRange", Shape::List(&Shape::Text)),
            may("conditions", CONDITIONS),
        ]),
    ),
];

const ADDRESS: &[Field] = &[
    may(
        "spec",
        Shape::Fields(&[
            may("address", Shape::Text),
            may("className", Shape::Text),
            may(
                "claimRef",
                Shape::Fields(&[
                    may("namespace", Shape::Text),
                    may("name", Shape::Text),
                    may("uid", Shape::Text),
                ]),
            ),
            may("reclaimPolicy", RECLAIM_POLICY),
            may(
                "source",
                Shape::Fields(&[
                    may("fromClass", Shape::Fields(&[])),
                    may("providerRef", Shape::Fields(&[may("id", Shape::Text)])),
                ]),
            ),
        ]),
    ),
    may(
        "status",
        Shape::Fields(&[
            may(
                "phase",
                Shape::Words(&[
                    "Pending",
                    "Available",
                    "Bound",
                    "Released",
                    "Conflict",
                    "Lost",
                ]),
            ),
            may(
                "associatedTo",
                Shape::Fields(&[
                    must("kind", Shape::Text),
                    must("namespace", Shape::Text),
                    must("name", Shape::Text),
                    may("uid", Shape::Text),
                ]),
            ),
            may("conditions", CONDITIONS),
        ]),
    ),
];

const CLAIM: &[Field] = &[
    may(
        "spec",
        Shape::Fields(&[
            may("className", Shape::Text),
            may("family", Shape::Words(&["IPv4", "IPv6", "Dual"])),
            may("addressName", Shape::Text),
        ]),
    ),
    may(
        "status",
        Shape::Fields(&[
            may("phase", Shape::Words(&["Pending", "Bound", "Lost"])),
            may("className", Shape::Text),
            may("addresses", CLAIMED),
            may("addressText", Shape::Text),
            may("lostAddresses", CLAIMED),
            may("conditions", CONDITIONS),
        ]),
    ),
];

const RECLAIM_POLICY: Shape = Shape::Words(&["Retain", "Delete"]);

const CLAIMED: Shape = Shape::List(&Shape::Fields(&[
    must("name", Shape::Text),
    must("address", Shape::Text),
]));

const CONDITIONS: Shape = Shape::List(&Shape::Fields(&[
    must("type", Shape::Text),
    must("status", Shape::Words(&["True", "False", "Unknown"])),
    may("reason", Shape::Text),
    may("message", Shape::Text),
    may("lastTransitionTime", Shape::Time),
    may("observedGeneration", Shape::Count),
]));

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::{
        AddressPhase, AddressSource, ClaimFamily, ClaimPhase, ClaimRef, ClaimedAddress, Condition,
        ConditionStatus, Extra, FamilyCapacity, IPAddress, IPAddressClaim, IPAddressClaimSpec,
        IPAddressClaimStatus, IPAddressClass, IPAddressClassSpec, IPAddressClassStatus,
        IPAddressSpec, IPAddressStatus, Object, ObjectMeta, ProviderRef, ReclaimPolicy, Timestamp,
        WorkloadRef,
    };

    /// Every field set; a field that is added to a type stops this from compiling.
    fn full_objects() -> Vec<Object> {
        let text = || "x".to_owned();
        let extra = Extra::new;
        let metadata = ObjectMeta::default;
        let conditions = || {
            vec![Condition {
                type_: text(),
                status: ConditionStatus::True,
                reason: text(),
                message: text(),
                last_transition_time: Some(Timestamp::from_unix(1)),
                observed_generation: Some(1),
                extra: extra(),
            }]
        };
        let claimed = || {
            vec![ClaimedAddress {
                name: text(),
                address: text(),
            }]
        };
        let class = IPAddressClass {
            metadata: metadata(),
            spec: IPAddressClassSpec {
                provisioner: text(),
                reclaim_policy: ReclaimPolicy::Delete,
                parameters: Some(json!({})),
                extra: extra(),
            },
            status: Some(IPAddressClassStatus {
                capacity: vec![FamilyCapacity {
                    family: text(),
                    total: text(),
                    used: text(),
                    free: text(),
                    cooling: text(),
                    excluded: text(),
                    out_of_range: text(),
                }],
                out_of_range: vec![text()],
                conditions: conditions(),
                extra: extra(),
            }),
            extra: extra(),
        };
        let address = IPAddress {
            metadata: metadata(),
            spec: IPAddressSpec {
                address: text(),
                class_name: text(),
                claim_ref: Some(ClaimRef {
                    namespace: text(),
                    name: text(),
                    uid: text(),
                    extra: extra(),
                }),
                reclaim_policy: ReclaimPolicy::Retain,
                source: Some(AddressSource {
                    from_class: Some(extra()),
                    provider_ref: Some(ProviderRef {
                        id: text(),
                        extra: extra(),
                    }),
                    extra: extra(),
                }),
                extra: extra(),
            },
            status: Some(IPAddressStatus {
                phase: Some(AddressPhase::Bound),
                associated_to: Some(WorkloadRef {
                    kind: text(),
                    namespace: text(),
                    name: text(),
                    uid: text(),
                    extra: extra(),
                }),
                conditions: conditions(),
                extra: extra(),
            }),
            extra: extra(),
        };
        let claim = IPAddressClaim {
            metadata: metadata(),
            spec: IPAddressClaimSpec {
                class_name: text(),
                family: ClaimFamily::Dual,
                address_name: text(),
                extra: extra(),
            },
            status: Some(IPAddressClaimStatus {
                phase: Some(ClaimPhase::Bound),
                class_name: text(),
                addresses: claimed(),
                address_text: text(),
                lost_addresses: claimed(),
                conditions: conditions(),
                extra: extra(),
            }),
            extra: extra(),
        };
        vec![
            class.to_object().unwrap(),
            address.to_object().unwrap(),
            claim.to_object().unwrap(),
        ]
    }

    fn paths_of_value(value: &Value, path: &str, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    into.insert(format!("{path}.{name}"));
                    paths_of_value(value, &format!("{path}.{name}"), into);
                }
            }
            Value::Array(items) => {
                items
                    .iter()
                    .for_each(|v| paths_of_value(v, &format!("{path}[]"), into));
            }
            _ => {}
        }
    }

    fn paths_of_shape(fields: &[Field], path: &str, into: &mut BTreeSet<String>) {
        for field in fields {
            let path = format!("{path}.{}", field.name);
            into.insert(path.clone());
            match &field.shape {
                Shape::Fields(fields) => paths_of_shape(fields, &path, into),
                Shape::List(Shape::Fields(fields)) => {
                    paths_of_shape(fields, &format!("{path}[]"), into);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn the_table_has_exactly_the_fields_of_the_types() {
        for object in full_objects() {
            let (mut typed, mut table) = (BTreeSet::new(), BTreeSet::new());
            paths_of_value(&Value::Object(object.fields.clone()), "", &mut typed);
            paths_of_shape(fields(object.kind), "", &mut table);
            assert_eq!(typed, table, "{}", object.kind);
        }
    }

    #[test]
    fn the_fields_of_metadata_are_those_of_the_type_and_of_kubernetes() {
        let meta = ObjectMeta {
            name: "x".to_owned(),
            namespace: "x".to_owned(),
            uid: "x".to_owned(),
            resource_version: Some(crate::store::Revision(1)),
            generation: 1,
            creation_timestamp: Some(Timestamp::from_unix(1)),
            deletion_timestamp: Some(Timestamp::from_unix(1)),
            labels: [("x".to_owned(), "x".to_owned())].into(),
            annotations: [("x".to_owned(), "x".to_owned())].into(),
            finalizers: vec!["x".to_owned()],
            extra: Extra::new(),
        };
        let Value::Object(map) = serde_json::to_value(meta).unwrap() else {
            panic!("metadata is an object");
        };
        for name in map.keys() {
            assert!(METADATA.contains(&name.as_str()), "{name}");
        }
    }

    /// The words at this path of a kind.
    fn words(kind: Kind, path: &str) -> &'static [&'static str] {
        let mut fields = fields(kind);
        for step in path.split('.') {
            let field = fields.iter().find(|f| f.name == step).unwrap();
            match &field.shape {
                Shape::Fields(inner) | Shape::List(Shape::Fields(inner)) => fields = inner,
                Shape::Words(words) => return words,
                other => panic!("{path} is {other:?}"),
            }
        }
        panic!("{path} has no words")
    }

    fn read<T: serde::de::DeserializeOwned>(word: &str) -> bool {
        serde_json::from_value::<T>(json!(word)).is_ok()
    }

    #[test]
    fn the_words_of_the_table_are_those_that_the_types_read() {
        let (class, address, claim) = (Kind::IPAddressClass, Kind::IPAddress, Kind::IPAddressClaim);
        assert!(
            words(class, "spec.reclaimPolicy")
                .iter()
                .all(|w| read::<ReclaimPolicy>(w))
        );
        assert!(
            words(address, "spec.reclaimPolicy")
                .iter()
                .all(|w| read::<ReclaimPolicy>(w))
        );
        assert!(
            words(address, "status.phase")
                .iter()
                .all(|w| read::<AddressPhase>(w))
        );
        assert!(
            words(claim, "spec.family")
                .iter()
                .all(|w| read::<ClaimFamily>(w))
        );
        assert!(
            words(claim, "status.phase")
                .iter()
                .all(|w| read::<ClaimPhase>(w))
        );
        for kind in Kind::ALL {
            let words = words(kind, "status.conditions.status");
            assert!(words.iter().all(|w| read::<ConditionStatus>(w)), "{kind}");
        }
    }
}
