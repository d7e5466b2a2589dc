//! Cache, work queue and the loop that carries plans out (design page 3, last section).

mod binder;
mod binding_pass;
mod cache;
mod clock;
mod controller;
mod course;
mod election;
mod events;
mod metered;
mod mirror;
mod progress;
mod queue;
mod reconciler;
mod reflector;
#[cfg(test)]
mod tests;
mod timing;
mod typed;

pub use binder::{Binder, BinderOptions};
pub use binding_pass::{BindingPass, Found, Moment, Request, Work};
pub use cache::Cache;
pub use clock::Clock;
pub use controller::{Controller, ControllerError, ControllerOptions, ControllerStats};
pub use course::{Ask, Course};
pub use election::{Election, Term};
pub use events::{EventSink, LogEvents};
pub use metered::{Durations, MeteredStore, Operation, StoreStats};
pub use mirror::{Change, Mirror};
pub use progress::Progress;
pub use queue::WorkQueue;
pub use reconciler::{Next, Pass, Reconciler};
pub use typed::Listing;
