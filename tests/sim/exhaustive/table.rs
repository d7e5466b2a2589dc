//! What can stand at a place of the ledger, each distinct content once, and what writes make of
//! it. A state of the search holds numbers of entries, so that it is small and a step between two
//! known entries costs one look-up.

use std::collections::HashMap;
use std::sync::Arc;

use ipledger_core::api::{
    IPAddress, IPAddressClaim, IPAddressClass, Key, Kind, Object, ObjectMeta, Timestamp,
};
use ipledger_core::binding::Write;
use ipledger_core::runtime::Found;
use ipledger_core::store::rules::{self, Birth, Outcome};
use ipledger_core::store::{Part, Preconditions, Revision};

use super::hash::Fast;

/// The time of everything.
pub const NOW: u64 = 1_800_000_000;

/// An object in typed form.
#[derive(Clone, Debug, PartialEq)]
pub enum Thing {
    Claim(Arc<IPAddressClaim>),
    Address(Arc<IPAddress>),
}

/// What stands at a place: the object, how often it was written, and how many were born there.
/// Revisions are counted for each place apart, because the core compares only those of one object;
/// so the order of writes to different objects makes no different states.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub object: Option<Thing>,
    pub version: u64,
    pub births: u32,
}

/// The number of an entry. Zero is a place where nothing ever was.
pub type EntryId = u32;

/// One write as it reaches the ledger.
#[derive(Clone, Debug)]
pub enum Change {
    /// Replaces a part of the object.
    Update(Thing, Part),
    /// Deletes the object if it is the one that is meant.
    Delete(Preconditions),
    /// Creates the object.
    Create(Thing),
}

/// The number of a [`Change`].
pub type ChangeId = u32;

/// Why the ledger refuses a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NotFound,
    Exists,
    Overtaken,
}

/// Entries and changes, and what each change makes of each entry.
pub struct Table {
    entries: Vec<Entry>,
    numbers: HashMap<String, EntryId>,
    changes: Vec<Change>,
    change_numbers: HashMap<String, ChangeId>,
    applied: HashMap<(EntryId, ChangeId), Result<EntryId, Refusal>, Fast>,
}

impl Thing {
    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Thing::Claim(claim) => &claim.metadata,
            Thing::Address(address) => &address.metadata,
        }
    }

    fn to_object(&self) -> Object {
        match self {
            Thing::Claim(claim) => claim.to_object(),
            Thing::Address(address) => address.to_object(),
        }
        .unwrap()
    }

    fn of(object: &Object, version: u64) -> Thing {
        let mut object = object.clone();
        object.metadata.resource_version = Some(Revision(version));
        match object.kind {
            Kind::IPAddress => Thing::Address(Arc::new(IPAddress::from_object(&object).unwrap())),
            _ => Thing::Claim(Arc::new(IPAddressClaim::from_object(&object).unwrap())),
        }
    }
}

impl Entry {
    pub fn claim(&self) -> Option<&Arc<IPAddressClaim>> {
        match &self.object {
            Some(Thing::Claim(claim)) => Some(claim),
            _ => None,
        }
    }

    pub fn address(&self) -> Option<&Arc<IPAddress>> {
        match &self.object {
            Some(Thing::Address(address)) => Some(address),
            _ => None,
        }
    }

    /// The entry as the answer to a read of this key.
    pub fn found(&self, key: &Key) -> Found {
        match key.kind {
            Kind::IPAddress => Found::Address(self.address().cloned()),
            _ => Found::Claim(self.claim().cloned()),
        }
    }
}

impl Change {
    /// The change that a write of a plan asks for.
    pub fn of(write: &Write) -> Change {
        match write {
            Write::Claim { object, part } => {
                Change::Update(Thing::Claim(Arc::new((**object).clone())), *part)
            }
            Write::Address { object, part } => {
                Change::Update(Thing::Address(Arc::new((**object).clone())), *part)
            }
            Write::DeleteAddress { preconditions, .. } => Change::Delete(preconditions.clone()),
        }
    }
}

