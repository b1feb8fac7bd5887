//! From what a client asks to engine requests, and their progress back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use lmetric_engine::{BlockHash, Output, Prompt, Request, RequestId};

use super::error::ApiError;
use super::params::Params;
use crate::driver::Command;
use crate::fault::Fault;
use crate::inbox::{Failure, Inbox, Progress};
use crate::lane::{Job, Labels};
use crate::site::Site;

/// One sequence to generate.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// Index of its prompt.
    pub(crate) prompt: usize,
    /// Its tokens.
    pub(crate) output: Output,
    /// It ends by itself before its limit.
    pub(crate) stops: bool,
    id: RequestId,
}

/// Tokens in and out of a finished generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt: u32,
    pub(crate) completion: u32,
    pub(crate) cached: u32,
    pub(crate) created: u32,
}

/// What became of all choices.
#[derive(Clone, Debug)]
pub(crate) struct Finish {
    /// Tokens per choice.
    pub(crate) tokens: Vec<Vec<u32>>,
    /// Sums.
    pub(crate) usage: Usage,
}

/// A running generation; what is unfinished is aborted when it is dropped.
pub(crate) struct Generation {
    site: Arc<Site>,
    lane: usize,
    inbox: Arc<Inbox>,
    prompts: Vec<Arc<[u32]>>,
    choices: Vec<Choice>,
    finished: bool,
}

impl Generation {
    /// Checks the prompts against the engine's limits and hands them over.
    pub(crate) fn start(
        site: &Arc<Site>,
        prompts: Vec<Arc<[u32]>>,
        params: &Params,
        arrived: Duration,
    ) -> Result<Self, ApiError> {
        let settings = site.settings();
        let lane = site.choose_rank(params.rank)?;
        if site.queue_is_full(lane) {
            return Err(ApiError::busy());
        }
        let adapter = params.adapter.clone();
        let root = BlockHash::root(
            0,
            adapter.as_ref().map(|(_, name)| &**name),
            params.salt.as_deref(),
        );
        let mut choices = Vec::with_capacity(prompts.len() * params.n as usize);
        let mut requests = Vec::with_capacity(choices.capacity());
        for (index, tokens) in prompts.iter().enumerate() {
            let limit = params.limit(settings.max_model_len, tokens.len())?;
            if let Some(token) = tokens.iter().find(|token| **token >= settings.vocabulary) {
                return Err(ApiError::bad(
                    format!("Token id {token} is out of vocabulary"),
                    None,
                ));
            }
            let prompt = Prompt::tokens(Arc::clone(tokens), root, settings.block_size);
            let content = settings.content_seed(&prompt, tokens) ^ params.seed;
            for sample in 0..params.n {
                let seed = content.wrapping_add(u64::from(sample).wrapping_mul(0x9E37_79B9_7F4A_7C15));
                let natural = params.natural_length(seed, settings.mean_output);
                let length = natural.map_or(limit, |natural| natural.min(limit));
                let output = Output::Drawn {
                    seed,
                    vocabulary: Arc::clone(settings.codec.vocabulary()),
                };
                let id = site.next_request();
                let stops = length < limit;
                choices.push(Choice {
                    prompt: index,
                    output: output.clone(),
                    stops,
                    id,
                });
                requests.push(Request {
                    id,
                    prompt: prompt.clone(),
                    output,
                    max_output: length,
                    report_reused: params.report_reused,
                });
            }
        }
        let inbox = Inbox::new(choices.len());
        let labels = |stops| Labels {
            adapter: adapter.clone(),
            salt: params.salt.clone(),
            session: params.session.clone(),
            stops,
        };
        let jobs = requests
            .into_iter()
            .zip(&choices)
            .enumerate()
            .map(|(choice, (request, plan))| Job {
                request,
                inbox: Arc::clone(&inbox),
                choice: choice as u32,
                labels: Arc::new(labels(plan.stops)),
            })
            .collect();
        site.open.fetch_add(1, Ordering::Relaxed);
        site.driver().send(Command::Submit {
            lane,
            at: arrived,
            jobs,
        });
        Ok(Self {
            site: Arc::clone(site),
            lane,
            inbox,
            prompts,
            choices,
            finished: false,
        })
    }

    pub(crate) fn choices(&self) -> &[Choice] {
        &self.choices
    }

    pub(crate) fn prompt(&self, choice: usize) -> &[u32] {
        &self.prompts[self.choices[choice].prompt]
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// Whether the connection must not see an end.
    pub(crate) fn is_cut(&self) -> bool {
        self.site.fault() == Fault::Crash
    }

    pub(crate) fn poll(
        &mut self,
        seen: &mut [Progress],
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        let polled = self.inbox.poll(seen, context);
        self.finished = match &polled {
            Poll::Ready(Err(_)) => true,
            _ => seen.iter().all(|progress| progress.finished.is_some()),
        };
        polled
    }

    /// Sums over choices that are all finished. A prompt counts once, however many answers it gets.
    pub(crate) fn usage(&self, seen: &[Progress]) -> Usage {
        let mut usage = Usage::default();
        for (index, prompt) in self.prompts.iter().enumerate() {
            usage.prompt += prompt.len() as u32;
            let last = self.choices.iter().rposition(|choice| choice.prompt == index);
            if let Some(finished) = last.and_then(|choice| seen[choice].finished) {
                usage.cached += finished.cached_tokens;
                usage.created += finished.created_tokens;
            }
        }
        usage.completion = seen.iter().map(|progress| progress.produced).sum();
        usage
    }

    /// Waits for all tokens.
    pub(crate) async fn finish(mut self) -> Result<Finish, ApiError> {
        let mut seen = vec![Progress::default(); self.choices.len()];
        while !self.finished {
            let polled = std::future::poll_fn(|context| self.poll(&mut seen, context)).await;
            match polled {
                Ok(()) => {}
                Err(_) if self.is_cut() => std::future::pending().await,
                Err(Failure::Died) => return Err(ApiError::engine_dead()),
                Err(Failure::Refused(message)) => return Err(ApiError::bad(message, None)),
            }
        }
        let tokens = self.choices.iter().zip(&seen);
        let tokens = tokens
            .map(|(choice, progress)| (0..progress.produced).map(|at| choice.output.token(at)).collect());
        Ok(Finish {
            tokens: tokens.collect(),
            usage: self.usage(&seen),
        })
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.site.open.fetch_sub(1, Ordering::Relaxed);
        if !self.finished {
            let ids = self.choices.iter().map(|choice| choice.id).collect();
            self.site.driver().send(Command::Abort { lane: self.lane, ids });
        }
    }
}
