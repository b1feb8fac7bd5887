//! What holds for any engine under any load.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use crate::{
    BlockHash, Engine, EngineConfig, Event, Gpu, Model, Output, Prompt, Request, RequestId, StepOutcome,
};

#[derive(Clone, Debug)]
enum Do {
    /// A prompt of `len` tokens that shares its beginning with others of the family.
    Add {
        family: u32,
        shared: u32,
        own: u32,
        output: u32,
    },
    /// The last prompt again.
    Again {
        output: u32,
    },
    Step(u8),
    /// Of the open ones.
    Abort(usize),
    Reset {
        preempt: bool,
    },
}

fn any_do() -> impl Strategy<Value = Do> {
    prop_oneof![
        5 => (0..3_u32, 0..30_u32, 1..20_u32, 1..16_u32)
            .prop_map(|(family, shared, own, output)| Do::Add { family, shared, own, output }),
        2 => (1..8_u32).prop_map(|output| Do::Again { output }),
        6 => (1..6_u8).prop_map(Do::Step),
        1 => (0..8_usize).prop_map(Do::Abort),
        1 => any::<bool>().prop_map(|preempt| Do::Reset { preempt }),
    ]
}

#[derive(Clone, Debug)]
struct Small {
    blocks: u32,
    seqs: u32,
    budget: u32,
    reserve: bool,
}

fn any_small() -> impl Strategy<Value = Small> {
    (18..60_u32, 1..8_u32, 1..40_u32, any::<bool>()).prop_map(|(blocks, seqs, budget, reserve)| Small {
        blocks,
        seqs,
        budget,
        reserve,
    })
}

const BLOCK: u32 = 4;

/// Watches one engine and checks everything after every step.
struct Watch {
    engine: Engine,
    now: Duration,
    next: u64,
    last: Arc<[u32]>,
    open: HashMap<RequestId, Seen>,
    /// Copies per hash, counted from events alone.
    copies: HashMap<BlockHash, u32>,
    finished: u64,
    uncached: u64,
    aborted: bool,
}

struct Seen {
    prompt: Prompt,
    max_output: u32,
    tokens: u32,
    computed: u32,
    preemptions: u32,
}

impl Watch {
    fn new(small: &Small) -> Self {
        let mut config = EngineConfig::new(Gpu::h20(), Model::qwen2_7b(), 0.85);
        config.block_size = BLOCK;
        config.num_gpu_blocks = small.blocks + 1;
        config.max_num_seqs = small.seqs;
        config.max_num_batched_tokens = small.budget;
        config.reserve_full_prompt = small.reserve;
        Self {
            engine: Engine::new(config).unwrap(),
            now: Duration::ZERO,
            next: 0,
            last: (0..8).collect(),
            open: HashMap::new(),
            copies: HashMap::new(),
            finished: 0,
            uncached: 0,
            aborted: false,
        }
    }

    fn act(&mut self, what: &Do) {
        match *what {
            Do::Add {
                family,
                shared,
                own,
                output,
            } => {
                let unique = 1_000 + self.next as u32 * 64;
                let tokens: Arc<[u32]> = (0..shared)
                    .map(|at| family * 100 + at)
                    .chain(unique..unique + own)
                    .collect();
                self.last = Arc::clone(&tokens);
                self.add(tokens, output);
            }
            Do::Again { output } => self.add(Arc::clone(&self.last), output),
            Do::Step(times) => (0..times).for_each(|_| {
                self.step();
            }),
            Do::Abort(index) => {
                let mut ids: Vec<_> = self.open.keys().copied().collect();
                ids.sort_unstable();
                if let Some(id) = ids.get(index) {
                    assert!(self.engine.abort(*id));
                    assert!(!self.engine.abort(*id), "an aborted request is gone");
                    self.open.remove(id);
                    self.aborted = true;
                }
            }
            Do::Reset { preempt } => {
                let in_use = self.engine.load().kv_usage > 0.0;
                assert_eq!(self.engine.reset_prefix_cache(preempt), preempt || !in_use);
            }
        }
        self.check_blocks();
    }

    fn add(&mut self, tokens: Arc<[u32]>, max_output: u32) {
        let id = RequestId(self.next);
        self.next += 1;
        let prompt = Prompt::tokens(tokens, BlockHash::root(0, None, None), BLOCK);
        let request = Request {
            id,
            prompt: prompt.clone(),
            output: Output::Drawn {
                seed: id.0 % 3,
                vocabulary: Arc::default(),
            },
            max_output,
            report_reused: id.0.is_multiple_of(5),
        };
        self.engine.add(request, self.now).unwrap();
        self.open.insert(
            id,
            Seen {
                prompt,
                max_output,
                tokens: 0,
                computed: 0,
                preemptions: 0,
            },
        );
    }

