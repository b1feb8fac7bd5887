//! The tokenizers of the configured models: loaded from a folder, or downloaded and then loaded, while the picker
//! serves.
//!
//! A model whose tokenizer is not here yet has its tokens from the engines; nothing waits for it, readiness least of
//! all. One task for each model that has none yet tries until it has one: soon again after a failure of the network,
//! rarely after a refusal.

pub(crate) mod apart;
pub mod hub;
mod states;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use lmetric_api::{ModelGroup, TokenizerSource};
use lmetric_telemetry::Tasks;
use lmetric_tokenize::{LoadError, ModelTokenizer};
use rand::Rng;
use tokio_util::sync::CancellationToken;

pub use states::{State, States};

use crate::tokens::Ladder;
use hub::{Files, Hub, HubError};

/// After a first failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause, and the one after a refusal.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// How long to wait between attempts. Only tests have others.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// After a first failure; it doubles with each.
    pub first: Duration,
    /// No pause is longer.
    pub longest: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            first: FIRST_PAUSE,
            longest: LONGEST_PAUSE,
        }
    }
}

/// Why a model has no tokenizer yet.
#[derive(Debug, thiserror::Error)]
enum NotYet {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("loading the tokenizer panicked; leave it out: tokens then come from the engines")]
    Panicked,
}

impl NotYet {
    fn is_lasting(&self) -> bool {
        match self {
            Self::Hub(error) => error.is_lasting(),
            Self::Load(_) | Self::Panicked => true,
        }
    }
}

/// What getting tokenizers needs.
#[derive(Clone)]
pub struct TokenizersParts {
    /// Where tokenizers go.
    pub ladder: Arc<Ladder>,
    /// Where they come from.
    pub hub: Hub,
    /// Whose tasks get them.
    pub tasks: Tasks,
    /// Between attempts.
    pub pauses: Pauses,
}

/// Gets a tokenizer for each configured model.
pub struct Tokenizers {
    parts: TokenizersParts,
    states: States,
    running: HashMap<Arc<str>, (TokenizerSource, CancellationToken)>,
}

impl Tokenizers {
    /// No models yet.
    pub fn new(parts: TokenizersParts) -> Self {
        Self {
            parts,
            states: States::default(),
            running: HashMap::new(),
        }
    }

    /// How it stands, for pages and metrics.
    pub fn states(&self) -> States {
        self.states.clone()
    }

    /// These models and no others from now on. What has its tokenizer keeps it; the rest is worked on.
    pub fn set(&mut self, models: &[ModelGroup]) {
        self.parts.ladder.set_models(models);
        self.states.keep_only(models);
        self.running.retain(|name, (source, token)| {
            let stays = models
                .iter()
                .any(|model| model.name() == &**name && model.tokenizer.as_ref() == Some(source));
            if !stays {
                token.cancel();
            }
            stays
        });
        for model in models {
            let name: Arc<str> = model.name().into();
            let Some(source) = &model.tokenizer else {
                self.states.is(&name, State::of_engines());
                continue;
            };
            let has_one = self
                .parts
                .ladder
                .group(&name)
                .is_some_and(|group| group.tokenizer.is_some());
            if has_one {
                self.states.is(&name, State::loaded(source));
            } else if !self.running.contains_key(&name) {
                self.states.is(&name, State::waiting(source));
                let token = self.parts.tasks.token().child_token();
                let getting = Getting {
                    parts: self.parts.clone(),
                    states: self.states.clone(),
                    name: name.clone(),
                    source: source.clone(),
                };
                self.parts.tasks.spawn_child("tokenizer", &token, getting.run());
                self.running.insert(name, (source.clone(), token));
            }
        }
    }
}

/// One model's tokenizer on its way.
struct Getting {
    parts: TokenizersParts,
    states: States,
    name: Arc<str>,
    source: TokenizerSource,
}

impl Getting {
    async fn run(self) {
        let model = &*self.name;
        let mut attempts: u32 = 0;
        let mut said = String::new();
        loop {
            let error = match self.once().await {
                Ok((tokenizer, folder)) => {
                    let tokenizer = Arc::new(tokenizer);
                    if self.parts.ladder.install(&self.name, &self.source, &tokenizer) {
                        self.states.is(&self.name, State::loaded(&self.source));
                        tracing::info!(model, source = %self.source, folder = %folder.display(), "tokenizer loaded");
                    }
                    return;
                }
                Err(error) => error,
            };
            let text = error.to_string();
            self.states.failed(&self.name, text.clone());
            if text == said {
                tracing::debug!(model, error = text, "still no tokenizer");
            } else {
                tracing::warn!(
                    model,
                    error = text,
                    "no tokenizer yet: tokens of this model come from its engines"
                );
                said = text;
            }
            tokio::time::sleep(self.pause(attempts, error.is_lasting())).await;
            attempts = attempts.saturating_add(1);
        }
    }

    /// One attempt.
    async fn once(&self) -> Result<(ModelTokenizer, PathBuf), NotYet> {
        let repository = match &self.source {
            TokenizerSource::Folder(folder) => return Ok((loaded(folder).await?, folder.clone())),
            TokenizerSource::Repository(repository) => repository,
        };
        loop {
            let files = self.parts.hub.files(repository).await?;
            let Files { folder, kept } = &files;
            let error = match loaded(folder).await {
                Ok(tokenizer) => return Ok((tokenizer, folder.clone())),
                Err(error) => error,
            };
            self.parts.hub.forget(&files).await;
            // a disk may have lost them; what has just come is what the site has
            if !kept {
                return Err(error);
            }
        }
    }

    /// Between half and the whole of what doubles with each attempt.
    fn pause(&self, attempts: u32, is_lasting: bool) -> Duration {
        let Pauses { first, longest } = self.parts.pauses;
        let doubled = first.saturating_mul(2_u32.saturating_pow(attempts)).min(longest);
        let whole = if is_lasting { longest } else { doubled };
        whole.mul_f64(rand::rng().random_range(0.5..=1.0))
    }
}

async fn loaded(folder: &Path) -> Result<ModelTokenizer, NotYet> {
    let folder = folder.to_owned();
    match tokio::task::spawn_blocking(move || apart::load(&folder)).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(NotYet::Panicked),
    }
}

#[cfg(test)]
mod tests;
