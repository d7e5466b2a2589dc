//! How one process follows one kind, one event at a time, as slowly and as brokenly as the
//! scheduler wants: the states of the reflector of `core/src/runtime`.

use futures::{FutureExt, StreamExt};
use ipledger_core::api::Kind;
use ipledger_core::runtime::Listing;
use ipledger_core::store::{ListPage, Revision, WatchEvent, WatchStream};

use crate::ledger::Ledger;

/// One kind of one process.
pub struct Feed {
    pub kind: Kind,
    state: State,
    /// The last revision that was delivered.
    newest: Revision,
    last: Option<WatchEvent>,
    /// Nothing is delivered before this step.
    pub stalled_until: u64,
}

enum State {
    /// Nothing is known.
    Down,
    /// The ledger was listed; the pages are on their way.
    Listed(Vec<ListPage>),
    /// A listing or an earlier stream was delivered.
    Following {
        stream: WatchStream,
        next: Option<WatchEvent>,
    },
}

/// What a feed delivers.
pub enum Delivery {
    Listing(Listing),
    Event(WatchEvent),
    /// The feed has only changed its own state.
    Nothing,
}

impl Feed {
    pub fn new(kind: Kind) -> Feed {
        Feed {
            kind,
            state: State::Down,
            newest: Revision(0),
            last: None,
            stalled_until: 0,
        }
    }

    /// Whether a step of this feed would do something.
    pub fn is_due(&mut self) -> bool {
        self.fill();
        match &self.state {
            State::Down | State::Listed(_) => true,
            State::Following { next, .. } => next.is_some(),
        }
    }

    fn fill(&mut self) {
        let State::Following { stream, next } = &mut self.state else {
            return;
        };
        if next.is_some() {
            return;
        }
        match stream.next().now_or_never() {
            None => {}
            Some(Some(Ok(event))) => *next = Some(event),
            // It has ended.
            Some(_) => self.state = State::Down,
        }
    }

    /// One step. `old` is an earlier state of the kind that a listing may show instead of the
    /// present one.
    pub fn step(&mut self, ledger: &Ledger, pages: usize, old: Option<&Vec<ListPage>>) -> Delivery {
        self.fill();
        match std::mem::replace(&mut self.state, State::Down) {
            State::Down => {
                // The reflector refuses a listing that is older than what it has seen.
                let old = old.filter(|p| p[0].revision >= self.newest);
                let listed = old
                    .cloned()
                    .unwrap_or_else(|| ledger.pages(self.kind, pages));
                self.state = State::Listed(listed);
                Delivery::Nothing
            }
            State::Listed(pages) => {
                let mut pages = pages.into_iter();
                let first = pages.next().expect("a listing has a page");
                let mut listing = Listing::new(first).expect("the pages are well-formed");
                for page in pages {
                    listing.add(page).expect("the pages are well-formed");
                }
                self.newest = listing.revision();
                self.follow(ledger);
                Delivery::Listing(listing)
            }
            State::Following { stream, next } => {
                self.state = State::Following { stream, next: None };
                match next {
                    Some(event) => {
                        self.newest = self.newest.max(event.revision());
                        self.last = Some(event.clone());
                        Delivery::Event(event)
                    }
                    None => Delivery::Nothing,
                }
            }
        }
    }

    /// Watches from the last revision on; lists again if the history does not reach back.
    fn follow(&mut self, ledger: &Ledger) {
        self.state = match ledger.watch(self.kind, self.newest) {
            Ok(stream) => State::Following { stream, next: None },
            Err(_) => State::Down,
        };
    }

    /// The stream breaks and is resumed where it was.
    pub fn resume(&mut self, ledger: &Ledger) {
        if matches!(self.state, State::Following { .. }) {
            self.follow(ledger);
        }
    }

    /// The stream breaks and the kind has to be listed again, which hides what happened between.
    pub fn relist(&mut self) {
        if matches!(self.state, State::Following { .. }) {
            self.state = State::Down;
        }
    }

    /// The last event, to be delivered twice.
    pub fn repeated(&self) -> Option<WatchEvent> {
        self.last
            .clone()
            .filter(|_| matches!(self.state, State::Following { .. }))
    }
}
