//! Kubernetes Events: what becomes of a claim, where `kubectl describe` shows it (R15).
//!
//! # Guarantees
//! * Whoever emits an event never waits for the API server: events queue, and those beyond
//!   [`QUEUE`] go to the log alone, as all do.
//! * An object that was never warned about costs no write: that all is well is in its status.
//! * What is said again about an object within [`SERIES`] is counted in the Event that is there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Method;
use ipledger_core::api::Key;
use ipledger_core::binding::{Event, EventKind};
use ipledger_core::runtime::{EventSink, LogEvents};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::Inner;
use crate::failure::Failure;
use crate::lease::micro_time;
use crate::{path, pause};

/// Events that wait for the API server.
const QUEUE: usize = 1024;
/// How often an event is sent to a server that does not take it for now.
const TRIES: usize = 3;
/// How long after the last time the same is still the same series, as in Kubernetes' own components.
const SERIES: Duration = Duration::from_secs(360);
/// So often the series that are over are forgotten.
const SWEEP: Duration = Duration::from_secs(60);
/// The longest name of an object.
const NAME: usize = 253;
/// The longest note of an Event, which is less than 1 KiB.
const NOTE: usize = 1023;

/// Who tells.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    pub(crate) controller: String,
    pub(crate) instance: String,
}

pub(crate) struct Events(mpsc::Sender<Event>);

impl Events {
    /// Needs a Tokio runtime. What is queued is published until the sink is dropped.
    pub(crate) fn start(inner: Arc<Inner>, reporter: Reporter) -> Events {
        let (queue, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(publish(inner, reporter, waiting));
        Events(queue)
    }
}

impl EventSink for Events {
    fn emit(&self, event: &Event) {
        LogEvents.emit(event);
        if event.kind != EventKind::Normal {
            // The log has it.
            let _ = self.0.try_send(event.clone());
        }
    }
}

async fn publish(inner: Arc<Inner>, reporter: Reporter, mut waiting: mpsc::Receiver<Event>) {
    let mut series = Series::default();
    while let Some(event) = waiting.recv().await {
        for _ in 0..TRIES {
            match series.tell(&inner, &reporter, &event).await {
                Ok(()) => break,
                // It waits for an overloaded server by itself.
                Err(Failure::NotDone(_)) => sleep(pause::UNSAID).await,
                Err(Failure::Refused(status)) => {
                    let reason = status.message;
                    tracing::warn!(object = %event.about, reason, "an event is in this log alone");
                    break;
                }
                // It may be there.
                Err(Failure::Unknown(_)) => break,
            }
        }
    }
}

/// What makes two events the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Same {
    about: Key,
    uid: String,
    reason: String,
}

/// The Event of the API that tells it.
struct Told {
    name: String,
    times: u32,
    last: Instant,
}

struct Series {
    told: BTreeMap<Same, Told>,
    swept: Instant,
}

impl Default for Series {
    fn default() -> Series {
        Series {
            told: BTreeMap::new(),
            swept: Instant::now(),
        }
    }
}

impl Series {
    async fn tell(
        &mut self,
        inner: &Inner,
        reporter: &Reporter,
        event: &Event,
    ) -> Result<(), Failure> {
        let (last, now) = (Instant::now(), SystemTime::now());
        self.forget(last);
        let same = Same {
            about: event.about.clone(),
            uid: event.uid.clone(),
            reason: event.reason.clone(),
        };
        let namespace = namespace(event);
        if let Some(told) = self.told.get_mut(&same) {
            let path = path::of_event(namespace, Some(&told.name));
            let patch = again(told.times + 1, now).to_string().into_bytes();
            match inner.caller.call(Method::PATCH, path, Some(patch)).await {
                Ok(_) => {
                    told.times += 1;
                    told.last = last;
                    return Ok(());
                }
                // Somebody has deleted it.
                Err(Failure::Refused(s)) if s.is_absence_of_named("events", &told.name) => {}
                Err(failure) => return Err(failure),
            }
        }
        let name = name(&event.about.name, now);
        let path = path::of_event(namespace, None);
        let body = first(reporter, event, &name, now).to_string().into_bytes();
        inner.caller.call(Method::POST, path, Some(body)).await?;
        let told = Told {
            name,
            times: 1,
            last,
        };
        self.told.insert(same, told);
        Ok(())
    }

