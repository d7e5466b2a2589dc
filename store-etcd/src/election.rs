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
        }
    }

    async fn attempt(&self) -> Result<Box<dyn Term>, String> {
        let attempt = match self.inner.server {
            Server::Etcd => lead(&self.inner, &self.name, self.first.load(Relaxed), false).await,
            Server::Kine => match self.inner.importing().await {
                Ok(None) => {
                    let inner = Arc::clone(&self.inner);
                    return Ok(Box::new(Unlimited { inner }));
                }
                Ok(Some(by)) => Ok(Attempt::Importing(by)),
                Err(failure) => Err(failure),
            },
        };
        if attempt.is_ok() {
            self.first.store(false, Relaxed);
        }
        match attempt {
            Ok(Attempt::Won(lease)) => Ok(Box::new(lease)),
            Ok(Attempt::Led(by)) => Err(format!("{by} leads")),
            Ok(Attempt::Importing(by)) => Err(importing(&by)),
            Err(failure) => Err(format!("etcd: {}", failure.said())),
        }
    }
}

fn importing(by: &str) -> String {
    format!("an import that {by} began is not complete")
}

#[async_trait]
impl Election for Candidate {
    async fn win(&self, waiting: &(dyn for<'a> Fn(&'a str) + Send + Sync)) -> Box<dyn Term> {
        let mut told = String::new();
        loop {
            match self.attempt().await {
                Ok(term) => return term,
                Err(reason) if reason != told => {
                    waiting(&reason);
                    told = reason;
                }
                Err(_) => {}
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
        let ttl = Duration::from_secs(u64::try_from(granted.ttl()).unwrap_or(0));
        Ok((granted.id(), ttl))
    };
    inner.members.call(Call::Read, call).await
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
