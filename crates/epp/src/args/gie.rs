//! Flags of the Inference Extension's picker: spelt as its parser takes them, and those that mean nothing here.

use std::{ffi::OsString, time::Duration};

/// A flag that was accepted and has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Its name, with dashes.
    pub flag: &'static str,
    /// Why it means nothing here.
    pub why: &'static str,
}

/// Whether the word after a flag is its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// `--flag`, `--flag=true`.
    Switch,
    /// `--flag value`, `--flag=value`.
    Value,
}

use Takes::{Switch, Value};

const PLUGINS: &str = "it configures plugins; this picker has its own configuration, see --config";
const NO_TRACES: &str = "no traces are sent";
const OWN_LOGS: &str = "logs are JSON lines on stderr, or text on a terminal; see --log and -v";
const OPEN_ADMIN: &str = "the admin port asks nobody who he is; restrict it by a NetworkPolicy";
const NO_LEADER: &str = "every replica picks; no leader is needed";
const ALWAYS: &str = "it is always so";
const NO_PPROF: &str = "there are no profiles";

/// Every other flag of that picker (GIE 1.0 to 1.6, llm-d router to 0.10), and of the libraries that add to it.
const IGNORED: &[(&str, Takes, &str)] = &[
    ("--allow-experimental-plugins", Switch, PLUGINS),
    ("--config-file", Value, PLUGINS),
    ("--config-text", Value, PLUGINS),
    (
        "--disable-endpoint-subset-filter",
        Switch,
        "a subset that the gateway names always counts",
    ),
    (
        "--emit-endpoint-scores",
        Switch,
        "scores are on the admin port, /debug/decisions",
    ),
    ("--enable-cert-reload", Switch, ALWAYS),
    ("--enable-grpc-stream-metrics", Switch, ALWAYS),
    ("--enable-pprof", Switch, NO_PPROF),
    (
        "--grpc-max-recv-msg-size",
        Value,
        "limits.bodyBytes of the configuration bounds messages",
    ),
    ("--ha-enable-leader-election", Switch, NO_LEADER),
    (
        "--health-checking",
        Switch,
        "health is always served, on its port and on the one of ext-proc",
    ),
    (
        "--kv-cache-usage-percentage-metric",
        Value,
        "vLLM's metrics are read by their own names",
    ),
    ("--lora-info-metric", Value, "adapters are read from /v1/models"),
    (
        "--cache-info-metric",
        Value,
        "vLLM's metrics are read by their own names",
    ),
    (
        "--total-queued-requests-metric",
        Value,
        "vLLM's metrics are read by their own names",
    ),
    (
        "--total-running-requests-metric",
        Value,
        "vLLM's metrics are read by their own names",
    ),
    ("--metrics-cert-dir", Value, OPEN_ADMIN),
    ("--metrics-client-ca-file", Value, OPEN_ADMIN),
    ("--metrics-endpoint-auth", Switch, OPEN_ADMIN),
    (
        "--metrics-staleness-threshold",
        Value,
        "a metrics page counts for three reads",
    ),
    (
        "--model-server-metrics-https-insecure-skip-verify",
        Switch,
        "engines are read over plain HTTP",
    ),
    (
        "--model-server-metrics-path",
        Value,
        "engines are read at /metrics",
    ),
    (
        "--model-server-metrics-port",
        Value,
        "engines are read at the port that they serve on",
    ),
    (
        "--model-server-metrics-scheme",
        Value,
        "engines are read over plain HTTP",
    ),
    (
        "--refresh-prometheus-metrics-interval",
        Value,
        "metrics are computed when they are asked for",
    ),
    (
        "--tls-cipher-suites",
        Value,
        "TLS 1.2 and 1.3 are served with the library's suites",
    ),
    (
        "--tls-min-version",
        Value,
        "TLS 1.2 and 1.3 are served with the library's suites",
    ),
    ("--tracing", Switch, NO_TRACES),
    ("--zap-devel", Switch, OWN_LOGS),
    ("--zap-encoder", Value, OWN_LOGS),
    ("--zap-log-level", Value, OWN_LOGS),
    ("--zap-stacktrace-level", Value, OWN_LOGS),
    ("--zap-time-encoding", Value, OWN_LOGS),
];

/// The command line as our own parser takes it: `-flag` becomes `--flag`, as both are the same to Go programs, and what
/// means nothing here is taken out. The first word, the program's name, stays.
pub fn translate(words: impl IntoIterator<Item = OsString>) -> (Vec<OsString>, Vec<Ignored>) {
    let mut words = words.into_iter().peekable();
    let mut kept: Vec<OsString> = words.next().into_iter().collect();
    let mut ignored: Vec<Ignored> = Vec::new();
    while let Some(word) = words.next() {
        let word = doubled(word);
        let (name, has_value) = match word.to_str().unwrap_or_default().split_once('=') {
            Some((name, _)) => (name, true),
            None => (word.to_str().unwrap_or_default(), false),
        };
        let Some((flag, takes, why)) = IGNORED.iter().find(|(flag, ..)| *flag == name) else {
            kept.push(word);
            continue;
        };
        if *takes == Value && !has_value {
            words.next();
        }
        if ignored.iter().all(|before| before.flag != *flag) {
            ignored.push(Ignored { flag, why });
        }
    }
    (kept, ignored)
}

/// `-flag` with a second dash; `-v4` and other short flags as they are.
fn doubled(word: OsString) -> OsString {
    let Some(name) = word.to_str().and_then(|word| word.strip_prefix('-')) else {
        return word;
    };
    let letters = |count: usize| {
        name.len() >= count && name.chars().take(count).all(|letter| letter.is_ascii_lowercase())
    };
    if letters(2) {
        return format!("--{name}").into();
    }
    word
}

