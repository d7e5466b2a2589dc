//! Opening a ledger in etcd, and what can be wrong then.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, StatusResponse};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::failure::Failure;
use crate::keys::Keys;
use crate::kv;
use crate::members::Members;
use crate::options::Options;
use crate::recent::Recent;
use crate::{Inner, Server, Signal};

/// The oldest version whose answers to progress requests never overtake events.
const OLDEST: (u64, u64, u64) = (3, 5, 13);
/// Part of what etcd says when it has none.
const NO_LEADER: &str = "no leader";
const RETRY: Duration = Duration::from_millis(100);

/// Why a ledger in etcd could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// An option cannot be used.
    #[error("{option}: {reason}")]
    BadOption {
        /// Which one.
        option: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// No member could be reached.
    #[error("etcd cannot be reached at {endpoints}: {reason}; is it running, and is TLS right?")]
    Unreachable {
        /// The members that were tried.
        endpoints: String,
        /// What the last one said.
        reason: String,
    },
    /// The user is not known, or the password is wrong, or none was given.
    #[error("etcd refuses the user: {reason}; give the right user and password")]
    WrongCredentials {
        /// What etcd said.
        reason: String,
    },
    /// The user may not read the ledger.
    #[error(
        "etcd does not let this user read under `{prefix}`: {reason}; grant its role readwrite on that prefix"
    )]
    Forbidden {
        /// The prefix of the ledger.
        prefix: String,
        /// What etcd said.
        reason: String,
    },
    /// The cluster has no leader, so that nothing can be read or written.
    #[error(
        "the etcd cluster at {endpoints} has no leader: more than half of its members must run and reach each other"
    )]
    NoLeader {
        /// The members that were tried.
        endpoints: String,
    },
    /// The version is too old.
    #[error("etcd at {endpoint} has version {version}; at least 3.5.13 is needed")]
    TooOld {
        /// The member.
        endpoint: String,
        /// Its version.
        version: String,
    },
    /// etcd answers, but not as it should.
    #[error("etcd at {endpoints} cannot be used: {reason}")]
    Unusable {
        /// The members that were tried.
        endpoints: String,
        /// What it said.
        reason: String,
    },
}

/// Opens the ledger, waiting as long as a request may take for a cluster that is just starting.
pub(crate) async fn open(options: Options) -> Result<Arc<Inner>, OpenError> {
    let keys = Keys::new(&options.prefix).map_err(|reason| OpenError::BadOption {
        option: "prefix",
        reason,
    })?;
    let members = Members::new(&options)?;
    let deadline = Instant::now() + options.request_timeout;
    let (server, revision) = loop {
        match attempt(&options, &members, &keys).await {
            Ok(found) => break found,
            Err(e) if may_pass(&e) && Instant::now() < deadline => sleep(RETRY).await,
            Err(e) => return Err(e),
        }
    };
    let (signals, _) = watch::channel(Signal {
        committed: revision,
        closed: false,
    });
    Ok(Arc::new(Inner {
        options,
        keys,
        members,
        server,
        recent: Recent::default(),
        signals,
        writes: Default::default(),
        trouble: Default::default(),
    }))
}

fn may_pass(error: &OpenError) -> bool {
    matches!(
        error,
        OpenError::Unreachable { .. } | OpenError::NoLeader { .. }
    )
}

async fn attempt(
    options: &Options,
    members: &Members,
    keys: &Keys,
) -> Result<(Server, u64), OpenError> {
    let endpoints = || options.endpoints.join(", ");
    let mut server = None;
    let mut reason = String::new();
    for number in 0..members.len() {
        match timeout(options.member_timeout, status(members, number)).await {
            Ok(Ok(status)) => {
                server = Some(judge(options, number, &status)?);
                while members.current() != number {
                    members.leave(members.current());
                }
                break;
            }
            Ok(Err(Failure::Denied(reason))) => return Err(OpenError::WrongCredentials { reason }),
            Ok(Err(failure)) => reason = failure.said(),
            Err(_) => reason = format!("no answer within {:?}", options.member_timeout),
        }
    }
    let Some((server, has_leader)) = server else {
        let endpoints = endpoints();
        return Err(if reason.contains(NO_LEADER) {
            OpenError::NoLeader { endpoints }
        } else {
            OpenError::Unreachable { endpoints, reason }
        });
    };
    if !has_leader {
        let endpoints = endpoints();
        return Err(OpenError::NoLeader { endpoints });
    }
    let first = keys
        .range(ipledger_core::api::Kind::IPAddressClass, None)
        .first;
    match kv::last_revision(members, &first).await {
        Ok(revision) => Ok((server, revision)),
        Err(Failure::Denied(reason)) if reason.contains("permission") => {
            Err(OpenError::Forbidden {
                prefix: options.prefix.clone(),
                reason,
            })
        }
        Err(Failure::Denied(reason)) => Err(OpenError::WrongCredentials { reason }),
        Err(failure) => {
            let (endpoints, reason) = (endpoints(), failure.said());
            Err(if reason.contains(NO_LEADER) {
                OpenError::NoLeader { endpoints }
            } else {
                OpenError::Unusable { endpoints, reason }
            })
        }
    }
}

async fn status(members: &Members, number: usize) -> Result<StatusResponse, Failure> {
    let mut client: Client = members.client(number).await?;
    client.status().await.map_err(|e| Failure::of(&e))
}

/// What server this is, and whether it knows a leader.
fn judge(
    options: &Options,
    number: usize,
    status: &StatusResponse,
) -> Result<(Server, bool), OpenError> {
    // kine belongs to no cluster, and says so; the version that it tells is one that it imitates.
    if status.header().is_none_or(|h| h.cluster_id() == 0) {
        return Ok((Server::Kine, true));
    }
    if version(status.version()).is_none_or(|v| v < OLDEST) {
        return Err(OpenError::TooOld {
            endpoint: options.endpoints.get(number).cloned().unwrap_or_default(),
            version: status.version().to_owned(),
        });
    }
    Ok((Server::Etcd, status.leader() != 0))
}

fn version(text: &str) -> Option<(u64, u64, u64)> {
    let plain = text.split(['-', '+']).next()?;
    let mut parts = plain.split('.').map(str::parse);
    let mut next = || parts.next()?.ok();
    Some((next()?, next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (text, fits) in [
            ("3.4.34", false),
            ("3.5.9", false),
            ("3.5.13", true),
            ("3.6.0", true),
            ("3.6.0-rc.1", true),
            ("3.10.0", true),
            ("", false),
            ("new", false),
        ] {
            assert_eq!(version(text).is_some_and(|v| v >= OLDEST), fits, "{text}");
        }
    }
}
