//! Misbehaviour on demand: what it is, and how it is written on the command line and in JSON.

use std::str::FromStr;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::args::parse_duration;

/// What an engine does wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing; ends what was wrong.
    None,
    /// Connections are refused, open ones closed.
    Refuse,
    /// Nothing is answered and no step is made.
    Hang,
    /// As if the process were killed: cold when it comes back.
    Crash,
    /// The engine core dies under the API server.
    Die,
    /// Every API request gets this status at once.
    Status(u16),
    /// The process exits with this code.
    ExitCode(i32),
    /// Takes memory.
    GrowMemory {
        /// Bytes per second.
        rate: u64,
        /// Bytes at most.
        limit: u64,
    },
    /// Batches that get a sequence number and are not sent.
    DropEvents {
        /// How many.
        count: u64,
    },
}

/// A fault, of which engine, from when and how long (real time).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultAt {
    /// Index of the engine; the one asked if absent.
    pub engine: Option<u32>,
    /// What.
    pub fault: Fault,
    /// Wait before it begins.
    pub after: Duration,
    /// How long it lasts; until ended if absent.
    pub lasts: Option<Duration>,
    /// Engine is not up before it ends (slow start).
    pub at_start: bool,
}

/// A fault that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fault: {0}")]
pub struct FaultError(String);

const KINDS: &str =
    "none, slow-start, refuse, hang, crash, die, status, exit-code, grow-memory or drop-events";

impl FaultError {
    pub(crate) fn no_engine(engine: usize, engines: usize) -> Self {
        Self(format!("engine: there is no {engine}, give 0 to {}", engines - 1))
    }
}

impl FaultAt {
    /// From fields, as on the command line and in JSON.
    fn from_fields(fields: &[(String, String)]) -> Result<Self, FaultError> {
        let known = [
            "engine", "kind", "after", "for", "status", "code", "rate", "limit", "count",
        ];
        if let Some((name, _)) = fields.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            return Err(FaultError(format!(
                "unknown field {name:?}: give {}",
                known.join(", ")
            )));
        }
        let text = |name: &str| {
            fields
                .iter()
                .find(|(field, _)| field == name)
                .map(|(_, value)| value.as_str())
        };
        let number = |name: &str, default: Option<u64>| -> Result<u64, FaultError> {
            match text(name) {
                Some(value) => parse_amount(value)
                    .ok_or_else(|| FaultError(format!("{name}: {value:?} is no number, write 100 or 100M"))),
                None => default.ok_or_else(|| FaultError(format!("{name} is missing"))),
            }
        };
        let time = |name: &str| -> Result<Option<Duration>, FaultError> {
            text(name)
                .map(parse_duration)
                .transpose()
                .map_err(|error| FaultError(format!("{name}: {error}")))
        };
        let kind = text("kind").ok_or_else(|| FaultError(format!("kind is missing: give {KINDS}")))?;
        let (kind, short) = match kind.split_once('=') {
            Some((kind, value)) => (kind, Some(value.to_owned())),
            None => (kind, None),
        };
        let lasts = time("for")?;
        let fault = match kind {
            "none" => Fault::None,
            "slow-start" if lasts.is_none() => {
                return Err(FaultError("slow-start needs a duration: add for=20s".to_owned()));
            }
            "slow-start" | "refuse" => Fault::Refuse,
            "hang" => Fault::Hang,
            "crash" => Fault::Crash,
            "die" => Fault::Die,
            "status" => {
                let status = match short.as_deref().or(text("status")) {
                    Some(value) => value.parse().ok().filter(|status| (100..600).contains(status)),
                    None => Some(503),
                };
                Fault::Status(status.ok_or_else(|| FaultError("status: give 100 to 599".to_owned()))?)
            }
            "exit-code" => {
                let code = short.as_deref().or(text("code")).unwrap_or("1");
                let code = code.parse().ok().filter(|code| (0..256).contains(code));
                Fault::ExitCode(code.ok_or_else(|| FaultError("code: give 0 to 255".to_owned()))?)
            }
            "grow-memory" => Fault::GrowMemory {
                rate: number("rate", Some(64 << 20))?,
                limit: number("limit", Some(1 << 30))?,
            },
            "drop-events" => Fault::DropEvents {
                count: number("count", Some(1))?,
            },
            other => return Err(FaultError(format!("unknown kind {other:?}: give {KINDS}"))),
        };
        let engine = text("engine")
            .map(|value| {
                value
                    .parse()
                    .map_err(|_| FaultError(format!("engine: {value:?} is no index")))
            })
            .transpose()?;
        Ok(Self {
            engine,
            fault,
            after: time("after")?.unwrap_or_default(),
            lasts,
            at_start: kind == "slow-start",
        })
    }

    /// From the JSON of `POST /sim/fault`.
    pub fn from_json(fields: &Map<String, Value>) -> Result<Self, FaultError> {
        let fields: Vec<(String, String)> = fields
            .iter()
            .map(|(name, value)| {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                (name.clone(), value)
            })
            .collect();
        Self::from_fields(&fields)
    }
}

impl FromStr for FaultAt {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        let fields: Result<Vec<_>, _> = text
            .split(',')
            .map(|field| {
                let (name, value) = field
                    .split_once('=')
                    .ok_or_else(|| FaultError(format!("{field:?} is not name=value")))?;
                // `status=503` alone is short for kind=status,status=503
                Ok((name.trim().to_owned(), value.trim().to_owned()))
            })
            .collect();
        Self::from_fields(&fields?)
    }
}

/// `100`, `64M`, `1G`, `64MiB`.
fn parse_amount(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_shl(shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_reads_alike_as_text_and_as_json() {
        let text: FaultAt = "engine=3,kind=status=503,after=5s,for=2s".parse().unwrap();
        assert_eq!(text.fault, Fault::Status(503));
        assert_eq!((text.engine, text.after), (Some(3), Duration::from_secs(5)));
        let json = serde_json::json!({"engine": 3, "kind": "status", "status": 503, "after": "5s", "for": 2});
        assert_eq!(FaultAt::from_json(json.as_object().unwrap()), Ok(text));
        let memory: FaultAt = "kind=grow-memory,rate=1M,limit=64MiB".parse().unwrap();
        assert_eq!(
            memory.fault,
            Fault::GrowMemory {
                rate: 1 << 20,
                limit: 64 << 20
            }
        );
    }

    #[test]
    fn what_cannot_be_read_names_the_field() {
        for (text, named) in [
            ("kind=sulk", "sulk"),
            ("engine=1", "kind"),
            ("kind=refuse,engine=x", "engine"),
            ("kind=refuse,after=soon", "after"),
            ("kind=slow-start", "for"),
            ("kind=refuse,when=now", "when"),
            ("refuse", "refuse"),
            ("kind=exit-code,code=300", "code"),
        ] {
            let error = text.parse::<FaultAt>().unwrap_err().to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
