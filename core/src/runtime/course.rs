use super::Listing;
use crate::api::Kind;
use crate::mutant::{Mutant, active};
use crate::store::{
    ListOptions, ListPage, Revision, StoreError, WatchEvent, WatchFrom, WatchOptions,
};

/// Objects a page of the listing.
const PAGE: usize = 500;

/// How one kind of a store is followed: what is asked for next, and what each answer changes. It
/// does no I/O, so that whoever carries it out, the reflector or a simulation, follows alike.
///
/// First a listing, page by page; then a watch from its revision, resumed from the last revision
/// seen whenever the stream ends; and a new listing when the history of the store no longer reaches
/// back that far.
#[derive(Debug)]
pub struct Course {
    kind: Kind,
    /// The last revision that was seen.
    newest: Revision,
    /// Objects a page; `None` for a listing in one page.
    page: Option<usize>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// What was listed so far, and where the next page begins.
    Listing(Option<(Listing, String)>),
    Watching,
}

/// What is to be asked of the store.
#[derive(Clone, Debug)]
pub enum Ask {
    /// A page of a listing; the answer goes to [`Course::listed`].
    List(ListOptions),
    /// A stream; each of its events goes to [`Course::event`], and how it ends to
    /// [`Course::failed`] if by an error.
    Watch(WatchOptions),
}

impl Course {
    /// Nothing is known yet.
    pub fn new(kind: Kind) -> Course {
        Course {
            kind,
            newest: Revision::default(),
            page: Some(PAGE),
            stage: Stage::Listing(None),
        }
    }

    /// What is to be asked for now.
    pub fn ask(&self) -> Ask {
        match &self.stage {
            Stage::Listing(begun) => Ask::List(ListOptions {
                limit: self.page,
                continue_token: begun.as_ref().map(|(_, token)| token.clone()),
                ..ListOptions::default()
            }),
            Stage::Watching => Ask::Watch(WatchOptions::all(WatchFrom::After(self.newest))),
        }
    }

    /// The last revision that was seen.
    pub fn newest(&self) -> Revision {
        self.newest
    }

    /// Takes a page; returns the listing once it is complete.
    ///
    /// # Errors
    /// As [`Listing::add`]; `Unavailable` if the listing is older than what was seen before. The
    /// listing begins anew then.
    pub fn listed(&mut self, page: ListPage) -> Result<Option<Listing>, StoreError> {
        let token = page.continue_token.clone();
        let begun = match std::mem::replace(&mut self.stage, Stage::Listing(None)) {
            Stage::Listing(Some((listing, _))) => Some(listing),
            _ => None,
        };
        let listing = match begun {
            None => Listing::new(page)?,
            Some(mut listing) => {
                listing.add(page)?;
                listing
            }
        };
        if let Some(token) = token {
            self.stage = Stage::Listing(Some((listing, token)));
            return Ok(None);
        }
        if listing.revision() < self.newest && !active(Mutant::OlderListingTaken) {
            return Err(StoreError::Unavailable {
                reason: format!(
                    "the store shows {} at revision {}, older than revision {} that it has shown \
                     before; if its data were set back, restart this process",
                    self.kind,
                    listing.revision(),
                    self.newest
                ),
            });
        }
        let first = self.newest == Revision::default();
        self.newest = listing.revision();
        self.page = Some(PAGE);
        self.stage = Stage::Watching;
        Ok(Some(listing).filter(|_| first || !active(Mutant::WatchesFromNow)))
    }

    /// Takes note of an event of the stream.
    pub fn event(&mut self, event: &WatchEvent) {
        self.newest = self.newest.max(event.revision());
    }

    /// Takes note of an error, of a listing or of a stream.
    pub fn failed(&mut self, error: &StoreError) {
        let expired = matches!(error, StoreError::Expired { .. });
        if let Stage::Listing(begun) = &mut self.stage {
            *begun = None;
            if expired {
                // Some stores cannot keep a long listing's revision alive over its pages.
                self.page = None;
            }
        } else if expired {
            self.stage = Stage::Listing(None);
        }
    }
}