    fn step(&mut self) -> bool {
        let order = self.engine.pool().eviction_order();
        let preemptions = self.engine.counters().preemptions;
        let Some(outcome) = self.engine.step(self.now) else {
            assert!(self.open.is_empty(), "an engine with requests has a step to make");
            return false;
        };
        assert_eq!(outcome.began, self.now);
        self.now = outcome.ends();
        self.check_budget(&outcome);
        self.check_tokens(&outcome);
        self.check_progress();
        self.check_events(&outcome);
        let untouched = self.engine.counters().preemptions == preemptions
            && outcome.tokens.iter().all(|token| token.finished.is_none());
        if untouched {
            self.check_eviction(&outcome, &order);
        }
        self.check_blocks();
        true
    }

    fn check_budget(&self, outcome: &StepOutcome) {
        let config = self.engine.config();
        let tokens = outcome.work.prefill_tokens() + outcome.work.decodes;
        assert!(
            tokens > 0 && tokens <= config.max_num_batched_tokens,
            "{tokens} tokens in a step"
        );
        let requests = outcome.work.chunks.len() as u32 + outcome.work.decodes;
        assert!(requests <= config.max_num_seqs, "{requests} requests in a step");
        assert!(outcome.duration > Duration::ZERO);
    }

    fn check_tokens(&mut self, outcome: &StepOutcome) {
        for token in &outcome.tokens {
            let seen = self
                .open
                .get_mut(&token.id)
                .expect("a token is for an open request");
            assert_eq!(token.index, seen.tokens, "tokens come one by one");
            seen.tokens += 1;
            assert_eq!(token.finished.is_some(), seen.tokens == seen.max_output);
            if let Some(finished) = token.finished {
                let most = (seen.prompt.len() - 1) / BLOCK * BLOCK;
                assert!(
                    finished.cached_tokens <= most,
                    "the last token is always computed"
                );
                assert_eq!(finished.cached_tokens % BLOCK, 0);
                self.uncached += u64::from(seen.prompt.len() - finished.cached_tokens);
                self.finished += 1;
                self.open.remove(&token.id);
            }
        }
    }

    /// What is computed stays computed, but for a preemption.
    fn check_progress(&mut self) {
        for state in self.engine.open() {
            let seen = self
                .open
                .get_mut(&state.request.id)
                .expect("open requests are known");
            if state.done.preemptions == seen.preemptions {
                assert!(state.computed >= seen.computed, "computed tokens are lost");
            }
            seen.preemptions = state.done.preemptions;
            seen.computed = state.computed;
        }
    }

    fn check_events(&mut self, outcome: &StepOutcome) {
        for event in outcome.events.iter() {
            match event {
                Event::Stored {
                    first_block,
                    parent,
                    hashes,
                    tokens,
                    repeated,
                    ..
                } => {
                    assert_eq!(tokens.len(), hashes.len() * BLOCK as usize);
                    assert_eq!(parent.is_none(), first_block == 0);
                    let mut hash = parent.unwrap_or(BlockHash::root(0, None, None));
                    for (block, stored) in tokens.chunks(BLOCK as usize).zip(hashes) {
                        hash = hash.child(block);
                        assert_eq!(hash, *stored, "a hash is its tokens after its parent");
                        if repeated {
                            assert!(
                                self.copies.contains_key(stored),
                                "only what is held is reported again"
                            );
                        } else {
                            *self.copies.entry(*stored).or_default() += 1;
                        }
                    }
                }
                Event::Removed { hash } => {
                    let copies = self.copies.get_mut(&hash).expect("only what is held is removed");
                    *copies -= 1;
                    if *copies == 0 {
                        self.copies.remove(&hash);
                    }
                }
                Event::Cleared => self.copies.clear(),
            }
        }
        let recounted: BTreeSet<_> = self.copies.keys().copied().collect();
        let held: BTreeSet<_> = self.engine.cached_blocks().collect();
        assert_eq!(recounted, held, "a recount of the events is the cache");
    }

