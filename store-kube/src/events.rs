//! Kubernetes Events: what becomes of a claim, where `kubectl describe` shows it (R15).
//!
//! # Guarantees
//! * Whoever emits an event never waits for the API server: events queue, and those beyond
//!   [`QUEUE`] go to the log alone, as all do.
//! * An object that was never warned about costs no write: that all is well is in its status.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ipledger_core::api::Key;
use ipledger_core::binding::{Event, EventKind};
use ipledger_core::runtime::{EventSink, LogEvents};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event as Report, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

use crate::Inner;
use crate::call::PAUSE;

/// Events that wait for the API server.
const QUEUE: usize = 1024;
/// How often an event is sent to a server that is overloaded.
const TRIES: usize = 3;
/// So many objects are remembered as warned about; then all are forgotten.
const WARNED: usize = 10_000;

pub(crate) struct Events {
    queue: mpsc::Sender<Event>,
    warned: Mutex<BTreeSet<Key>>,
}

impl Events {
    /// Needs a Tokio runtime. What is queued is published until the sink is dropped.
    pub(crate) fn start(inner: Arc<Inner>, reporter: Reporter) -> Events {
        let (queue, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(publish(inner, reporter, waiting));
        Events {
            queue,
            warned: Mutex::default(),
        }
    }

    /// Warnings, and the first good news after one.
    fn is_news(&self, event: &Event) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        match event.kind {
            EventKind::Normal => warned.remove(&event.about),
            EventKind::Warning => {
                if warned.len() >= WARNED {
                    warned.clear();
                }
                warned.insert(event.about.clone());
                true
            }
        }
    }
}

impl EventSink for Events {
    fn emit(&self, event: &Event) {
        LogEvents.emit(event);
        if self.is_news(event) {
            // The log has it.
            let _ = self.queue.try_send(event.clone());
        }
    }
}

async fn publish(inner: Arc<Inner>, reporter: Reporter, mut waiting: mpsc::Receiver<Event>) {
    let recorder = Recorder::new(inner.caller.client(), reporter);
    while let Some(event) = waiting.recv().await {
        let (report, reference) = (report(&event), reference(&event));
        for _ in 0..TRIES {
            // An overloaded server has other work to do.
            if inner.caller.wait_for_quiet().await.is_err() {
                break;
            }
            let sent = recorder.publish(&report, &reference);
            match tokio::time::timeout(inner.options.request_timeout, sent).await {
                Ok(Ok(())) => break,
                Ok(Err(kube::Error::Api(status))) if status.code == 429 => {
                    let asked = status.details.map_or(0, |d| d.retry_after_seconds);
                    let asked = Duration::from_secs(u64::from(asked));
                    inner.caller.leave_alone(asked.max(PAUSE));
                }
                Ok(Err(error)) => {
                    tracing::warn!(object = %event.about, %error, "an event is in this log alone");
                    break;
                }
                // It may be there.
                Err(_) => break,
            }
        }
    }
}

fn report(event: &Event) -> Report {
    Report {
        type_: match event.kind {
            EventKind::Normal => EventType::Normal,
            EventKind::Warning => EventType::Warning,
        },
        reason: event.reason.clone(),
        note: Some(cut(&event.message)),
        action: "Bind".to_owned(),
        secondary: None,
    }
}

/// What an Event takes: less than 1 KiB.
fn cut(note: &str) -> String {
    let end = (0..=note.len().min(1023)).rev();
    let end = end.into_iter().find(|end| note.is_char_boundary(*end));
    note.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}

fn reference(event: &Event) -> ObjectReference {
    let Key {
        kind,
        namespace,
        name,
    } = &event.about;
    ObjectReference {
        api_version: Some(kind.api_version()),
        kind: Some(kind.name().to_owned()),
        name: Some(name.clone()),
        namespace: Some(namespace.clone()).filter(|n| !n.is_empty()),
        uid: Some(event.uid.clone()).filter(|uid| !uid.is_empty()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind) -> Event {
        Event {
            about: Key::claim("team", "web"),
            uid: "u1".to_owned(),
            kind,
            reason: "NoMatch".to_owned(),
            message: "no address".to_owned(),
        }
    }

    #[tokio::test]
    async fn good_news_are_told_only_after_a_warning() {
        let (queue, mut waiting) = mpsc::channel(8);
        let events = Events {
            queue,
            warned: Mutex::default(),
        };
        use EventKind::{Normal, Warning};
        for kind in [Normal, Warning, Normal, Normal] {
            events.emit(&event(kind));
        }
        drop(events);
        let mut told = Vec::new();
        while let Some(event) = waiting.recv().await {
            told.push(event.kind);
        }
        assert_eq!(told, [Warning, Normal]);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = "ü".repeat(600);
        let cut = cut(&long);
        assert!(cut.len() < 1024 && long.starts_with(&cut), "{}", cut.len());
    }

    #[test]
    fn an_event_is_about_one_object_and_not_a_later_one_of_its_name() {
        let reference = reference(&event(EventKind::Warning));
        assert_eq!(reference.uid.as_deref(), Some("u1"));
        assert_eq!(reference.namespace.as_deref(), Some("team"));
    }
}
