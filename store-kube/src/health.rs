//! What the last calls have told of the server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipledger_core::api::Kind;
use tokio::time::Instant;

use crate::failure::Failure;

/// Whoever lacks a right that it needs tries again within seconds. A refusal that is not repeated for so
/// long is of no use to know: this process does not need the right any more.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A right without which nothing works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    List(Kind),
    Watch(Kind),
    ReadLease,
    WriteLease,
}

#[derive(Default)]
pub(crate) struct Health {
    /// Why the last call got no answer of use, if it got none.
    trouble: Mutex<Option<String>>,
    /// The rights that the server has denied last, when, and in which words.
    denied: Mutex<BTreeMap<Right, (Instant, String)>>,
}

impl Health {
    /// Whether the server answers and lets us work; if not, what is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = &*trouble {
            return Err(format!("the API server: {reason}"));
        }
        let denied = self.denied();
        let lasting = denied.values().find(|(at, _)| at.elapsed() < REMEMBERED);
        match lasting {
            None => Ok(()),
            Some((_, said)) => Err(format!("the API server denies what is needed: {said}")),
        }
    }

    /// Takes note of how a call has ended.
    pub(crate) fn answered<T>(&self, answer: &Result<T, Failure>) {
        let trouble = match answer {
            Ok(_) | Err(Failure::Refused(_)) => None,
            Err(Failure::NotDone(reason) | Failure::Unknown(reason)) => Some(reason.clone()),
        };
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Takes note of whether the call was one that we may make.
    pub(crate) fn allowed<T>(&self, right: Right, answer: &Result<T, Failure>) {
        match answer {
            Err(Failure::Refused(status)) if status.code == 403 => {
                let said = status.message.clone();
                self.denied().insert(right, (Instant::now(), said));
            }
            // It was not asked who we are, or got no answer.
            Err(Failure::NotDone(_) | Failure::Unknown(_)) => {}
            Ok(_) | Err(Failure::Refused(_)) => {
                self.denied().remove(&right);
            }
        }
    }

    fn denied(&self) -> MutexGuard<'_, BTreeMap<Right, (Instant, String)>> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Status;

    fn refused(code: u16) -> Result<(), Failure> {
        Err(Failure::Refused(Status {
            code,
            message: "cannot list addresses".to_owned(),
            ..Status::default()
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_that_is_denied_is_told_until_it_is_given_or_not_asked_for_any_more() {
        let health = Health::default();
        let (list, watch) = (Right::List(Kind::IPAddress), Right::Watch(Kind::IPAddress));
        health.allowed(list, &refused(403));
        let told = health.check().unwrap_err();
        assert_eq!(
            told,
            "the API server denies what is needed: cannot list addresses"
        );
        // Neither of these says anything of the right.
        health.answered(&refused(409));
        health.allowed(watch, &Ok(()));
        health.allowed::<()>(list, &Err(Failure::Unknown("lost".to_owned())));
        assert!(health.check().is_err());
        health.allowed(list, &Ok(()));
        assert_eq!(health.check(), Ok(()));

        health.allowed(watch, &refused(403));
        tokio::time::advance(REMEMBERED / 2).await;
        assert!(health.check().is_err());
        tokio::time::advance(REMEMBERED / 2).await;
        assert_eq!(health.check(), Ok(()));
    }

    #[test]
    fn a_server_that_gives_no_answer_of_use_is_told_until_it_does() {
        let health = Health::default();
        health.answered::<()>(&Err(Failure::NotDone("no connection".to_owned())));
        let told = health.check().unwrap_err();
        assert_eq!(told, "the API server: no connection");
        health.answered(&refused(404));
        assert_eq!(health.check(), Ok(()));
    }
}
