//! Clients that create, change and delete claims and static addresses over HTTP, and keep a book
//! of what they were answered.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ipledger_tests::http;
use ipledger_tests::program::{Server, api, class};
use ipledger_tests::random::Random;
use serde_json::{Value, json};

use crate::book::{Book, NUMBER, Seen, Sort, State, TWIN, revision};

/// How many claims, and how many addresses, a client works on.
const NAMES: usize = 10;
const CLASSES: [&str; 2] = ["range", "static"];

/// Makes the classes that the clients ask for.
pub(crate) fn create_classes(server: &Server) {
    let range = class("range", &["10.0.0.0/16"], "Delete");
    let mut by_hand = class("static", &[], "Retain");
    by_hand["spec"] = json!({"provisioner": "example.com/none", "reclaimPolicy": "Retain"});
    for class in [range, by_hand] {
        let (code, answer) = server
            .ask("POST", &api("ipaddressclasses"), Some(&class))
            .unwrap();
        assert_eq!(code, 201, "{answer}");
    }
}

/// Lets all clients write until so many writes are acknowledged.
pub(crate) fn load(
    address: &str,
    clients: &mut [Client],
    writes: usize,
    acknowledged: &(dyn Fn(Acknowledged) + Sync),
) {
    let (over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let note = |about| {
        acknowledged(about);
        if count.fetch_add(1, Ordering::SeqCst) + 1 >= writes {
            over.store(true, Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| {
        for client in clients {
            scope.spawn(|| client.work(address, &over, &note));
        }
    });
}

/// What an acknowledgement was about.
pub(crate) enum Acknowledged {
    /// An object at this revision, with this number.
    At { revision: u64, number: u64 },
    /// The object with this uid is gone.
    Gone { uid: String },
}

/// One client.
pub(crate) struct Client {
    number: usize,
    random: Random,
    pub(crate) book: Book,
    /// Characters that an object carries in addition, at most.
    payload: usize,
    writes: u64,
}

/// What a client does next.
struct Write {
    sort: Sort,
    name: String,
    /// Of the object as it was before.
    before: State,
    /// Of this write.
    number: u64,
    act: Act,
}

enum Act {
    Create,
    Patch,
    Delete,
}

impl Client {
    pub(crate) fn several(n: usize, random: &mut Random, payload: usize) -> Vec<Client> {
        let client = |number| Client {
            number,
            random: random.fork(),
            book: Book::default(),
            payload,
            writes: 0,
        };
        (0..n).map(client).collect()
    }

    /// Writes until `over` is set. A connection may break only after that.
    pub(crate) fn work(
        &mut self,
        address: &str,
        over: &AtomicBool,
        acknowledged: &(dyn Fn(Acknowledged) + Sync),
    ) {
        while !over.load(Ordering::SeqCst) {
            let Some(write) = self.choose() else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let (method, path, body) = self.request(&write);
            match http::ask(address, method, &path, body.as_ref()) {
                Ok((code, answer)) => {
                    if let Some(about) = self.note(&write, code, &answer) {
                        acknowledged(about);
                    }
                }
                Err(e) => {
                    assert!(over.load(Ordering::SeqCst), "{method} {path}: {e}");
                    self.note_silence(&write);
                }
            }
        }
    }

    fn choose(&mut self) -> Option<Write> {
        let sort = *self.random.pick(&Sort::ALL);
        let n = self.random.below(NAMES);
        let name = match sort {
            Sort::Claim => format!("c-{}-{n}", self.number),
            Sort::Address => format!("ip-10-{}-0-{n}", 100 + self.number),
        };
        // What is uncertain is left alone until it has been looked at.
        let before = self.book.state(sort, &name)?;
        let act = match before {
            State::Present { .. } if self.random.one_in(3) => Act::Delete,
            State::Present { .. } => Act::Patch,
            State::Absent | State::Deleting { .. } => Act::Create,
        };
        self.writes += 1;
        Some(Write {
            sort,
            name,
            before,
            number: self.writes,
            act,
        })
    }

    fn request(&mut self, write: &Write) -> (&'static str, String, Option<Value>) {
        let all = api(write.sort.path());
        let one = format!("{all}/{}", write.name);
        let length = self.random.below(self.payload + 1);
        let number = write.number.to_string();
        let metadata = json!({"name": write.name, "annotations": {
            NUMBER: number, "crash.example.com/payload": "x".repeat(length), TWIN: number,
        }});
        match write.act {
            Act::Create => {
                let spec = match write.sort {
                    Sort::Claim => json!({"className": self.random.pick(&CLASSES)}),
                    Sort::Address => json!({
                        "address": write.name["ip-".len()..].replace('-', "."),
                        "className": "static", "reclaimPolicy": "Retain",
                    }),
                };
                let kind = match write.sort {
                    Sort::Claim => "IPAddressClaim",
                    Sort::Address => "IPAddress",
                };
                let object = json!({"apiVersion": "local.sdn.cozystack.io/v1alpha1", "kind": kind,
                                    "metadata": metadata, "spec": spec});
                ("POST", all, Some(object))
            }
            Act::Patch => ("PATCH", one, Some(json!({"metadata": metadata}))),
            Act::Delete => ("DELETE", one, None),
        }
    }

    /// Notes an answer, which must fit to what is known.
    fn note(&mut self, write: &Write, code: u16, answer: &Value) -> Option<Acknowledged> {
        let (sort, name) = (write.sort, write.name.as_str());
        let unexpected =
            || -> ! { panic!("{sort:?} {name} is {:?}: {code} {answer}", write.before) };
        match (&write.act, code) {
            // Nothing was written.
            (_, 503) => None,
            // It is not known whether it was.
            (_, 504) => {
                self.note_silence(write);
                None
            }
            // The server's own writers came between, again and again.
            (Act::Patch, 409) => None,
            // It is still going.
            (Act::Create, 409) if matches!(write.before, State::Deleting { .. }) => None,
            (Act::Create, 201) | (Act::Patch, 200) => {
                let seen = Seen::read(answer);
                let expected = match (&write.act, &write.before) {
                    (Act::Patch, State::Present { uid: Some(uid), .. }) => *uid == seen.uid,
                    _ => true,
                };
                if !expected || seen.number != write.number || seen.deleting {
                    unexpected();
                }
                let state = State::Present {
                    uid: Some(seen.uid),
                    number: seen.number,
                };
                self.book.answered(sort, name, state, Some(seen.revision));
                Some(Acknowledged::At {
                    revision: seen.revision,
                    number: seen.number,
                })
            }
            (Act::Delete, 200) if answer["kind"] == "Status" => {
                self.book.answered(sort, name, State::Absent, None);
                let uid = answer["details"]["uid"].as_str().unwrap().to_owned();
                Some(Acknowledged::Gone { uid })
            }
            (Act::Delete, 200) => {
                let seen = Seen::read(answer);
                let (at, number) = (revision(answer), seen.number);
                let state = State::Deleting {
                    uid: seen.uid,
                    number,
                };
                self.book.answered(sort, name, state, Some(at));
                Some(Acknowledged::At {
                    revision: at,
                    number,
                })
            }
            _ => unexpected(),
        }
    }

    /// Notes that no answer came.
    fn note_silence(&mut self, write: &Write) {
        let state = match (&write.act, &write.before) {
            (Act::Patch, State::Present { uid, .. }) => State::Present {
                uid: uid.clone(),
                number: write.number,
            },
            (Act::Delete, State::Present { uid, number }) => State::Deleting {
                uid: uid.clone().unwrap(),
                number: *number,
            },
            _ => State::Present {
                uid: None,
                number: write.number,
            },
        };
        self.book.unanswered(write.sort, &write.name, state);
    }
}