/// A duration as Go writes it, `1m30s`: numbers, each with its unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    let error = || format!("{text:?} is no duration; write for example 30s, 1m30s or 500ms");
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let number = rest
            .find(|letter: char| letter.is_ascii_alphabetic())
            .ok_or_else(error)?;
        let unit = rest[number..]
            .find(|letter: char| !letter.is_ascii_alphabetic())
            .map_or(rest.len(), |end| number + end);
        let part = lmetric_api::parse_duration(&rest[..unit]).map_err(|_| error())?;
        sum = sum.checked_add(part).ok_or_else(error)?;
        rest = &rest[unit..];
    }
    if sum.is_zero() && !text.contains('0') {
        return Err(error());
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use rstest::rstest;

    use super::*;
    use crate::args::Args;

    fn read(line: &str) -> Result<(Args, Vec<&'static str>), String> {
        let words = std::iter::once("lmetric-epp").chain(line.split_whitespace());
        let (words, ignored) = translate(words.map(OsString::from));
        let args = Args::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok((args, ignored.into_iter().map(|ignored| ignored.flag).collect()))
    }

    #[test]
    fn the_flags_of_the_other_picker_mean_the_same() {
        let line = "--pool-name p --pool-namespace=ns --pool-group g --grpc-port 1 --grpc-health-port=2 -metrics-port 3 \
                    --secure-serving=false --cert-path /certs --drain-timeout 1m30s --refresh-metrics-interval 50ms -v=4";
        let (args, ignored) = read(line).expect("good flags");
        assert!(ignored.is_empty());
        let pool = &args.kubernetes;
        let names = [&pool.pool_name, &pool.pool_namespace, &pool.pool_group].map(Option::as_deref);
        assert_eq!(names, [Some("p"), Some("ns"), Some("g")]);
        let over = args.over;
        assert_eq!(
            (over.grpc_port, over.grpc_health_port, over.metrics_port),
            (Some(1), Some(2), Some(3))
        );
        assert_eq!(over.secure_serving, Some(false));
        assert_eq!(over.cert_path.as_deref(), Some(std::path::Path::new("/certs")));
        assert_eq!(over.drain_timeout, Some(Duration::from_secs(90)));
        assert_eq!(over.refresh_metrics_interval, Some(Duration::from_millis(50)));
        assert_eq!(over.verbosity, Some(4));
    }

    #[rstest]
    #[case("-v 4", Some(4))]
    #[case("-v4", Some(4))]
    #[case("--v=5", Some(5))]
    #[case("", None)]
    fn verbosity_is_written_in_many_ways(#[case] line: &str, #[case] expected: Option<u8>) {
        assert_eq!(read(line).expect("good flags").0.over.verbosity, expected);
    }

    #[rstest]
    #[case("--secure-serving", Some(true))]
    #[case("-secure-serving=true", Some(true))]
    #[case("--secure-serving=false", Some(false))]
    #[case("", None)]
    fn a_switch_has_its_value_behind_an_equals_sign(#[case] line: &str, #[case] expected: Option<bool>) {
        assert_eq!(read(line).expect("good flags").0.over.secure_serving, expected);
    }

    #[test]
    fn every_known_flag_without_a_meaning_is_taken_in_each_spelling_and_named_once() {
        for (flag, takes, why) in IGNORED {
            assert!(!why.is_empty(), "{flag}");
            let spellings = match takes {
                Switch => vec![(*flag).to_owned(), format!("{flag}=false"), flag[1..].to_owned()],
                Value => vec![
                    format!("{flag} x"),
                    format!("{flag}=x"),
                    format!("{} x", &flag[1..]),
                ],
            };
            for spelling in spellings {
                let line = format!("--grpc-port 1 {spelling} --pool-name p {flag}=again");
                let (args, ignored) = read(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
                assert_eq!(ignored, [*flag], "{line}");
                assert_eq!(args.kubernetes.pool_name.as_deref(), Some("p"), "{line}");
            }
        }
    }

    #[rstest]
    #[case("--pool-nam p", "--pool-name")]
    #[case("--grpc-port many", "--grpc-port")]
    #[case("--drain-timeout soon", "30s")]
    #[case("--config a --config-map b", "--config-map")]
    #[case("--pool-namespace a", "--pool-name")]
    #[case("--endpoint-selector a=b", "--endpoint-target-ports")]
    #[case(
        "--pool-name p --endpoint-selector a=b --endpoint-target-ports 1",
        "cannot be used with"
    )]
    fn a_bad_command_line_says_what_to_write(#[case] line: &str, #[case] words: &str) {
        let error = read(line).expect_err("bad flags");
        assert!(error.contains(words), "{error}");
    }

    #[rstest]
    #[case("30s", 30_000)]
    #[case("1m30s", 90_000)]
    #[case("500ms", 500)]
    #[case("1h0m0s", 3_600_000)]
    #[case("0", 0)]
    #[case("0s", 0)]
    fn durations_are_written_as_go_writes_them(#[case] text: &str, #[case] milliseconds: u64) {
        assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)));
    }

    #[rstest]
    #[case("")]
    #[case("30")]
    #[case("s")]
    #[case("1m30")]
    #[case("-1s")]
    fn nonsense_is_no_duration(#[case] text: &str) {
        assert!(duration(text).is_err(), "{text:?} was taken");
    }
}
