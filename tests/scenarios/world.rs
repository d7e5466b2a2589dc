//! A ledger with cores and drivers on it, and what people do to it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ipledger_core::api::{
    AddressPhase, ClaimFamily, ClaimPhase, ClaimRef, IPAddress, IPAddressClaim, IPAddressClass,
    Key, ReclaimPolicy, Resource, ResourceSpec, find_condition, names,
};
use ipledger_core::binding::{Event, EventKind};
use ipledger_core::net::{Family, Ip};
use ipledger_core::runtime::{Binder, BinderOptions, Clock, EventSink};
use ipledger_core::store::{MemoryStore, Part, Preconditions, ReadAt, Store, StoreExt};
use ipledger_drivers::range::{NAME, RangeDriver};
use serde_json::Value;

use crate::client::Time;
use crate::order::Order;
use crate::process::{Doing, Host, Process, now, preferences};

#[derive(Default)]
struct Heard(Mutex<Vec<Event>>);

impl EventSink for Heard {
    fn emit(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

/// Everything.
pub struct World {
    pub ledger: MemoryStore,
    time: Arc<Time>,
    /// Cores first, then drivers.
    pub processes: Vec<Box<dyn Process>>,
    /// What is done first, if it can be done.
    preferences: Vec<(usize, Doing)>,
    /// Processes that are away: they do nothing.
    away: Vec<usize>,
    heard: Arc<Heard>,
    checked: usize,
    /// What each claim was bound to first, by its uid and the IP's family.
    first: BTreeMap<(String, Family), String>,
}

/// The core of a world with one.
pub const CORE: usize = 0;
/// The driver of a world with one core and one driver.
pub const DRIVER: usize = 1;

impl World {
    /// One core and one driver.
    pub fn new() -> World {
        World::of(1, 1)
    }

    pub fn of(cores: usize, drivers: usize) -> World {
        let (time, uids) = (Arc::new(Time::default()), AtomicU64::new(0));
        let clock = time.clone();
        let ledger = MemoryStore::new(
            move || clock.now(),
            move || format!("uid-{:04}", uids.fetch_add(1, Ordering::Relaxed) + 1),
        );
        let heard = Arc::new(Heard::default());
        let mut processes: Vec<Box<dyn Process>> = Vec::new();
        for _ in 0..cores {
            let (clock, heard) = (time.clone(), heard.clone());
            let make = move |store: Arc<dyn Store>, progress| {
                let options = BinderOptions::default();
                Binder::new(store, clock.clone(), progress, heard.clone(), options)
            };
            let host = Host::new(ledger.clone(), time.clone(), Box::new(make));
            processes.push(Box::new(host));
        }
        for _ in 0..drivers {
            let clock = time.clone();
            let make = move |store: Arc<dyn Store>, _| RangeDriver::new(store, clock.clone());
            let host = Host::new(ledger.clone(), time.clone(), Box::new(make));
            processes.push(Box::new(host));
        }
        let all = 0..processes.len();
        World {
            ledger,
            time,
            preferences: all
                .flat_map(|p| Doing::ALL.map(|doing| (p, doing)))
                .collect(),
            processes,
            away: Vec::new(),
            heard,
            checked: 0,
            first: BTreeMap::new(),
        }
    }

    /// From now on all are as prompt as they can be, but for at most one that puts one of its four
    /// things off for as long as anybody has anything else to do.
    pub fn one_is_late(&mut self, order: &mut Order) {
        let all = 0..self.processes.len();
        let mut all: Vec<_> = all
            .flat_map(|p| Doing::ALL.map(|doing| (p, doing)))
            .collect();
        let late = order.choose(all.len() + 1);
        if late < all.len() {
            let late = all.remove(late);
            all.push(late);
        }
        self.preferences = all;
    }

    /// From now on every process does its four things in an order of preference of its own, and the
    /// processes come one after the other, in any order.
    pub fn all_dawdle(&mut self, order: &mut Order) {
        let mut who: Vec<usize> = (0..self.processes.len()).collect();
        order.shuffle(&mut who);
        self.preferences = Vec::new();
        for process in who {
            let its = preferences(order);
            self.preferences.extend(its.map(|doing| (process, doing)));
        }
    }

    /// The process does nothing until it is called back.
    pub fn send_away(&mut self, process: usize) {
        self.away.push(process);
    }

    pub fn call_back(&mut self) {
        self.away.clear();
    }

    /// Does one thing, the one that is preferred most; `false` if there is none.
    pub fn step(&mut self) -> bool {
        for (process, doing) in &self.preferences {
            if !self.away.contains(process) && self.processes[*process].step(*doing) {
                self.check();
                return true;
            }
        }
        false
    }

    /// Does so many things.
    pub fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    /// Does everything that can be done now; what waits for a time goes on waiting.
    pub fn act_at_once(&mut self) {
        for _ in 0..10_000 {
            if !self.step() {
                return;
            }
        }
        panic!("they do not come to rest: {}", self.show());
    }

    /// Does everything, also what waits for a time.
    pub fn settle(&mut self) {
        for _ in 0..1_000 {
            self.act_at_once();
            let here = (0..self.processes.len()).filter(|p| !self.away.contains(p));
            let due = here.filter_map(|p| self.processes[p].next_deadline()).min();
            match due {
                Some(at) => self.time.advance_to(at),
                None => return,
            }
        }
        panic!("there is no end of waiting: {}", self.show());
    }

    /// Settles, then shows that a pass over everything writes nothing and says nothing.
    pub fn settle_and_stay_quiet(&mut self) {
        self.settle();
        let (log, heard) = (self.log().len(), self.events().len());
        for process in &mut self.processes {
            process.resync();
        }
        self.settle();
        assert_eq!(self.log().len(), log, "{:#?}", self.log());
        assert_eq!(self.events().len(), heard, "{:#?}", self.events());
    }

    pub fn advance(&self, by: Duration) {
        self.time.advance_to(self.time.monotonic() + by);
    }

    /// All writes of all processes, in the order of the processes.
    pub fn log(&self) -> Vec<String> {
        self.processes.iter().flat_map(|p| p.log()).collect()
    }

    pub fn events(&self) -> Vec<Event> {
        self.heard.0.lock().unwrap().clone()
    }

    pub fn warnings(&self) -> Vec<Event> {
        let all = self.events().into_iter();
        all.filter(|e| e.kind == EventKind::Warning).collect()
    }

    /// All processes die and start with empty memory.
    pub fn restart(&mut self) {
        for process in &mut self.processes {
            process.restart();
        }
    }

    pub fn somebody_is_dead(&self) -> bool {
        self.processes.iter().any(|p| p.is_dead())
    }

    /// Those that have died start again.
    pub fn restart_the_dead(&mut self) {
        for process in self.processes.iter_mut().filter(|p| p.is_dead()) {
            process.restart();
        }
    }
}

/// What people do.
impl World {
    /// A class of the range driver.
    pub fn class(&self, name: &str, policy: ReclaimPolicy, parameters: Value) {
        let mut class = IPAddressClass::default();
        class.metadata.name = name.to_owned();
        class.spec.provisioner = NAME.to_owned();
        class.spec.reclaim_policy = policy;
        class.spec.parameters = Some(parameters);
        now(self.ledger.create_resource(&class)).unwrap();
    }

    /// A class that nobody provisions.
    pub fn static_class(&self, name: &str) {
        let mut class = IPAddressClass::default();
        class.metadata.name = name.to_owned();
        class.spec.provisioner = "nobody.example.com".to_owned();
        now(self.ledger.create_resource(&class)).unwrap();
    }

    pub fn parameters(&self, class: &str, parameters: Value) {
        self.edit(&Key::class(class), |class: &mut IPAddressClass| {
            class.spec.parameters = Some(parameters.clone());
        });
    }

    /// A claim of class `c` for an IPv4 address.
    pub fn claim(&self, name: &str) {
        self.claim_with(name, |_| ());
    }

    pub fn claim_with(&self, name: &str, edit: impl FnOnce(&mut IPAddressClaim)) {
        let mut claim = IPAddressClaim::default();
        claim.metadata.name = name.to_owned();
        claim.metadata.namespace = "ns".to_owned();
        claim.spec.class_name = "c".to_owned();
        edit(&mut claim);
        now(self.ledger.create_resource(&claim)).unwrap();
    }

    /// An address object made by hand, of class `c`.
    pub fn address(&self, ip: &str, edit: impl FnOnce(&mut IPAddress)) {
        let mut address = IPAddress::default();
        address.metadata.name = object_name(ip);
        address.spec.address = ip.to_owned();
        address.spec.class_name = "c".to_owned();
        edit(&mut address);
        now(self.ledger.create_resource(&address)).unwrap();
    }

    pub fn edit<S: ResourceSpec>(&self, key: &Key, edit: impl Fn(&mut Resource<S>) + Send + Sync) {
        let change = |object: &mut Resource<S>| {
            edit(object);
            true
        };
        now(self.ledger.update_with(key, Part::Main, change)).unwrap();
    }

    pub fn edit_address(&self, ip: &str, edit: impl Fn(&mut IPAddress) + Send + Sync) {
        self.edit(&Key::address(object_name(ip)), edit);
    }

    /// As a restore or a careless hand does.
    pub fn wipe_all_statuses(&self) {
        for claim in self.claims() {
            self.wipe::<ipledger_core::api::IPAddressClaimSpec>(&claim.key());
        }
        for address in self.addresses() {
            self.wipe::<ipledger_core::api::IPAddressSpec>(&address.key());
        }
    }

    fn wipe<S: ResourceSpec>(&self, key: &Key) {
        let change = |object: &mut Resource<S>| {
            object.status = None;
            true
        };
        now(self.ledger.update_with(key, Part::Status, change)).unwrap();
    }

    pub fn delete(&self, key: &Key) {
        now(self.ledger.delete(key, &Preconditions::default())).unwrap();
    }

    pub fn delete_claim(&self, name: &str) {
        self.delete(&Key::claim("ns", name));
    }

    pub fn delete_address(&self, ip: &str) {
        self.delete(&Key::address(object_name(ip)));
    }
}

/// What there is.
impl World {
    pub fn find_claim(&self, name: &str) -> Option<IPAddressClaim> {
        now(self.ledger.find(&Key::claim("ns", name), ReadAt::Latest)).unwrap()
    }

    pub fn get_claim(&self, name: &str) -> IPAddressClaim {
        self.find_claim(name)
            .unwrap_or_else(|| panic!("there is no claim {name}: {}", self.show()))
    }

    pub fn find_address(&self, ip: &str) -> Option<IPAddress> {
        let key = Key::address(object_name(ip));
        now(self.ledger.find(&key, ReadAt::Latest)).unwrap()
    }

    pub fn get_address(&self, ip: &str) -> IPAddress {
        self.find_address(ip)
            .unwrap_or_else(|| panic!("there is no address {ip}: {}", self.show()))
    }

    pub fn get_class(&self, name: &str) -> IPAddressClass {
        now(self.ledger.find(&Key::class(name), ReadAt::Latest))
            .unwrap()
            .expect("the class is there")
    }

    pub fn claims(&self) -> Vec<IPAddressClaim> {
        now(self.ledger.list_all()).unwrap()
    }

    pub fn addresses(&self) -> Vec<IPAddress> {
        now(self.ledger.list_all()).unwrap()
    }

    /// What the claim is bound to; nothing if it is not bound.
    pub fn bound(&self, name: &str) -> String {
        let claim = self.get_claim(name);
        match claim.phase() {
            Some(ClaimPhase::Bound) => claim.status.unwrap_or_default().address_text,
            _ => String::new(),
        }
    }

    /// The reason of the claim's condition `Bound`.
    pub fn reason(&self, name: &str) -> String {
        let claim = self.get_claim(name);
        find_condition(claim.conditions(), names::condition::BOUND)
            .map_or(String::new(), |c| c.reason.clone())
    }

    /// All address objects as `IP claim phase`, in order.
    pub fn holders(&self) -> Vec<String> {
        let line = |a: &IPAddress| {
            let claim = a.spec.claim_ref.as_ref().map_or("-", |r| r.name.as_str());
            let phase = a.phase().map_or("-", AddressPhase::as_str);
            format!("{} {claim} {phase}", a.spec.address)
        };
        let mut lines: Vec<String> = self.addresses().iter().map(line).collect();
        lines.sort();
        lines
    }

    /// Everything, for a failure.
    pub fn show(&self) -> String {
        format!(
            "{:#?}\n{:#?}\n{:#?}",
            self.holders(),
            self.claims(),
            self.processes
                .iter()
                .map(|p| p.log())
                .map(|l| l[l.len().saturating_sub(12)..].to_vec())
                .collect::<Vec<_>>()
        )
    }

    /// What holds in every state that anybody can see, looked at after each write.
    fn check(&mut self) {
        let writes = self.processes.iter().map(|p| p.log().len()).sum();
        if std::mem::replace(&mut self.checked, writes) == writes {
            return;
        }
        let addresses = self.addresses();
        let mut ips = BTreeMap::new();
        for address in &addresses {
            if let Some(other) = address.ip().and_then(|ip| ips.insert(ip, address.key())) {
                panic!("{} and {other} are one IP", address.key());
            }
        }
        let mut reported = BTreeMap::new();
        for claim in self.claims() {
            if claim.phase() != Some(ClaimPhase::Bound) || claim.metadata.is_deleting() {
                continue;
            }
            for entry in claim.status.iter().flat_map(|s| &s.addresses) {
                let ip = Ip::parse(&entry.address).unwrap();
                if let Some(other) = reported.insert(ip, claim.key()) {
                    panic!("{} and {other} both report {ip}", claim.key());
                }
                let before = self
                    .first
                    .entry((claim.metadata.uid.clone(), ip.family()))
                    .or_insert_with(|| entry.name.clone());
                assert_eq!(*before, entry.name, "{} was renumbered", claim.key());
                let address = addresses.iter().find(|a| a.metadata.name == entry.name);
                let address = address.unwrap_or_else(|| panic!("{ip} is reported and not there"));
                assert_eq!(
                    address.spec.claim_ref.as_ref().map(|r| r.uid.as_str()),
                    Some(claim.metadata.uid.as_str()),
                    "{ip} is reported by {} and not held by it",
                    claim.key()
                );
                assert!(
                    address.metadata.has_finalizer(names::ADDRESS_PROTECTION),
                    "{ip} is reported by {} and not protected",
                    claim.key()
                );
            }
        }
    }
}

pub fn object_name(ip: &str) -> String {
    Ip::parse(ip).unwrap().object_name()
}

pub fn six(claim: &mut IPAddressClaim) {
    claim.spec.family = ClaimFamily::IPv6;
}

pub fn dual(claim: &mut IPAddressClaim) {
    claim.spec.family = ClaimFamily::Dual;
}

/// A claimRef of namespace `ns` as an admin writes it: without a uid.
pub fn for_claim(name: &str) -> Option<ClaimRef> {
    Some(ClaimRef {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        ..ClaimRef::default()
    })
}
