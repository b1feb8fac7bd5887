//! Logs on stderr, with a filter that can be replaced while the process runs.

use std::{io::IsTerminal, sync::Arc};

use parking_lot::Mutex;
use tracing_subscriber::{EnvFilter, Registry, fmt, layer::SubscriberExt, reload};

/// The filter of the process's logs.
#[derive(Clone)]
pub struct Logs {
    filter: Arc<Mutex<String>>,
    handle: reload::Handle<EnvFilter, Registry>,
}

/// A filter or a subscriber that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter does not parse.
    #[error("{filter:?} is no log filter ({problem}); write a level such as info, or info,lmetric_epp=debug")]
    Filter {
        /// What was given.
        filter: String,
        /// The parser's words.
        problem: String,
    },
    /// Somebody else installed a subscriber.
    #[error("logs are already set up in this process; set them up once, in main")]
    Taken,
}

impl Logs {
    /// Checks a filter without using it.
    pub fn check(filter: &str) -> Result<(), LogError> {
        parse(filter).map(drop)
    }

    /// Installs the process's logs: coloured text on a terminal, JSON lines elsewhere.
    pub fn install(filter: &str) -> Result<Self, LogError> {
        let (layer, handle) = reload::Layer::new(parse(filter)?);
        let terminal = std::io::stderr().is_terminal();
        let text = terminal.then(|| fmt::layer().with_writer(std::io::stderr).with_target(false));
        let json = (!terminal).then(|| {
            fmt::layer()
                .json()
                .flatten_event(true)
                .with_current_span(true)
                .with_span_list(false)
                .with_writer(std::io::stderr)
        });
        let subscriber = Registry::default().with(layer).with(text).with(json);
        tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Taken)?;
        Ok(Self {
            filter: Arc::new(Mutex::new(filter.to_owned())),
            handle,
        })
    }

    /// A handle that changes nobody's logs, for tests.
    pub fn detached(filter: &str) -> Result<Self, LogError> {
        let (layer, handle) = reload::Layer::new(parse(filter)?);
        // the layer must live for the handle to work
        std::mem::forget(layer);
        Ok(Self {
            filter: Arc::new(Mutex::new(filter.to_owned())),
            handle,
        })
    }

    /// Replaces the filter.
    pub fn set(&self, filter: &str) -> Result<(), LogError> {
        let parsed = parse(filter)?;
        self.handle.reload(parsed).map_err(|_| LogError::Taken)?;
        filter.clone_into(&mut self.filter.lock());
        Ok(())
    }

    /// The filter in force.
    pub fn filter(&self) -> String {
        self.filter.lock().clone()
    }
}

fn parse(filter: &str) -> Result<EnvFilter, LogError> {
    let error = |problem: String| LogError::Filter {
        filter: filter.to_owned(),
        problem,
    };
    if filter.trim().is_empty() {
        return Err(error("it is empty".to_owned()));
    }
    EnvFilter::builder()
        .parse(filter)
        .map_err(|problem| error(problem.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_filter_is_refused_and_the_old_one_stays() {
        let logs = Logs::detached("info").expect("good filter");
        for bad in ["", "lmetric_epp=loud", "info,=,"] {
            let error = logs.set(bad).expect_err(bad).to_string();
            assert!(error.contains("write a level"), "{error}");
            assert_eq!(logs.filter(), "info");
        }
        logs.set("warn,lmetric_epp=debug").expect("good filter");
        assert_eq!(logs.filter(), "warn,lmetric_epp=debug");
    }
}