    /// Evictions follow the order that was there before the step; who was skipped is in use.
    fn check_eviction(&self, outcome: &StepOutcome, order: &[(u32, Option<BlockHash>)]) {
        let removed: Vec<BlockHash> = outcome
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Removed { hash } => Some(hash),
                _ => None,
            })
            .collect();
        let mut next = removed.iter().peekable();
        let mut last = 0;
        for (at, (_, hash)) in order.iter().enumerate() {
            if hash.is_some() && next.peek().copied() == hash.as_ref() {
                next.next();
                last = at;
            }
        }
        assert_eq!(next.next(), None, "evicted out of order");
        if !removed.is_empty() {
            for (id, _) in &order[..last] {
                assert!(
                    self.engine.pool().users(*id) > 0,
                    "block {id} was older and is still free"
                );
            }
        }
    }

    /// Blocks are neither lost nor doubled.
    fn check_blocks(&self) {
        let pool = self.engine.pool();
        pool.check_copies();
        let mut users = vec![0; pool.usable() as usize];
        for state in self.engine.open() {
            assert!(state.computed <= state.blocks.len() as u32 * BLOCK);
            state.blocks.iter().for_each(|id| users[*id as usize] += 1);
        }
        let mut free = vec![false; users.len()];
        let order = pool.eviction_order();
        assert_eq!(order.len(), pool.free() as usize);
        for (id, _) in order {
            assert!(
                !std::mem::replace(&mut free[id as usize], true),
                "block {id} is free twice"
            );
        }
        for (id, (users, free)) in users.iter().zip(free).enumerate() {
            assert_eq!(*users, pool.users(id as u32), "users of block {id}");
            assert_eq!(*users == 0, free, "block {id} is free or in use");
        }
    }

    fn run_out(&mut self) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 20_000, "the engine makes no progress");
        }
        let load = self.engine.load();
        assert_eq!((load.running, load.waiting, load.uncomputed_tokens), (0, 0, 0));
        assert_eq!(load.kv_usage, 0.0);
        let counters = self.engine.counters();
        assert_eq!(counters.finished, self.finished);
        if counters.preemptions == 0 && !self.aborted {
            assert_eq!(
                counters.prefilled_tokens, self.uncached,
                "no token is computed twice"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_load_keeps_the_books(small in any_small(), todo in prop::collection::vec(any_do(), 1..60)) {
        let mut watch = Watch::new(&small);
        for what in &todo {
            watch.act(what);
        }
        watch.run_out();
    }

    #[test]
    fn prompts_without_tokens_take_the_same_steps(todo in prop::collection::vec((0..3_u32, 0..60_u32, 1..40_u32, 1..20_u32), 1..25)) {
        let mut config = EngineConfig::new(Gpu::h20(), Model::qwen2_7b(), 0.85);
        config.num_gpu_blocks = 20;
        let root = BlockHash::root(0, None, None);
        let mut engines = [Engine::new(config.clone()).unwrap(), Engine::new(config.clone()).unwrap()];
        for (nth, (family, shared, own, output)) in todo.into_iter().enumerate() {
            let unique = 1_000 + nth as u32 * 64;
            let tokens: Arc<[u32]> = (0..shared).map(|at| family * 100 + at).chain(unique..unique + own).collect();
            let real = Prompt::tokens(tokens, root, config.block_size);
            let synthetic = Prompt::synthetic(real.len(), root, real.hashes().into());
            for (engine, prompt) in engines.iter_mut().zip([real, synthetic]) {
                let request = Request {
                    id: RequestId(nth as u64),
                    prompt,
                    output: Output::Drawn { seed: nth as u64, vocabulary: Arc::default() },
                    max_output: output,
                    report_reused: false,
                };
                engine.add(request, Duration::ZERO).unwrap();
            }
        }
        let mut now = Duration::ZERO;
        loop {
            let [real, synthetic] = engines.each_mut().map(|engine| engine.step(now));
            prop_assert_eq!(real.is_some(), synthetic.is_some());
            let (Some(real), Some(synthetic)) = (real, synthetic) else { break };
            prop_assert_eq!(real.duration, synthetic.duration);
            prop_assert_eq!(&real.tokens, &synthetic.tokens);
            prop_assert_eq!(real.events.len(), synthetic.events.len());
            now = real.ends();
        }
    }
}

#[test]
fn a_request_that_can_never_fit_is_refused_and_the_queue_goes_on() {
    let mut watch = Watch::new(&Small {
        blocks: 10,
        seqs: 4,
        budget: 16,
        reserve: true,
    });
    let request = |id, tokens: u32, max_output| Request {
        id: RequestId(id),
        prompt: Prompt::tokens((0..tokens).collect(), BlockHash::root(0, None, None), BLOCK),
        output: Output::Drawn {
            seed: 0,
            vocabulary: Arc::default(),
        },
        max_output,
        report_reused: false,
    };
    let refused = watch
        .engine
        .add(request(900, 30, 12), Duration::ZERO)
        .unwrap_err();
    assert!(
        refused.to_string().contains("11 KV blocks and the engine has 10"),
        "{refused}"
    );
    assert!(
        watch.engine.add(request(901, 30, 11), Duration::ZERO).is_ok(),
        "the last token needs no room"
    );
    assert!(
        watch.engine.add(request(901, 3, 1), Duration::ZERO).is_err(),
        "ids are unique"
    );
    assert!(watch.engine.add(request(902, 3, 0), Duration::ZERO).is_err());
    assert!(watch.engine.add(request(903, 0, 1), Duration::ZERO).is_err());
}

#[test]
fn the_youngest_is_preempted_and_comes_back_with_what_is_still_cached() {
    let mut watch = Watch::new(&Small {
        blocks: 18,
        seqs: 4,
        budget: 64,
        reserve: true,
    });
    for family in 0..3 {
        watch.add((family * 100..family * 100 + 20).collect(), 16);
    }
    let oldest = RequestId(0);
    while watch.engine.counters().preemptions == 0 {
        assert!(watch.step());
    }
    assert_eq!(watch.engine.running_ids(), [oldest, RequestId(1)]);
    watch.run_out();
    assert_eq!(watch.finished, 3);
}

#[test]
fn without_prefix_caching_nothing_is_shared_and_nothing_announced() {
    let mut watch = Watch::new(&Small {
        blocks: 40,
        seqs: 4,
        budget: 64,
        reserve: true,
    });
    let mut config = watch.engine.config().clone();
    config.enable_prefix_caching = false;
    watch.engine = Engine::new(config).unwrap();
    for _ in 0..2 {
        watch.add((0..20).collect(), 4);
        watch.run_out();
    }
    assert_eq!(watch.engine.counters().prefilled_tokens, 40);
}

#[test]
fn a_reset_is_announced_with_the_next_step_only() {
    let mut watch = Watch::new(&Small {
        blocks: 40,
        seqs: 4,
        budget: 64,
        reserve: true,
    });
    watch.add((0..20).collect(), 1);
    watch.run_out();
    assert!(watch.engine.reset_prefix_cache(false));
    assert!(watch.engine.reset_prefix_cache(false));
    assert!(
        watch.engine.step(watch.now).is_none(),
        "an idle engine says nothing"
    );
    watch.add((0..20).collect(), 1);
    let outcome = watch.engine.step(watch.now).unwrap();
    let cleared = outcome
        .events
        .iter()
        .take_while(|event| *event == Event::Cleared)
        .count();
    assert_eq!((cleared, outcome.events.len()), (2, 3));
}

/// A conversation hour at 1.2 requests a second, 12k tokens in and 340 out, on one engine; optimised builds are
/// several times as fast.
#[test]
fn an_hour_of_one_engine_takes_little_real_time() {
    let config = EngineConfig::new(Gpu::h20(), Model::qwen2_7b(), 0.85);
    let root = BlockHash::root(0, None, None);
    let mut engine = Engine::new(config.clone()).unwrap();
    let mut outcome = StepOutcome::default();
    let began = std::time::Instant::now();
    let mut now = Duration::ZERO;
    let mut next = 0_u64;
    while now < Duration::from_hours(1) {
        while Duration::from_millis(833 * next) <= now {
            let family = next % 64;
            let hashes = (0..750_u64).map(|block| {
                let owner = if block < 500 { family } else { 1_000 + next };
                root.marked_child(owner << 32 | block)
            });
            let request = Request {
                id: RequestId(next),
                prompt: Prompt::synthetic(12_000, root, hashes.collect()),
                output: Output::Drawn {
                    seed: next,
                    vocabulary: Arc::default(),
                },
                max_output: 340,
                report_reused: false,
            };
            engine.add(request, now).unwrap();
            next += 1;
        }
        now = if engine.step_into(now, &mut outcome) {
            outcome.ends()
        } else {
            Duration::from_millis(833 * next)
        };
    }
    let took = began.elapsed();
    println!(
        "{} steps, {} requests in {took:?}",
        engine.counters().steps,
        engine.counters().finished
    );
    assert!(engine.counters().finished > 3_000);
    assert!(took < Duration::from_secs(8), "an hour took {took:?}");
}
