//! How it stands with each model's tokenizer: for `/debug/models` and the metrics page.

use std::{collections::BTreeMap, fmt, sync::Arc};

use lmetric_api::{ModelGroup, TokenizerSource};
use lmetric_telemetry::prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet},
    metrics::MetricType,
};
use parking_lot::Mutex;
use serde::Serialize;

/// One model's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct State {
    /// Where the tokenizer comes from.
    pub source: Option<String>,
    /// `loaded`; `waiting`: none yet, tokens come from the engines; `engines`: none is configured, likewise.
    pub state: &'static str,
    /// Why the last attempt failed.
    pub error: Option<String>,
    /// Attempts that failed.
    pub failures: u64,
}

impl State {
    pub(super) fn of_engines() -> Self {
        Self::new(None, "engines")
    }

    pub(super) fn waiting(source: &TokenizerSource) -> Self {
        Self::new(Some(source), "waiting")
    }

    pub(super) fn loaded(source: &TokenizerSource) -> Self {
        Self::new(Some(source), "loaded")
    }

    fn new(source: Option<&TokenizerSource>, state: &'static str) -> Self {
        Self {
            source: source.map(ToString::to_string),
            state,
            error: None,
            failures: 0,
        }
    }
}

/// All models'. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct States(Arc<Mutex<BTreeMap<Arc<str>, State>>>);

impl States {
    /// As it is now, by model.
    pub fn now(&self) -> BTreeMap<Arc<str>, State> {
        self.0.lock().clone()
    }

    pub(super) fn is(&self, model: &Arc<str>, mut state: State) {
        let mut states = self.0.lock();
        if let Some(before) = states.get(model) {
            state.failures = before.failures;
        }
        states.insert(model.clone(), state);
    }

    pub(super) fn failed(&self, model: &Arc<str>, error: String) {
        if let Some(state) = self.0.lock().get_mut(model) {
            state.error = Some(error);
            state.failures += 1;
        }
    }

    pub(super) fn keep_only(&self, models: &[ModelGroup]) {
        self.0
            .lock()
            .retain(|name, _| models.iter().any(|model| model.name() == &**name));
    }
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct ModelLabel {
    model: String,
}

impl Collector for States {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let states: Vec<_> = self
            .now()
            .into_iter()
            .filter(|(_, state)| state.source.is_some())
            .map(|(model, state)| {
                (
                    ModelLabel {
                        model: model.to_string(),
                    },
                    state,
                )
            })
            .collect();
        let help = "Whether the model's tokenizer is here; 0: its tokens come from the engines";
        let mut metric = encoder.encode_descriptor("tokenizer_loaded", help, None, MetricType::Gauge)?;
        for (label, state) in &states {
            metric
                .encode_family(label)?
                .encode_gauge(&i64::from(state.state == "loaded"))?;
        }
        let help = "Attempts to get the model's tokenizer that failed";
        let mut metric = encoder.encode_descriptor("tokenizer_failures", help, None, MetricType::Counter)?;
        for (label, state) in &states {
            metric
                .encode_family(label)?
                .encode_counter::<NoLabelSet, _, u64>(&state.failures, None)?;
        }
        Ok(())
    }
}
