//! What a client knows about its objects from the answers that it got, and from those that it did
//! not get.

use std::collections::BTreeMap;

use serde_json::Value;

/// Where a client keeps the number of its last write to an object, twice.
pub(crate) const NUMBER: &str = "crash.example.com/number";
pub(crate) const TWIN: &str = "crash.example.com/twin";

/// What a client works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sort {
    Claim,
    Address,
}

impl Sort {
    pub(crate) const ALL: [Sort; 2] = [Sort::Claim, Sort::Address];

    /// The path of all of them.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Sort::Claim => "namespaces/default/ipaddressclaims",
            Sort::Address => "ipaddresses",
        }
    }
}

/// An object as a client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Absent,
    Present {
        /// `None` after a create whose answer did not come.
        uid: Option<String>,
        number: u64,
    },
    /// It was marked for deletion, and goes as soon as nobody holds it any more.
    Deleting {
        uid: String,
        number: u64,
    },
}

/// An object as the server shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) revision: u64,
    pub(crate) deleting: bool,
    /// 0 for the objects of others.
    pub(crate) number: u64,
    twin: u64,
}

impl Seen {
    pub(crate) fn read(object: &Value) -> Seen {
        let meta = &object["metadata"];
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let number = |v: &Value| v.as_str().map_or(0, |n| n.parse().unwrap());
        Seen {
            name: text(&meta["name"]),
            uid: text(&meta["uid"]),
            revision: revision(object),
            deleting: !meta["deletionTimestamp"].is_null(),
            number: number(&meta["annotations"][NUMBER]),
            twin: number(&meta["annotations"][TWIN]),
        }
    }
}

/// The objects of a list, by name.
pub(crate) fn objects(list: &Value) -> BTreeMap<String, Seen> {
    let items = list["items"].as_array().unwrap().iter().map(Seen::read);
    items.map(|seen| (seen.name.clone(), seen)).collect()
}

/// The revision of an object or list.
pub(crate) fn revision(value: &Value) -> u64 {
    let text = value["metadata"]["resourceVersion"].as_str();
    text.and_then(|t| t.parse().ok())
        .unwrap_or_else(|| panic!("no revision in {value}"))
}

struct Page {
    /// More than one after an unanswered write.
    possible: Vec<State>,
    /// Of the last answer.
    revision: u64,
    /// What has happened to it, for the message of a failure.
    story: Vec<String>,
}

/// The objects of one client, which nobody else creates, changes or deletes (the server adds to
/// them).
#[derive(Default)]
pub(crate) struct Book(BTreeMap<(Sort, String), Page>);

impl Book {
    /// What an object is, if that is certain.
    pub(crate) fn state(&self, sort: Sort, name: &str) -> Option<State> {
        match self.0.get(&(sort, name.to_owned())) {
            None => Some(State::Absent),
            Some(page) => match page.possible.as_slice() {
                [only] => Some(only.clone()),
                _ => None,
            },
        }
    }

    fn page(&mut self, sort: Sort, name: &str) -> &mut Page {
        self.0
            .entry((sort, name.to_owned()))
            .or_insert_with(|| Page {
                possible: vec![State::Absent],
                revision: 0,
                story: Vec::new(),
            })
    }

    /// The server has said what became of it.
    pub(crate) fn answered(&mut self, sort: Sort, name: &str, state: State, revision: Option<u64>) {
        let page = self.page(sort, name);
        page.story
            .push(format!("answered at {revision:?}: {state:?}"));
        page.possible = vec![state];
        page.revision = revision.unwrap_or(page.revision);
    }

    /// A write was sent and not answered: it is as before, or like this.
    pub(crate) fn unanswered(&mut self, sort: Sort, name: &str, state: State) {
        let page = self.page(sort, name);
        page.story.push(format!("unanswered: {state:?}"));
        page.possible.push(state);
    }

    /// Compares with what there is of a sort, and learns from it.
    ///
    /// # Errors
    /// What was lost, has come back, or is half there.
    pub(crate) fn compare(
        &mut self,
        sort: Sort,
        all: &BTreeMap<String, Seen>,
    ) -> Result<(), String> {
        for ((_, name), page) in self.0.iter_mut().filter(|((s, _), _)| *s == sort) {
            page.compare(all.get(name)).map_err(|e| {
                format!(
                    "{sort:?} {name}: {e}; its story:\n{}",
                    page.story.join("\n")
                )
            })?;
        }
        Ok(())
    }

    /// Whether an object is in it.
    pub(crate) fn knows(&self, sort: Sort, name: &str) -> bool {
        self.0.contains_key(&(sort, name.to_owned()))
    }
}

