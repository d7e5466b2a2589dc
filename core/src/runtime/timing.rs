use std::future::Future;
use std::time::Duration;

use super::Clock;

/// The wait after that many failures in a row: `base`, doubled each time, at most `cap`.
/// No failure, no wait.
pub(super) fn backoff(base: Duration, cap: Duration, failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        n => base
            .saturating_mul(1_u32.checked_shl(n - 1).unwrap_or(u32::MAX))
            .min(cap),
    }
}

/// Does the work, or gives up (`None`, the work is dropped) when it takes longer than `limit`.
pub(super) async fn within<T>(
    clock: &dyn Clock,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = clock.sleep(limit) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap() {
        let ms = Duration::from_millis;
        let waits: Vec<_> = (0..6).map(|n| backoff(ms(5), ms(60), n)).collect();
        assert_eq!(waits, [ms(0), ms(5), ms(10), ms(20), ms(40), ms(60)]);
        assert_eq!(backoff(ms(5), ms(60), u32::MAX), ms(60));
    }
}