    fn forget(&mut self, now: Instant) {
        let lasts = |told: &Told| now.duration_since(told.last) < SERIES;
        if now.duration_since(self.swept) >= SWEEP {
            self.told.retain(|_, told| lasts(told));
            self.swept = now;
        }
    }
}

/// Where an Event about an object is: one about an object of the cluster is in `default`.
fn namespace(event: &Event) -> &str {
    match event.about.namespace.as_str() {
        "" => "default",
        namespace => namespace,
    }
}

/// A name that no other Event has, and that says whom it is about.
fn name(about: &str, now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let ending = format!(".{:x}", since.as_nanos());
    let about = cut(about, NAME.saturating_sub(ending.len()));
    // No part of a name ends like this.
    format!("{}{ending}", about.trim_end_matches(['-', '.']))
}

/// An Event of `events.k8s.io/v1` that tells it for the first time.
fn first(reporter: &Reporter, event: &Event, name: &str, now: SystemTime) -> Value {
    let about = &event.about;
    let mut regarding = json!({"apiVersion": about.kind.api_version(), "kind": about.kind.name(),
        "name": about.name});
    for (field, text) in [("namespace", &about.namespace), ("uid", &event.uid)] {
        if !text.is_empty() {
            regarding[field] = text.as_str().into();
        }
    }
    json!({"apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"namespace": namespace(event), "name": name},
        "type": event.kind.type_name(),
        "reason": event.reason,
        "note": cut(&event.message, NOTE),
        "action": "Bind",
        "eventTime": micro_time(now),
        "regarding": regarding,
        "reportingController": reporter.controller,
        "reportingInstance": reporter.instance,
    })
}

/// The change of an Event that tells it once more.
fn again(times: u32, now: SystemTime) -> Value {
    let series = json!({"count": times, "lastObservedTime": micro_time(now)});
    json!([{"op": "add", "path": "/series", "value": series}])
}

/// At most so many bytes of a text, between characters.
fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most))
        .unwrap_or_default()
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
    async fn warnings_and_what_ends_them_are_told_and_no_other_good_news() {
        let (queue, mut waiting) = mpsc::channel(8);
        let events = Events(queue);
        use EventKind::{Normal, Recovery, Warning};
        for kind in [Normal, Warning, Recovery, Normal] {
            events.emit(&event(kind));
        }
        drop(events);
        let mut told = Vec::new();
        while let Some(event) = waiting.recv().await {
            told.push(event.kind);
        }
        assert_eq!(told, [Warning, Recovery]);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        assert_eq!(cut("short", NOTE), "short");
        let long = "ü".repeat(600);
        let cut = cut(&long, NOTE);
        assert!(cut.len() == 1022 && long.starts_with(cut), "{}", cut.len());
    }

    #[test]
    fn the_name_of_an_event_is_one_that_an_object_may_have_however_long_that_of_the_claim_is() {
        let now = UNIX_EPOCH + Duration::from_nanos(0x18f0_0000_0000_0001);
        assert_eq!(name("web", now), "web.18f0000000000001");
        let most = NAME - ".18f0000000000001".len();
        for claim in [
            "a".repeat(253),
            format!("{}-.-{}", "a".repeat(most - 2), "b".repeat(9)),
        ] {
            let name = name(&claim, now);
            assert!(name.len() <= NAME, "{name}");
            assert!(name.ends_with("a.18f0000000000001"), "{name}");
        }
    }

    #[test]
    fn an_event_is_about_one_object_and_not_a_later_one_of_its_name() {
        let reporter = Reporter {
            controller: "core".to_owned(),
            instance: "core-0".to_owned(),
        };
        let first = first(&reporter, &event(EventKind::Warning), "web.1", UNIX_EPOCH);
        assert_eq!(first["regarding"]["uid"], "u1");
        assert_eq!(first["regarding"]["namespace"], "team");
        assert_eq!(first["metadata"]["namespace"], "team");
        assert_eq!(first["eventTime"], "1970-01-01T00:00:00.000000Z");
    }
}
