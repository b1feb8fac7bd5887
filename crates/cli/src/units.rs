//! Durations, windows and counts as a person writes and reads them.

use std::time::Duration;

use thiserror::Error;

pub use lmetric_scheduler::short_count;

/// A flag's value that cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum UnitError {
    /// Not a duration.
    #[error("{0:?} is not a duration; write it like 3s, 250ms or 10m")]
    Duration(String),
    /// No time at all.
    #[error("{0:?} leaves no time for anything; give 1ms or more")]
    NoTime(String),
    /// Not a window.
    #[error("{0:?} is not a window; write it in seconds of the trace as START:END, like 0:600 or 600:")]
    Window(String),
    /// Not a usable factor.
    #[error("{0:?} is not a factor; give a number from 0.001 to 1000000")]
    Positive(String),
}

/// Reads `3s`, `250ms`, `1.5m`, `2h`, `0`.
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    let bad = || UnitError::Duration(text.to_owned());
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.trim().parse().map_err(|_| bad())?;
    let scale = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "" if number == 0.0 => 0.0,
        _ => return Err(bad()),
    };
    Duration::try_from_secs_f64(number * scale).map_err(|_| bad())
}

/// Reads a time limit: a duration of 1 ms or more.
pub fn limit(text: &str) -> Result<Duration, UnitError> {
    match duration(text)? {
        limit if limit < Duration::from_millis(1) => Err(UnitError::NoTime(text.to_owned())),
        limit => Ok(limit),
    }
}

/// Reads a rate or a speed: a number from 0.001 to 1,000,000.
pub fn positive(text: &str) -> Result<f64, UnitError> {
    match text.parse::<f64>() {
        Ok(number) if (0.001..=1e6).contains(&number) => Ok(number),
        _ => Err(UnitError::Positive(text.to_owned())),
    }
}

/// Seconds of a trace, half open: `start ≤ t < end`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// First second.
    pub start: f64,
    /// First second after it; infinite when open.
    pub end: f64,
}

impl Window {
    /// The whole trace.
    pub const ALL: Self = Self {
        start: 0.0,
        end: f64::INFINITY,
    };

    /// Whether a moment (seconds) lies inside.
    pub fn contains(self, seconds: f64) -> bool {
        self.start <= seconds && seconds < self.end
    }
}

impl std::str::FromStr for Window {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bad = || UnitError::Window(text.to_owned());
        let (start, end) = text.split_once(':').ok_or_else(bad)?;
        let side = |side: &str, open: f64| match side {
            "" => Ok(open),
            side => side
                .parse::<f64>()
                .ok()
                .filter(|s| s.is_finite() && *s >= 0.0)
                .ok_or_else(bad),
        };
        let window = Self {
            start: side(start, 0.0)?,
            end: side(end, f64::INFINITY)?,
        };
        if window.start < window.end {
            Ok(window)
        } else {
            Err(bad())
        }
    }
}

/// A whole number with thousands separated: `24,486,514`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Milliseconds for a person: `8.42 ms`, `164 ms`, `1.64 s`, `20.7 s`.
pub fn time_ms(ms: f64) -> String {
    match ms {
        ms if ms < 9.995 => format!("{ms:.2} ms"),
        ms if ms < 99.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms if ms < 9_995.0 => format!("{:.2} s", ms / 1e3),
        ms if ms < 99_950.0 => format!("{:.1} s", ms / 1e3),
        ms => format!("{:.0} s", ms / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("3s"), Ok(Duration::from_secs(3)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        for bad in ["3", "", "s", "-1s", "3 parsecs", "nan", "1e400s"] {
            assert_eq!(duration(bad), Err(UnitError::Duration(bad.to_owned())), "{bad}");
        }
    }

    #[test]
    fn a_limit_leaves_time() {
        assert_eq!(limit("1ms"), Ok(Duration::from_millis(1)));
        for none in ["0s", "0", "0.5ms"] {
            assert_eq!(limit(none), Err(UnitError::NoTime(none.to_owned())), "{none}");
        }
        assert_eq!(limit("3"), Err(UnitError::Duration("3".to_owned())));
    }

    #[test]
    fn factors_are_positive_and_finite() {
        assert_eq!(positive("2.5"), Ok(2.5));
        for bad in ["0", "-1", "nan", "inf", "1e-9", "x", ""] {
            assert!(positive(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_window_is_half_open_and_may_lack_a_side() {
        let window: Window = "0:600".parse().unwrap();
        assert!(window.contains(0.0) && window.contains(599.9) && !window.contains(600.0));
        assert!("600:".parse::<Window>().unwrap().contains(1e9));
        assert_eq!(":".parse(), Ok(Window::ALL));
        for bad in ["600", "5:5", "9:3", "a:b", "-1:5"] {
            assert!(bad.parse::<Window>().is_err(), "{bad}");
        }
    }

    #[test]
    fn figures_stay_short() {
        let cases = [
            (0.0, "0"),
            (940.0, "940"),
            (3_211.0, "3.2k"),
            (12_880.0, "12.9k"),
            (139_900.0, "140k"),
            (2.13e6, "2.1M"),
        ];
        for (count, text) in cases {
            assert_eq!(short_count(count), text);
        }
        assert_eq!(short_count(999.6), "1.0k");
        assert_eq!(short_count(2.25), "2.2");
        assert_eq!(grouped(24_486_514), "24,486,514");
        assert_eq!(grouped(999), "999");
        assert_eq!(time_ms(8.421), "8.42 ms");
        assert_eq!(time_ms(164.2), "164 ms");
        assert_eq!(time_ms(1_635.0), "1.64 s");
        assert_eq!(time_ms(20_700.0), "20.7 s");
    }
}
