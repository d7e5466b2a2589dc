//! One state of the whole system, in numbers.

use super::hash;
use super::table::{ChangeId, EntryId};

/// Most places of the ledger: claims first, then addresses.
pub const PLACES: usize = 8;
/// Most cores.
pub const CORES: usize = 2;
/// Most passes that one core has at work.
pub const WORKERS: usize = 2;
/// The kinds that a core watches and that change here: claims, addresses.
pub const KINDS: usize = 2;
/// Most events that one view can be behind.
pub const LAG: usize = 4;
/// Most writes in the air.
pub const FLYING: usize = 2;

/// A list of at most `N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short<T, const N: usize> {
    items: [T; N],
    len: u8,
}

impl<T: Copy + Default, const N: usize> Default for Short<T, N> {
    fn default() -> Self {
        Short {
            items: [T::default(); N],
            len: 0,
        }
    }
}

impl<T: Copy + Default, const N: usize> Short<T, N> {
    pub fn as_slice(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }

    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.items[..usize::from(self.len)]
    }

    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn push(&mut self, item: T) {
        self.items[usize::from(self.len)] = item;
        self.len += 1;
    }

    pub fn remove(&mut self, index: usize) -> T {
        let item = self.items[index];
        self.items
            .copy_within(index + 1..usize::from(self.len), index);
        self.len -= 1;
        self.items[usize::from(self.len)] = T::default();
        item
    }
}

/// An event that a view has not taken in yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pending {
    pub place: u8,
    pub entry: EntryId,
    /// The keys that rest until it is taken in, because a pass of theirs made it; by place.
    pub rests: u8,
    /// The keys whose passes wait for a barrier that ends with it; by place.
    pub barriers: u8,
}

/// One core process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// What it has observed of each place; 0 where it knows of nothing.
    pub view: [EntryId; PLACES],
    /// The number of the set of addresses that its passes have picked.
    pub picks: u32,
    /// The numbers of its passes at work.
    pub passes: Short<u32, WORKERS>,
    /// What its view of each kind has not taken in.
    pub behind: [Short<Pending, LAG>; KINDS],
}

/// A write whose caller knows nothing of its outcome, and which may still be carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flying {
    pub place: u8,
    pub change: ChangeId,
}

/// What may still go wrong or be done by people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub crashes: u8,
    pub unknowns: u8,
    pub claim_deletes: u8,
    pub claim_creates: u8,
    pub clears: u8,
    pub address_deletes: u8,
    pub doubles: u8,
}

/// The state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// How many cores there are.
    pub count: u8,
    pub ledger: [EntryId; PLACES],
    pub cores: [Core; CORES],
    pub flying: Short<Flying, FLYING>,
    /// What the driver is about to create: 0 for nothing, else claim and address by place.
    pub driver: u8,
    pub left: Left,
}

impl State {
    /// The same state for every order of what has no order: the cores, the passes of a core, and
    /// the writes in the air. Appended to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut cores = self.cores;
        for core in &mut cores {
            core.passes.as_mut_slice().sort_unstable();
        }
        if self.count == 2 && cores[1].order() < cores[0].order() {
            cores.swap(0, 1);
        }
        let mut flying = self.flying;
        flying.as_mut_slice().sort_unstable();
        out.push(self.count);
        self.ledger.iter().for_each(|id| put(out, *id));
        for core in &cores[..usize::from(self.count)] {
            for (seen, stands) in core.view.iter().zip(&self.ledger) {
                // Most of what is seen is what stands there.
                put(out, if seen == stands { 0 } else { seen + 1 });
            }
            put(out, core.picks);
            out.push(core.passes.len);
            core.passes.as_slice().iter().for_each(|p| put(out, *p));
            for behind in &core.behind {
                out.push(behind.len);
                for event in behind.as_slice() {
                    out.extend([event.place, event.rests, event.barriers]);
                    put(out, event.entry);
                }
            }
        }
        out.push(flying.len);
        for write in flying.as_slice() {
            out.push(write.place);
            put(out, write.change);
        }
        let left = &self.left;
        out.extend([
            self.driver,
            left.crashes | left.unknowns << 4,
            left.claim_deletes | left.claim_creates << 4,
            left.clears | left.address_deletes << 4,
            left.doubles,
        ]);
    }

    /// Reads one state and says where the next begins.
    pub fn decode(bytes: &[u8]) -> (State, usize) {
        let mut at = Reader { bytes, at: 0 };
        let mut state = State {
            count: at.byte(),
            ..State::default()
        };
        state.ledger.iter_mut().for_each(|id| *id = at.number());
        for core in &mut state.cores[..usize::from(state.count)] {
            for (seen, stands) in core.view.iter_mut().zip(&state.ledger) {
                *seen = match at.number() {
                    0 => *stands,
                    id => id - 1,
                };
            }
            core.picks = at.number();
            for _ in 0..at.byte() {
                core.passes.push(at.number());
            }
            for behind in &mut core.behind {
                for _ in 0..at.byte() {
                    let (place, rests, barriers) = (at.byte(), at.byte(), at.byte());
                    behind.push(Pending {
                        place,
                        rests,
                        barriers,
                        entry: at.number(),
                    });
                }
            }
        }
        for _ in 0..at.byte() {
            state.flying.push(Flying {
                place: at.byte(),
                change: at.number(),
            });
        }
        state.driver = at.byte();
        let (a, b, c) = (at.byte(), at.byte(), at.byte());
        state.left = Left {
            crashes: a & 15,
            unknowns: a >> 4,
            claim_deletes: b & 15,
            claim_creates: b >> 4,
            clears: c & 15,
            address_deletes: c >> 4,
            doubles: at.byte(),
        };
        (state, at.at)
    }

    /// The hash of what [`encode`](Self::encode) writes.
    pub fn hash(&self, buffer: &mut Vec<u8>) -> u64 {
        buffer.clear();
        self.encode(buffer);
        hash::of(buffer)
    }
}

impl Core {
    fn order(&self) -> impl Ord + use<'_> {
        (
            self.view,
            self.picks,
            self.passes.as_slice(),
            self.behind[0].as_slice(),
            self.behind[1].as_slice(),
        )
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> u8 {
        self.at += 1;
        self.bytes[self.at - 1]
    }

    fn number(&mut self) -> u32 {
        let (mut n, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            n |= u32::from(byte & 127) << shift;
            if byte < 128 {
                return n;
            }
            shift += 7;
        }
    }
}

/// Seven bits a byte, the lowest first.
fn put(out: &mut Vec<u8>, mut n: u32) {
    while n >= 128 {
        out.push((n & 127) as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
}
