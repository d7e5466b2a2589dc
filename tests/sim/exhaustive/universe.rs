//! The small worlds that are searched, each with its bounds.

use std::fmt;
use std::sync::Arc;

use ipledger_core::api::{
    ClaimFamily, ClaimRef, IPAddress, IPAddressClaim, IPAddressClass, Key, Kind, ReclaimPolicy,
};
use ipledger_core::net::Ip;
use ipledger_core::runtime::Work;

use super::state::Left;
use super::table;

/// The class whose addresses admins make.
pub const POOL: &str = "pool";
/// The class whose addresses the driver makes.
pub const CLOUD: &str = "cloud";
/// The driver of [`CLOUD`].
pub const DRIVER: &str = "cloud.example";
/// What holds an address of the driver until it has torn it down.
pub const TEARDOWN: &str = "cloud.example/teardown";

const NAMESPACE: &str = "a";

/// One small world.
#[derive(Clone)]
pub struct Universe {
    pub name: &'static str,
    pub about: &'static str,
    pub classes: Vec<Arc<IPAddressClass>>,
    pub claims: Vec<IPAddressClaim>,
    /// The address objects that there can be, and whether each is there from the start.
    pub addresses: Vec<(IPAddress, bool)>,
    pub bounds: Bounds,
}

/// How much can happen.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub cores: u8,
    /// Passes at once in each core.
    pub workers: usize,
    /// How many views lag at once.
    pub lagging: usize,
    /// By how many events.
    pub lag: usize,
    /// What may go wrong or be done.
    pub left: Left,
    /// A place that is written more often than this says that the core never comes to rest.
    pub versions: u64,
}

impl Universe {
    /// How many places there are.
    pub fn places(&self) -> usize {
        self.claims.len() + self.addresses.len()
    }

    /// How many drivers create addresses.
    pub fn drivers(&self) -> usize {
        let clouds = self.classes.iter().filter(|c| c.metadata.name == CLOUD);
        clouds.count()
    }

    pub fn is_claim(&self, place: usize) -> bool {
        place < self.claims.len()
    }

    /// The kind of a place, as a number of views.
    pub fn kind(&self, place: usize) -> usize {
        usize::from(!self.is_claim(place))
    }

    pub fn key(&self, place: usize) -> Key {
        match self.claims.get(place) {
            Some(claim) => claim.key(),
            None => self.addresses[place - self.claims.len()].0.key(),
        }
    }

    pub fn place(&self, key: &Key) -> usize {
        (0..self.places())
            .find(|place| self.key(*place) == *key)
            .unwrap_or_else(|| panic!("{key} has no place"))
    }

    pub fn work(&self, place: usize) -> Work {
        let key = self.key(place);
        match key.kind {
            Kind::IPAddress => Work::Address(key.name),
            _ => Work::Claim(key),
        }
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Left {
            crashes,
            unknowns,
            claim_deletes,
            claim_creates,
            clears,
            address_deletes,
            doubles,
        } = self.left;
        write!(
            f,
            "{} cores x {} passes at once; {} views lag by {} events; {crashes} crashes, {unknowns} \
             unknown outcomes; claims: {claim_deletes} deletions, {claim_creates} creations; \
             addresses: {address_deletes} deletions, {clears} given back; {doubles} double \
             provisionings",
            self.cores, self.workers, self.lagging, self.lag
        )
    }
}

fn claim(name: &str, class: &str, family: ClaimFamily, address: &str) -> IPAddressClaim {
    let mut claim = IPAddressClaim::default();
    claim.metadata.namespace = NAMESPACE.to_owned();
    claim.metadata.name = name.to_owned();
    claim.spec.class_name = class.to_owned();
    claim.spec.family = family;
    claim.spec.address_name = address.to_owned();
    claim
}

fn name(ip: &str) -> String {
    Ip::parse(ip).unwrap().object_name()
}

/// An address that an admin makes.
fn address(ip: &str, policy: ReclaimPolicy) -> IPAddress {
    let mut address = IPAddress::default();
    address.metadata.name = name(ip);
    address.spec.address = ip.to_owned();
    address.spec.class_name = POOL.to_owned();
    address.spec.reclaim_policy = policy;
    address
}

/// An address as the driver makes it, before it names a claim.
fn reservation(ip: &str) -> IPAddress {
    let mut address = address(ip, ReclaimPolicy::Delete);
    address.spec.class_name = CLOUD.to_owned();
    address.metadata.finalizers.push(TEARDOWN.to_owned());
    address
}

/// What the driver creates for a claim: it names the claim, and not its uid.
pub fn reserved_for(claim: &IPAddressClaim, reservation: &IPAddress) -> IPAddress {
    let mut address = reservation.clone();
    address.spec.claim_ref = Some(ClaimRef {
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        ..ClaimRef::default()
    });
    address
}

