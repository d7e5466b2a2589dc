//! The controllers of a process, and when they work: always, or only while this server leads.
//!
//! # Guarantees
//! * A server that no longer leads cuts its controllers off at once, as a crash would, and begins anew
//!   with what it reads then when it leads again.
//! * A server that is stopped lets another one lead at once.

use std::future::Future;
use std::sync::Arc;

use ipledger_core::runtime::{
    Binder, BinderOptions, Clock, Controller, ControllerOptions, Election, EventSink, Progress,
    Reconciler, Term,
};
use ipledger_core::store::Store;
use ipledger_drivers::range::RangeDriver;

use crate::metrics::{Metrics, Role};

/// A controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The binding core.
    BindingCore,
    /// The driver that hands out addresses of ranges.
    RangeDriver,
}

impl Component {
    /// Those of a server that is a whole ledger.
    pub(crate) const ALL: &'static [Component] = &[Component::BindingCore, Component::RangeDriver];

    /// Its name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Component::BindingCore => "binding core",
            Component::RangeDriver => "range driver",
        }
    }
}

/// What the controllers work on.
pub(crate) struct Controllers {
    /// Which of them there are.
    pub(crate) components: &'static [Component],
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Where the binding core tells what becomes of claims.
    pub(crate) events: Arc<dyn EventSink>,
    /// How the binding core binds.
    pub(crate) binding: BinderOptions,
    pub(crate) metrics: Arc<Metrics>,
    /// `None`: they work all the time.
    pub(crate) election: Option<Arc<dyn Election>>,
}

impl Controllers {
    /// Works until the stop whenever this server leads.
    ///
    /// # Errors
    /// A controller has failed.
    pub(crate) async fn run<F>(self, stopped: impl Fn() -> F) -> Result<(), String>
    where
        F: Future<Output = ()> + Send,
    {
        let Some(election) = &self.election else {
            return self.work(&stopped).await;
        };
        loop {
            let waiting = |reason: &str| {
                tracing::info!("the controllers of this server stand by: {reason}");
                self.metrics.set_role(Role::StandsBy);
            };
            let mut term: Box<dyn Term> = tokio::select! {
                biased;
                () = stopped() => return Ok(()),
                term = election.win(&waiting) => term,
            };
            tracing::info!("this server leads: its controllers work");
            let ended = tokio::select! {
                ended = self.work(&stopped) => Some(ended),
                reason = term.over() => {
                    tracing::warn!("this server does not lead any more, its controllers are cut off: {reason}");
                    None
                }
            };
            self.metrics.end_term();
            if let Some(ended) = ended {
                term.resign().await;
                return ended;
            }
        }
    }

    /// Runs new controllers until the stop.
    async fn work<F>(&self, stopped: &impl Fn() -> F) -> Result<(), String>
    where
        F: Future<Output = ()> + Send,
    {
        let core = self.has(Component::BindingCore).then(|| self.core());
        let driver = self.has(Component::RangeDriver).then(|| self.driver());
        self.metrics.set_role(Role::Leads);
        let core = async {
            match core {
                Some(core) => core.run(stopped()).await,
                None => Ok(()),
            }
        };
        let driver = async {
            match driver {
                Some(driver) => driver.run(stopped()).await,
                None => Ok(()),
            }
        };
        let ended = tokio::try_join!(core, driver);
        ended.map(|((), ())| ()).map_err(|e| e.to_string())
    }

    fn has(&self, component: Component) -> bool {
        self.components.contains(&component)
    }

    fn core(&self) -> Arc<Controller<Binder>> {
        let progress = Progress::new();
        let binder = Arc::new(Binder::new(
            Arc::clone(&self.store),
            Arc::clone(&self.clock),
            progress.clone(),
            Arc::clone(&self.events),
            self.binding,
        ));
        let writes = Arc::clone(&binder);
        self.metrics.set_core(move || writes.writes());
        self.controller(Component::BindingCore, binder, progress)
    }

    fn driver(&self) -> Arc<Controller<RangeDriver>> {
        let driver = Arc::new(RangeDriver::new(
            Arc::clone(&self.store),
            Arc::clone(&self.clock),
        ));
        let classes = Arc::clone(&driver);
        self.metrics.set_capacity(move || classes.capacity());
        self.controller(Component::RangeDriver, driver, Progress::new())
    }

    fn controller<R: Reconciler>(
        &self,
        component: Component,
        reconciler: Arc<R>,
        progress: Progress,
    ) -> Arc<Controller<R>> {
        let name = component.name();
        let controller = Controller::new(
            name,
            Arc::clone(&self.store),
            reconciler,
            Arc::clone(&self.clock),
            progress,
            ControllerOptions::default(),
        );
        let stats = Arc::clone(&controller);
        self.metrics.add_controller(name, move || stats.stats());
        controller
    }
}
