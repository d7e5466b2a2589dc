use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A point in time in whole seconds, written as RFC 3339 in UTC (`2026-11-30T17:06:41Z`).
///
/// Whole seconds are what the Kubernetes API keeps, so that every backend keeps the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

/// The last second that RFC 3339 can write: `9999-12-31T23:59:59Z`.
const LAST: u64 = 253_402_300_799;

impl Timestamp {
    /// The time that many seconds after 1970-01-01T00:00:00Z; later than year 9999 is cut to it.
    pub fn from_unix(seconds: u64) -> Timestamp {
        Timestamp(seconds.min(LAST))
    }

    /// Seconds since 1970-01-01T00:00:00Z.
    pub fn unix(self) -> u64 {
        self.0
    }

    /// This time moved forward, in whole seconds rounded up, so that a wait is never cut short.
    pub fn plus(self, d: Duration) -> Timestamp {
        let up = d.as_secs().saturating_add(u64::from(d.subsec_nanos() > 0));
        Timestamp::from_unix(self.0.saturating_add(up))
    }

    /// How long it is from `earlier` to this time; zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(t: SystemTime) -> Timestamp {
        Timestamp::from_unix(t.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = UNIX_EPOCH + Duration::from_secs(self.0);
        write!(f, "{}", humantime::format_rfc3339_seconds(t))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(d)?;
        let t = humantime::parse_rfc3339(&text).map_err(|e| {
            de::Error::custom(format!(
                "`{text}` is not a time in UTC such as 2026-11-30T17:06:41Z: {e}"
            ))
        })?;
        Ok(Timestamp::from(t))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_whole_seconds_and_read_back() {
        let t: Timestamp = serde_json::from_str("\"2026-11-30T17:06:41.9Z\"").unwrap();
        assert_eq!(
            serde_json::to_string(&t).unwrap(),
            "\"2026-11-30T17:06:41Z\""
        );
    }

    #[test]
    fn a_time_after_year_9999_is_cut_and_still_printable() {
        let t = Timestamp::from_unix(u64::MAX).plus(Duration::MAX);
        assert_eq!(t.to_string(), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn a_wait_is_rounded_up_to_whole_seconds() {
        let t = Timestamp::from_unix(10).plus(Duration::from_millis(1500));
        assert_eq!(t.unix(), 12);
    }

    #[test]
    fn a_text_that_is_no_time_is_refused_with_an_example() {
        let e = serde_json::from_str::<Timestamp>("\"yesterday\"").unwrap_err();
        assert!(e.to_string().contains("2026-11-30T17:06:41Z"), "{e}");
    }
}
