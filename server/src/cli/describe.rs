//! `ipledger describe`: one object with everything that explains it.

use std::collections::BTreeMap;
use std::time::SystemTime;

use ipledger_core::api::{
    AddressPhase, ClaimPhase, ClaimedAddress, Condition, IPAddress, IPAddressClaim, IPAddressClass,
    Key, Kind, ObjectMeta, Resource, ResourceSpec, Timestamp,
};
use serde_json::Value;

use super::client::{Client, ClientError};
use super::columns::{age, policy, reason_of_address, reason_of_claim, source, workload};
use super::exit::CliError;
use super::output::{Terminal, key_name, safe, to_yaml};
use super::table::{Cell, Row, Table};

/// Prints everything that is known of one object.
///
/// # Errors
/// There is no such object, or the server cannot be reached or refuses.
pub(super) async fn run(
    client: &Client,
    key: &Key,
    terminal: &mut Terminal,
) -> Result<(), CliError> {
    let failed = |error: ClientError| CliError::Object {
        object: key_name(key),
        error,
    };
    let now = Timestamp::from(SystemTime::now());
    let mut page = Page::new(now);
    match key.kind {
        Kind::IPAddressClass => {
            let class = read(client, key).await.map_err(failed)?;
            page.class(&class);
        }
        Kind::IPAddress => {
            let address: IPAddress = read(client, key).await.map_err(failed)?;
            let holder = match &address.spec.claim_ref {
                Some(claim_ref) => find::<_>(client, &claim_ref.key()).await?,
                None => None,
            };
            page.address(&address, holder.as_ref());
        }
        Kind::IPAddressClaim => {
            let claim: IPAddressClaim = read(client, key).await.map_err(failed)?;
            let class = match class_name(&claim) {
                "" => None,
                name => find(client, &Key::class(name)).await?,
            };
            let mut addresses = BTreeMap::new();
            let status = claim.status.clone().unwrap_or_default();
            for held in status.addresses.iter().chain(&status.lost_addresses) {
                if let Some(address) = find(client, &Key::address(&held.name)).await? {
                    addresses.insert(held.name.clone(), address);
                }
            }
            page.claim(&claim, class.as_ref(), &addresses);
        }
    }
    terminal.print(&page.text)
}

async fn read<S: ResourceSpec>(client: &Client, key: &Key) -> Result<Resource<S>, ClientError> {
    let object = client.get(key).await?;
    Resource::from_object(&object).map_err(|e| ClientError::Protocol {
        server: client.server(),
        reason: e.to_string(),
    })
}

async fn find<S: ResourceSpec>(
    client: &Client,
    key: &Key,
) -> Result<Option<Resource<S>>, ClientError> {
    match read(client, key).await {
        Ok(resource) => Ok(Some(resource)),
        Err(e) if e.code() == 404 => Ok(None),
        Err(e) => Err(e),
    }
}

fn class_name(claim: &IPAddressClaim) -> &str {
    match claim.resolved_class() {
        "" => &claim.spec.class_name,
        resolved => resolved,
    }
}

/// The text that is being put together.
struct Page {
    text: String,
    now: Timestamp,
}

impl Page {
    fn new(now: Timestamp) -> Page {
        Page {
            text: String::new(),
            now,
        }
    }

    fn field(&mut self, label: &str, value: &str) {
        let value = if value.is_empty() { "-" } else { value };
        self.text
            .push_str(&format!("{:<16}{}\n", format!("{label}:"), safe(value)));
    }

