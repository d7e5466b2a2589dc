//! Virtual time: it stands still until the scheduler moves it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use ipledger_core::api::Timestamp;
use ipledger_core::runtime::Clock;

/// Where wall clocks start: 2027-01-15T08:00:00Z.
const START: i64 = 1_800_000_000;

/// The time of the whole world.
#[derive(Clone, Default)]
pub struct Time(Arc<Shared>);

#[derive(Default)]
struct Shared {
    nanos: AtomicU64,
    /// How many sleepers wait for each moment.
    alarms: Mutex<BTreeMap<Duration, usize>>,
}

impl Time {
    /// Time since the start of the world.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.nanos.load(Ordering::Relaxed))
    }

    /// Moves on.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.0.nanos.fetch_add(by, Ordering::Relaxed);
    }

    /// The wall clock of a machine whose clock is off by this many seconds.
    pub fn wall(&self, skew: i64) -> Timestamp {
        let seconds = START + self.now().as_secs() as i64 + skew;
        Timestamp::from_unix(u64::try_from(seconds).unwrap_or(0))
    }

    /// The next moment that a sleeper waits for.
    pub fn next_alarm(&self) -> Option<Duration> {
        self.0
            .alarms
            .lock()
            .unwrap()
            .first_key_value()
            .map(|(at, _)| *at)
    }

    fn set_alarm(&self, at: Duration) {
        *self.0.alarms.lock().unwrap().entry(at).or_default() += 1;
    }

    fn clear_alarm(&self, at: Duration) {
        let mut alarms = self.0.alarms.lock().unwrap();
        if let Some(count) = alarms.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                alarms.remove(&at);
            }
        }
    }
}

/// The clock of one process.
pub struct ProcessClock {
    time: Time,
    /// How many seconds its wall clock is off.
    skew: AtomicI64,
}

impl ProcessClock {
    /// A clock that is right.
    pub fn new(time: Time) -> Arc<ProcessClock> {
        Arc::new(ProcessClock {
            time,
            skew: AtomicI64::new(0),
        })
    }

    /// Puts the wall clock off by so many seconds.
    pub fn jump(&self, skew: i64) {
        self.skew.store(skew, Ordering::Relaxed);
    }
}

#[async_trait]
impl Clock for ProcessClock {
    fn now(&self) -> Timestamp {
        self.time.wall(self.skew.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        self.time.now()
    }

    async fn sleep(&self, duration: Duration) {
        Sleep {
            until: self.time.now().saturating_add(duration),
            time: self.time.clone(),
            set: false,
        }
        .await;
    }
}

struct Sleep {
    time: Time,
    until: Duration,
    set: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.time.now() >= self.until {
            return Poll::Ready(());
        }
        if !self.set {
            self.set = true;
            self.time.set_alarm(self.until);
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if self.set {
            self.time.clear_alarm(self.until);
        }
    }
}
