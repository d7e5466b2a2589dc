//! A driver of another make, written from the source's §7 alone, with the manners that real ones
//! have: it pre-binds with or without a uid, forgets what it has just created, and tears down
//! early.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ipledger_core::api::{
    AddressPhase, AddressSource, ClaimPhase, ClaimRef, Extra, IPAddress, IPAddressClaim,
    IPAddressClass, Key, Kind, ProvisioningStatus, names,
};
use ipledger_core::net::{Family, Ip};
use ipledger_core::runtime::{Change, Next, Pass, Reconciler};
use ipledger_core::store::{Part, Store, StoreError, StoreExt};

use crate::rng::Rng;

/// The driver's name.
pub const NAME: &str = "third.example.com";
/// Its finalizer.
pub const FINALIZER: &str = "third.example.com/teardown";

/// How it behaves.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    /// In so many of a thousand cases it sets the uid.
    pub sets_uid: u32,
    /// In so many of a thousand cases it does not look whether the claim has an address already.
    pub forgets: u32,
    /// Whether it lets go although the core still protects the address.
    pub tears_down_early: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    Claim(Key),
    Address(String),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Claim(key) => key.fmt(f),
            Work::Address(name) => f.write_str(name),
        }
    }
}

#[derive(Default)]
struct View {
    classes: BTreeMap<String, Arc<IPAddressClass>>,
    addresses: BTreeMap<String, Arc<IPAddress>>,
    claims: BTreeMap<Key, Arc<IPAddressClaim>>,
}

pub struct ThirdParty {
    store: Arc<dyn Store>,
    manners: Manners,
    /// Set once the faults stop: from then on it forgets nothing.
    calm: Arc<AtomicBool>,
    rng: Mutex<Rng>,
    view: Mutex<View>,
}

/// The addresses that the parameters of a class list one by one.
pub fn listed(class: &IPAddressClass) -> Vec<Ip> {
    let parameters = class.spec.parameters.as_ref();
    let items = parameters
        .and_then(|p| p.get("addresses"))
        .and_then(|a| a.as_array());
    let texts = items.into_iter().flatten().filter_map(|v| v.as_str());
    texts.filter_map(|text| Ip::parse(text).ok()).collect()
}

impl ThirdParty {
    pub fn new(
        store: Arc<dyn Store>,
        manners: Manners,
        calm: Arc<AtomicBool>,
        rng: Rng,
    ) -> ThirdParty {
        ThirdParty {
            store,
            manners,
            calm,
            rng: Mutex::new(rng),
            view: Mutex::default(),
        }
    }

    fn chance(&self, per_mille: u32) -> bool {
        self.rng.lock().unwrap().chance(per_mille)
    }

    /// The claim and its class if it is this driver's to serve, and the families it misses.
    fn task(&self, key: &Key) -> Option<(Arc<IPAddressClaim>, Arc<IPAddressClass>, Vec<Family>)> {
        let forgets = self.chance(self.manners.forgets) && !self.calm.load(Ordering::Relaxed);
        let view = self.view.lock().unwrap();
        let claim = view.claims.get(key)?;
        let class = view.classes.get(claim.resolved_class())?;
        let is_mine = claim.stamp() == Some(NAME)
            && class.spec.provisioner == NAME
            && claim.phase() == Some(ClaimPhase::Pending)
            && !claim.metadata.is_deleting();
        if !is_mine {
            return None;
        }
        let uid = &claim.metadata.uid;
        let held = view.addresses.values().filter(|a| {
            a.spec
                .claim_ref
                .as_ref()
                .is_some_and(|r| r.key() == *key && (r.uid.is_empty() || r.uid == *uid))
                && a.phase() != Some(AddressPhase::Lost)
                && !a.metadata.is_deleting()
                && a.metadata.annotation(names::PARKED_FOR) != Some(uid)
                && a.ip().is_some_and(|ip| ip.object_name() == a.metadata.name)
        });
        let held: BTreeSet<Family> = held.filter_map(|a| a.ip().map(Ip::family)).collect();
        let families = claim.spec.family.families().iter().copied();
        let missing = families.filter(|f| forgets || !held.contains(f)).collect();
        Some((claim.clone(), class.clone(), missing))
    }

    fn free(&self, class: &IPAddressClass, family: Family) -> Vec<Ip> {
        let view = self.view.lock().unwrap();
        let taken: BTreeSet<Ip> = view.addresses.values().filter_map(|a| a.ip()).collect();
        let all = listed(class).into_iter();
        all.filter(|ip| ip.family() == family && !taken.contains(ip))
            .collect()
    }

