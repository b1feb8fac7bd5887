//! The token ladder: ids in the request → the in-process tokenizer → an engine → an estimate. One budget for
//! all of it; when it is spent, or the tokenizer's queue is full, the estimate is used at once, because a
//! request that waits for its own placement is worse off than one that is placed by a guess.

mod chain;
mod engine;
mod pool;
mod trust;

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use arc_swap::ArcSwap;
use lmetric_api::{ModelGroup, TokenizerSource};
use lmetric_tokenize::{EncodeError, ModelTokenizer, Tokenized, estimate_chat, estimate_text};
use tokio::time::Instant;

pub use chain::Chains;
pub use engine::{EngineError, EngineTokens};
pub use pool::{Full, Pool};
pub use trust::Trust;

use crate::{
    metrics::PlaceMetrics,
    request::{ParsedRequest, PromptInput},
};

/// Where a request's tokens came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rung {
    /// The request holds ids.
    Request,
    /// The in-process tokenizer.
    Tokenizer,
    /// An engine's `render` or `/tokenize`.
    Engine,
    /// Four bytes are a token.
    Estimate,
}

impl Rung {
    /// All, best first.
    pub const ALL: [Self; 4] = [Self::Request, Self::Tokenizer, Self::Engine, Self::Estimate];

    /// Stable name for metrics and `/debug/endpoints`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Tokenizer => "tokenizer",
            Self::Engine => "engine",
            Self::Estimate => "estimate",
        }
    }
}

/// Tokens of one prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptTokens {
    /// L, expanded media included.
    pub tokens: u32,
    /// Exact ids, or an estimate's pseudo-ids.
    pub content: Content,
}

/// What a prompt's blocks are hashed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// What the engine will see.
    Exact(Tokenized),
    /// Pseudo-ids; they match no engine's blocks, but equal beginnings of text still find each other.
    Guess(Tokenized),
}

/// Tokens of a request's prompts.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Where they came from.
    pub rung: Rung,
    /// One for each prompt of the request.
    pub prompts: Vec<PromptTokens>,
}

/// One tokenizer group.
#[derive(Clone)]
pub struct GroupTokens {
    /// Where its tokenizer comes from.
    pub source: Option<TokenizerSource>,
    /// Its tokenizer, if it is here.
    pub tokenizer: Option<Arc<ModelTokenizer>>,
    /// Tokens that an image counts as where nobody knows better.
    pub image_tokens: u32,
    /// Whether the tokenizer is believed.
    pub trust: Arc<Trust>,
}

impl GroupTokens {
    /// As configured, without its tokenizer.
    pub fn new(model: &ModelGroup) -> Self {
        Self {
            source: model.tokenizer.clone(),
            tokenizer: None,
            image_tokens: model.image_tokens,
            trust: Arc::default(),
        }
    }
}

/// Tokenizer groups by name.
pub type GroupMap = HashMap<Arc<str>, Arc<GroupTokens>>;

/// Prompts that are tokenized at once where they are asked for, on an async thread, because a queue and two wakes cost more.
/// Largest body, bytes.
const AT_ONCE_BODY: usize = 128 << 10;
/// Most messages of such a chat; each is work for the template.
const AT_ONCE_MESSAGES: usize = 64;
/// Most bytes of it that were not tokenized before.
const AT_ONCE_NEW: usize = 6 << 10;

/// Image tokens of a group that is not configured.
const IMAGE_TOKENS: u32 = 1_024;

/// The ladder.
pub struct Ladder {
    groups: ArcSwap<GroupMap>,
    workers: ArcSwap<Workers>,
    engine: EngineTokens,
    metrics: PlaceMetrics,
}

/// What [`lmetric_api::Tokens`] says, put into practice.
struct Workers {
    settings: lmetric_api::Tokens,
    pool: Arc<Pool>,
}

/// Why a rung gave nothing and what comes next.
enum Next {
    Engine,
    Estimate,
}

impl Ladder {
    /// A ladder over these groups.
    pub fn new(
        groups: GroupMap,
        pool: Pool,
        engine: EngineTokens,
        settings: lmetric_api::Tokens,
        metrics: PlaceMetrics,
    ) -> Self {
        let workers = Workers {
            settings,
            pool: Arc::new(pool),
        };
        Self {
            groups: ArcSwap::from_pointee(groups),
            workers: ArcSwap::from_pointee(workers),
            engine,
            metrics,
        }
    }

