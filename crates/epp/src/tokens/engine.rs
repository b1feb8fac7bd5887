//! The third rung: ask an engine. `render` (vLLM ≥ 0.16) answers with exactly what it would compute, media
//! included; `/tokenize` is everywhere, but knows less of a chat request.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use lmetric_tokenize::{
    Tokenized,
    engine::{
        AnswerError, Query, read_render_chat, read_render_text, read_tokenize, render_chat, render_text,
        tokenize_chat, tokenize_text,
    },
};
use parking_lot::Mutex;
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    request::{ParsedRequest, PromptInput, RequestKind},
    scrape::{EngineClient, FetchError},
};

/// Largest answer: 1 M ids and their envelope.
const ANSWER_LIMIT: usize = 32 << 20;
/// An engine that has no `render` is asked again after this.
const RENDER_RETRY: Duration = Duration::from_mins(1);

/// Why an engine gave no tokens.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No engine is ready.
    #[error("no engine is ready")]
    NoEngine,
    /// Too many requests wait for engines already.
    #[error("too many requests wait for engines' tokens")]
    Busy,
    /// The budget was spent before.
    #[error("no time is left")]
    NoTime,
    /// The exchange failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The answer makes no sense.
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

/// Asks engines for tokens.
pub struct EngineTokens {
    client: EngineClient,
    turn: AtomicUsize,
    room: Semaphore,
    no_render_since: Mutex<Option<Instant>>,
}

impl EngineTokens {
    /// At most `at_once` requests ask at a time.
    pub fn new(client: EngineClient, at_once: usize) -> Self {
        Self {
            client,
            turn: AtomicUsize::new(0),
            room: Semaphore::new(at_once),
            no_render_since: Mutex::new(None),
        }
    }

    /// Tokens of all prompts of `request`, from one of `engines`, before `deadline`.
    pub async fn tokens(
        &self,
        request: &Arc<ParsedRequest>,
        engines: &[SocketAddr],
        deadline: Instant,
    ) -> Result<Vec<Tokenized>, EngineError> {
        if engines.is_empty() {
            return Err(EngineError::NoEngine);
        }
        let _room = self.room.try_acquire().map_err(|_| EngineError::Busy)?;
        let engine = engines[self.turn.fetch_add(1, Ordering::Relaxed) % engines.len()];
        if self.may_render() {
            match self.render(request, engine, deadline).await {
                Err(EngineError::Fetch(FetchError::Status(404 | 405 | 501))) => {
                    *self.no_render_since.lock() = Some(Instant::now());
                }
                result => return result,
            }
        }
        self.tokenize(request, engine, deadline).await
    }

    fn may_render(&self) -> bool {
        self.no_render_since
            .lock()
            .is_none_or(|since| since.elapsed() > RENDER_RETRY)
    }

    /// Every prompt by `render`.
    async fn render(
        &self,
        request: &ParsedRequest,
        engine: SocketAddr,
        deadline: Instant,
    ) -> Result<Vec<Tokenized>, EngineError> {
        if let Some(path) = own_render(request) {
            let answer = self.post(engine, path, request.body.clone(), deadline).await?;
            return match request.kind {
                RequestKind::Completions => Ok(read_render_text(&answer, request.prompts.len())?),
                _ => Ok(vec![read_render_chat(&answer)?]),
            };
        }
        let model = request.model.as_deref().unwrap_or_default();
        let mut all = Vec::with_capacity(request.prompts.len());
        for prompt in &request.prompts {
            let tokens = match prompt {
                PromptInput::Tokens(tokens) => tokens.clone(),
                PromptInput::Text {
                    text,
                    add_special_tokens,
                } => {
                    let query = render_text(model, &[text], *add_special_tokens);
                    let answer = self.ask(engine, query, deadline).await?;
                    read_render_text(&answer, 1)?.pop().unwrap_or_default()
                }
                PromptInput::Chat(chat) => {
                    let answer = self.ask(engine, render_chat(model, chat), deadline).await?;
                    read_render_chat(&answer)?
                }
            };
            all.push(tokens);
        }
        Ok(all)
    }

    /// Every prompt by `/tokenize`.
    async fn tokenize(
        &self,
        request: &ParsedRequest,
        engine: SocketAddr,
        deadline: Instant,
    ) -> Result<Vec<Tokenized>, EngineError> {
        let model = request.model.as_deref().unwrap_or_default();
        let mut all = Vec::with_capacity(request.prompts.len());
        for prompt in &request.prompts {
            let query = match prompt {
                PromptInput::Tokens(tokens) => {
                    all.push(tokens.clone());
                    continue;
                }
                PromptInput::Text {
                    text,
                    add_special_tokens,
                } => tokenize_text(model, text, *add_special_tokens),
                PromptInput::Chat(chat) => tokenize_chat(model, chat),
            };
            let mut tokens = read_tokenize(&self.ask(engine, query, deadline).await?)?;
            if request.images > 0 {
                // it does not say where the placeholders are
                tokens.matchable = 0;
            }
            all.push(tokens);
        }
        Ok(all)
    }

    async fn ask(&self, engine: SocketAddr, query: Query, deadline: Instant) -> Result<Vec<u8>, EngineError> {
        let Query { path, body } = query;
        self.post(engine, path, Bytes::from(body), deadline).await
    }

    async fn post(
        &self,
        engine: SocketAddr,
        path: &str,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Vec<u8>, EngineError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(EngineError::NoTime);
        }
        Ok(self
            .client
            .post_json(engine, path, body, ANSWER_LIMIT, left)
            .await?)
    }
}

/// The engine's `render` beside the path that the request goes to; it takes the request's own body.
fn own_render(request: &ParsedRequest) -> Option<&'static str> {
    if request.body.is_empty() {
        return None;
    }
    match request.kind {
        RequestKind::Chat => Some("/v1/chat/completions/render"),
        RequestKind::Completions => Some("/v1/completions/render"),
        RequestKind::Responses => Some("/v1/responses/render"),
        RequestKind::Messages => Some("/v1/messages/render"),
        RequestKind::Embeddings | RequestKind::Generate | RequestKind::Other => None,
    }
}
