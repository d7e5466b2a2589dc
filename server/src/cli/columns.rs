//! The columns of each kind: what `get` and the live table of `serve` show.

use std::cmp::Ordering;
use std::time::Duration;

use ipledger_core::api::{
    AddressPhase, ClaimPhase, Condition, ConditionStatus, FamilyCapacity, IPAddress,
    IPAddressClaim, IPAddressClass, Kind, Object, ReclaimPolicy, Resource, ResourceSpec, Timestamp,
    find_condition, names,
};
use ipledger_core::net::Ip;
use ipledger_drivers::range::condition::READY;

use super::table::{Cell, Row, Table, Tone};

/// A table of objects of one kind, in the order given.
pub(crate) fn table(kind: Kind, objects: &[Object], view: &View) -> Table {
    let mut table = empty(kind, view);
    table.rows = objects.iter().map(|object| row(object, view)).collect();
    table
}

/// What to show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// Whether to show the columns of `-o wide` too.
    pub(crate) wide: bool,
    /// What ages are counted to.
    pub(crate) now: Timestamp,
}

/// A table without rows.
pub(crate) fn empty(kind: Kind, view: &View) -> Table {
    let (mut columns, wide, spare) = match kind {
        Kind::IPAddressClaim => (
            vec![
                "NAMESPACE",
                "NAME",
                "PHASE",
                "FAMILY",
                "CLASS",
                "ADDRESSES",
                "AGE",
            ],
            vec!["WANTS", "PROVISIONER"],
            None,
        ),
        Kind::IPAddress => (
            vec![
                "NAME", "ADDRESS", "PHASE", "CLASS", "CLAIM", "POLICY", "AGE",
            ],
            vec!["WORKLOAD", "SOURCE"],
            // Here an address may be named by its IP, so that nothing is lost.
            Some(0),
        ),
        Kind::IPAddressClass => (
            vec![
                "NAME",
                "PROVISIONER",
                "POLICY",
                "DEFAULT",
                "FREE/TOTAL",
                "READY",
            ],
            vec!["COOLING", "EXCLUDED", "OUT OF RANGE", "AGE"],
            None,
        ),
    };
    if view.wide {
        columns.extend(wide);
    }
    Table {
        columns,
        spare: spare.filter(|_| !view.wide),
        note: "REASON",
        rows: Vec::new(),
    }
}

/// The row of an object.
pub(crate) fn row(object: &Object, view: &View) -> Row {
    match object.kind {
        Kind::IPAddressClaim => typed(object, view, claim),
        Kind::IPAddress => typed(object, view, address),
        Kind::IPAddressClass => typed(object, view, class),
    }
}

/// An object that cannot be read as its kind still has a row that says so.
fn typed<S: ResourceSpec>(
    object: &Object,
    view: &View,
    cells: impl Fn(&Resource<S>, &View) -> Row,
) -> Row {
    match Resource::from_object(object) {
        Ok(resource) => cells(&resource, view),
        Err(e) => {
            let empty = self::empty(object.kind, view);
            let cell = |column: &&str| match *column {
                "NAME" => object.metadata.name.as_str().into(),
                "NAMESPACE" => object.metadata.namespace.as_str().into(),
                _ => Cell::from("?"),
            };
            Row {
                cells: empty.columns.iter().map(cell).collect(),
                note: format!("cannot be read: {}", e.reason),
            }
        }
    }
}

fn claim(claim: &IPAddressClaim, view: &View) -> Row {
    let phase = claim.phase();
    let class = match (claim.resolved_class(), claim.spec.class_name.as_str()) {
        ("", asked) => asked,
        (resolved, _) => resolved,
    };
    let status = claim.status.as_ref();
    let addresses: Vec<&str> = status.map_or(Vec::new(), |s| {
        s.addresses.iter().map(|a| a.address.as_str()).collect()
    });
    let mut cells = vec![
        claim.metadata.namespace.as_str().into(),
        claim.metadata.name.as_str().into(),
        Cell::toned(phase.map_or("", ClaimPhase::as_str), claim_tone(phase)),
        claim.spec.family.as_str().into(),
        class.into(),
        addresses.join(",").into(),
        age(claim.metadata.creation_timestamp, view.now).into(),
    ];
    if view.wide {
        cells.push(claim.spec.address_name.as_str().into());
        cells.push(claim.stamp().unwrap_or_default().into());
    }
    Row {
        cells,
        note: reason_of_claim(claim),
    }
}

/// Why a claim is not bound; empty if it is and nothing threatens that.
pub(crate) fn reason_of_claim(claim: &IPAddressClaim) -> String {
    let conditions = claim.conditions();
    if claim.metadata.is_deleting() {
        return "being deleted".to_owned();
    }
    let deleting = find_condition(conditions, names::condition::ADDRESS_DELETING)
        .filter(|c| c.status == ConditionStatus::True);
    let bound = find_condition(conditions, names::condition::BOUND)
        .filter(|c| c.status != ConditionStatus::True);
    match (bound.or(deleting), claim.phase()) {
        (Some(condition), _) => explain(condition),
        (None, None) => "no controller has looked at it yet".to_owned(),
        (None, Some(_)) => String::new(),
    }
}

