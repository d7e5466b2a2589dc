//! Which of several servers leads: the one whose name lies at `/PREFIX/leader`, on a lease that it keeps
//! alive. kine takes no keep-alive, so that there all lead.
//!
//! No server leads while an import is under way (see `import.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Client, Compare, CompareOp, Error, LeaseGrantOptions, PutOptions, Txn, TxnOp};
use ipledger_core::runtime::{Election, Term};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::failure::Failure;
use crate::kv::{self, Swap};
use crate::members::Call;
use crate::{Inner, Server};

/// How often a server that does not lead looks whether it can.
const RETRY: Duration = Duration::from_secs(1);
/// How long a server whose time is over waits before it tries again: long enough that another one has
/// looked, so that deleting the leader's key moves the work.
const MAKE_WAY: Duration = RETRY.saturating_mul(2);
/// The shortest time that a lease is taken to live, whatever etcd says.
const SHORTEST_TTL: Duration = Duration::from_secs(1);
/// How often a server on kine looks whether an import has begun.
pub(crate) const LOOK: Duration = Duration::from_secs(2);
/// A lease is kept alive so many times within its time to live.
const RENEWALS: u32 = 3;

/// Part of an election.
pub(crate) struct Candidate {
    inner: Arc<Inner>,
    name: String,
    /// Whether the next attempt is the first one: then a leader of this name is an earlier process of
    /// this server, which is gone.
    first: AtomicBool,
    has_led: AtomicBool,
}

/// What an attempt to lead has come to.
pub(crate) enum Attempt {
    Won(Lease),
    /// Another one leads; this is its name.
    Led(String),
    /// An import is under way or was cut off; this is who began it.
    Importing(String),
}

impl Candidate {
    pub(crate) fn new(inner: Arc<Inner>, name: String) -> Candidate {
        Candidate {
            inner,
            name,
            first: AtomicBool::new(true),
            has_led: AtomicBool::new(false),
        }
    }

    /// Tries once; `Err` inside says who or what stands in the way.
    async fn attempt(&self) -> Result<Result<Box<dyn Term>, String>, Failure> {
        let attempt = match self.inner.server {
            Server::Etcd => lead(&self.inner, &self.name, self.first.load(Relaxed), false).await,
            Server::Kine => match self.inner.importing().await {
                Ok(None) => {
                    let inner = Arc::clone(&self.inner);
                    return Ok(Ok(Box::new(Unlimited { inner })));
                }
                Ok(Some(by)) => Ok(Attempt::Importing(by)),
                Err(failure) => Err(failure),
            },
        };
        if attempt.is_ok() {
            self.first.store(false, Relaxed);
        }
        attempt.map(|attempt| match attempt {
            Attempt::Won(lease) => Ok(Box::new(lease) as Box<dyn Term>),
            Attempt::Led(by) => Err(format!("{by} leads")),
            Attempt::Importing(by) => Err(importing(&by)),
        })
    }
}

fn importing(by: &str) -> String {
    format!("an import that {by} began is not complete")
}

#[async_trait]
impl Election for Candidate {
    async fn win(&self, waiting: &(dyn for<'a> Fn(&'a str) + Send + Sync)) -> Box<dyn Term> {
        if self.has_led.load(Relaxed) {
            sleep(MAKE_WAY).await;
        }
        let mut told = String::new();
        loop {
            let (reason, failed) = match self.attempt().await {
                Ok(Ok(term)) => {
                    self.has_led.store(true, Relaxed);
                    return term;
                }
                Ok(Err(reason)) => (reason, false),
                Err(failure) => (format!("etcd: {}", failure.said()), true),
            };
            if reason != told {
                if failed {
                    tracing::warn!("this server cannot try to lead: {reason}");
                }
                waiting(&reason);
                told = reason;
            }
            sleep(RETRY).await;
        }
    }
}

