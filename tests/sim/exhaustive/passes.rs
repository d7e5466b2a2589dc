//! The passes of the cores: the shipped [`BindingPass`] on the shipped [`Cache`]. A pass is kept
//! once for each distinct state of it, and so is each step that the shipped code has taken: what a
//! core decides from one view is worked out once.

use std::collections::HashMap;
use std::time::Duration;

use ipledger_core::api::{Key, Kind, Timestamp};
use ipledger_core::runtime::{BindingPass, Cache, Change as Seen, Moment, Request, Work};
use ipledger_core::store::{Revision, StoreError};

use super::hash::Fast;
use super::state::PLACES;
use super::table::{Change, ChangeId, EntryId, NOW, Table, Thing, number};
use super::universe::Universe;

/// What a pass waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum Wants {
    /// To decide from the cache as it is then.
    ToDecide,
    /// A barrier of claims (0) or addresses (1).
    Barrier(usize),
    /// To read this place at `Latest`.
    Read(usize),
    /// To make this change at this place.
    Write(usize, ChangeId),
}

/// A pass at work, as far as it has come.
pub struct AtWork {
    pass: BindingPass,
    pub wants: Wants,
    /// The place that its key names.
    pub place: usize,
}

/// What a pass is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Nothing: it decides.
    None,
    /// The barrier was reached.
    Reached,
    /// This stands there.
    Read(EntryId),
    /// It was written at this version.
    Wrote(u32),
    /// Another write was first.
    Overtaken,
    /// It does not exist.
    NotFound,
    /// Nobody knows.
    Unknown,
}

/// A pick: address and claim by place, and the version that it was written at.
type Pick = (u8, u8, Option<u32>);

/// What becomes of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// The number of the pass as it goes on; 0 if it is over.
    pub pass: u32,
    /// The core's picks from then on.
    pub picks: u32,
}

/// All that the passes of any core have ever been.
pub struct Passes {
    at_work: Vec<AtWork>,
    numbers: HashMap<String, u32>,
    picks: Vec<Vec<Pick>>,
    pick_numbers: HashMap<Vec<Pick>, u32>,
    steps: HashMap<([EntryId; PLACES], u32, u32, Answer), Next, Fast>,
    begun: HashMap<([EntryId; PLACES], u32, u8), Next, Fast>,
}

fn moment() -> Moment {
    Moment {
        now: Timestamp::from_unix(NOW),
        monotonic: Duration::ZERO,
        grace: Duration::ZERO,
    }
}

impl Passes {
    pub fn new() -> Passes {
        Passes {
            // Number 0 is no pass.
            at_work: vec![AtWork {
                pass: BindingPass::new(Work::Address(String::new())),
                wants: Wants::ToDecide,
                place: 0,
            }],
            numbers: HashMap::new(),
            picks: vec![Vec::new()],
            pick_numbers: HashMap::from([(Vec::new(), 0)]),
            steps: HashMap::default(),
            begun: HashMap::default(),
        }
    }

    pub fn get(&self, pass: u32) -> &AtWork {
        &self.at_work[pass as usize]
    }

    /// How many distinct passes there were, and how many distinct steps they took.
    pub fn counts(&self) -> (usize, usize) {
        (self.at_work.len(), self.steps.len() + self.begun.len())
    }

    /// A pass over the key of this place begins: it decides at once.
    pub fn begin(
        &mut self,
        table: &mut Table,
        universe: &Universe,
        view: &[EntryId; PLACES],
        picks: u32,
        place: usize,
    ) -> Next {
        let key = (*view, picks, place as u8);
        if let Some(next) = self.begun.get(&key) {
            return *next;
        }
        let pass = BindingPass::new(universe.work(place));
        let next = self.go_on(table, universe, view, picks, pass, place);
        self.begun.insert(key, next);
        next
    }

    /// A pass at work gets an answer, or decides.
    pub fn answer(
        &mut self,
        table: &mut Table,
        universe: &Universe,
        view: &[EntryId; PLACES],
        picks: u32,
        pass: u32,
        answer: Answer,
    ) -> Next {
        let at_work = self.get(pass);
        // Within a plan or a round of reads the shipped code does not look at the cache, so that
        // one step stands for those from all views.
        let looks = match answer {
            Answer::None | Answer::Reached => true,
            Answer::Read(_) => false,
            Answer::Wrote(_) => picks != 0 && at_work.pass.writes_left() == 1,
            Answer::Overtaken | Answer::NotFound | Answer::Unknown => picks != 0,
        };
        let view = if looks { view } else { &[0; PLACES] };
        let key = (*view, picks, pass, answer);
        if let Some(next) = self.steps.get(&key) {
            return *next;
        }
        let (place, wants) = (at_work.place, at_work.wants.clone());
        let mut pass = at_work.pass.clone();
        let name = || match &wants {
            Wants::Read(place) | Wants::Write(place, _) => universe.key(*place),
            _ => universe.key(place),
        };
        match answer {
            Answer::None => {}
            Answer::Reached => pass.reached(),
            Answer::Read(entry) => pass.read(table.get(entry).found(&name())),
            Answer::Wrote(version) => pass.wrote(Revision(u64::from(version))),
            Answer::Overtaken => pass.failed(StoreError::Conflict { key: name() }),
            Answer::NotFound => pass.failed(StoreError::NotFound { key: name() }),
            Answer::Unknown => pass.failed(StoreError::OutcomeUnknown {
                key: name(),
                reason: "lost".to_owned(),
            }),
        }
        let next = if pass.awaits_decision() && answer != Answer::None {
            Next {
                pass: self.number(pass, Wants::ToDecide, place),
                picks,
            }
        } else {
            let next = self.go_on(table, universe, view, picks, pass, place);
            Next {
                picks: if looks { next.picks } else { picks },
                ..next
            }
        };
        self.steps.insert(key, next);
        next
    }

