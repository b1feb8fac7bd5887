//! The step loop: who computes what next.

use std::collections::VecDeque;
use std::time::Duration;

use crate::RequestId;
use crate::config::EngineConfig;
use crate::events::Events;
use crate::hash::{BlockHash, Map};
use crate::pool::Pool;
use crate::request::{Finished, Request, State};
use crate::stats::{Counters, Load};
use crate::step_time::{Chunk, StepTime, StepWork};

/// Why an engine or a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A number of the configuration makes no engine.
    #[error("{0}")]
    Config(String),
    /// The request can never fit.
    #[error("request {id:?} needs {needed} KV blocks and the engine has {usable}: shorten it or raise num_gpu_blocks", id = id.0)]
    TooLong {
        /// Which.
        id: RequestId,
        /// Blocks for its prompt and all its output.
        needed: u32,
        /// Blocks of the engine.
        usable: u32,
    },
    /// No prompt or no output asked for.
    #[error("request {id:?} has no prompt token or asks for no output token", id = id.0)]
    Empty {
        /// Which.
        id: RequestId,
    },
    /// The id is taken.
    #[error("request {id:?} is open already", id = id.0)]
    Duplicate {
        /// Which.
        id: RequestId,
    },
}

/// A token that a step generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenOut {
    /// For whom.
    pub id: RequestId,
    /// Its number, from 0; [`crate::Output::token`] names it.
    pub index: u32,
    /// Set with the request's last token.
    pub finished: Option<Finished>,
}

/// One step: what it did, all of it visible when it ends.
#[derive(Clone, Debug, Default)]
pub struct StepOutcome {
    /// When it began.
    pub began: Duration,
    /// How long it takes.
    pub duration: Duration,
    /// What it computed.
    pub work: StepWork,
    /// What came out, in batch order.
    pub tokens: Vec<TokenOut>,
    /// What changed in the prefix cache since the step before, in engine order.
    pub events: Events,
}

impl StepOutcome {
    /// When its results are there.
    pub fn ends(&self) -> Duration {
        self.began + self.duration
    }
}

/// One engine. See the crate documentation.
#[derive(Clone, Debug)]
pub struct Engine {
    config: EngineConfig,
    time: StepTime,
    pool: Pool,
    states: Vec<Option<State>>,
    vacant: Vec<u32>,
    slots: Map<RequestId, u32>,
    waiting: VecDeque<u32>,
    running: Vec<u32>,
    scheduled: Vec<(u32, u32)>,
    events: Events,
    hits: Vec<u32>,
    counters: Counters,
    busy_until: Duration,
}

