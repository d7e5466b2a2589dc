//! Which of several processes works: the one that holds a `Lease` of `coordination.k8s.io/v1`.
//!
//! A lease is not the ledger's but the program's: each controller has its own. Whether it has run out is
//! told from how long it has not changed here, never from the times in it, which other clocks wrote.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use http::Method;
use ipledger_core::api::Timestamp;
use ipledger_core::runtime::{Election, Term};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::Inner;
use crate::call::Caller;
use crate::failure::Failure;
use crate::health::Right;
use crate::path;

/// A process that does not lead looks at least so often whether it can.
const RETRY: Duration = Duration::from_secs(2);
/// A lease is renewed so many times within its duration.
const RENEWALS: u32 = 3;
/// Giving a lease back takes no longer; it runs out by itself.
const RESIGN: Duration = Duration::from_secs(5);

/// For which lease a process stands, and as whom.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The namespace of the lease, which exists.
    pub namespace: String,
    /// The name of the lease, which is made if it does not exist.
    pub name: String,
    /// Who this process is among all that stand for the lease, unlike every other one.
    pub holder: String,
    /// How long the lease must not have changed before another process takes it; whole seconds.
    pub duration: Duration,
}

#[derive(Clone)]
pub(crate) struct Candidate {
    /// That others have overloaded the server must not cost the lease.
    caller: Arc<Caller>,
    options: LeaseOptions,
}

/// A lease as it was read, and since when nothing else was.
struct Seen {
    spec: Value,
    since: Instant,
}

/// What is to be done about a lease.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// There is none: make it.
    Create,
    /// It is free, ours, or has run out: take it.
    Take,
    /// This one holds it.
    Wait(String),
}

/// Decides about the lease as it is now; `seen` is what earlier looks have found.
fn decide(
    lease: Option<&Value>,
    seen: &mut Option<Seen>,
    options: &LeaseOptions,
    now: Instant,
) -> Step {
    let Some(lease) = lease else {
        *seen = None;
        return Step::Create;
    };
    let spec = &lease["spec"];
    let since = match seen {
        Some(seen) if seen.spec == *spec => seen.since,
        _ => {
            let spec = spec.clone();
            *seen = Some(Seen { spec, since: now });
            now
        }
    };
    let holder = holder(lease);
    let promised = spec["leaseDurationSeconds"].as_u64();
    let duration = promised.map_or(options.duration, Duration::from_secs);
    if holder.is_empty() || holder == options.holder || now.duration_since(since) >= duration {
        return Step::Take;
    }
    Step::Wait(holder.to_owned())
}

fn holder(lease: &Value) -> &str {
    lease["spec"]["holderIdentity"].as_str().unwrap_or("")
}

/// The lease as it is to be written to hold it from now on. What others have written in it is kept.
fn held(lease: Option<&Value>, options: &LeaseOptions, now: SystemTime) -> Value {
    let (namespace, name) = (&options.namespace, &options.name);
    let mut next = lease.cloned().unwrap_or_else(|| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": namespace, "name": name}})
    });
    let now = micro_time(now);
    if holder(&next) != options.holder {
        let before = next["spec"]["leaseTransitions"].as_i64();
        let changes = before.map_or(0, |n| n.saturating_add(1));
        next["spec"]["leaseTransitions"] = changes.min(i64::from(i32::MAX)).into();
        next["spec"]["acquireTime"] = now.clone().into();
    }
    next["spec"]["holderIdentity"] = options.holder.clone().into();
    next["spec"]["leaseDurationSeconds"] = options.duration.as_secs().max(1).into();
    next["spec"]["renewTime"] = now.into();
    next
}

/// The lease as it is to be written so that whoever looks takes it.
fn given_back(lease: &Value, now: SystemTime) -> Value {
    let mut next = lease.clone();
    next["spec"]["holderIdentity"] = "".into();
    next["spec"]["leaseDurationSeconds"] = 1.into();
    next["spec"]["renewTime"] = micro_time(now).into();
    next
}

/// `meta/v1` `MicroTime`, which has six digits behind the seconds, no more and no less.
pub(crate) fn micro_time(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = Timestamp::from(now).to_string();
    let seconds = seconds.trim_end_matches('Z');
    format!("{seconds}.{:06}Z", since.subsec_micros())
}

/// What a call about a lease has come to.
#[derive(Debug)]
enum Answer {
    Is(Value),
    Absent,
    /// Somebody was quicker.
    Changed,
}

impl Candidate {
    pub(crate) fn new(inner: &Inner, options: LeaseOptions) -> Candidate {
        Candidate {
            caller: Arc::new(inner.caller.apart()),
            options,
        }
    }

