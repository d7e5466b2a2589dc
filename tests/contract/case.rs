//! What a case is, and how it becomes a trial.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;

use crate::backend::{Backend, Ledger};
use crate::table::{self, Outcome};

/// How long the next thing that must come may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How long a whole case may take.
const CASE_LIMIT: Duration = Duration::from_secs(120);

type Run = fn(Ledger) -> Pin<Box<dyn Future<Output = ()>>>;

/// One sentence of the contract.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: Run,
}

impl Case {
    /// The case on this backend.
    pub(crate) fn trial(self, backend: Arc<dyn Backend>) -> Trial {
        let name = format!("contract::{}::{}", backend.name(), self.name);
        Trial::test(name, move || {
            table::note(self.name, backend.name(), Outcome::Failed);
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?;
            let outcome = runtime.block_on(async {
                let ledger = Ledger::new(backend.fresh().await);
                tokio::time::timeout(CASE_LIMIT, (self.run)(ledger)).await
            });
            runtime.shutdown_timeout(PATIENCE);
            outcome.map_err(|_| format!("not done after {CASE_LIMIT:?}"))?;
            table::note(self.name, backend.name(), Outcome::Holds);
            Ok(())
        })
    }
}

/// Collects the cases of a file. A case that is not named here is a compiler warning.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(crate) fn cases() -> Vec<crate::case::Case> {
            vec![$(crate::case::Case {
                name: stringify!($name),
                run: |ledger| Box::pin($name(ledger)),
            }),*]
        }
    };
}
pub(crate) use cases;

/// Waits for something that must happen soon.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}
