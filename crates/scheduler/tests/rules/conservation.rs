//! Whatever happens in whatever order: nothing is lost, nothing is released twice, and in the end nothing is left.

use lmetric_prefix::BlockKey;
use lmetric_scheduler::{Outcome, Pick, PickRequest, Prompt, SchedulerConfig, ScrapeSample, Time};
use proptest::prelude::*;

use crate::bench::{Bench, ask, pairs, text};

#[derive(Clone, Debug)]
enum Step {
    Pick {
        prompts: Vec<usize>,
        weight: u32,
        estimated: bool,
    },
    Store {
        endpoint: usize,
        prompt: usize,
        from: usize,
        length: usize,
    },
    Decode {
        endpoint: usize,
        prompt: usize,
    },
    Evict {
        endpoint: usize,
        prompt: usize,
        from: usize,
    },
    FirstOutput {
        pick: usize,
    },
    Release {
        pick: usize,
        outcome: Outcome,
    },
    ServedBy {
        pick: usize,
        endpoint: usize,
    },
    Remove {
        endpoint: usize,
    },
    Restart {
        endpoint: usize,
    },
    Live {
        endpoint: usize,
        live: bool,
    },
    Scrape {
        endpoint: usize,
        running: u32,
    },
    Tick,
}

const ENDPOINTS: usize = 3;
const PROMPTS: usize = 6;

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Done),
        Just(Outcome::ClientAbort),
        Just(Outcome::ServerError),
        Just(Outcome::Unreachable),
        Just(Outcome::Unknown),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let endpoint = 0..ENDPOINTS;
    let prompt = 0..PROMPTS;
    let pick = 0..64_usize;
    prop_oneof![
        6 => (prop::collection::vec(prompt.clone(), 0..3), 1..4_u32, prop::bool::weighted(0.1))
            .prop_map(|(prompts, weight, estimated)| Step::Pick { prompts, weight, estimated }),
        6 => (endpoint.clone(), prompt.clone(), 0..12_usize, 1..8_usize)
            .prop_map(|(endpoint, prompt, from, length)| Step::Store { endpoint, prompt, from, length }),
        2 => (endpoint.clone(), prompt.clone()).prop_map(|(endpoint, prompt)| Step::Decode { endpoint, prompt }),
        1 => (endpoint.clone(), prompt, 0..12_usize)
            .prop_map(|(endpoint, prompt, from)| Step::Evict { endpoint, prompt, from }),
        2 => pick.clone().prop_map(|pick| Step::FirstOutput { pick }),
        5 => (pick.clone(), outcome()).prop_map(|(pick, outcome)| Step::Release { pick, outcome }),
        1 => (pick, 0..=ENDPOINTS).prop_map(|(pick, endpoint)| Step::ServedBy { pick, endpoint }),
        1 => endpoint.clone().prop_map(|endpoint| Step::Remove { endpoint }),
        1 => endpoint.clone().prop_map(|endpoint| Step::Restart { endpoint }),
        1 => (endpoint.clone(), any::<bool>()).prop_map(|(endpoint, live)| Step::Live { endpoint, live }),
        1 => (endpoint, 0..9_u32).prop_map(|(endpoint, running)| Step::Scrape { endpoint, running }),
        1 => Just(Step::Tick),
    ]
}

struct World {
    bench: Bench,
    prompts: Vec<Prompt>,
    picks: Vec<Pick>,
    /// Weight while it must still be open, by pick.
    open: Vec<Option<u64>>,
    now: Time,
    added: u16,
}

