//! How one process follows one kind, one page and one event at a time, as slowly and as brokenly as
//! the scheduler wants. What is asked for is up to the shipped [`Course`].

use std::collections::VecDeque;

use futures::{FutureExt, StreamExt};
use ipledger_core::api::Kind;
use ipledger_core::runtime::{Ask, Course, Listing};
use ipledger_core::store::{ListPage, StoreError, WatchEvent, WatchStream};

use crate::ledger::Ledger;

/// How far back an event may be delivered twice.
const REPEATABLE: usize = 6;

/// One kind of one process.
pub struct Feed {
    pub kind: Kind,
    course: Course,
    stream: Option<WatchStream>,
    next: Option<WatchEvent>,
    /// The last few events that were delivered.
    last: VecDeque<WatchEvent>,
    /// Nothing is delivered before this step.
    pub stalled_until: u64,
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
            course: Course::new(kind),
            stream: None,
            next: None,
            last: VecDeque::new(),
            stalled_until: 0,
        }
    }

    /// Whether a step of this feed would do something.
    pub fn is_due(&mut self) -> bool {
        self.fill();
        self.stream.is_none() || self.next.is_some()
    }

    fn fill(&mut self) {
        let Some(stream) = self.stream.as_mut().filter(|_| self.next.is_none()) else {
            return;
        };
        match stream.next().now_or_never() {
            None => {}
            Some(Some(Ok(event))) => self.next = Some(event),
            Some(Some(Err(error))) => self.fail(&error),
            Some(None) => self.stream = None,
        }
    }

    fn fail(&mut self, error: &StoreError) {
        self.course.failed(error);
        (self.stream, self.next) = (None, None);
    }

    /// One step. `old` is the first page of an earlier state of the kind, which a listing may show
    /// instead of the present one.
    pub fn step(&mut self, ledger: &Ledger, page: usize, old: Option<&ListPage>) -> Delivery {
        self.fill();
        if let Some(event) = self.next.take() {
            self.course.event(&event);
            self.last.push_front(event.clone());
            self.last.truncate(REPEATABLE);
            return Delivery::Event(event);
        }
        if self.stream.is_some() {
            return Delivery::Nothing;
        }
        match self.course.ask() {
            Ask::List(mut options) => {
                options.limit = options.limit.map(|limit| limit.min(page));
                let page = match old.filter(|_| options.continue_token.is_none()) {
                    Some(old) => Ok(old.clone()),
                    None => ledger.list(self.kind, &options),
                };
                match page.and_then(|page| self.course.listed(page)) {
                    Ok(Some(listing)) => return Delivery::Listing(listing),
                    Ok(None) => {}
                    Err(error) => self.fail(&error),
                }
            }
            Ask::Watch(options) => match ledger.watch(self.kind, &options) {
                Ok(stream) => self.stream = Some(stream),
                Err(error) => self.fail(&error),
            },
        }
        Delivery::Nothing
    }

    /// The stream breaks and is resumed where it was.
    pub fn resume(&mut self) {
        (self.stream, self.next) = (None, None);
    }

    /// The stream breaks and the kind has to be listed again, which hides what happened between.
    pub fn relist(&mut self) {
        if self.stream.is_some() {
            let reason = "the simulation says so".to_owned();
            self.fail(&StoreError::Expired { reason });
        }
    }

    /// One of the last events, to be delivered twice.
    pub fn repeated(&self, back: usize) -> Option<WatchEvent> {
        let event = self.last.get(back % self.last.len().max(1));
        event.filter(|_| self.stream.is_some()).cloned()
    }
}