    /// A configured group.
    pub fn group(&self, name: &str) -> Option<Arc<GroupTokens>> {
        self.groups.load().get(name).cloned()
    }

    /// These groups from now on. One whose tokenizer comes from where it came from keeps it, and its trust.
    pub fn set_models(&self, models: &[ModelGroup]) {
        self.groups.rcu(|groups| {
            let group = |model: &ModelGroup| {
                let group = match groups.get(model.name()) {
                    Some(before) if before.source == model.tokenizer => GroupTokens {
                        image_tokens: model.image_tokens,
                        ..GroupTokens::clone(before)
                    },
                    _ => GroupTokens::new(model),
                };
                (Arc::from(model.name()), Arc::new(group))
            };
            models.iter().map(group).collect::<GroupMap>()
        });
    }

    /// Gives a group its tokenizer, unless by now it wants another. True when it was taken.
    pub fn install(
        &self,
        name: &Arc<str>,
        source: &TokenizerSource,
        tokenizer: &Arc<ModelTokenizer>,
    ) -> bool {
        let wants = |groups: &GroupMap| {
            groups
                .get(name)
                .is_some_and(|group| group.source.as_ref() == Some(source))
        };
        let before = self.groups.rcu(|groups| {
            if !wants(groups) {
                return groups.clone();
            }
            let mut groups = GroupMap::clone(groups);
            if let Some(group) = groups.get_mut(name) {
                *group = Arc::new(GroupTokens {
                    tokenizer: Some(tokenizer.clone()),
                    trust: Arc::default(),
                    ..GroupTokens::clone(group)
                });
            }
            Arc::new(groups)
        });
        wants(&before)
    }

    /// Other settings from now on. Requests that wait for a thread of before still get it.
    pub fn configure(&self, settings: lmetric_api::Tokens) -> std::io::Result<()> {
        let before = self.workers.load();
        let lmetric_api::Tokens {
            budget: _,
            threads,
            queue,
        } = settings;
        let pool = if (threads, queue) == (before.settings.threads, before.settings.queue) {
            before.pool.clone()
        } else {
            Arc::new(Pool::new(threads, queue)?)
        };
        self.workers.store(Arc::new(Workers { settings, pool }));
        Ok(())
    }

    /// The rung that requests of a group start on.
    pub fn first_rung(&self, group: &str) -> Rung {
        match self.groups.load().get(group) {
            Some(group) if group.tokenizer.is_some() && group.trust.is_kept() => Rung::Tokenizer,
            _ => Rung::Engine,
        }
    }

    /// Tokens of all prompts, within the budget. `engines` are those of the group that may be asked.
    pub async fn count(
        &self,
        request: &Arc<ParsedRequest>,
        group: &str,
        engines: impl FnOnce() -> Vec<SocketAddr>,
    ) -> Counted {
        let started = Instant::now();
        let deadline = started + self.workers.load().settings.budget;
        let counted = self.climb(request, group, engines, deadline).await;
        if !request.prompts.is_empty() {
            self.metrics.used(counted.rung);
            self.metrics.tokens.observe_duration(started.elapsed());
        }
        counted
    }

    async fn climb(
        &self,
        request: &Arc<ParsedRequest>,
        group: &str,
        engines: impl FnOnce() -> Vec<SocketAddr>,
        deadline: Instant,
    ) -> Counted {
        let known = self.group(group);
        let image_tokens = known.as_ref().map_or(IMAGE_TOKENS, |group| group.image_tokens);
        if let Some(prompts) = ids_of(request) {
            return exact(Rung::Request, prompts, image_tokens);
        }
        let next = match known.as_deref() {
            Some(GroupTokens {
                tokenizer: Some(tokenizer),
                trust,
                ..
            }) if trust.is_kept() => match self.tokenize(request, tokenizer, deadline).await {
                Ok(prompts) => return exact(Rung::Tokenizer, prompts, image_tokens),
                Err(next) => next,
            },
            _ => Next::Engine,
        };
        if matches!(next, Next::Engine) {
            let asked = self.engine.tokens(request, &engines(), deadline).await;
            match asked {
                Ok(prompts) => return exact(Rung::Engine, prompts, image_tokens),
                Err(error) => {
                    if Instant::now() >= deadline {
                        self.metrics.out_of_budget.inc();
                    }
                    tracing::debug!(%error, group, "an engine gave no tokens");
                }
            }
        }
        Counted {
            rung: Rung::Estimate,
            prompts: estimate(request, image_tokens),
        }
    }

