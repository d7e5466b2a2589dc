//! The system's clock, for what runs in production.

use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use ipledger_core::api::Timestamp;
use ipledger_core::runtime::Clock;

/// Time as the operating system tells it.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    pub fn new() -> SystemClock {
        SystemClock {
            started: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from(SystemTime::now())
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleep_lasts_at_least_as_long_as_asked() {
        let clock = SystemClock::new();
        let before = clock.monotonic();
        clock.sleep(Duration::from_millis(5)).await;
        assert!(clock.monotonic() - before >= Duration::from_millis(5));
    }

    #[test]
    fn the_wall_clock_is_not_that_of_1970() {
        assert!(SystemClock::new().now().unix() > 1_700_000_000);
    }
}
