//! The command line.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// Variable that holds the pod's UID, from the downward API.
pub const POD_UID: &str = "LMETRIC_POD_UID";

/// How it is called.
pub const USAGE: &str = "lmetric-drain --install DIR
lmetric-drain --pickers HOST:PORT... --engine IP:PORT... --timeout 300s [--pod UID]
lmetric-drain --envoy IP:PORT --timeout 300s";

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Copy the tool itself into a folder.
    Install(PathBuf),
    /// Drain an engine.
    Engine(EngineTask),
    /// Drain an Envoy.
    Envoy {
        /// Its admin.
        admin: SocketAddr,
        /// When to give up.
        timeout: Duration,
    },
    /// Say how it is called.
    Help,
}

/// An engine and those who send to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineTask {
    /// Names that resolve to the admin addresses of all pickers.
    pub pickers: Vec<String>,
    /// The engine's HTTP addresses, one for each data-parallel rank.
    pub engines: Vec<SocketAddr>,
    /// The pod's UID.
    pub pod: String,
    /// When to give up.
    pub timeout: Duration,
}

/// A command line that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// No such flag.
    #[error("{0} is no flag; see lmetric-drain --help")]
    Unknown(String),
    /// A flag at the end.
    #[error("{0} needs a value; see lmetric-drain --help")]
    NoValue(String),
    /// A value of the wrong form.
    #[error("{flag} {value}: write {form}")]
    Value {
        /// The flag.
        flag: String,
        /// What was given.
        value: String,
        /// What to give.
        form: &'static str,
    },
    /// A flag that is needed.
    #[error("{0} is missing; see lmetric-drain --help")]
    Missing(&'static str),
}

/// Reads the words after the program's name; `environment` looks up a variable.
pub fn read(
    words: impl IntoIterator<Item = String>,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Task, ArgsError> {
    let (mut install, mut envoy, mut timeout, mut pod) = (None, None, None, None);
    let (mut pickers, mut engines) = (Vec::new(), Vec::new());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let (flag, inline) = match word.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
            None => (word, None),
        };
        if matches!(flag.as_str(), "--help" | "-h") {
            return Ok(Task::Help);
        }
        let known = [
            "--install",
            "--envoy",
            "--timeout",
            "--pod",
            "--pickers",
            "--engine",
        ];
        if !known.contains(&flag.as_str()) {
            return Err(ArgsError::Unknown(flag));
        }
        let Some(value) = inline.or_else(|| words.next()) else {
            return Err(ArgsError::NoValue(flag));
        };
        match flag.as_str() {
            "--install" => install = Some(PathBuf::from(value)),
            "--envoy" => envoy = Some(address(&flag, value)?),
            "--timeout" => timeout = Some(duration(&flag, &value)?),
            "--pod" => pod = Some(value),
            "--pickers" => pickers.push(value),
            _ => engines.push(address(&flag, value)?),
        }
    }
    if let Some(folder) = install {
        return Ok(Task::Install(folder));
    }
    let timeout = timeout.ok_or(ArgsError::Missing("--timeout"))?;
    if let Some(admin) = envoy {
        return Ok(Task::Envoy { admin, timeout });
    }
    if engines.is_empty() {
        return Err(ArgsError::Missing("--engine"));
    }
    let pod = pod
        .or_else(|| environment(POD_UID))
        .filter(|pod| !pod.is_empty())
        .ok_or(ArgsError::Missing("--pod (or the variable LMETRIC_POD_UID)"))?;
    Ok(Task::Engine(EngineTask {
        pickers,
        engines,
        pod,
        timeout,
    }))
}

fn address(flag: &str, value: String) -> Result<SocketAddr, ArgsError> {
    value.parse().map_err(|_| ArgsError::Value {
        flag: flag.to_owned(),
        value,
        form: "IP:PORT, such as 127.0.0.1:8000",
    })
}

/// Whole hours, minutes or seconds.
fn duration(flag: &str, value: &str) -> Result<Duration, ArgsError> {
    let read = |text: &str| {
        let (number, seconds) = match text.strip_suffix('s') {
            Some(number) => (number, 1),
            None => match text.strip_suffix('m') {
                Some(number) => (number, 60),
                None => (text.strip_suffix('h')?, 3_600),
            },
        };
        let number: u32 = number.parse().ok().filter(|number| *number > 0)?;
        Some(Duration::from_secs(u64::from(number) * seconds))
    };
    read(value).ok_or_else(|| ArgsError::Value {
        flag: flag.to_owned(),
        value: value.to_owned(),
        form: "a number of seconds, minutes or hours from 1 up, such as 300s",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(line: &str) -> Result<Task, ArgsError> {
        read(line.split_whitespace().map(str::to_owned), |name| {
            (name == POD_UID).then(|| "1f2e".to_owned())
        })
    }

    #[test]
    fn an_engine_is_drained_as_its_pod_says() {
        let task = line(
            "--pickers p-picker.ns.svc:9090 --timeout 90s --engine 127.0.0.1:8000 --engine=127.0.0.1:8001",
        );
        assert_eq!(
            task,
            Ok(Task::Engine(EngineTask {
                pickers: vec!["p-picker.ns.svc:9090".to_owned()],
                engines: vec![
                    SocketAddr::from(([127, 0, 0, 1], 8000)),
                    SocketAddr::from(([127, 0, 0, 1], 8001))
                ],
                pod: "1f2e".to_owned(),
                timeout: Duration::from_secs(90),
            }))
        );
    }

    #[test]
    fn the_other_tasks_are_an_installation_and_an_envoy() {
        assert_eq!(
            line("--install /var/lib/lmetric/bin"),
            Ok(Task::Install("/var/lib/lmetric/bin".into()))
        );
        assert_eq!(
            line("--envoy 127.0.0.1:9901 --timeout 5m"),
            Ok(Task::Envoy {
                admin: SocketAddr::from(([127, 0, 0, 1], 9901)),
                timeout: Duration::from_mins(5),
            })
        );
        assert_eq!(line("--help"), Ok(Task::Help));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (given, named) in [
            ("--engin 1", "--engin is no flag"),
            ("--timeout", "--timeout needs a value"),
            ("--timeout 5d", "--timeout 5d: write a number"),
            (
                "--timeout 0s",
                "--timeout 0s: write a number of seconds, minutes or hours from 1 up",
            ),
            ("--timeout 5s", "--engine is missing"),
            ("--envoy 127.0.0.1:1", "--timeout is missing"),
            (
                "--envoy localhost --timeout 5s",
                "--envoy localhost: write IP:PORT",
            ),
        ] {
            let error = line(given).unwrap_err().to_string();
            assert!(error.starts_with(named), "{given}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        let engine = "--engine 127.0.0.1:8000 --timeout 5s"
            .split_whitespace()
            .map(str::to_owned);
        let error = read(engine, |_| None).unwrap_err();
        assert!(matches!(error, ArgsError::Missing(what) if what.contains(POD_UID)));
    }
}