    async fn serve(&self, key: &Key) -> Result<bool, StoreError> {
        let Some((claim, class, missing)) = self.task(key) else {
            return Ok(true);
        };
        let mut exhausted = false;
        'family: for family in missing {
            for ip in self.free(&class, family) {
                let address = self.new_address(ip, &claim, &class);
                match self.store.create_resource(&address).await {
                    Ok(_) => continue 'family,
                    Err(StoreError::AlreadyExists { .. }) => {}
                    Err(e) => return Err(e),
                }
            }
            exhausted = true;
        }
        self.say(&claim, exhausted.then(|| class.metadata.name.clone()))
            .await
    }

    fn new_address(&self, ip: Ip, claim: &IPAddressClaim, class: &IPAddressClass) -> IPAddress {
        let mut address = IPAddress::default();
        address.metadata.name = ip.object_name();
        address.metadata.finalizers.push(FINALIZER.to_owned());
        address.spec.address = ip.to_string();
        address.spec.class_name = class.metadata.name.clone();
        address.spec.reclaim_policy = class.spec.reclaim_policy;
        let uid = if self.chance(self.manners.sets_uid) {
            claim.metadata.uid.clone()
        } else {
            String::new()
        };
        address.spec.claim_ref = Some(ClaimRef {
            namespace: claim.metadata.namespace.clone(),
            name: claim.metadata.name.clone(),
            uid,
            ..ClaimRef::default()
        });
        address.spec.source = Some(AddressSource {
            from_class: Some(Extra::new()),
            ..AddressSource::default()
        });
        address
    }

    /// Says on the claim what it cannot be given, or takes that back.
    async fn say(
        &self,
        claim: &IPAddressClaim,
        exhausted: Option<String>,
    ) -> Result<bool, StoreError> {
        let wanted = exhausted.map(|class| ProvisioningStatus {
            provisioner: NAME.to_owned(),
            reason: names::reason::POOL_EXHAUSTED.to_owned(),
            class,
            message: "no free address".to_owned(),
        });
        let said = claim
            .provisioning_status()
            .filter(|s| s.provisioner == NAME);
        if said == wanted {
            return Ok(true);
        }
        let mut next = claim.clone();
        let annotation = names::PROVISIONING_STATUS.to_owned();
        match wanted.and_then(|w| serde_json::to_string(&w).ok()) {
            Some(text) => next.metadata.annotations.insert(annotation, text),
            None => next.metadata.annotations.remove(&annotation),
        };
        self.store
            .update(next.to_object()?, Part::Main)
            .await
            .map(|_| true)
    }

    async fn tear_down(&self, name: &str) -> Result<bool, StoreError> {
        let address = self.view.lock().unwrap().addresses.get(name).cloned();
        let Some(address) = address else {
            return Ok(true);
        };
        let protected = address.metadata.has_finalizer(names::ADDRESS_PROTECTION);
        if !address.metadata.is_deleting()
            || !address.metadata.has_finalizer(FINALIZER)
            || (protected && !self.manners.tears_down_early)
        {
            return Ok(true);
        }
        let mut next = IPAddress::clone(&address);
        next.metadata.remove_finalizer(FINALIZER);
        self.store
            .update(next.to_object()?, Part::Main)
            .await
            .map(|_| true)
    }
}

#[async_trait]
impl Reconciler for ThirdParty {
    type Key = Work;

    fn kinds(&self) -> &'static [Kind] {
        &Kind::ALL
    }

    fn observe(&self, change: &Change) -> Vec<Work> {
        let mut view = self.view.lock().unwrap();
        let mut works = Vec::new();
        match change {
            Change::Class { key, new, .. } => {
                match new {
                    Some(class) => view.classes.insert(key.name.clone(), class.clone()),
                    None => view.classes.remove(&key.name),
                };
            }
            Change::Address { key, new, .. } => {
                match new {
                    Some(address) => view.addresses.insert(key.name.clone(), address.clone()),
                    None => view.addresses.remove(&key.name),
                };
                works.push(Work::Address(key.name.clone()));
            }
            Change::Claim { key, new, .. } => {
                match new {
                    Some(claim) => view.claims.insert(key.clone(), claim.clone()),
                    None => view.claims.remove(key),
                };
                return vec![Work::Claim(key.clone())];
            }
        }
        works.extend(view.claims.keys().cloned().map(Work::Claim));
        works
    }

    async fn reconcile(&self, work: &Work) -> Pass<Work> {
        let result = match work {
            Work::Claim(key) => self.serve(key).await,
            Work::Address(name) => self.tear_down(name).await,
        };
        let next = match result {
            Ok(_) => Next::Wait,
            Err(e) => Next::Failed(e.to_string()),
        };
        Pass {
            next,
            ..Pass::settled()
        }
    }

    fn all_keys(&self) -> Vec<Work> {
        let view = self.view.lock().unwrap();
        let claims = view.claims.keys().cloned().map(Work::Claim);
        claims
            .chain(view.addresses.keys().cloned().map(Work::Address))
            .collect()
    }
}