    fn go_on(
        &mut self,
        table: &mut Table,
        universe: &Universe,
        view: &[EntryId; PLACES],
        picks: u32,
        mut pass: BindingPass,
        place: usize,
    ) -> Next {
        let mut cache = self.cache(table, universe, view, picks);
        let wants = match pass.next(&mut cache, moment()) {
            Request::Barrier(Kind::IPAddressClaim) => Wants::Barrier(0),
            Request::Barrier(Kind::IPAddress) => Wants::Barrier(1),
            // Classes never change here, so this one is reached at once.
            Request::Barrier(Kind::IPAddressClass) => {
                pass.reached();
                return self.go_on(table, universe, view, picks, pass, place);
            }
            Request::Read(key) => Wants::Read(universe.place(&key)),
            Request::Write(write) => {
                let change = table.number_of(Change::of(&write));
                Wants::Write(universe.place(&write.key()), change)
            }
            Request::Done(..) => {
                return Next {
                    pass: 0,
                    picks: self.picks_of(universe, &cache),
                };
            }
        };
        let picks = self.picks_of(universe, &cache);
        Next {
            pass: self.number(pass, wants, place),
            picks,
        }
    }

    /// A core takes an event in; returns its picks from then on.
    pub fn observe(
        &mut self,
        table: &mut Table,
        universe: &Universe,
        view: &[EntryId; PLACES],
        picks: u32,
        place: usize,
        entry: EntryId,
    ) -> u32 {
        if picks == 0 {
            return 0;
        }
        let mut cache = self.cache(table, universe, view, picks);
        let (old, new) = (table.get(view[place]), table.get(entry));
        cache.observe(&seen(universe.key(place), &old.object, &new.object));
        self.picks_of(universe, &cache)
    }

    fn number(&mut self, pass: BindingPass, wants: Wants, place: usize) -> u32 {
        let text = format!("{wants:?} {pass:?}");
        if let Some(n) = self.numbers.get(&text) {
            return *n;
        }
        let n = number(self.at_work.len());
        self.at_work.push(AtWork { pass, wants, place });
        self.numbers.insert(text, n);
        n
    }

    /// The cache of a core that has observed this and picked that.
    fn cache(
        &self,
        table: &Table,
        universe: &Universe,
        view: &[EntryId; PLACES],
        picks: u32,
    ) -> Cache {
        let mut cache = Cache::default();
        for class in &universe.classes {
            cache.observe(&Seen::Class {
                key: class.key(),
                old: None,
                new: Some(class.clone()),
            });
        }
        for (place, entry) in view.iter().enumerate() {
            let entry = table.get(*entry);
            if entry.object.is_some() {
                cache.observe(&seen(universe.key(place), &None, &entry.object));
            }
        }
        for (address, claim, written) in &self.picks[picks as usize] {
            let name = universe.key(usize::from(*address)).name;
            let by = universe.key(usize::from(*claim));
            cache.pick(&name, &by);
            if let Some(version) = written {
                cache.settle_pick(&name, &by, Revision(u64::from(*version)));
            }
        }
        cache
    }

    fn picks_of(&mut self, universe: &Universe, cache: &Cache) -> u32 {
        let picks: Vec<Pick> = cache
            .picked()
            .map(|(name, claim, written)| {
                (
                    universe.place(&Key::address(name)) as u8,
                    universe.place(claim) as u8,
                    written.map(|r| r.0 as u32),
                )
            })
            .collect();
        if let Some(n) = self.pick_numbers.get(&picks) {
            return *n;
        }
        let n = number(self.picks.len());
        self.picks.push(picks.clone());
        self.pick_numbers.insert(picks, n);
        n
    }
}

fn seen(key: Key, old: &Option<Thing>, new: &Option<Thing>) -> Seen {
    let claim = |thing: &Option<Thing>| match thing {
        Some(Thing::Claim(claim)) => Some(claim.clone()),
        _ => None,
    };
    let address = |thing: &Option<Thing>| match thing {
        Some(Thing::Address(address)) => Some(address.clone()),
        _ => None,
    };
    match key.kind {
        Kind::IPAddress => Seen::Address {
            key,
            old: address(old),
            new: address(new),
        },
        _ => Seen::Claim {
            key,
            old: claim(old),
            new: claim(new),
        },
    }
}
