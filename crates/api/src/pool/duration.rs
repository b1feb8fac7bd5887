//! Durations as the pool's fields hold them: `30m`, `1h30m`, `90s`.

use std::{fmt, str::FromStr, time};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration in whole hours, minutes, seconds and milliseconds, in that order: `1h30m`, `20s`.
///
/// The same form as Kubernetes' own durations (Go's), less fractions and days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub time::Duration);

/// What [`Duration`] could not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no duration; write hours, minutes and seconds, such as 30m, 1h30m or 20s")]
pub struct NotADuration(String);

/// The form, for CEL and people alike. At least one part is needed, which the pattern leaves to the caller.
pub(super) const PATTERN: &str = "^([0-9]{1,4}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?([0-9]{1,9}ms)?$";

impl Duration {
    /// So many seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(time::Duration::from_secs(seconds))
    }

    /// So many minutes.
    pub const fn from_mins(minutes: u64) -> Self {
        Self(time::Duration::from_secs(minutes * 60))
    }

    /// Whole seconds, rounded up, for the fields of Kubernetes that count seconds.
    pub const fn seconds_up(self) -> i64 {
        let whole = self.0.as_secs() as i64;
        if self.0.subsec_nanos() == 0 {
            whole
        } else {
            whole + 1
        }
    }
}

impl From<Duration> for time::Duration {
    fn from(duration: Duration) -> Self {
        duration.0
    }
}

impl FromStr for Duration {
    type Err = NotADuration;

    fn from_str(text: &str) -> Result<Self, NotADuration> {
        let bad = || NotADuration(text.to_owned());
        let mut rest = text;
        let mut total = time::Duration::ZERO;
        for (unit, digits, milliseconds) in [
            ("h", 4, 3_600_000),
            ("m", 6, 60_000),
            ("s", 8, 1_000),
            ("ms", 9, 1),
        ] {
            let end = rest
                .find(|letter: char| !letter.is_ascii_digit())
                .unwrap_or(rest.len());
            let (number, after) = rest.split_at(end);
            let letters = after
                .find(|letter: char| letter.is_ascii_digit())
                .unwrap_or(after.len());
            if after[..letters] != *unit {
                continue;
            }
            if number.len() > digits {
                return Err(bad());
            }
            let count: u64 = number.parse().map_err(|_| bad())?;
            total += time::Duration::from_millis(count * milliseconds);
            rest = &after[letters..];
        }
        if text.is_empty() || !rest.is_empty() {
            return Err(bad());
        }
        Ok(Self(total))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.as_millis();
        if total == 0 {
            return to.write_str("0s");
        }
        for (unit, count) in [
            ("h", total / 3_600_000),
            ("m", total / 60_000 % 60),
            ("s", total / 1_000 % 60),
            ("ms", total % 1_000),
        ] {
            if count > 0 {
                write!(to, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": 32})
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_come_in_order_and_once() {
        for (text, milliseconds) in [
            ("30m", 1_800_000),
            ("1h30m", 5_400_000),
            ("20s", 20_000),
            ("1m500ms", 60_500),
            ("0s", 0),
            ("90s", 90_000),
        ] {
            assert_eq!(
                text.parse(),
                Ok(Duration(time::Duration::from_millis(milliseconds))),
                "{text}"
            );
        }
        for text in [
            "", "30", "m", "1d", "-1s", "30m1h", "1s1s", "1.5h", "30 m", "123456s7", "99999h",
        ] {
            assert!(text.parse::<Duration>().is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn part_of_a_second_counts_as_a_whole_one() {
        assert_eq!("1s500ms".parse::<Duration>().map(Duration::seconds_up), Ok(2));
        assert_eq!("2s".parse::<Duration>().map(Duration::seconds_up), Ok(2));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(milliseconds in 0_u64..100_000_000) {
            let duration = Duration(time::Duration::from_millis(milliseconds));
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }
    }
}