/// Tries once to become the leader. An import may lead although one has begun: it goes on with it.
pub(crate) async fn lead(
    inner: &Arc<Inner>,
    name: &str,
    follows_itself: bool,
    is_import: bool,
) -> Result<Attempt, Failure> {
    if !is_import && let Some(by) = inner.importing().await? {
        return Ok(Attempt::Importing(by));
    }
    let key = inner.keys.leader();
    let (there, _) = kv::get(&inner.members, &key).await?;
    let expected = match there {
        Some(raw) if !(follows_itself && raw.value == name.as_bytes()) => {
            return Ok(Attempt::Led(named(&raw.value)));
        }
        Some(raw) => raw.revision,
        None => 0,
    };
    let asked = Instant::now();
    let (id, ttl) = grant(inner).await?;
    let mut lease = Lease {
        inner: Arc::clone(inner),
        id,
        revision: 0,
        ttl,
        until: asked + ttl,
        renew_at: asked + ttl / RENEWALS,
    };
    match lease.put(name, expected, is_import).await {
        Ok(Some(revision)) => {
            lease.revision = revision;
            Ok(Attempt::Won(lease))
        }
        Ok(None) => {
            lease.revoke().await;
            Ok(Attempt::Led("another one, which was quicker,".to_owned()))
        }
        // If it was done after all, the key goes with the lease.
        Err(failure) => {
            lease.revoke().await;
            Err(failure)
        }
    }
}