    async fn attempt(&self, seen: &mut Option<Seen>) -> Result<Holding, String> {
        let said = |failure| self.said(failure);
        let lease = match self.get().await.map_err(said)? {
            Answer::Is(lease) => Some(lease),
            Answer::Absent | Answer::Changed => None,
        };
        let asked = Instant::now();
        if let Step::Wait(by) = decide(lease.as_ref(), seen, &self.options, asked) {
            return Err(format!("{by} leads"));
        }
        let next = held(lease.as_ref(), &self.options, SystemTime::now());
        match self.write(&next, lease.is_some()).await.map_err(said)? {
            Answer::Is(lease) => Ok(Holding {
                candidate: self.clone(),
                lease,
                renewed: asked,
                try_at: asked + self.options.duration / RENEWALS,
            }),
            Answer::Absent | Answer::Changed => Err("another one was quicker".to_owned()),
        }
    }

    async fn get(&self) -> Result<Answer, Failure> {
        let path = path::of_lease(&self.options.namespace, Some(&self.options.name));
        let answer = self.caller.get(path).await;
        self.caller.health().allowed(Right::ReadLease, &answer);
        self.answer(answer)
    }

    /// A swap on the revision in it, or a creation.
    async fn write(&self, lease: &Value, exists: bool) -> Result<Answer, Failure> {
        let name = exists.then_some(self.options.name.as_str());
        let method = if exists { Method::PUT } else { Method::POST };
        let path = path::of_lease(&self.options.namespace, name);
        let body = lease.to_string().into_bytes();
        let answer = self.caller.call(method, path, Some(body)).await;
        self.caller.health().allowed(Right::WriteLease, &answer);
        self.answer(answer)
    }

    fn answer(&self, answer: Result<Value, Failure>) -> Result<Answer, Failure> {
        match answer {
            Ok(lease) => Ok(Answer::Is(lease)),
            Err(Failure::Refused(s)) if s.code == 409 => Ok(Answer::Changed),
            Err(Failure::Refused(s)) if s.is_absence_of_named("leases", &self.options.name) => {
                Ok(Answer::Absent)
            }
            Err(failure) => Err(failure),
        }
    }

    fn said(&self, failure: Failure) -> String {
        let (namespace, name) = (&self.options.namespace, &self.options.name);
        let reason = match failure {
            Failure::NotDone(reason) | Failure::Unknown(reason) => reason,
            Failure::Refused(status) => status.message,
        };
        format!("the lease {namespace}/{name} cannot be had: {reason}")
    }
}

#[async_trait]
impl Election for Candidate {
    async fn win(&self, waiting: &(dyn for<'a> Fn(&'a str) + Send + Sync)) -> Box<dyn Term> {
        let (mut seen, mut told) = (None, String::new());
        loop {
            match self.attempt(&mut seen).await {
                Ok(term) => return Box::new(term),
                Err(reason) if reason != told => {
                    waiting(&reason);
                    told = reason;
                }
                Err(_) => {}
            }
            sleep(RETRY.min(self.options.duration / RENEWALS)).await;
        }
    }
}

/// The time in which this process holds the lease.
struct Holding {
    candidate: Candidate,
    /// As it was last written or read.
    lease: Value,
    /// Before the last write that was answered.
    renewed: Instant,
    try_at: Instant,
}

impl Holding {
    /// Renews the lease; `Err` inside says why it is over.
    async fn renew(&mut self) -> Result<Result<(), String>, Failure> {
        let asked = Instant::now();
        let options = &self.candidate.options;
        let next = held(Some(&self.lease), options, SystemTime::now());
        match self.candidate.write(&next, true).await? {
            Answer::Is(lease) => {
                self.lease = lease;
                self.renewed = asked;
                return Ok(Ok(()));
            }
            Answer::Absent => return Ok(Err("somebody has deleted the lease".to_owned())),
            Answer::Changed => {}
        }
        match self.candidate.get().await? {
            Answer::Is(lease) if holder(&lease) == self.candidate.options.holder => {
                self.lease = lease;
                Err(Failure::NotDone("it was changed meanwhile".to_owned()))
            }
            Answer::Is(lease) if holder(&lease).is_empty() => {
                Ok(Err("somebody has freed the lease".to_owned()))
            }
            Answer::Is(lease) => Ok(Err(format!("{} leads", holder(&lease)))),
            Answer::Absent | Answer::Changed => {
                Ok(Err("somebody has deleted the lease".to_owned()))
            }
        }
    }
}

#[async_trait]
impl Term for Holding {
    async fn over(&mut self) -> String {
        let duration = self.candidate.options.duration;
        loop {
            sleep_until(self.try_at).await;
            // Some time before another one may take it.
            let until = self.renewed + duration * 2 / RENEWALS;
            let answer = match timeout_at(until, self.renew()).await {
                Ok(Ok(Ok(()))) => {
                    self.try_at = self.renewed + duration / RENEWALS;
                    continue;
                }
                Ok(Ok(Err(reason))) => return reason,
                Ok(Err(failure)) => self.candidate.said(failure),
                Err(_) => "no answer in time".to_owned(),
            };
            self.try_at = Instant::now() + duration / (4 * RENEWALS);
            if self.try_at >= until {
                return format!("the lease could not be renewed: {answer}");
            }
        }
    }