impl Engine {
    /// An idle engine with a cold cache.
    pub fn new(config: EngineConfig) -> Result<Self, EngineError> {
        for (name, value) in [
            ("block_size", config.block_size),
            ("max_num_seqs", config.max_num_seqs),
            ("max_num_batched_tokens", config.max_num_batched_tokens),
        ] {
            if value == 0 {
                return Err(EngineError::Config(format!("{name} is 0: give at least 1")));
            }
        }
        if config.usable_blocks() == 0 {
            return Err(EngineError::Config(format!(
                "{} KV blocks for model {} on {}: at least 2 are needed, raise the memory utilization or num_gpu_blocks",
                config.num_gpu_blocks, config.model.name, config.gpu.name
            )));
        }
        Ok(Self {
            time: StepTime::new(&config.gpu, &config.model),
            pool: Pool::new(config.usable_blocks()),
            states: Vec::new(),
            vacant: Vec::new(),
            slots: Map::default(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            scheduled: Vec::new(),
            events: Events::default(),
            hits: Vec::new(),
            counters: Counters::default(),
            busy_until: Duration::ZERO,
            config,
        })
    }

    /// Its configuration.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Queues a request. O(1).
    pub fn add(&mut self, request: Request, now: Duration) -> Result<(), EngineError> {
        let id = request.id;
        if request.prompt.is_empty() || request.max_output == 0 {
            return Err(EngineError::Empty { id });
        }
        // the last token is never computed
        let tokens = u64::from(request.prompt.len()) + u64::from(request.max_output) - 1;
        let needed = tokens
            .div_ceil(u64::from(self.config.block_size))
            .min(u64::from(u32::MAX)) as u32;
        if needed > self.pool.usable() {
            return Err(EngineError::TooLong {
                id,
                needed,
                usable: self.pool.usable(),
            });
        }
        if self.slots.contains_key(&id) {
            return Err(EngineError::Duplicate { id });
        }
        let state = State::new(request, now);
        let slot = if let Some(slot) = self.vacant.pop() {
            self.states[slot as usize] = Some(state);
            slot
        } else {
            self.states.push(Some(state));
            self.states.len() as u32 - 1
        };
        self.slots.insert(id, slot);
        self.waiting.push_back(slot);
        Ok(())
    }

    /// Ends a request early and frees its blocks; false if it is not open.
    pub fn abort(&mut self, id: RequestId) -> bool {
        let Some(&slot) = self.slots.get(&id) else {
            return false;
        };
        self.waiting.retain(|&other| other != slot);
        self.running.retain(|&other| other != slot);
        self.close(slot);
        self.counters.aborted += 1;
        true
    }

    /// Drops the whole prefix cache, as `/reset_prefix_cache` does; false while a request holds blocks. With
    /// `preempt` running requests are thrown out first and start over. The event comes out with the next step.
    pub fn reset_prefix_cache(&mut self, preempt: bool) -> bool {
        if preempt {
            while let Some(slot) = self.running.pop() {
                self.preempt(slot);
            }
        }
        if !self.pool.reset() {
            return false;
        }
        if self.config.enable_prefix_caching {
            self.events.cleared();
        }
        true
    }

    /// When [`Engine::step`] has something to do: now, at the end of the current step, or never.
    pub fn next_event_time(&self, now: Duration) -> Option<Duration> {
        (!self.is_idle()).then(|| now.max(self.busy_until))
    }

    /// No request is open.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Sums since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Queues and cache now. O(open requests).
    pub fn load(&self) -> Load {
        let open = self.waiting.iter().chain(&self.running);
        Load {
            running: self.running.len() as u32,
            waiting: self.waiting.len() as u32,
            uncomputed_tokens: open
                .map(|&slot| {
                    let state = self.state(slot);
                    u64::from(state.request.prompt.len().saturating_sub(state.computed))
                })
                .sum(),
            kv_usage: 1.0 - f64::from(self.pool.free()) / f64::from(self.pool.usable()),
        }
    }

    /// Blocks that can be hit, in no order.
    pub fn cached_blocks(&self) -> impl ExactSizeIterator<Item = BlockHash> {
        self.pool.cached()
    }

    /// Tokens of `prompt` that would be found in the cache now.
    pub fn hit_tokens(&self, prompt: &crate::Prompt) -> u32 {
        let most = prompt.len().saturating_sub(1) / self.config.block_size;
        let blocks = prompt.hashes().iter().take(most as usize);
        let found = blocks.take_while(|hash| self.pool.find(**hash).is_some()).count();
        found as u32 * self.config.block_size
    }

    /// Runs one step that begins at `now`; none if there is nothing to do. `now` is not before the end of the
    /// step before.
    pub fn step(&mut self, now: Duration) -> Option<StepOutcome> {
        let mut outcome = StepOutcome::default();
        self.step_into(now, &mut outcome).then_some(outcome)
    }

    /// [`Engine::step`] into a buffer that keeps its allocations. O(running requests + blocks taken).
    pub fn step_into(&mut self, now: Duration, outcome: &mut StepOutcome) -> bool {
        if self.is_idle() {
            return false;
        }
        debug_assert!(
            now >= self.busy_until,
            "a step begins before the one before it ends"
        );
        outcome.tokens.clear();
        self.schedule(now);
        if self.scheduled.is_empty() {
            // everything was preempted: whoever is first fits alone
            self.schedule(now);
        }
        self.measure(&mut outcome.work);
        outcome.began = now;
        outcome.duration = self.time.duration(&outcome.work);
        self.busy_until = outcome.ends();
        self.advance(outcome);
        outcome.events.clear();
        std::mem::swap(&mut outcome.events, &mut self.events);
        self.counters.steps += 1;
        self.counters.prefilled_tokens += u64::from(outcome.work.prefill_tokens());
        true
    }

    /// Gives every running request its tokens, in order of admission, then admits waiting ones.
    fn schedule(&mut self, now: Duration) {
        self.scheduled.clear();
        let mut budget = self.config.max_num_batched_tokens;
        let mut preempted = false;
        let mut next = 0;
        'running: while next < self.running.len() && budget > 0 {
            let slot = self.running[next];
            let state = self.state(slot);
            let tokens = (state.known() - state.computed).min(budget);
            while !self.grow(slot, tokens) {
                let victim = self
                    .running
                    .pop()
                    .expect("the request that wants to grow is running");
                self.preempt(victim);
                preempted = true;
                if victim == slot {
                    break 'running;
                }
            }
            self.scheduled.push((slot, tokens));
            budget -= tokens;
            next += 1;
        }
        if preempted {
            return;
        }
        while budget > 0 && self.running.len() < self.config.max_num_seqs as usize {
            let Some(&slot) = self.waiting.front() else { break };
            let Some(tokens) = self.admit(slot, budget, now) else {
                break;
            };
            self.waiting.pop_front();
            self.running.push(slot);
            self.scheduled.push((slot, tokens));
            budget -= tokens;
        }
    }

