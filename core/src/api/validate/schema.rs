//! The fields of each kind with their types, as a table. The typed kinds of this crate say the
//! same; a test compares the two field by field.

use crate::api::Kind;

/// What a field may hold.
#[derive(Debug)]
pub(in crate::api) enum Shape {
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
pub(in crate::api) struct Field {
    pub(in crate::api) name: &'static str,
    pub(in crate::api) shape: Shape,
    /// Whether the object that has it cannot be without it.
    pub(in crate::api) required: bool,
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
pub(in crate::api) fn fields(kind: Kind) -> &'static [Field] {
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
mod tests;