impl Table {
    pub fn new() -> Table {
        let mut table = Table {
            entries: Vec::new(),
            numbers: HashMap::new(),
            changes: Vec::new(),
            change_numbers: HashMap::new(),
            applied: HashMap::default(),
        };
        table.entry(Entry {
            object: None,
            version: 0,
            births: 0,
        });
        table
    }

    pub fn get(&self, id: EntryId) -> &Entry {
        &self.entries[id as usize]
    }

    pub fn change(&self, id: ChangeId) -> &Change {
        &self.changes[id as usize]
    }

    /// How many distinct entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn entry(&mut self, entry: Entry) -> EntryId {
        let text = format!("{entry:?}");
        if let Some(id) = self.numbers.get(&text) {
            return *id;
        }
        let id = number(self.entries.len());
        self.entries.push(entry);
        self.numbers.insert(text, id);
        id
    }

    pub fn number_of(&mut self, change: Change) -> ChangeId {
        let text = format!("{change:?}");
        if let Some(id) = self.change_numbers.get(&text) {
            return *id;
        }
        let id = number(self.changes.len());
        self.changes.push(change);
        self.change_numbers.insert(text, id);
        id
    }

    /// Whether a change that is in the air can still have an effect on this entry.
    pub fn can_apply(&mut self, entry: EntryId, change: ChangeId) -> bool {
        self.apply(entry, change).is_ok()
    }

    /// What a change makes of an entry, by the rules that every backend shares. An update that
    /// changes nothing gives the entry itself.
    pub fn apply(&mut self, entry: EntryId, change: ChangeId) -> Result<EntryId, Refusal> {
        if let Some(result) = self.applied.get(&(entry, change)) {
            return *result;
        }
        let result = self.work_out(entry, change);
        self.applied.insert((entry, change), result);
        result
    }

    fn work_out(&mut self, id: EntryId, change: ChangeId) -> Result<EntryId, Refusal> {
        let entry = self.get(id).clone();
        let current = entry.object.as_ref().map(Thing::to_object);
        let outcome = match (self.change(change), current) {
            (Change::Create(_), Some(_)) => return Err(Refusal::Exists),
            (Change::Create(new), None) => {
                let births = entry.births + 1;
                let birth = Birth {
                    uid: format!("{}.{births}", new.meta().name),
                    now: Timestamp::from_unix(NOW),
                };
                let object = rules::create(new.to_object(), birth).unwrap();
                return Ok(self.entry(Entry {
                    object: Some(Thing::of(&object, entry.version + 1)),
                    version: entry.version + 1,
                    births,
                }));
            }
            (_, None) => return Err(Refusal::NotFound),
            (Change::Update(new, part), Some(current)) => {
                rules::update(&current, new.to_object(), *part)
            }
            (Change::Delete(preconditions), Some(current)) => {
                rules::delete(&current, preconditions, Timestamp::from_unix(NOW))
            }
        };
        let version = entry.version + 1;
        let object = match outcome {
            Err(_) => return Err(Refusal::Overtaken),
            Ok(Outcome::Unchanged) => return Ok(id),
            Ok(Outcome::Write(next)) => Some(Thing::of(&next, version)),
            Ok(Outcome::Remove(_)) => None,
        };
        Ok(self.entry(Entry {
            object,
            version,
            births: entry.births,
        }))
    }
}

pub fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap()
}

/// A class with this driver, made before everything else.
pub fn class(name: &str, driver: &str) -> Arc<IPAddressClass> {
    let mut class = IPAddressClass::default();
    class.metadata.name = name.to_owned();
    class.metadata.uid = format!("{name}.1");
    class.metadata.resource_version = Some(Revision(1));
    class.spec.provisioner = driver.to_owned();
    Arc::new(class)
}
