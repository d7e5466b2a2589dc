//! What each field is, in a sentence for people, and how much it may hold.

use crate::api::Kind;

/// About one field.
pub(super) struct Note {
    pub(super) path: &'static str,
    pub(super) text: &'static str,
    /// Characters of a text or items of a list; 0 for what is neither.
    pub(super) max: usize,
}

const fn note(path: &'static str, max: usize, text: &'static str) -> Note {
    Note { path, text, max }
}

/// The longest name of an object.
const NAME: usize = 253;
/// What Kubernetes allows in conditions.
const REASON: usize = 1_024;
const MESSAGE: usize = 32_768;
/// The longest spelling of an IPv6 address has 45 characters.
const ADDRESS: usize = 45;

pub(super) fn of_kind(kind: Kind) -> &'static str {
    match kind {
        Kind::IPAddressClass => {
            "IPAddressClass says where addresses come from: which driver provides them, with which \
             parameters, and what becomes of them when their claim goes."
        }
        Kind::IPAddress => {
            "IPAddress is one concrete IP address: the reservation, and the only record of which \
             claim holds it. Its name is made from the address (ip-192-0-2-7), so that one address \
             has one object."
        }
        Kind::IPAddressClaim => {
            "IPAddressClaim asks for one address, or for one of each family. What it holds stands in \
             its status."
        }
    }
}

pub(super) fn all(kind: Kind) -> impl Iterator<Item = &'static Note> {
    let own = match kind {
        Kind::IPAddressClass => CLASS,
        Kind::IPAddress => ADDRESSES,
        Kind::IPAddressClaim => CLAIM,
    };
    own.iter().chain(CONDITIONS)
}

pub(super) fn find(kind: Kind, path: &str) -> Option<&'static Note> {
    all(kind).find(|n| n.path == path)
}

const CONDITIONS: &[Note] = &[
    note(
        "status.conditions",
        64,
        "What is observed, one condition of each type.",
    ),
    note(
        "status.conditions.type",
        316,
        "What is said, for example Bound.",
    ),
    note(
        "status.conditions.status",
        0,
        "Whether it holds: True, False or Unknown.",
    ),
    note(
        "status.conditions.reason",
        REASON,
        "One word for machines: why.",
    ),
    note(
        "status.conditions.message",
        MESSAGE,
        "A sentence for people: why, and what to do.",
    ),
    note(
        "status.conditions.lastTransitionTime",
        0,
        "When status last changed.",
    ),
    note(
        "status.conditions.observedGeneration",
        0,
        "The metadata.generation that this was computed from.",
    ),
];

const CLASS: &[Note] = &[
    note("spec", 0, "What the admin asks for."),
    note(
        "spec.provisioner",
        NAME,
        "The driver that provides addresses of this class, for example \
         range.drivers.local.sdn.cozystack.io. It cannot be changed.",
    ),
    note(
        "spec.reclaimPolicy",
        0,
        "What becomes of an address when its claim goes: Retain keeps the object, Released, until an \
         admin decides; Delete deletes it. It is copied to each address when that is provided, and \
         takes effect there.",
    ),
    note(
        "spec.parameters",
        0,
        "Parameters of the driver, in its own form; see the documentation of the driver.",
    ),
    note("status", 0, "What the driver reports about the class."),
    note(
        "status.capacity",
        8,
        "How many addresses there are, one entry for each family.",
    ),
    note("status.capacity.family", 16, "IPv4 or IPv6."),
    note(
        "status.capacity.total",
        64,
        "Addresses that the class can hand out, as decimal text.",
    ),
    note(
        "status.capacity.used",
        64,
        "Those that have an address object, of any class.",
    ),
    note("status.capacity.free", 64, "Those that have none."),
    note(
        "status.capacity.cooling",
        64,
        "Those of used that wait until they may be given out again.",
    ),
    note(
        "status.capacity.excluded",
        64,
        "Those that the parameters leave out.",
    ),
    note(
        "status.capacity.outOfRange",
        64,
        "Address objects of this class that lie outside its ranges; they are not in total.",
    ),
    note(
        "status.outOfRange",
        64,
        "The first few address objects that lie outside the ranges of the class, by name.",
    ),
];