pub(crate) fn named(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// A new lease and how long it lives. One that is granted and not answered for runs out by itself, so
/// that it may be asked for again.
async fn grant(inner: &Inner) -> Result<(i64, Duration), Failure> {
    let wanted = i64::try_from(inner.options.lease_ttl.as_secs()).unwrap_or(i64::MAX);
    let call = |mut client: Client| async move {
        let options = Some(LeaseGrantOptions::new());
        let granted = client.lease_grant(wanted.max(1), options).await?;
        Ok((granted.id(), granted.ttl()))
    };
    let (id, seconds) = inner.members.call(Call::Read, call).await?;
    Ok((id, believed(seconds, inner.options.lease_ttl)))
}

/// How long a lease is taken to live: a number from the network must neither overflow a time nor make
/// the renewal spin. A lease that lives longer than we think does no harm.
fn believed(seconds: i64, wanted: Duration) -> Duration {
    let said = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    said.min(wanted.saturating_mul(3)).max(SHORTEST_TTL)
}

/// The time in which a process leads on etcd.
pub(crate) struct Lease {
    inner: Arc<Inner>,
    id: i64,
    /// Of the key, under which nobody else has written it.
    revision: u64,
    ttl: Duration,
    /// etcd keeps the lease at least until then.
    until: Instant,
    renew_at: Instant,
}

impl Lease {
    /// Writes the name of the leader, if nobody was quicker; returns the revision.
    async fn put(
        &self,
        name: &str,
        expected: u64,
        is_import: bool,
    ) -> Result<Option<u64>, Failure> {
        let keys = &self.inner.keys;
        let expected = i64::try_from(expected).unwrap_or(i64::MAX);
        let leader = keys.leader();
        let mut when = vec![Compare::mod_revision(
            leader.clone(),
            CompareOp::Equal,
            expected,
        )];
        if !is_import {
            when.push(Compare::mod_revision(keys.import(), CompareOp::Equal, 0));
        }
        let options = PutOptions::new().with_lease(self.id);
        let txn = Txn::new()
            .when(when)
            .and_then([TxnOp::put(leader, name, Some(options))]);
        let call = |mut client: Client| {
            let txn = txn.clone();
            async move {
                let answer = client.txn(txn).await?;
                let revision = answer.header().map_or(0, |h| kv::revision(h.revision()));
                Ok(answer.succeeded().then_some(revision))
            }
        };
        self.inner.members.call(Call::Write, call).await
    }

    /// Prolongs the lease; `Err` inside says why it is over.
    async fn renew(&self) -> Result<Result<(), String>, Failure> {
        let id = self.id;
        let call = |client: Client| async move {
            match client.lease_client().keep_alive(id).await {
                Ok(_) => Ok(true),
                Err(Error::LeaseKeepAliveError(_)) => Ok(false),
                Err(e) => Err(e),
            }
        };
        if !self.inner.members.call(Call::Read, call).await? {
            return Ok(Err("etcd has ended the lease".to_owned()));
        }
        let (there, _) = kv::get(&self.inner.members, &self.inner.keys.leader()).await?;
        Ok(match there {
            Some(raw) if raw.revision == self.revision => Ok(()),
            Some(raw) => Err(format!("{} leads", named(&raw.value))),
            None => Err("somebody has deleted the leader's key".to_owned()),
        })
    }

    async fn revoke(&self) {
        let id = self.id;
        let call = |mut client: Client| async move { client.lease_revoke(id).await.map(|_| ()) };
        if let Err(failure) = self.inner.members.call(Call::Read, call).await {
            tracing::debug!(?failure, "a lease was not revoked; it runs out by itself");
        }
    }
}

#[async_trait]
impl Term for Lease {
    async fn over(&mut self) -> String {
        loop {
            sleep_until(self.renew_at).await;
            let asked = Instant::now();
            let answer = match timeout_at(self.until, self.renew()).await {
                Ok(Ok(Ok(()))) => {
                    self.until = asked + self.ttl;
                    self.renew_at = asked + self.ttl / RENEWALS;
                    continue;
                }
                Ok(Ok(Err(reason))) => return reason,
                Ok(Err(failure)) => failure.said(),
                Err(_) => "no answer in time".to_owned(),
            };
            self.renew_at = Instant::now() + self.ttl / (4 * RENEWALS);
            if self.renew_at >= self.until {
                return format!(
                    "the lease could not be kept alive for {:?}: {answer}",
                    self.ttl
                );
            }
        }
    }

    async fn resign(self: Box<Self>) {
        self.revoke().await;
    }
}

/// The time in which a server on kine leads, beside all others.
struct Unlimited {
    inner: Arc<Inner>,
}

#[async_trait]
impl Term for Unlimited {
    async fn over(&mut self) -> String {
        loop {
            sleep(LOOK).await;
            if let Ok(Some(by)) = self.inner.importing().await {
                return importing(&by);
            }
        }
    }

    async fn resign(self: Box<Self>) {}
}

impl Inner {
    /// Who has begun an import that is not complete.
    pub(crate) async fn importing(&self) -> Result<Option<String>, Failure> {
        let (there, _) = kv::get(&self.members, &self.keys.import()).await?;
        Ok(there.map(|raw| named(&raw.value)))
    }

    /// Marks that an import is under way; returns who has begun it, if that was another one.
    pub(crate) async fn mark_import(&self, name: &str) -> Result<Option<String>, Failure> {
        let key = self.keys.import();
        match kv::put(&self.members, &key, 0, name.as_bytes()).await? {
            Swap::Done(_) => Ok(None),
            Swap::Lost(there) => Ok(Some(
                there.map_or_else(|| "somebody".to_owned(), |raw| named(&raw.value)),
            )),
        }
    }

    /// Takes the mark away.
    pub(crate) async fn unmark_import(&self) -> Result<(), Failure> {
        let key = self.keys.import();
        if let (Some(raw), _) = kv::get(&self.members, &key).await? {
            kv::delete(&self.members, &key, raw.revision).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_from_the_network_is_kept_within_what_can_be_worked_with() {
        let wanted = Duration::from_secs(8);
        for (seconds, expected) in [(8, 8), (10, 10), (0, 1), (-5, 1), (i64::MAX, 24)] {
            let ttl = believed(seconds, wanted);
            assert_eq!(ttl, Duration::from_secs(expected), "{seconds}");
        }
        assert_eq!(believed(0, Duration::ZERO), SHORTEST_TTL);
    }
}