impl World {
    fn new(overlay: bool) -> Self {
        let config = SchedulerConfig {
            overlay,
            ..SchedulerConfig::default()
        };
        let bench = Bench::new(ENDPOINTS as u16, 16, config);
        let (a, b) = (text(1, 64), text(2, 64));
        let prompts = [
            a.clone(),
            [a.clone(), text(3, 70)].concat(),
            [a.clone(), text(3, 64), text(4, 32)].concat(),
            [b.clone(), text(5, 33)].concat(),
            b,
            text(6, 9),
        ]
        .map(|tokens| bench.prompt(&tokens))
        .to_vec();
        Self {
            bench,
            prompts,
            picks: Vec::new(),
            open: Vec::new(),
            now: Time::default(),
            added: 100,
        }
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        self.now = Time(self.now.0 + 1_500_000);
        let now = self.now;
        match step {
            Step::Pick {
                prompts,
                weight,
                estimated,
            } => {
                let mut chosen = prompts.clone();
                chosen.sort_unstable();
                chosen.dedup();
                let chosen: Vec<Prompt> = chosen.iter().map(|at| self.prompts[*at].clone()).collect();
                let request = PickRequest {
                    weight: *weight,
                    estimated: *estimated,
                    ..ask(&chosen)
                };
                let pick = self.bench.try_pick(&request, now).unwrap();
                let tokens: u64 = chosen.iter().map(|one| u64::from(one.tokens)).sum();
                prop_assert_eq!(pick.hit_tokens + pick.charged_tokens, tokens);
                self.picks.push(pick);
                self.open.push(Some(u64::from(*weight)));
            }
            Step::Store {
                endpoint,
                prompt,
                from,
                length,
            } => {
                let prompt = &self.prompts[*prompt];
                let blocks = prompt.chains[0].1.keys.len();
                let (from, to) = ((*from).min(blocks), (*from + *length).min(blocks));
                self.bench.store(*endpoint, prompt, from, to, now);
            }
            Step::Decode { endpoint, prompt } => {
                if let Some(last) = self.prompts[*prompt].chains[0].1.keys.last() {
                    let block = (*last, BlockKey::from_raw(self.now.0));
                    self.bench
                        .scheduler
                        .stored(self.bench.ids[*endpoint].slot, &[block], now);
                }
            }
            Step::Evict {
                endpoint,
                prompt,
                from,
            } => {
                let blocks = self.prompts[*prompt].chains[0].1.keys.len();
                self.bench
                    .evict(*endpoint, &self.prompts[*prompt], (*from).min(blocks), blocks);
            }
            Step::FirstOutput { pick } => {
                if let Some(pick) = self.picks.get(*pick) {
                    self.bench.scheduler.first_output(pick.reservation, now);
                }
            }
            Step::Release { pick, outcome } => {
                if let Some(found) = self.picks.get(*pick) {
                    let first = self.bench.scheduler.release(found.reservation, *outcome, now);
                    prop_assert_eq!(first, self.open[*pick].take().is_some(), "exactly once");
                }
            }
            Step::ServedBy { pick, endpoint } => {
                if let Some(found) = self.picks.get(*pick) {
                    let address = match self.bench.views(now).get(*endpoint) {
                        Some(view) => view.address,
                        None => "192.0.2.1:1".parse().unwrap(),
                    };
                    self.bench.scheduler.served_by(found.reservation, address, now);
                }
            }
            Step::Remove { endpoint } => {
                let id = self.bench.ids[*endpoint];
                let before = self.bench.scheduler.counters().released[4];
                self.bench.scheduler.remove(id, now);
                self.bench.index.write().clear(id.slot);
                self.bench.scheduler.free_slot(id.slot);
                self.added += 1;
                self.bench.ids[*endpoint] = self.bench.add(self.added);
                prop_assert!(self.bench.scheduler.counters().released[4] >= before);
                self.sweep();
            }
            Step::Restart { endpoint } => {
                let id = self.bench.ids[*endpoint];
                self.bench.scheduler.restarted(id, now);
                self.bench.index.write().clear(id.slot);
                self.sweep();
            }
            Step::Live { endpoint, live } => {
                self.bench
                    .scheduler
                    .set_source_live(self.bench.ids[*endpoint], *live, now);
            }
            Step::Scrape { endpoint, running } => {
                let sample = ScrapeSample {
                    sent: now,
                    running: *running,
                    waiting: 0,
                };
                self.bench
                    .scheduler
                    .scraped(self.bench.ids[*endpoint], sample, now);
            }
            Step::Tick => self.bench.scheduler.tick(now),
        }
        self.check()
    }

    /// After an endpoint went, learns which reservations went with it: exactly those that are not open any more.
    fn sweep(&mut self) {
        for (pick, open) in self.picks.iter().zip(&mut self.open) {
            let known = self.bench.scheduler.is_open(pick.reservation);
            if !known {
                *open = None;
            }
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let views = self.bench.views(self.now);
        let expected: Vec<u64> = self.open.iter().flatten().copied().collect();
        prop_assert_eq!(self.bench.scheduler.open(), expected.len());
        let bs: u64 = views.iter().map(|view| view.bs).sum();
        // what the gateway sent to an unknown address is open but nobody's load
        prop_assert!(bs <= expected.iter().sum());
        for view in &views {
            // a sum below zero would have wrapped
            prop_assert!(view.q < 1 << 40, "{}", view.q);
            prop_assert!(view.bs > 0 || (view.q == 0 && view.optimistic_blocks == 0));
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn bs_and_q_return_to_zero_after_any_interleaving(
        overlay in prop::bool::weighted(0.8),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = World::new(overlay);
        for step in &steps {
            world.run(step)?;
        }
        for at in 0..world.picks.len() {
            world.run(&Step::Release { pick: at, outcome: Outcome::Done })?;
        }
        prop_assert_eq!(world.bench.scheduler.open(), 0);
        for view in world.bench.views(world.now) {
            prop_assert_eq!((view.q, view.bs, view.optimistic_blocks), (0, 0, 0));
        }
        // nothing is left behind that a later event could move
        for endpoint in 0..ENDPOINTS {
            for prompt in &world.prompts {
                let blocks = pairs(prompt, 0, prompt.chains[0].1.keys.len());
                world.bench.scheduler.stored(world.bench.ids[endpoint].slot, &blocks, world.now);
            }
        }
        let left = world.bench.views(world.now).iter().map(|view| view.q).sum::<u64>();
        prop_assert_eq!(left, 0);
        let counters = world.bench.scheduler.counters();
        prop_assert_eq!(counters.released.iter().sum::<u64>(), counters.picks);
    }
}