const ADDRESSES: &[Note] = &[
    note("spec", 0, "The address, and who holds it."),
    note(
        "spec.address",
        ADDRESS,
        "The IP address in its canonical form, for example 192.0.2.7 or 2001:db8::7. It cannot be \
         changed.",
    ),
    note(
        "spec.className",
        NAME,
        "The IPAddressClass that the address belongs to.",
    ),
    note(
        "spec.claimRef",
        0,
        "The claim that holds the address: the only authoritative record of a binding. Without it the \
         address is free.",
    ),
    note("spec.claimRef.namespace", 63, "The namespace of the claim."),
    note("spec.claimRef.name", NAME, "The name of the claim."),
    note(
        "spec.claimRef.uid",
        128,
        "The uid of the claim. Empty in an address that is meant for a claim of this name and not \
         bound yet.",
    ),
    note(
        "spec.reclaimPolicy",
        0,
        "What becomes of this object when its claim goes: Retain keeps it, Released, until an admin \
         clears claimRef; Delete deletes it.",
    ),
    note(
        "spec.source",
        0,
        "Where the reservation comes from: exactly one member is set. It cannot be changed.",
    ),
    note(
        "spec.source.fromClass",
        0,
        "The address was taken from the range of the class; the driver keeps the record of it.",
    ),
    note(
        "spec.source.providerRef",
        0,
        "The address is reserved at an external provider.",
    ),
    note(
        "spec.source.providerRef.id",
        1_024,
        "The provider's own name of the reservation.",
    ),
    note("status", 0, "What is observed of the address."),
    note(
        "status.phase",
        0,
        "Where the address stands: Pending is not fit to be bound (yet), Available can be bound, Bound \
         is held by a claim, Released was held by a claim that is gone. Conflict and Lost are set by \
         drivers: it is in use elsewhere, or its reservation is gone.",
    ),
    note(
        "status.associatedTo",
        0,
        "The workload that the address is announced for; absent while it is only reserved.",
    ),
    note(
        "status.associatedTo.kind",
        63,
        "The kind of the workload, for example Service.",
    ),
    note(
        "status.associatedTo.namespace",
        63,
        "The namespace of the workload.",
    ),
    note(
        "status.associatedTo.name",
        NAME,
        "The name of the workload.",
    ),
    note(
        "status.associatedTo.uid",
        128,
        "The uid of the workload, if it is known.",
    ),
];

const CLAIM: &[Note] = &[
    note(
        "spec",
        0,
        "What is asked for. It cannot be changed once the claim is Bound or Lost.",
    ),
    note(
        "spec.className",
        NAME,
        "The IPAddressClass to take from. Empty means the default class of the cluster.",
    ),
    note(
        "spec.family",
        0,
        "IPv4, IPv6, or Dual for one address of each.",
    ),
    note(
        "spec.addressName",
        NAME,
        "The name of one specific IPAddress to bind, for example ip-192-0-2-7. Not together with \
         family Dual.",
    ),
    note("status", 0, "What the claim holds."),
    note(
        "status.phase",
        0,
        "Where the claim stands: Pending waits for something (see the condition Bound), Bound holds \
         all that it asks for, Lost held an address that is gone.",
    ),
    note(
        "status.className",
        NAME,
        "The class that the claim was resolved to.",
    ),
    note(
        "status.addresses",
        16,
        "The addresses that the claim holds, sorted by name.",
    ),
    note("status.addresses.name", NAME, "The name of the IPAddress."),
    note("status.addresses.address", ADDRESS, "The IP address."),
    note(
        "status.addressText",
        1_024,
        "The same addresses as one text, for tables.",
    ),
    note(
        "status.lostAddresses",
        64,
        "Addresses that the claim held and lost.",
    ),
    note(
        "status.lostAddresses.name",
        NAME,
        "The name of the IPAddress.",
    ),
    note("status.lostAddresses.address", ADDRESS, "The IP address."),
];