    /// One value below the other.
    fn fields<'a>(&mut self, label: &str, values: impl IntoIterator<Item = (&'a str, String)>) {
        let mut label = label;
        for (name, value) in values {
            let text = if value.is_empty() {
                name.to_owned()
            } else {
                format!("{name}={value}")
            };
            if label.is_empty() {
                self.text.push_str(&format!("{:<16}{}\n", "", safe(&text)));
            } else {
                self.field(label, &text);
            }
            label = "";
        }
    }

    fn block(&mut self, title: &str, text: &str) {
        self.text.push_str(&format!("{title}:\n"));
        for line in text.lines() {
            self.text.push_str(&format!("  {line}\n"));
        }
    }

    fn head(&mut self, kind: Kind, meta: &ObjectMeta) {
        self.field("Kind", kind.name());
        if kind.namespaced() {
            self.field("Namespace", &meta.namespace);
        }
        self.field("Name", &meta.name);
        self.field("UID", &meta.uid);
        self.field("Created", &self.moment(meta.creation_timestamp));
        if meta.is_deleting() {
            self.field("Deleted", &self.moment(meta.deletion_timestamp));
        }
    }

    fn foot(
        &mut self,
        meta: &ObjectMeta,
        spec: &Value,
        status_extra: &Value,
        conditions: &[Condition],
    ) {
        for (title, rest) in [("Other fields", spec), ("Other status", status_extra)] {
            if rest.as_object().is_some_and(|map| !map.is_empty()) {
                self.block(title, &to_yaml(rest));
            }
        }
        self.conditions(conditions);
        let pairs = |map: &'_ BTreeMap<String, String>| -> Vec<(String, String)> {
            let shown = map
                .iter()
                .filter(|(name, _)| *name != super::merge::LAST_APPLIED);
            shown
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect()
        };
        for (label, map) in [("Labels", &meta.labels), ("Annotations", &meta.annotations)] {
            let pairs = pairs(map);
            self.fields(label, pairs.iter().map(|(n, v)| (n.as_str(), v.clone())));
        }
        self.fields(
            "Finalizers",
            meta.finalizers.iter().map(|f| (f.as_str(), String::new())),
        );
    }

    fn moment(&self, time: Option<Timestamp>) -> String {
        time.map_or(String::new(), |t| {
            format!("{t} ({} ago)", age(Some(t), self.now))
        })
    }

    fn conditions(&mut self, conditions: &[Condition]) {
        if conditions.is_empty() {
            return;
        }
        let row = |c: &Condition| Row {
            cells: vec![
                c.type_.as_str().into(),
                c.status.as_str().into(),
                c.reason.as_str().into(),
                age(c.last_transition_time, self.now).into(),
            ],
            note: c.message.clone(),
        };
        let table = Table {
            columns: vec!["TYPE", "STATUS", "REASON", "AGE"],
            spare: None,
            note: "MESSAGE",
            rows: conditions.iter().map(row).collect(),
        };
        self.block("Conditions", &table.render(false));
    }

    fn class(&mut self, class: &IPAddressClass) {
        self.head(Kind::IPAddressClass, &class.metadata);
        self.field("Provisioner", &class.spec.provisioner);
        self.field("Reclaim policy", policy(class.spec.reclaim_policy));
        self.field("Default", if class.is_default() { "yes" } else { "no" });
        if let Some(parameters) = &class.spec.parameters {
            self.block("Parameters", &to_yaml(parameters));
        }
        let status = class.status.clone().unwrap_or_default();
        if !status.capacity.is_empty() {
            let rows = status.capacity.iter().map(|c| {
                let counts = [
                    &c.total,
                    &c.used,
                    &c.free,
                    &c.cooling,
                    &c.excluded,
                    &c.out_of_range,
                ];
                let cells = std::iter::once(&c.family).chain(counts).map(Cell::from);
                Row {
                    cells: cells.collect(),
                    note: String::new(),
                }
            });
            let table = Table {
                columns: vec![
                    "FAMILY",
                    "TOTAL",
                    "USED",
                    "FREE",
                    "COOLING",
                    "EXCLUDED",
                    "OUT OF RANGE",
                ],
                rows: rows.collect(),
                ..Table::default()
            };
            self.block("Capacity", &table.render(false));
        }
        let outside = status
            .out_of_range
            .iter()
            .map(|name| (name.as_str(), String::new()));
        self.fields("Out of range", outside);
        let (spec, extra) = (class.spec.extra.clone().into(), status.extra.into());
        self.foot(&class.metadata, &spec, &extra, &status.conditions);
    }

    fn address(&mut self, address: &IPAddress, holder: Option<&IPAddressClaim>) {
        self.head(Kind::IPAddress, &address.metadata);
        self.field("Address", &address.spec.address);
        self.field("Phase", address.phase().map_or("", AddressPhase::as_str));
        let why = reason_of_address(address);
        if !why.is_empty() {
            self.field("Why", &why);
        }
        self.field("Class", &address.spec.class_name);
        self.field("Reclaim policy", policy(address.spec.reclaim_policy));
        self.field("Held by", &held_by(address, holder));
        self.field("Workload", &workload(address));
        self.field("Source", &source(address));
        let extra = address
            .status
            .as_ref()
            .map(|s| s.extra.clone())
            .unwrap_or_default();
        let spec = address.spec.extra.clone().into();
        self.foot(
            &address.metadata,
            &spec,
            &extra.into(),
            address.conditions(),
        );
    }

    fn claim(
        &mut self,
        claim: &IPAddressClaim,
        class: Option<&IPAddressClass>,
        addresses: &BTreeMap<String, IPAddress>,
    ) {
        self.head(Kind::IPAddressClaim, &claim.metadata);
        self.field("Phase", claim.phase().map_or("", ClaimPhase::as_str));
        let why = reason_of_claim(claim);
        if !why.is_empty() {
            self.field("Why", &why);
        }
        self.field("Family", claim.spec.family.as_str());
        if !claim.spec.address_name.is_empty() {
            self.field("Wants", &claim.spec.address_name);
        }
        self.field("Class", &class_text(claim, class));
        if let Some(provisioner) = claim.stamp() {
            self.field("Provisioner", provisioner);
        }
        let status = claim.status.clone().unwrap_or_default();
        let row = |held: &ClaimedAddress, lost: bool| {
            let address = addresses.get(&held.name);
            let phase = address.map(|a| a.phase().map_or("", AddressPhase::as_str));
            Row {
                cells: vec![
                    held.address.as_str().into(),
                    held.name.as_str().into(),
                    phase.unwrap_or("gone").into(),
                    address.map_or(String::new(), workload).into(),
                ],
                note: if lost {
                    "lost".to_owned()
                } else {
                    String::new()
                },
            }
        };
        let held = status.addresses.iter().map(|a| row(a, false));
        let rows: Vec<Row> = held
            .chain(status.lost_addresses.iter().map(|a| row(a, true)))
            .collect();
        if !rows.is_empty() {
            let table = Table {
                columns: vec!["ADDRESS", "NAME", "PHASE", "WORKLOAD"],
                spare: None,
                note: "REMARK",
                rows,
            };
            self.block("Addresses", &table.render(false));
        }
        let (spec, extra) = (claim.spec.extra.clone().into(), status.extra.into());
        self.foot(&claim.metadata, &spec, &extra, &status.conditions);
    }
}

