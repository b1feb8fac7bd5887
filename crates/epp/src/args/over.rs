//! What flags say instead of the configuration.

use std::time::Duration;

use lmetric_api::{PickerConfig, Tls};

use super::Overrides;

/// Bounds of the time between two reads of a busy engine, as in the configuration.
const BUSY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_mins(1));
/// Crates of ours that say something with more verbosity; others' are not what is asked for.
const TALKATIVE: [&str; 4] = [
    "lmetric_epp",
    "lmetric_kvevents",
    "lmetric_scheduler",
    "lmetric_tokenize",
];

impl Overrides {
    /// Changes what these flags say; `log` is `--log`, which stands above `-v`.
    pub fn apply(&self, log: Option<&str>, config: &mut PickerConfig) {
        let Self {
            grpc_port,
            grpc_health_port,
            metrics_port,
            secure_serving,
            cert_path,
            drain_timeout,
            refresh_metrics_interval,
            verbosity,
        } = self;
        let listen = &mut config.listen;
        for (port, address) in [
            (grpc_port, &mut listen.ext_proc),
            (grpc_health_port, &mut listen.health),
            (metrics_port, &mut listen.admin),
        ] {
            if let Some(port) = port {
                address.set_port(*port);
            }
        }
        match (secure_serving, cert_path) {
            (Some(false), _) => config.tls = Tls::Off,
            (_, Some(folder)) => {
                config.tls = Tls::Files {
                    cert_file: folder.join("tls.crt"),
                    key_file: folder.join("tls.key"),
                }
            }
            (Some(true), None) if config.tls == Tls::Off => config.tls = Tls::SelfSigned,
            (Some(true) | None, None) => {}
        }
        if let Some(drain) = drain_timeout {
            config.limits.drain = *drain;
        }
        if let Some(interval) = refresh_metrics_interval {
            let (shortest, longest) = BUSY;
            config.scrape.busy = (*interval).clamp(shortest, longest);
            config.scrape.idle = config.scrape.idle.max(config.scrape.busy);
        }
        let level = match verbosity {
            None | Some(..=3) => None,
            Some(4) => Some("debug"),
            Some(5..) => Some("trace"),
        };
        if let Some(level) = level {
            let ours = TALKATIVE.map(|name| format!("{name}={level}"));
            config.log = format!("info,{}", ours.join(","));
        }
        if let Some(log) = log {
            log.clone_into(&mut config.log);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lmetric_telemetry::Logs;

    use super::*;

    fn applied(over: &Overrides, log: Option<&str>, text: &str) -> PickerConfig {
        let text = format!("endpoints: {{kubernetes: {{}}}}\n{text}");
        let mut config = PickerConfig::parse(&text, Path::new("picker.yaml")).expect("a good configuration");
        over.apply(log, &mut config);
        config
    }

    #[test]
    fn without_flags_the_configuration_stays() {
        let text = "tls: {mode: Off}\nlog: warn\nlimits: {drain: 5s}\n";
        let plain = applied(&Overrides::default(), None, text);
        assert_eq!(plain.tls, Tls::Off);
        assert_eq!(plain.log, "warn");
        assert_eq!(plain.limits.drain, Duration::from_secs(5));
        assert_eq!(
            plain.listen.admin.to_string(),
            "0.0.0.0:9090",
            "engines must reach it"
        );
    }

    #[test]
    fn ports_times_and_words_are_replaced() {
        let over = Overrides {
            grpc_port: Some(1),
            grpc_health_port: Some(2),
            metrics_port: Some(3),
            drain_timeout: Some(Duration::from_secs(90)),
            refresh_metrics_interval: Some(Duration::from_millis(50)),
            verbosity: Some(5),
            ..Overrides::default()
        };
        let config = applied(&over, None, "");
        assert_eq!(config.listen.ext_proc.to_string(), "0.0.0.0:1");
        assert_eq!(config.listen.health.to_string(), "0.0.0.0:2");
        assert_eq!(config.listen.admin.to_string(), "0.0.0.0:3");
        assert_eq!(config.limits.drain, Duration::from_secs(90));
        assert_eq!(
            config.scrape.busy,
            Duration::from_millis(250),
            "vLLM's page is large"
        );
        assert!(config.log.contains("lmetric_epp=trace"), "{}", config.log);
        Logs::check(&config.log).expect("a good filter");
        assert_eq!(applied(&over, Some("error"), "").log, "error");
    }

    #[test]
    fn tls_is_what_the_flags_say() {
        let over = |secure_serving, cert_path: Option<&str>| Overrides {
            secure_serving,
            cert_path: cert_path.map(Into::into),
            ..Overrides::default()
        };
        let files = Tls::Files {
            cert_file: "/certs/tls.crt".into(),
            key_file: "/certs/tls.key".into(),
        };
        let off = "tls: {mode: Off}\n";
        for (over, text, expected) in [
            (over(Some(false), None), "", Tls::Off),
            (over(Some(false), Some("/certs")), "", Tls::Off),
            (over(Some(true), Some("/certs")), off, files.clone()),
            (over(None, Some("/certs")), "", files),
            (over(Some(true), None), off, Tls::SelfSigned),
            (over(None, None), off, Tls::Off),
        ] {
            assert_eq!(applied(&over, None, text).tls, expected, "{over:?}");
        }
    }
}
