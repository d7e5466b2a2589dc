//! Annotations, finalizers, condition types and reasons: the words of the public contract
//! (seed 000 §2-§7) and our additions to it.

/// Claim annotation: the driver whose claim this is. Stamped by the core (§4 step 6).
pub const PROVISIONER: &str = "local.sdn.cozystack.io/provisioner";
/// Class annotation: `"true"` on the class of claims that name none (§2).
pub const DEFAULT_CLASS: &str = "ipaddressclass.local.sdn.cozystack.io/is-default-class";
/// Finalizer of the core on a claim (§4 step 2).
pub const CLAIM_PROTECTION: &str = "local.sdn.cozystack.io/claim-protection";
/// Finalizer of the core on an address (§5 step 1).
pub const ADDRESS_PROTECTION: &str = "local.sdn.cozystack.io/address-protection";
/// Address annotation, set by an admin: `"true"` keeps a pre-bound address for its claim (R4, R13).
pub const RESERVED: &str = "local.sdn.cozystack.io/reserved";
/// Address annotation, set by the core with a match: the uid of the claim (R6).
pub const BOUND_BY_CORE: &str = "local.sdn.cozystack.io/bound-by-core";
/// Address annotation, set by the core on a surplus address: the uid of the claim (R7).
pub const PARKED_FOR: &str = "local.sdn.cozystack.io/parked-for";
/// What an admin appends to the value of [`PARKED_FOR`] to let that address serve (R7).
pub const SERVE_SUFFIX: &str = "/serve";
/// Claim annotation, set by a driver: why it cannot serve the claim, as JSON (R14).
pub const PROVISIONING_STATUS: &str = "local.sdn.cozystack.io/provisioning-status";

/// Condition types.
pub mod condition {
    /// Claim: whether its class could be resolved.
    pub const CLASS_RESOLVED: &str = "ClassResolved";
    /// Claim: whether it holds what it asks for. Address: whether a claim holds it, and which.
    pub const BOUND: &str = "Bound";
    /// Claim: a bound address is marked for deletion and waits for this claim.
    pub const ADDRESS_DELETING: &str = "AddressDeleting";
    /// Address: whether name and address can be trusted.
    pub const VALID: &str = "Valid";
    /// Address: its claim is gone while a driver's phase stands (R8).
    pub const RECLAIMED: &str = "Reclaimed";
}

/// Condition reasons.
pub mod reason {
    /// The class was found.
    pub const RESOLVED: &str = "Resolved";
    /// The named class does not exist.
    pub const CLASS_NOT_FOUND: &str = "ClassNotFound";
    /// The claim names no class and none is the default.
    pub const NO_DEFAULT_CLASS: &str = "NoDefaultClass";
    /// The claim names no class and several are the default.
    pub const MULTIPLE_DEFAULT_CLASSES: &str = "MultipleDefaultClasses";
    /// All that is asked for is held.
    pub const BOUND: &str = "Bound";
    /// The stamped driver has not provided an address yet.
    pub const WAITING_FOR_PROVISIONING: &str = "WaitingForProvisioning";
    /// A Dual claim holds one of its two families.
    pub const PARTIALLY_BOUND: &str = "PartiallyBound";
    /// An address that the claim held is gone or lost.
    pub const ADDRESS_LOST: &str = "AddressLost";
    /// The claim's spec contradicts itself.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// `spec.addressName` names no object.
    pub const ADDRESS_NOT_FOUND: &str = "AddressNotFound";
    /// `spec.addressName` names an address of another claim.
    pub const ADDRESS_IN_USE: &str = "AddressInUse";
    /// `spec.addressName` names a released address that nobody has cleared yet.
    pub const ADDRESS_RELEASED: &str = "AddressReleased";
    /// The address is marked for deletion.
    pub const ADDRESS_DELETING: &str = "AddressDeleting";
    /// `spec.addressName` names an address of another class than `spec.className`.
    pub const ADDRESS_CLASS_MISMATCH: &str = "AddressClassMismatch";
    /// `spec.addressName` names an address of another family than `spec.family`.
    pub const ADDRESS_FAMILY_MISMATCH: &str = "AddressFamilyMismatch";
    /// `spec.addressName` names an address that is not (yet) fit to be bound.
    pub const ADDRESS_NOT_AVAILABLE: &str = "AddressNotAvailable";
    /// A pre-bound address waits for its claim to be created.
    pub const WAITING_FOR_CLAIM: &str = "WaitingForClaim";
    /// An object's name is not the one that its address gives.
    pub const NAME_MISMATCH: &str = "NameMismatch";
    /// `spec.address` is not an address that ipledger accepts.
    pub const INVALID_ADDRESS: &str = "InvalidAddress";
    /// The claim of the address is gone.
    pub const CLAIM_GONE: &str = "ClaimGone";
    /// The class parameters do not parse (drivers).
    pub const INVALID_PARAMETERS: &str = "InvalidParameters";
    /// Every address of the class and family is taken (drivers).
    pub const POOL_EXHAUSTED: &str = "PoolExhausted";
    /// The class has no range of that family (drivers).
    pub const FAMILY_UNAVAILABLE: &str = "FamilyUnavailable";
    /// A surplus address was parked (event, R7).
    pub const ADDRESS_PARKED: &str = "AddressParked";
}