    /// Blocks for `tokens` more tokens of a running request; false if there are too few free ones.
    fn grow(&mut self, slot: u32, tokens: u32) -> bool {
        let Self {
            config,
            pool,
            states,
            events,
            ..
        } = self;
        let state = states[slot as usize].as_mut().expect("a running request is open");
        let covered = state.computed + tokens;
        let missing = covered
            .div_ceil(config.block_size)
            .saturating_sub(state.blocks.len() as u32);
        if missing > pool.free() {
            return false;
        }
        for _ in 0..missing {
            state.blocks.push(pool.take(events).expect("counted above"));
        }
        if config.enable_prefix_caching {
            store(state, covered, config.block_size, pool, events);
        }
        true
    }

    /// Takes up a waiting request with what the cache holds of it; how many tokens it computes now.
    fn admit(&mut self, slot: u32, budget: u32, now: Duration) -> Option<u32> {
        let Self {
            config,
            pool,
            states,
            events,
            hits,
            counters,
            ..
        } = self;
        let state = states[slot as usize].as_mut().expect("a waiting request is open");
        let known = state.known();
        hits.clear();
        if config.enable_prefix_caching {
            state.hash_up_to(known, config.block_size);
            let most = (known - 1) / config.block_size;
            hits.extend((0..most).map_while(|block| pool.find(state.hash(block))));
        }
        let hit_blocks = hits.len() as u32;
        let hit_tokens = hit_blocks * config.block_size;
        let tokens = (known - hit_tokens).min(budget);
        let idle_hits = hits.iter().filter(|id| pool.is_free(**id)).count() as u32;
        let reserve = if config.reserve_full_prompt {
            known
        } else {
            hit_tokens + tokens
        };
        if reserve.div_ceil(config.block_size) - hit_blocks + idle_hits > pool.free() {
            return None;
        }

        for &id in hits.iter() {
            pool.touch(id);
        }
        state.blocks.clone_from(hits);
        state.cached_blocks = hit_blocks;
        state.computed = hit_tokens;
        if state.request.report_reused && hit_blocks > 0 {
            announce(state, 0..hit_blocks, config.block_size, true, events);
        }
        let missing = (hit_tokens + tokens).div_ceil(config.block_size) - hit_blocks;
        for _ in 0..missing {
            state.blocks.push(pool.take(events).expect("counted above"));
        }
        if config.enable_prefix_caching {
            store(state, hit_tokens + tokens, config.block_size, pool, events);
        }
        if !state.admitted {
            state.admitted = true;
            state.done.admitted = now;
            state.done.cached_tokens = hit_tokens;
            let full = state.request.prompt.hashes().len() as u32 * config.block_size;
            state.done.created_tokens = full.saturating_sub(hit_tokens);
            counters.prefix_queries += u64::from(known);
            counters.prefix_hits += u64::from(hit_tokens);
        }
        Some(tokens)
    }