fn held_by(address: &IPAddress, holder: Option<&IPAddressClaim>) -> String {
    let Some(claim_ref) = &address.spec.claim_ref else {
        return "nobody".to_owned();
    };
    let name = format!("claim {}/{}", claim_ref.namespace, claim_ref.name);
    match holder {
        None if claim_ref.uid.is_empty() => format!("{name}, which does not exist yet"),
        None => format!("{name} (uid {}), which is gone", claim_ref.uid),
        Some(_) if claim_ref.uid.is_empty() => format!("{name} (not completed yet)"),
        Some(claim) if claim.uid() == claim_ref.uid => {
            let phase = claim.phase().map_or("new", ClaimPhase::as_str);
            format!("{name} ({phase}, uid {})", claim_ref.uid)
        }
        Some(_) => format!("an earlier {name} (uid {}), which is gone", claim_ref.uid),
    }
}

fn class_text(claim: &IPAddressClaim, class: Option<&IPAddressClass>) -> String {
    let name = class_name(claim);
    let how = if claim.spec.class_name.is_empty() {
        " (by default)"
    } else {
        ""
    };
    match (name, class) {
        ("", _) if claim.spec.address_name.is_empty() => {
            "none yet; the default class is asked for".to_owned()
        }
        ("", _) => String::new(),
        (name, None) => format!("{name}{how}, which does not exist"),
        (name, Some(class)) => format!(
            "{name}{how}, {}, reclaim policy {}",
            class.spec.provisioner,
            policy(class.spec.reclaim_policy)
        ),
    }
}

#[cfg(test)]
mod tests;
