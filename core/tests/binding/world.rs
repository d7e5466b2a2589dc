//! A ledger with one binding core that is driven by hand.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::store::{Fault, Watched};
use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use ipledger_core::api::{
    AddressPhase, ClaimFamily, ClaimPhase, ClaimRef, ConditionStatus, IPAddress, IPAddressClaim,
    IPAddressClass, Key, Kind, ReclaimPolicy, Timestamp, find_condition, names,
};
use ipledger_core::binding::Event;
use ipledger_core::net::Ip;
use ipledger_core::runtime::{
    Binder, BinderOptions, Clock, EventSink, Mirror, Next, Progress, Reconciler, Work,
};
use ipledger_core::store::{
    MemoryStore, Part, Preconditions, ReadAt, Store, StoreExt, WatchFrom, WatchOptions, WatchStream,
};

/// Time that stands still until it is moved.
#[derive(Default)]
pub struct HandClock(AtomicU64);

impl HandClock {
    pub fn advance(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

#[async_trait]
impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix(1_800_000_000 + self.0.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }

    async fn sleep(&self, _: Duration) {}
}

#[derive(Default)]
struct Heard(Mutex<Vec<Event>>);

impl EventSink for Heard {
    fn emit(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

/// One binding core with its view and its queue.
pub struct Core {
    pub store: Arc<Watched>,
    binder: Binder,
    mirror: Mirror,
    progress: Progress,
    watches: Vec<(Kind, WatchStream)>,
    pub queue: BTreeSet<Work>,
    heard: Arc<Heard>,
    /// Passes since the core was started.
    pub passes: usize,
}

impl Core {
    async fn new(inner: &MemoryStore, clock: Arc<HandClock>) -> Core {
        let store = Arc::new(Watched {
            inner: inner.clone(),
            fault: Mutex::new(Fault::None),
            writes: Mutex::default(),
            reads: AtomicU64::new(0),
            prunes: AtomicBool::new(false),
        });
        let (progress, heard) = (Progress::new(), Arc::new(Heard::default()));
        let options = BinderOptions::default();
        let binder = Binder::new(
            store.clone(),
            clock,
            progress.clone(),
            heard.clone(),
            options,
        );
        let mut watches = Vec::new();
        for kind in Kind::ALL {
            let stream = inner
                .watch(kind, &WatchOptions::all(WatchFrom::Start))
                .await
                .unwrap();
            watches.push((kind, stream));
        }
        Core {
            store,
            binder,
            mirror: Mirror::new(),
            progress,
            watches,
            queue: BTreeSet::new(),
            heard,
            passes: 0,
        }
    }

    /// Takes in everything that the store has to tell.
    pub fn sync(&mut self) {
        self.sync_only(&Kind::ALL);
    }

    /// Takes in what the store has to tell of these kinds; the view of the others lags.
    pub fn sync_only(&mut self, kinds: &[Kind]) {
        for (kind, stream) in self.watches.iter_mut().filter(|(k, _)| kinds.contains(k)) {
            while let Some(item) = stream.next().now_or_never() {
                let event = item.expect("the watch goes on").expect("the watch is well");
                for change in self.mirror.apply(*kind, &event) {
                    self.queue.extend(self.binder.observe(&change));
                }
                self.progress.advance(*kind, event.revision());
            }
        }
    }

    /// One pass over the first key, without looking at the store before.
    pub async fn pass(&mut self) -> Option<Next> {
        let work = self.queue.pop_first()?;
        self.pass_over(work).await
    }

    /// One pass over a key.
    pub async fn pass_over(&mut self, work: Work) -> Option<Next> {
        self.passes += 1;
        let pass = self.binder.reconcile(&work).await;
        self.queue.extend(pass.wake);
        if matches!(pass.next, Next::Again | Next::Failed(_)) {
            self.queue.insert(work);
        }
        Some(pass.next)
    }

    /// Works until nothing is left to do. Fails the test if that does not come.
    pub async fn settle(&mut self) {
        for _ in 0..5_000 {
            self.sync();
            if self.pass().await.is_none() {
                return;
            }
        }
        panic!(
            "the core does not come to rest; still queued: {:?}",
            self.queue
        );
    }

    pub fn writes(&self) -> usize {
        self.store.writes.lock().unwrap().len()
    }

    /// The writes so far as text, one a line.
    pub fn log(&self) -> Vec<String> {
        let writes = self.store.writes.lock().unwrap();
        writes
            .iter()
            .map(|(key, what)| format!("{key} {what}"))
            .collect()
    }

    pub fn events(&self) -> Vec<Event> {
        self.heard.0.lock().unwrap().clone()
    }

    /// Asks for a pass over everything, as the periodic safety net does.
    pub fn resync(&mut self) {
        self.queue.extend(self.binder.all_keys());
    }
}

/// The ledger, its time, and one core.
pub struct World {
    pub store: MemoryStore,
    pub clock: Arc<HandClock>,
    pub core: Core,
    /// Addresses that were taken away under a claim, which no core can prevent.
    pub forced: BTreeSet<String>,
}

impl World {
    pub async fn new() -> World {
        let clock = Arc::new(HandClock::default());
        let (time, last) = (clock.clone(), AtomicU64::new(0));
        let store = MemoryStore::new(
            move || time.now(),
            move || format!("uid-{}", last.fetch_add(1, Ordering::Relaxed) + 1),
        );
        let core = Core::new(&store, clock.clone()).await;
        let forced = BTreeSet::new();
        World {
            store,
            clock,
            core,
            forced,
        }
    }

    /// Another core on the same ledger.
    pub async fn another_core(&self) -> Core {
        Core::new(&self.store, self.clock.clone()).await
    }

    /// The core dies and starts again with empty caches.
    pub async fn restart(&mut self) {
        self.core = self.another_core().await;
    }

    pub async fn settle(&mut self) {
        self.core.settle().await;
    }

    /// Settles, then shows that a resync over everything writes nothing.
    pub async fn settle_and_stay_quiet(&mut self) {
        self.settle().await;
        let (writes, events) = (self.core.writes(), self.core.events().len());
        for _ in 0..2 {
            self.core.resync();
            self.settle().await;
        }
        assert_eq!(
            self.core.log()[writes..],
            [] as [String; 0],
            "a settled ledger is not written"
        );
        assert_eq!(
            self.core.events().len(),
            events,
            "a settled ledger makes no event"
        );
    }

    pub async fn class(&self, name: &str) -> IPAddressClass {
        self.class_with(name, |_| ()).await
    }

    pub async fn class_with(
        &self,
        name: &str,
        edit: impl FnOnce(&mut IPAddressClass),
    ) -> IPAddressClass {
        let mut class = IPAddressClass::default();
        class.metadata.name = name.to_owned();
        class.spec.provisioner = format!("{name}.example.com");
        edit(&mut class);
        self.store.create_resource(&class).await.unwrap()
    }

    pub async fn default_class(&self, name: &str) -> IPAddressClass {
        self.class_with(name, |c| {
            c.metadata
                .annotations
                .insert(names::DEFAULT_CLASS.to_owned(), "true".to_owned());
        })
        .await
    }

    /// An address object, with the derived name, made by hand.
    pub async fn address(&self, ip: &str, class: &str) -> IPAddress {
        self.address_with(ip, class, |_| ()).await
    }

    pub async fn address_with(
        &self,
        ip: &str,
        class: &str,
        edit: impl FnOnce(&mut IPAddress),
    ) -> IPAddress {
        let mut address = IPAddress::default();
        address.metadata.name = Ip::parse(ip).map_or("odd".to_owned(), |ip| ip.object_name());
        address.spec.address = ip.to_owned();
        address.spec.class_name = class.to_owned();
        edit(&mut address);
        self.store.create_resource(&address).await.unwrap()
    }

    pub async fn claim(&self, name: &str) -> IPAddressClaim {
        self.claim_with(name, |_| ()).await
    }

    pub async fn claim_with(
        &self,
        name: &str,
        edit: impl FnOnce(&mut IPAddressClaim),
    ) -> IPAddressClaim {
        let mut claim = IPAddressClaim::default();
        claim.metadata.name = name.to_owned();
        claim.metadata.namespace = "ns".to_owned();
        edit(&mut claim);
        self.store.create_resource(&claim).await.unwrap()
    }

    pub async fn get_claim(&self, name: &str) -> IPAddressClaim {
        self.find_claim(name).await.expect("the claim is there")
    }

    pub async fn find_claim(&self, name: &str) -> Option<IPAddressClaim> {
        self.store
            .find(&Key::claim("ns", name), ReadAt::Latest)
            .await
            .unwrap()
    }

    pub async fn get_address(&self, ip: &str) -> IPAddress {
        self.find_address(ip).await.expect("the address is there")
    }

    pub async fn find_address(&self, ip: &str) -> Option<IPAddress> {
        let name = Ip::parse(ip).map_or("odd".to_owned(), |ip| ip.object_name());
        self.store
            .find(&Key::address(name), ReadAt::Latest)
            .await
            .unwrap()
    }

    pub async fn edit_address(&self, ip: &str, edit: impl Fn(&mut IPAddress) + Send + Sync) {
        let key = self.get_address(ip).await.key();
        let change = |a: &mut IPAddress| {
            edit(a);
            true
        };
        self.store
            .update_with(&key, Part::Main, change)
            .await
            .unwrap();
    }

    /// As a driver or a careless hand writes the status.
    pub async fn edit_address_status(&self, ip: &str, edit: impl Fn(&mut IPAddress) + Send + Sync) {
        let key = self.get_address(ip).await.key();
        let change = |a: &mut IPAddress| {
            edit(a);
            true
        };
        self.store
            .update_with(&key, Part::Status, change)
            .await
            .unwrap();
    }

    pub async fn edit_claim(&self, name: &str, edit: impl Fn(&mut IPAddressClaim) + Send + Sync) {
        let change = |c: &mut IPAddressClaim| {
            edit(c);
            true
        };
        self.store
            .update_with(&Key::claim("ns", name), Part::Main, change)
            .await
            .unwrap();
    }

    pub async fn edit_claim_status(
        &self,
        name: &str,
        edit: impl Fn(&mut IPAddressClaim) + Send + Sync,
    ) {
        let change = |c: &mut IPAddressClaim| {
            edit(c);
            true
        };
        self.store
            .update_with(&Key::claim("ns", name), Part::Status, change)
            .await
            .unwrap();
    }

    pub async fn edit_class(&self, name: &str, edit: impl Fn(&mut IPAddressClass) + Send + Sync) {
        let change = |c: &mut IPAddressClass| {
            edit(c);
            true
        };
        self.store
            .update_with(&Key::class(name), Part::Main, change)
            .await
            .unwrap();
    }

    pub async fn delete_claim(&self, name: &str) {
        self.store
            .delete(&Key::claim("ns", name), &Preconditions::default())
            .await
            .unwrap();
    }

    pub async fn delete_address(&self, ip: &str) {
        let key = self.get_address(ip).await.key();
        self.store
            .delete(&key, &Preconditions::default())
            .await
            .unwrap();
    }

    pub async fn delete_class(&self, name: &str) {
        self.store
            .delete(&Key::class(name), &Preconditions::default())
            .await
            .unwrap();
    }

    /// Takes an address object away although it carries finalizers.
    pub async fn force_delete_address(&mut self, ip: &str) {
        self.forced.insert(ip.to_owned());
        self.edit_address(ip, |a| a.metadata.finalizers.clear())
            .await;
        self.delete_address(ip).await;
    }

    /// Takes a claim away although it carries finalizers.
    pub async fn force_delete_claim(&self, name: &str) {
        self.edit_claim(name, |c| c.metadata.finalizers.clear())
            .await;
        self.delete_claim(name).await;
    }

    /// Asserts that the claim is bound to exactly these IPs, in every record of it.
    pub async fn assert_bound(&self, name: &str, ips: &[&str]) {
        let claim = self.get_claim(name).await;
        let status = claim.status.clone().unwrap_or_default();
        assert_eq!(claim.phase(), Some(ClaimPhase::Bound), "{status:#?}");
        let shown: Vec<&str> = status
            .addresses
            .iter()
            .map(|a| a.address.as_str())
            .collect();
        assert_eq!(shown, ips);
        assert_eq!(status.address_text, ips.join(","));
        let bound = find_condition(claim.conditions(), "Bound").unwrap();
        assert_eq!(
            (bound.status, bound.reason.as_str()),
            (ConditionStatus::True, "Bound")
        );
        assert!(claim.metadata.has_finalizer(names::CLAIM_PROTECTION));
        for ip in ips {
            let address = self.get_address(ip).await;
            assert_eq!(
                address.spec.claim_ref.as_ref().unwrap().uid,
                claim.metadata.uid
            );
            assert!(
                address.metadata.has_finalizer(names::ADDRESS_PROTECTION),
                "{ip}"
            );
        }
    }

    /// Asserts that the claim waits, and why.
    pub async fn assert_pending(&self, name: &str, reason: &str) {
        let claim = self.get_claim(name).await;
        assert_eq!(
            claim.phase(),
            Some(ClaimPhase::Pending),
            "{:#?}",
            claim.status
        );
        assert_eq!(bound_reason(&claim), reason, "{:#?}", claim.status);
    }

    pub async fn assert_lost(&self, name: &str) {
        let claim = self.get_claim(name).await;
        assert_eq!(claim.phase(), Some(ClaimPhase::Lost), "{:#?}", claim.status);
        assert_eq!(bound_reason(&claim), "AddressLost");
        assert_eq!(
            claim.stamp(),
            None,
            "no driver is to provision for a lost claim"
        );
    }

    pub async fn assert_phase(&self, ip: &str, phase: AddressPhase) {
        let address = self.get_address(ip).await;
        assert_eq!(address.phase(), Some(phase), "{ip}: {:#?}", address.status);
    }
}

pub fn bound_reason(claim: &IPAddressClaim) -> String {
    find_condition(claim.conditions(), "Bound").map_or(String::new(), |c| c.reason.clone())
}

pub fn bound_message(claim: &IPAddressClaim) -> String {
    find_condition(claim.conditions(), "Bound").map_or(String::new(), |c| c.message.clone())
}

/// A claimRef as an admin or driver writes it.
pub fn names_claim(name: &str, uid: &str) -> Option<ClaimRef> {
    Some(ClaimRef {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..ClaimRef::default()
    })
}

pub fn of_class(class: &str) -> impl FnOnce(&mut IPAddressClaim) {
    let class = class.to_owned();
    move |claim| claim.spec.class_name = class
}

pub fn dual(class: &str) -> impl FnOnce(&mut IPAddressClaim) {
    let class = class.to_owned();
    move |claim| {
        claim.spec.class_name = class;
        claim.spec.family = ClaimFamily::Dual;
    }
}

pub fn delete_policy(address: &mut IPAddress) {
    address.spec.reclaim_policy = ReclaimPolicy::Delete;
}
