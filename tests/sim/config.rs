//! What a seed makes of the world: how many of what, and how often each fault strikes. Every seed
//! leaves some of it out, because faults that are always on hide each other's findings.

use ipledger_core::api::{Key, Kind};

use crate::actors::{RANGE, SHARED, STATIC, THIRD, Universe, Weights};
use crate::rng::Rng;
use crate::third_party::Manners;

/// What may happen to one request, and to processes and their views, beside what should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The ledger refuses the request.
    Refused,
    /// Carried out, and the answer is lost.
    AnswerLost,
    /// The outcome is unknown; it is carried out later, or never.
    Late,
    /// Somebody else writes the object just before.
    Overtaken,
    /// The process dies before the request arrives; it may still arrive.
    DiesBefore,
    /// The process dies once the request is carried out.
    DiesAfter,
}

impl Fault {
    pub const ALL: [Fault; 6] = [
        Fault::Refused,
        Fault::AnswerLost,
        Fault::Late,
        Fault::Overtaken,
        Fault::DiesBefore,
        Fault::DiesAfter,
    ];
}

/// What may happen to a process at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// It dies and starts again.
    Restart,
    /// It stands still for a while, and what it has asked for goes on.
    Pause,
    /// One of its watches breaks and is resumed.
    Break,
    /// One of its watches breaks and the kind is listed again.
    Relist,
    /// One of its watches delivers an event twice.
    Repeat,
    /// One of its watches delivers nothing for a while.
    Stall,
    /// Its wall clock jumps.
    Jump,
    /// Every watch is told how far it is.
    Bookmark,
    /// The history is forgotten.
    Compact,
    /// The state of now is what a later listing may show.
    Remember,
    /// It looks at everything again.
    Resync,
}

impl Trouble {
    pub const ALL: [Trouble; 11] = [
        Trouble::Restart,
        Trouble::Pause,
        Trouble::Break,
        Trouble::Relist,
        Trouble::Repeat,
        Trouble::Stall,
        Trouble::Jump,
        Trouble::Bookmark,
        Trouble::Compact,
        Trouble::Remember,
        Trouble::Resync,
    ];
}

/// The world of one seed.
#[derive(Clone, Debug)]
pub struct Config {
    pub cores: usize,
    pub workers: usize,
    pub third: Option<Manners>,
    pub ranges: usize,
    /// Whether the drivers still work when the faults stop.
    pub drivers_survive: bool,
    pub universe: Universe,
    /// In so many of a thousand requests something goes wrong.
    pub fault_rate: u32,
    pub faults: [u32; Fault::ALL.len()],
    /// The weight of trouble among all that can happen.
    pub trouble_rate: u32,
    pub troubles: [u32; Trouble::ALL.len()],
    /// The weight of acts of people among all that can happen.
    pub act_rate: u32,
    /// The same while some process is at work; low means that people wait and see.
    pub busy_act_rate: u32,
    /// How much there is before anybody acts.
    pub furnished: bool,
    /// The weight of deliveries to watches; low means that views lag.
    pub delivery_rate: u32,
    /// How often everything comes to rest, and is judged, before the end.
    pub rests: u64,
    /// The weight of writes that arrive late; low means very late.
    pub late_rate: u32,
    /// Objects a page of a listing.
    pub page: usize,
    /// The views that lag far behind: process and kind, both by number.
    pub slow: Vec<(usize, usize)>,
}

impl Config {
    pub fn of(rng: &mut Rng) -> Config {
        let maybe = |rng: &mut Rng, weight: u32| if rng.chance(600) { weight } else { 0 };
        let mut classes = vec![STATIC];
        let third = rng.chance(600).then(|| Manners {
            sets_uid: *rng.pick(&[0, 500, 1000]),
            forgets: *rng.pick(&[0, 0, 150, 400]),
            tears_down_early: rng.chance(300),
        });
        if third.is_some() {
            classes.push(THIRD);
        }
        let ranges = if rng.chance(500) {
            rng.between(1, 3)
        } else {
            0
        };
        if ranges > 0 {
            classes.push(RANGE);
            if rng.chance(300) {
                classes.push(SHARED);
            }
        }
        let keys =
            [("a", "k1"), ("a", "k2"), ("b", "k1"), ("a", "k3")].map(|(ns, n)| Key::claim(ns, n));
        let by_hand = [
            "10.0.0.1",
            "fd00::1",
            "10.0.0.2",
            "10.1.0.1",
            "fd00:0::2",
            "10.2.0.1",
            "10.0.0.3",
        ];
        let universe = Universe {
            claims: keys[..rng.between(1, keys.len())].to_vec(),
            by_hand: by_hand[..rng.between(2, by_hand.len())].to_vec(),
            crowded: rng.chance(200).then(|| *rng.pick(&classes)),
            classes,
            weights: Weights {
                tenant: 10,
                admin: *rng.pick(&[3, 8, 15]),
                hand: maybe(rng, 6),
                vandal: if rng.chance(400) { 3 } else { 0 },
            },
        };
        let cores = *rng.pick(&[1, 2, 2, 3]);
        let slow = (0..cores).flat_map(|p| (0..Kind::ALL.len()).map(move |k| (p, k)));
        let lag = *rng.pick(&[0, 0, 200, 500]);
        let drivers_survive = rng.chance(800);
        let rests = *rng.pick(&[0, 0, 1, 2]);
        Config {
            cores,
            // Dead drivers stay dead.
            rests: if drivers_survive { rests } else { 0 },
            slow: slow.filter(|_| rng.chance(lag)).collect(),
            workers: *rng.pick(&[1, 2, 4]),
            third,
            ranges,
            drivers_survive,
            universe,
            fault_rate: *rng.pick(&[0, 30, 60, 150, 250]),
            faults: Fault::ALL.map(|_| maybe(rng, 1)),
            trouble_rate: *rng.pick(&[0, 1, 1, 2, 4]),
            troubles: Trouble::ALL.map(|_| maybe(rng, 1)),
            act_rate: 30,
            busy_act_rate: *rng.pick(&[0, 0, 1, 1, 2, 5]),
            furnished: rng.chance(850),
            delivery_rate: *rng.pick(&[4, 15, 40]),
            late_rate: *rng.pick(&[1, 2, 2, 8]),
            page: *rng.pick(&[1, 3, 500]),
        }
    }

    /// As `of`, for a script: the people do nothing, and only our own processes are at work, because
    /// what others do depends on the moment.
    pub fn for_script(rng: &mut Rng) -> Config {
        let mut config = Config::of(rng);
        config.third = None;
        config.ranges = 1;
        config.drivers_survive = true;
        config.act_rate = 0;
        config.busy_act_rate = 0;
        config.fault_rate = config.fault_rate.max(30);
        config
    }
}