    async fn resign(self: Box<Self>) {
        let free = given_back(&self.lease, SystemTime::now());
        match timeout(RESIGN, self.candidate.write(&free, true)).await {
            Ok(Ok(Answer::Is(_))) => {}
            answer => tracing::debug!(?answer, "a lease was not given back; it runs out by itself"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> LeaseOptions {
        LeaseOptions {
            namespace: "system".to_owned(),
            name: "core".to_owned(),
            holder: "b".to_owned(),
            duration: Duration::from_secs(15),
        }
    }

    fn of(holder: &str, renewed: &str) -> Value {
        json!({"metadata": {"resourceVersion": "7", "labels": {"kept": "yes"}}, "spec": {
            "holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 10,
            "leaseTransitions": 4, "acquireTime": "2026-01-01T00:00:00.000000Z"}})
    }

    #[test]
    fn a_lease_is_made_taken_when_free_or_ours_and_left_to_another_one() {
        let now = Instant::now();
        let step = |lease: Option<&Value>| decide(lease, &mut None, &options(), now);
        assert_eq!(step(None), Step::Create);
        assert_eq!(step(Some(&of("", "1"))), Step::Take);
        assert_eq!(step(Some(&json!({"metadata": {}}))), Step::Take);
        assert_eq!(step(Some(&of("b", "1"))), Step::Take);
        // However old it says that it is.
        let old = of("a", "1990-01-01T00:00:00.000000Z");
        assert_eq!(step(Some(&old)), Step::Wait("a".to_owned()));
    }

    #[test]
    fn a_lease_is_taken_over_when_it_has_not_changed_for_its_duration_by_our_clock() {
        let start = Instant::now();
        let mut seen = None;
        let mut at = |seconds: u64, lease: &Value| {
            let now = start + Duration::from_secs(seconds);
            decide(Some(lease), &mut seen, &options(), now)
        };
        let waits = Step::Wait("a".to_owned());
        assert_eq!(at(0, &of("a", "1")), waits);
        assert_eq!(at(9, &of("a", "1")), waits);
        // It was renewed, and time begins anew.
        assert_eq!(at(10, &of("a", "2")), waits);
        assert_eq!(at(19, &of("a", "2")), waits);
        // Another one has taken it.
        assert_eq!(at(20, &of("c", "3")), Step::Wait("c".to_owned()));
        assert_eq!(at(29, &of("c", "3")), Step::Wait("c".to_owned()));
        assert_eq!(at(30, &of("c", "3")), Step::Take);
    }

    #[test]
    fn a_lease_that_says_no_duration_is_held_for_ours() {
        let start = Instant::now();
        let lease = json!({"spec": {"holderIdentity": "a"}});
        let mut seen = None;
        let mut at = |s: u64| {
            let now = start + Duration::from_secs(s);
            decide(Some(&lease), &mut seen, &options(), now)
        };
        let waits = Step::Wait("a".to_owned());
        assert_eq!(at(0), waits);
        assert_eq!(at(14), waits);
        assert_eq!(at(15), Step::Take);
    }

    #[test]
    fn taking_over_counts_renewing_does_not_and_both_swap_on_what_was_read() {
        let now = UNIX_EPOCH + Duration::from_micros(1_700_000_000_000_042);
        let taken = held(Some(&of("a", "1")), &options(), now);
        let time = "2023-11-14T22:13:20.000042Z";
        assert_eq!(
            taken["spec"],
            json!({"holderIdentity": "b", "renewTime": time, "acquireTime": time,
                "leaseDurationSeconds": 15, "leaseTransitions": 5})
        );
        assert_eq!(taken["metadata"], of("a", "1")["metadata"]);
        let renewed = held(Some(&taken), &options(), now + Duration::from_secs(5));
        assert_eq!(renewed["spec"]["leaseTransitions"], 5);
        assert_eq!(renewed["spec"]["acquireTime"], time);
        assert_ne!(renewed["spec"]["renewTime"], time);
        let made = held(None, &options(), now);
        assert_eq!(made["spec"]["leaseTransitions"], 0);
        let free = given_back(&taken, now);
        assert_eq!(
            decide(Some(&free), &mut None, &options(), Instant::now()),
            Step::Take
        );
    }
    #[tokio::test]
    async fn a_lease_is_taken_and_renewed_while_the_other_calls_leave_the_server_alone() {
        use ipledger_core::api::Kind;
        use ipledger_core::store::Store as _;

        let (config, _) = crate::call::tests::overloaded("60").await;
        let store = crate::KubeStore::open(config, crate::Options::default()).unwrap();
        for _ in 0..2 {
            let refused = store.list(Kind::IPAddress, &Default::default()).await;
            assert!(refused.unwrap_err().to_string().contains("overloaded"));
        }
        let candidate = Candidate::new(&store.inner, options());
        let work = async {
            let mut term = candidate.attempt(&mut None).await.unwrap();
            term.renew().await.unwrap().unwrap();
        };
        timeout(Duration::from_secs(20), work).await.unwrap();
    }
}