impl Page {
    fn compare(&mut self, seen: Option<&Seen>) -> Result<(), String> {
        if let Some(seen) = seen.filter(|s| s.number != s.twin) {
            return Err(format!("half there: {seen:?}"));
        }
        if !self.possible.iter().any(|state| state.is(seen)) {
            return Err(format!("{seen:?} is none of {:?}", self.possible));
        }
        if let Some(seen) = seen
            && seen.revision < self.revision
        {
            return Err(format!(
                "{seen:?} is older than the answer at {}",
                self.revision
            ));
        }
        let state = match seen {
            None => State::Absent,
            Some(seen) if seen.deleting => State::Deleting {
                uid: seen.uid.clone(),
                number: seen.number,
            },
            Some(seen) => State::Present {
                uid: Some(seen.uid.clone()),
                number: seen.number,
            },
        };
        if self.possible != [state.clone()] {
            self.story.push(format!("found: {state:?}"));
        }
        self.possible = vec![state];
        Ok(())
    }
}

impl State {
    /// Whether an object that is in this state may be seen like that.
    fn is(&self, seen: Option<&Seen>) -> bool {
        match (self, seen) {
            (State::Absent | State::Deleting { .. }, None) => true,
            (State::Present { uid, number }, Some(seen)) => {
                !seen.deleting
                    && seen.number == *number
                    && uid.as_ref().is_none_or(|uid| *uid == seen.uid)
            }
            (State::Deleting { uid, number }, Some(seen)) => {
                seen.deleting && seen.number == *number && seen.uid == *uid
            }
            (State::Absent, Some(_)) | (State::Present { .. }, None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(uid: &str, number: u64, deleting: bool) -> Seen {
        Seen {
            name: "a".to_owned(),
            uid: uid.to_owned(),
            revision: 9,
            deleting,
            number,
            twin: number,
        }
    }

    fn present(number: u64) -> State {
        State::Present {
            uid: Some("u".to_owned()),
            number,
        }
    }

    fn compare(book: &mut Book, found: Option<Seen>) -> Result<(), String> {
        let all = found.into_iter().map(|s| (s.name.clone(), s)).collect();
        book.compare(Sort::Claim, &all)
    }

    #[test]
    fn what_was_answered_must_be_there() {
        let mut book = Book::default();
        book.answered(Sort::Claim, "a", present(1), Some(9));
        assert!(compare(&mut book, None).is_err(), "lost");
        assert!(
            compare(&mut book, Some(seen("u", 2, false))).is_err(),
            "another write"
        );
        assert!(
            compare(&mut book, Some(seen("v", 1, false))).is_err(),
            "another object"
        );
        assert!(
            compare(&mut book, Some(seen("u", 1, true))).is_err(),
            "deleted by nobody"
        );
        assert!(
            compare(
                &mut book,
                Some(Seen {
                    twin: 0,
                    ..seen("u", 1, false)
                })
            )
            .is_err()
        );
        assert!(
            compare(
                &mut book,
                Some(Seen {
                    revision: 8,
                    ..seen("u", 1, false)
                })
            )
            .is_err()
        );
        assert_eq!(compare(&mut book, Some(seen("u", 1, false))), Ok(()));
    }

    #[test]
    fn what_was_not_answered_may_be_there_and_what_was_found_stays() {
        for found in [1, 2] {
            let mut book = Book::default();
            book.answered(Sort::Claim, "a", present(1), Some(8));
            book.unanswered(Sort::Claim, "a", present(2));
            assert_eq!(book.state(Sort::Claim, "a"), None);
            assert_eq!(compare(&mut book, Some(seen("u", found, false))), Ok(()));
            assert_eq!(book.state(Sort::Claim, "a"), Some(present(found)));
            assert!(compare(&mut book, Some(seen("u", 3 - found, false))).is_err());
        }
    }

    #[test]
    fn what_was_deleted_does_not_come_back() {
        let mut book = Book::default();
        let deleting = State::Deleting {
            uid: "u".to_owned(),
            number: 1,
        };
        book.answered(Sort::Claim, "a", deleting, Some(8));
        assert!(
            compare(&mut book, Some(seen("u", 1, false))).is_err(),
            "no longer marked"
        );
        assert_eq!(compare(&mut book, Some(seen("u", 1, true))), Ok(()));
        assert_eq!(compare(&mut book, None), Ok(()));
        assert!(
            compare(&mut book, Some(seen("u", 1, true))).is_err(),
            "it was gone"
        );
    }
}
