//! Durations as people write them: `300ms`, `1s`, `1.5m`, `2h`.

use std::{fmt, time::Duration};

use serde::{Deserializer, de};

/// Parses a number and one unit out of `ms`, `s`, `m`, `h`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let split = text
        .find(|letter: char| letter.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds_per_unit = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err(format!("{text:?} is no duration")),
    };
    number
        .trim()
        .parse::<f64>()
        .ok()
        .and_then(|number| Duration::try_from_secs_f64(number * seconds_per_unit).ok())
        .ok_or_else(|| format!("{text:?} is no duration"))
}

/// For `#[serde(deserialize_with)]`.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    struct Visitor;

    impl de::Visitor<'_> for Visitor {
        type Value = Duration;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("a number with its unit, for example 300ms, 1s or 5m")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
            parse_duration(text).map_err(|problem| {
                E::custom(format_args!(
                    "{problem}; write a number with its unit, for example 300ms, 1s or 5m"
                ))
            })
        }
    }

    from.deserialize_any(Visitor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        for (text, milliseconds) in [
            ("300ms", 300),
            ("1s", 1_000),
            ("1.5m", 90_000),
            ("2h", 7_200_000),
            (" 5 s ", 5_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for text in ["", "5", "s", "-1s", "5 days", "1e400s", "NaNs"] {
            assert!(parse_duration(text).is_err(), "{text:?} was taken");
        }
    }
}
