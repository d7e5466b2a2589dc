use std::time::Duration;

use async_trait::async_trait;

use crate::api::Timestamp;

/// Time, injected: production takes the system's, simulations take their own.
#[async_trait]
pub trait Clock: Send + Sync + 'static {
    /// The wall clock, for what is written into objects. It may jump.
    fn now(&self) -> Timestamp;

    /// Time since some fixed point of this process; never goes back. For back-off and grace.
    fn monotonic(&self) -> Duration;

    /// Returns after this much monotonic time.
    async fn sleep(&self, duration: Duration);
}