/// All of them.
pub fn all() -> Vec<Universe> {
    use ClaimFamily::{Dual, IPv4};
    use ReclaimPolicy::{Delete, Retain};
    let pool = || vec![table::class(POOL, "pool.example")];
    let cloud = || vec![table::class(CLOUD, DRIVER)];
    let both = || [pool(), cloud()].concat();
    let there = |ip, policy| (address(ip, policy), true);
    let free = |ip| (reservation(ip), false);
    let left = Left::default();
    let bounds = Bounds {
        cores: 2,
        workers: 1,
        lagging: 1,
        lag: 2,
        left,
        versions: 20,
    };
    let again = Left {
        claim_deletes: 1,
        claim_creates: 1,
        ..left
    };
    let simple = |name| claim(name, POOL, IPv4, "");
    vec![
        Universe {
            name: "whole",
            about: "static and provisioned addresses, a claim for both families, one by name",
            classes: both(),
            claims: vec![
                claim("k1", POOL, Dual, ""),
                claim("k2", "", IPv4, &name("10.0.0.1")),
                claim("k3", CLOUD, IPv4, ""),
            ],
            addresses: vec![
                there("10.0.0.1", Retain),
                there("10.0.0.2", Delete),
                there("fd00::1", Delete),
                free("10.0.1.1"),
            ],
            bounds: Bounds {
                lag: 1,
                left: Left { crashes: 1, ..left },
                ..bounds
            },
        },
        Universe {
            name: "contention",
            about: "three claims for two static addresses",
            classes: pool(),
            claims: vec![simple("k1"), simple("k2"), simple("k3")],
            addresses: vec![there("10.0.0.1", Retain), there("10.0.0.2", Delete)],
            bounds,
        },
        Universe {
            name: "crash",
            about: "two claims for two static addresses, and a core that dies",
            classes: pool(),
            claims: vec![simple("k1"), simple("k2")],
            addresses: vec![there("10.0.0.1", Retain), there("10.0.0.2", Delete)],
            bounds: Bounds {
                left: Left {
                    crashes: 1,
                    unknowns: 1,
                    ..left
                },
                ..bounds
            },
        },
        Universe {
            name: "again",
            about: "a claim is deleted and created again under its name",
            classes: pool(),
            claims: vec![simple("k1")],
            addresses: vec![there("10.0.0.1", Retain), there("10.0.0.2", Delete)],
            bounds: Bounds {
                left: again,
                ..bounds
            },
        },
        Universe {
            name: "again-unknown",
            about: "the same while a write gets no answer",
            classes: pool(),
            claims: vec![simple("k1")],
            addresses: vec![there("10.0.0.1", Retain)],
            bounds: Bounds {
                left: Left {
                    unknowns: 1,
                    ..again
                },
                ..bounds
            },
        },
        Universe {
            name: "again-crash",
            about: "the same while a core dies",
            classes: pool(),
            claims: vec![simple("k1")],
            addresses: vec![there("10.0.0.1", Delete)],
            bounds: Bounds {
                left: Left {
                    crashes: 1,
                    ..again
                },
                ..bounds
            },
        },
        Universe {
            name: "dual",
            about: "one claim for both families and one for an address by name",
            classes: pool(),
            claims: vec![
                claim("k1", POOL, Dual, ""),
                claim("k2", "", IPv4, &name("10.0.0.1")),
            ],
            addresses: vec![
                there("10.0.0.1", Retain),
                there("10.0.0.2", Delete),
                there("fd00::1", Retain),
            ],
            bounds: Bounds {
                left: Left { crashes: 1, ..left },
                ..bounds
            },
        },
        Universe {
            name: "provisioned",
            about: "a driver makes an address for a claim, maybe twice",
            classes: cloud(),
            claims: vec![claim("k1", CLOUD, IPv4, "")],
            addresses: vec![free("10.0.1.1"), free("10.0.1.2")],
            bounds: Bounds {
                left: Left {
                    doubles: 1,
                    claim_deletes: 1,
                    ..left
                },
                ..bounds
            },
        },
        Universe {
            name: "provisioned-again",
            about: "the claim of a provisioned address is deleted and created again",
            classes: cloud(),
            claims: vec![claim("k1", CLOUD, IPv4, "")],
            addresses: vec![free("10.0.1.1")],
            bounds: Bounds {
                left: again,
                ..bounds
            },
        },
        Universe {
            name: "provisioned-faults",
            about: "a driver and the cores serve a claim, and each of them fails",
            classes: cloud(),
            claims: vec![claim("k1", CLOUD, IPv4, "")],
            addresses: vec![free("10.0.1.1"), free("10.0.1.2")],
            bounds: Bounds {
                left: Left {
                    doubles: 1,
                    crashes: 1,
                    unknowns: 1,
                    ..left
                },
                ..bounds
            },
        },
        Universe {
            name: "admin",
            about: "a claim goes, its address is given back, and an admin deletes an address",
            classes: pool(),
            claims: vec![simple("k1")],
            addresses: vec![there("10.0.0.1", Retain), there("10.0.0.2", Delete)],
            bounds: Bounds {
                left: Left {
                    claim_deletes: 1,
                    clears: 1,
                    address_deletes: 1,
                    ..left
                },
                ..bounds
            },
        },
        Universe {
            name: "workers",
            about: "one core with two passes at once",
            classes: pool(),
            claims: vec![simple("k1"), simple("k2"), simple("k3")],
            addresses: vec![there("10.0.0.1", Retain), there("10.0.0.2", Delete)],
            bounds: Bounds {
                cores: 1,
                workers: 2,
                lagging: 2,
                left: Left {
                    unknowns: 1,
                    ..left
                },
                ..bounds
            },
        },
    ]
}