/// `Reason: message`.
pub(crate) fn explain(condition: &Condition) -> String {
    match (condition.reason.as_str(), condition.message.as_str()) {
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

fn claim_tone(phase: Option<ClaimPhase>) -> Tone {
    match phase {
        Some(ClaimPhase::Bound) => Tone::Good,
        Some(ClaimPhase::Lost) => Tone::Bad,
        Some(ClaimPhase::Pending) | None => Tone::Waiting,
    }
}

fn address(address: &IPAddress, view: &View) -> Row {
    let phase = address.phase();
    let claim = address
        .spec
        .claim_ref
        .as_ref()
        .map(|r| format!("{}/{}", r.namespace, r.name));
    let mut cells = vec![
        address.metadata.name.as_str().into(),
        address.spec.address.as_str().into(),
        Cell::toned(phase.map_or("", AddressPhase::as_str), address_tone(phase)),
        address.spec.class_name.as_str().into(),
        claim.unwrap_or_default().into(),
        policy(address.spec.reclaim_policy).into(),
        age(address.metadata.creation_timestamp, view.now).into(),
    ];
    if view.wide {
        cells.push(workload(address).into());
        cells.push(source(address).into());
    }
    Row {
        cells,
        note: reason_of_address(address),
    }
}

/// Why an address cannot be used; empty if it can.
pub(crate) fn reason_of_address(address: &IPAddress) -> String {
    if address.metadata.is_deleting() {
        return "being deleted".to_owned();
    }
    match address.phase() {
        Some(AddressPhase::Available | AddressPhase::Bound | AddressPhase::Released) => {
            String::new()
        }
        Some(AddressPhase::Pending | AddressPhase::Conflict | AddressPhase::Lost) => {
            let conditions = address.conditions();
            let unmet = conditions
                .iter()
                .find(|c| c.status == ConditionStatus::False);
            unmet.map_or(String::new(), explain)
        }
        None => "no controller has looked at it yet".to_owned(),
    }
}

fn address_tone(phase: Option<AddressPhase>) -> Tone {
    match phase {
        Some(AddressPhase::Bound | AddressPhase::Available) => Tone::Good,
        Some(AddressPhase::Pending | AddressPhase::Released) | None => Tone::Waiting,
        Some(AddressPhase::Conflict | AddressPhase::Lost) => Tone::Bad,
    }
}

/// The workload that an address is announced for: `Service team-a/web`; empty if there is none.
pub(crate) fn workload(address: &IPAddress) -> String {
    let to = address
        .status
        .as_ref()
        .and_then(|s| s.associated_to.as_ref());
    to.map_or(String::new(), |w| {
        format!("{} {}/{}", w.kind, w.namespace, w.name)
    })
}

/// Where the reservation of an address comes from; empty if it was made by hand.
pub(crate) fn source(address: &IPAddress) -> String {
    match &address.spec.source {
        Some(source) => match &source.provider_ref {
            Some(provider) => format!("provider {}", provider.id),
            None => "class".to_owned(),
        },
        None => String::new(),
    }
}

/// The word of a reclaim policy on the wire.
pub(crate) fn policy(policy: ReclaimPolicy) -> &'static str {
    match policy {
        ReclaimPolicy::Retain => "Retain",
        ReclaimPolicy::Delete => "Delete",
    }
}

fn class(class: &IPAddressClass, view: &View) -> Row {
    let status = class.status.clone().unwrap_or_default();
    let ready = find_condition(&status.conditions, READY);
    let (word, tone) = match ready.map(|c| c.status) {
        Some(ConditionStatus::True) => ("True", Tone::Good),
        Some(ConditionStatus::False) => ("False", Tone::Bad),
        Some(ConditionStatus::Unknown) => ("Unknown", Tone::Waiting),
        None => ("", Tone::Plain),
    };
    // A family that the class does not have is not worth a word.
    let has = |c: &&FamilyCapacity| c.total != "0" || c.out_of_range != "0";
    let counts = |count: &dyn Fn(&FamilyCapacity) -> String| {
        let one = |c: &FamilyCapacity| format!("{} {}", c.family, count(c));
        let all: Vec<String> = status.capacity.iter().filter(has).map(one).collect();
        Cell::from(all.join(", "))
    };
    let free = |c: &FamilyCapacity| format!("{}/{}", short(&c.free), short(&c.total));
    let mut cells = vec![
        class.metadata.name.as_str().into(),
        class.spec.provisioner.as_str().into(),
        policy(class.spec.reclaim_policy).into(),
        if class.is_default() { "yes" } else { "" }.into(),
        counts(&free),
        Cell::toned(word, tone),
    ];
    if view.wide {
        cells.push(counts(&|c| short(&c.cooling)));
        cells.push(counts(&|c| short(&c.excluded)));
        cells.push(counts(&|c| short(&c.out_of_range)));
        cells.push(age(class.metadata.creation_timestamp, view.now).into());
    }
    let unmet = ready.filter(|c| c.status != ConditionStatus::True);
    Row {
        cells,
        note: unmet.map_or(String::new(), explain),
    }
}

/// A count as it is, or `1.8e19` if it is long.
fn short(count: &str) -> String {
    let mut digits = count.chars();
    match (count.len(), digits.next(), digits.next()) {
        (10.., Some(first), Some(second)) => format!("{first}.{second}e{}", count.len() - 1),
        _ => count.to_owned(),
    }
}

/// How long ago something was, in its largest unit.
pub(crate) fn age(then: Option<Timestamp>, now: Timestamp) -> String {
    let Some(then) = then else {
        return String::new();
    };
    let seconds = now.since(then).as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", Duration::from_secs(seconds).as_secs() / 86_400),
    }
}

/// The order of rows: addresses by number, everything else by namespace and name.
pub(crate) fn order(a: &Object, b: &Object) -> Ordering {
    let names = || a.key().cmp(&b.key());
    if a.kind != Kind::IPAddress {
        return names();
    }
    let ip = |object: &Object| {
        let address = object.fields.get("spec").and_then(|s| s.get("address"));
        address
            .and_then(|a| a.as_str())
            .and_then(|a| Ip::parse(a).ok())
    };
    match (ip(a), ip(b)) {
        (Some(x), Some(y)) => x.cmp(&y).then_with(names),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => names(),
    }
}

#[cfg(test)]
mod tests;