    async fn tokenize(
        &self,
        request: &Arc<ParsedRequest>,
        tokenizer: &Arc<ModelTokenizer>,
        deadline: Instant,
    ) -> Result<Vec<Tokenized>, Next> {
        // as on the pool's threads, a panic costs the request its tokens and nothing else
        let at_once = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            encode_at_once(tokenizer, request)
        }));
        match at_once {
            Ok(Ok(Some(prompts))) => return Ok(prompts),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, "the tokenizer cannot take a request");
                return Err(Next::Engine);
            }
            Err(_panicked) => {
                tracing::error!("tokenizing a request panicked; the request goes on with an estimate");
                return Err(Next::Estimate);
            }
        }
        let job = {
            let request = request.clone();
            let tokenizer = tokenizer.clone();
            move || encode(&tokenizer, &request.prompts)
        };
        let Ok(result) = self.workers.load().pool.submit(job) else {
            self.metrics.queue_full.inc();
            return Err(Next::Estimate);
        };
        match tokio::time::timeout_at(deadline, result).await {
            Ok(Ok(Ok(prompts))) => Ok(prompts),
            Ok(Ok(Err(error))) => {
                tracing::debug!(%error, "the tokenizer cannot take a request");
                Err(Next::Engine)
            }
            Ok(Err(_panicked)) => Err(Next::Estimate),
            Err(_elapsed) => {
                self.metrics.out_of_budget.inc();
                Err(Next::Estimate)
            }
        }
    }
}

/// The prompts' own ids, if all have them.
fn ids_of(request: &ParsedRequest) -> Option<Vec<Tokenized>> {
    let ids = |prompt: &PromptInput| match prompt {
        PromptInput::Tokens(tokens) => Some(tokens.clone()),
        PromptInput::Text { .. } | PromptInput::Chat(_) => None,
    };
    request.prompts.iter().map(ids).collect()
}

fn encode(tokenizer: &ModelTokenizer, prompts: &[PromptInput]) -> Result<Vec<Tokenized>, EncodeError> {
    prompts
        .iter()
        .map(|prompt| match prompt {
            PromptInput::Tokens(tokens) => Ok(tokens.clone()),
            PromptInput::Text {
                text,
                add_special_tokens,
            } => tokenizer.encode_text(text, *add_special_tokens),
            PromptInput::Chat(chat) => tokenizer.encode_chat(chat),
        })
        .collect()
}

/// Tokens of prompts that are nearly all known; `None` where that would hold up others.
fn encode_at_once(
    tokenizer: &ModelTokenizer,
    request: &ParsedRequest,
) -> Result<Option<Vec<Tokenized>>, EncodeError> {
    let [prompt] = &request.prompts[..] else {
        return Ok(None);
    };
    if request.body.len() > AT_ONCE_BODY {
        return Ok(None);
    }
    let tokenized = match prompt {
        PromptInput::Tokens(tokens) => Some(tokens.clone()),
        PromptInput::Text {
            text,
            add_special_tokens,
        } => tokenizer.encode_text_within(text, *add_special_tokens, AT_ONCE_NEW)?,
        PromptInput::Chat(chat) if chat.messages.len() > AT_ONCE_MESSAGES => None,
        PromptInput::Chat(chat) => tokenizer.encode_chat_within(chat, AT_ONCE_NEW)?,
    };
    Ok(tokenized.map(|tokenized| vec![tokenized]))
}

fn estimate(request: &ParsedRequest, image_tokens: u32) -> Vec<PromptTokens> {
    let guess = |prompt: &PromptInput| match prompt {
        PromptInput::Tokens(tokens) => tokens.clone(),
        PromptInput::Text { text, .. } => estimate_text(text),
        PromptInput::Chat(chat) => estimate_chat(chat),
    };
    let prompts = request.prompts.iter().map(guess);
    prompts
        .map(|tokens| PromptTokens {
            tokens: length(&tokens, image_tokens),
            content: Content::Guess(tokens),
        })
        .collect()
}

fn exact(rung: Rung, prompts: Vec<Tokenized>, image_tokens: u32) -> Counted {
    let prompts = prompts
        .into_iter()
        .map(|tokens| PromptTokens {
            tokens: length(&tokens, image_tokens),
            content: Content::Exact(tokens),
        })
        .collect();
    Counted { rung, prompts }
}

fn length(tokens: &Tokenized, image_tokens: u32) -> u32 {
    u32::try_from(tokens.prompt_tokens(image_tokens as usize)).unwrap_or(u32::MAX)
}