    fn measure(&self, work: &mut StepWork) {
        work.clear();
        for &(slot, tokens) in &self.scheduled {
            let state = self.state(slot);
            if state.decodes() {
                work.decodes += 1;
                work.decode_context += u64::from(state.computed + 1);
            } else {
                work.chunks.push(Chunk {
                    tokens,
                    before: state.computed,
                });
            }
        }
    }

    /// The step is over: whoever has computed all it knows has one token more.
    fn advance(&mut self, outcome: &mut StepOutcome) {
        let ends = outcome.ends();
        let mut any_finished = false;
        for &(slot, tokens) in &self.scheduled {
            let state = self.states[slot as usize]
                .as_mut()
                .expect("a scheduled request is open");
            state.computed += tokens;
            if state.computed < state.known() {
                continue;
            }
            if state.generated == 0 {
                state.done.first_token = ends;
                self.counters.prompt_tokens += u64::from(state.request.prompt.len());
                self.counters.cached_tokens += u64::from(state.done.cached_tokens);
            }
            let index = state.generated;
            state.generated += 1;
            let finished = (state.generated >= state.request.max_output).then_some(state.done);
            any_finished |= finished.is_some();
            outcome.tokens.push(TokenOut {
                id: state.request.id,
                index,
                finished,
            });
        }
        self.counters.generation_tokens += outcome.tokens.len() as u64;
        if !any_finished {
            return;
        }
        for token in outcome.tokens.iter().filter(|token| token.finished.is_some()) {
            let slot = self.slots[&token.id];
            self.close(slot);
            self.counters.finished += 1;
        }
        let states = &self.states;
        self.running.retain(|&slot| states[slot as usize].is_some());
    }

    /// Throws a running request back to the head of the queue; it starts over with what the cache still has.
    fn preempt(&mut self, slot: u32) {
        let state = self.states[slot as usize]
            .as_mut()
            .expect("a running request is open");
        self.pool.release(&state.blocks);
        state.blocks.clear();
        state.cached_blocks = 0;
        state.computed = 0;
        state.done.preemptions += 1;
        self.counters.preemptions += 1;
        self.waiting.push_front(slot);
    }

    fn close(&mut self, slot: u32) {
        let state = self.states[slot as usize]
            .take()
            .expect("an open request is closed once");
        self.pool.release(&state.blocks);
        self.slots.remove(&state.request.id);
        self.vacant.push(slot);
    }

    fn state(&self, slot: u32) -> &State {
        self.states[slot as usize]
            .as_ref()
            .expect("queues hold open requests only")
    }
}

/// Caches the full blocks among the first `covered` tokens that are not cached yet, and announces the run.
fn store(state: &mut State, covered: u32, block_size: u32, pool: &mut Pool, events: &mut Events) {
    let (from, to) = (state.cached_blocks, covered / block_size);
    if to <= from {
        return;
    }
    state.hash_up_to(covered, block_size);
    for block in from..to {
        pool.cache(state.blocks[block as usize], state.hash(block));
    }
    state.cached_blocks = to;
    announce(state, from..to, block_size, false, events);
}

fn announce(
    state: &State,
    blocks: std::ops::Range<u32>,
    block_size: u32,
    repeated: bool,
    events: &mut Events,
) {
    events.stored(
        state.request.id,
        blocks.start,
        state.parent(blocks.start),
        blocks.clone().map(|block| state.hash(block)),
        blocks
            .clone()
            .flat_map(|block| state.block_tokens(block, block_size)),
        repeated,
    );
}

#[cfg(test)]
impl Engine {
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn open(&self) -> impl Iterator<Item = &State> {
        self.states.iter().flatten()
    }

    pub(crate) fn running_ids(&self) -> Vec<RequestId> {
        self.running
            .iter()
            .map(|&slot| self.state(slot).request.id)
            .collect()
    }
}
