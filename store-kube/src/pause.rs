//! An overloaded server says for how long it wants to be left alone (429, `Retry-After`).

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::RETRY_AFTER;
use tokio::time::{Instant, sleep_until};

use crate::failure::{Failure, Status};

/// The longest that a server is left alone at its word: a slip in it must not stop us for hours.
const LONGEST: Duration = Duration::from_secs(300);
/// How long if an overloaded server does not say.
pub(crate) const UNSAID: Duration = Duration::from_secs(1);
/// Calls that have waited come back within so long after the end of a pause, and not all at once.
const SPREAD: Duration = Duration::from_secs(1);

/// Until when nothing is sent.
#[derive(Default)]
pub(crate) struct Pause(Mutex<Option<Instant>>);

impl Pause {
    /// Waits until the server may be asked again; not at all for longer than `limit`.
    ///
    /// # Errors
    /// `NotDone`: that would be too long.
    pub(crate) async fn wait(&self, limit: Duration) -> Result<(), Failure> {
        let (began, late) = (Instant::now(), lateness());
        loop {
            let until = *self.until();
            let Some(until) = until.filter(|u| *u > Instant::now()) else {
                return Ok(());
            };
            let until = until + late;
            // Nothing was sent yet, which a time-out could not tell.
            if until >= began + limit {
                return Err(Failure::NotDone("it is overloaded".to_owned()));
            }
            sleep_until(until).await;
        }
    }

    /// Sends nothing for so long, at the server's word.
    pub(crate) fn begin(&self, length: Duration) {
        let length = length.min(LONGEST);
        tracing::warn!(pause = ?length, "the API server is overloaded and is left alone");
        let mut until = self.until();
        // An earlier answer may have asked for more.
        *until = (*until).max(Some(Instant::now() + length));
    }

    fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Any share of [`SPREAD`]; the keys of a new hasher are random.
fn lateness() -> Duration {
    let share = RandomState::new().hash_one(()) % 1_000;
    SPREAD * u32::try_from(share).unwrap_or_default() / 1_000
}

/// For how long a server that refuses a call asks to be left alone, if it does: in seconds or until a
/// date (RFC 9110, section 10.2.3). A 429 does in any case.
pub(crate) fn asked(headers: &HeaderMap, status: &Status, now: SystemTime) -> Option<Duration> {
    let header = headers.get(RETRY_AFTER).and_then(|v| v.to_str().ok());
    let said = header.and_then(|text| in_header(text.trim(), now));
    let said = said.or_else(|| {
        let details = status.details.as_ref();
        let seconds = details.map(|d| d.retry_after_seconds).filter(|s| *s > 0);
        seconds.map(Duration::from_secs)
    });
    said.or_else(|| (status.code == 429).then_some(UNSAID))
}

fn in_header(text: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    // One that has passed asks for nothing, or is of another clock.
    date.duration_since(now).ok()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use http::HeaderValue;

    use super::*;

    fn asked_by(code: u16, header: Option<&'static str>) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        if let Some(text) = header {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(text));
        }
        let status = Status {
            code,
            ..Status::default()
        };
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        asked(&headers, &status, now)
    }

    #[test]
    fn a_server_is_left_alone_for_as_long_as_it_asks_whatever_the_code() {
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(asked_by(429, Some("7")), seconds(7));
        assert_eq!(asked_by(429, None), Some(UNSAID));
        assert_eq!(asked_by(429, Some("soon")), Some(UNSAID));
        assert_eq!(asked_by(503, Some("5")), seconds(5));
        assert_eq!(asked_by(503, None), None);
        assert_eq!(asked_by(409, None), None);
    }

    #[test]
    fn a_server_may_name_the_date_until_which_it_is_left_alone() {
        let date = "Sun, 06 Nov 1994 08:49:49 GMT";
        assert_eq!(asked_by(503, Some(date)), Some(Duration::from_secs(12)));
        let passed = "Sun, 06 Nov 1994 08:49:30 GMT";
        assert_eq!(asked_by(429, Some(passed)), Some(UNSAID));
        assert_eq!(asked_by(503, Some(passed)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_waited_come_back_one_after_the_other_and_others_at_once() {
        let pause = Pause::default();
        pause.begin(Duration::from_secs(60));
        let began = Instant::now();
        let waits = (0..50).map(|_| async {
            pause.wait(Duration::from_secs(90)).await.unwrap();
            began.elapsed()
        });
        let waited = futures::future::join_all(waits).await;
        let (first, last) = (waited.iter().min().unwrap(), waited.iter().max().unwrap());
        assert!(*first >= Duration::from_secs(60), "{waited:?}");
        assert!(*last <= Duration::from_millis(61_100), "{waited:?}");
        assert!(*last - *first > SPREAD / 4, "{waited:?}");
        let before = Instant::now();
        pause.wait(Duration::from_secs(90)).await.unwrap();
        assert_eq!(before.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_wait_so_long_is_told_at_once_and_no_pause_is_longer_than_five_minutes() {
        let pause = Pause::default();
        pause.begin(Duration::from_secs(86_400));
        let began = Instant::now();
        let result = pause.wait(Duration::from_secs(20)).await;
        assert!(matches!(result, Err(Failure::NotDone(_))), "{result:?}");
        assert_eq!(began.elapsed(), Duration::ZERO);
        pause.wait(Duration::from_secs(400)).await.unwrap();
        assert!(began.elapsed() >= LONGEST && began.elapsed() <= LONGEST + SPREAD * 2);
    }
}
