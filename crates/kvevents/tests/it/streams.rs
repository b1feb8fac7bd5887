//! Whatever a network and an engine do to the stream: a source that says it is live holds exactly what the engine
//! holds, and any other source nothing that the engine never stored.

use std::collections::{BTreeSet, VecDeque};

use lmetric_kvevents::{Command, Generation, Outcome, ReplayId, Source, SourceState};
use proptest::prelude::*;

use crate::{
    encode::{self, Chain},
    plain::{self, Applied},
};

#[derive(Clone, Debug)]
enum Step {
    /// The engine stores the next block of a chain.
    Store(usize),
    /// The engine evicts the last block of a chain.
    Evict(usize),
    Clear,
    /// The next live message arrives.
    Deliver,
    /// The next live message is lost.
    Lose,
    Disconnect,
    Connect,
    /// The engine restarts; connections to it break.
    Restart,
    /// The replay that was asked for is served, without these of its messages, and cut off before its end or not.
    Replay(Vec<usize>, bool),
    /// Nobody answers it.
    ReplayFails,
    /// Nothing was heard for a while.
    Probe,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0_usize..4).prop_map(Step::Store),
        5 => (0_usize..4).prop_map(Step::Evict),
        1 => Just(Step::Clear),
        14 => Just(Step::Deliver),
        2 => Just(Step::Lose),
        1 => Just(Step::Disconnect),
        2 => Just(Step::Connect),
        1 => Just(Step::Restart),
        6 => (prop::collection::vec(0_usize..12, 0..3), any::<bool>()).prop_map(|(holes, cut)| Step::Replay(holes, cut)),
        4 => Just(Step::Replay(Vec::new(), false)),
        1 => Just(Step::ReplayFails),
        2 => Just(Step::Probe),
    ]
}

struct Engine {
    incarnation: u32,
    chains: Vec<Chain>,
    stored: Vec<usize>,
    next: u64,
    ring: VecDeque<(u64, Vec<u8>)>,
    capacity: usize,
}

impl Engine {
    fn publish(&mut self, event: rmpv::Value) -> (u64, Vec<u8>) {
        let time = f64::from(self.incarnation) * 1e6 + self.next as f64;
        let message = (self.next, encode::batch_at(time, vec![event]));
        self.next += 1;
        self.ring.push_back(message.clone());
        if self.ring.len() > self.capacity {
            self.ring.pop_front();
        }
        message
    }

    fn held(&self) -> BTreeSet<u64> {
        let held = self.chains.iter().zip(&self.stored);
        held.flat_map(|(chain, &stored)| chain.keys[..stored].iter().map(|key| key.get()))
            .collect()
    }

    fn restart(&mut self) {
        self.incarnation += 1;
        self.stored.fill(0);
        self.next = 0;
        self.ring.clear();
    }
}

struct World {
    engine: Engine,
    source: Source,
    applied: Applied,
    generation: Option<Generation>,
    live: VecDeque<(u64, Vec<u8>)>,
    replay: Option<(u64, ReplayId)>,
    /// Whether the engine offers replays.
    replays: bool,
    /// The engine restarted and no replay has shown it yet.
    restarted: bool,
}

impl World {
    fn new(replay: bool, capacity: usize) -> Self {
        let chains: Vec<Chain> = (0..4).map(|number| Chain::new(number, 30)).collect();
        Self {
            engine: Engine {
                incarnation: 0,
                stored: vec![0; chains.len()],
                chains,
                next: 0,
                ring: VecDeque::new(),
                capacity,
            },
            source: Source::new(plain::config(replay)),
            applied: Applied::new(),
            generation: None,
            live: VecDeque::new(),
            replay: None,
            replays: replay,
            restarted: false,
        }
    }

    fn publish(&mut self, event: rmpv::Value) {
        let message = self.engine.publish(event);
        if self.generation.is_some() {
            self.live.push_back(message);
        }
    }

    fn take(&mut self, out: Outcome) {
        match out.command {
            Some(Command::Replay { from, id }) => self.replay = Some((from, id)),
            Some(Command::Resubscribe) => {
                let connected = self.generation.is_some();
                self.disconnect();
                self.applied.take(out);
                if connected {
                    self.connect();
                }
                return;
            }
            None => {}
        }
        self.applied.take(out);
    }

    fn connect(&mut self) {
        if self.generation.is_none() {
            let mut out = Outcome::default();
            self.generation = Some(self.source.connected(&mut out));
            self.take(out);
        }
    }

    fn disconnect(&mut self) {
        if let Some(generation) = self.generation.take() {
            self.source.disconnected(generation);
        }
        self.live.clear();
        self.replay = None;
    }

    fn deliver(&mut self) -> bool {
        let (Some(generation), Some((seq, payload))) = (self.generation, self.live.pop_front()) else {
            return false;
        };
        let mut out = Outcome::default();
        self.source
            .live(generation, seq, &payload, &mut |_| None, &mut out);
        self.take(out);
        true
    }

    /// By numbers alone a publisher that has just reached the old number cannot be told from the old one: who
    /// sees the container restart says so.
    fn tell_restart(&mut self) {
        if std::mem::take(&mut self.restarted) {
            let mut out = Outcome::default();
            self.source.restarted(&mut out);
            self.take(out);
        }
    }

    fn serve(&mut self, holes: &[usize], cut: bool) -> bool {
        let Some((from, id)) = self.replay.take() else {
            return false;
        };
        let mut messages: Vec<_> = self
            .engine
            .ring
            .iter()
            .filter(|(seq, _)| *seq >= from)
            .cloned()
            .collect();
        let whole = messages.len();
        // what is lost is lost behind a full queue: never the first message
        let mut at = 0;
        messages.retain(|_| {
            at += 1;
            at == 1 || !holes.contains(&(at - 1))
        });
        if cut {
            messages.truncate(whole / 2);
        }
        for (seq, payload) in messages {
            let mut out = Outcome::default();
            self.source.replayed(id, seq, &payload, &mut |_| None, &mut out);
            self.take(out);
        }
        let mut out = Outcome::default();
        if cut {
            self.tell_restart();
            self.source.replay_failed(id, &mut |_| None, &mut out);
        } else {
            self.restarted = false;
            self.source.replay_ended(id, &mut |_| None, &mut out);
        }
        self.take(out);
        true
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Store(chain) => {
                let at = self.engine.stored[chain];
                if at < self.engine.chains[chain].keys.len() {
                    self.engine.stored[chain] += 1;
                    let event = self.engine.chains[chain].event(at..at + 1);
                    self.publish(event);
                }
            }
            Step::Evict(chain) => {
                if let Some(last) = self.engine.stored[chain].checked_sub(1) {
                    self.engine.stored[chain] = last;
                    let event = encode::removed(&self.engine.chains[chain].hashes[last..=last]);
                    self.publish(event);
                }
            }
            Step::Clear => {
                self.engine.stored.fill(0);
                self.publish(encode::all_cleared());
            }
            Step::Deliver => {
                self.deliver();
            }
            Step::Lose => {
                self.live.pop_front();
            }
            Step::Disconnect => self.disconnect(),
            Step::Connect => self.connect(),
            Step::Restart => {
                self.disconnect();
                self.engine.restart();
                self.restarted = true;
                if !self.replays {
                    self.tell_restart();
                }
            }
            Step::Replay(holes, cut) => {
                self.serve(&holes, cut);
            }
            Step::ReplayFails => {
                if let Some((_, id)) = self.replay.take() {
                    self.tell_restart();
                    let mut out = Outcome::default();
                    self.source.replay_failed(id, &mut |_| None, &mut out);
                    self.take(out);
                }
            }
            Step::Probe => {
                let mut out = Outcome::default();
                self.source.probe(&mut out);
                self.take(out);
            }
        }
    }
}

fn check(replay: bool, capacity: usize, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut world = World::new(replay, capacity);
    for step in steps {
        world.step(step);
    }
    // a loss is noticed at the next message, so there is one, and everything that is under way arrives
    world.connect();
    while world.deliver() || world.serve(&[], false) {}
    for chain in 0..2 {
        world.step(Step::Store(chain));
        world.step(Step::Evict(chain));
    }
    let mut rounds = 0;
    while world.deliver() || world.serve(&[], false) {
        rounds += 1;
        prop_assert!(rounds < 1_000, "no end to replays");
    }
    let held = world.engine.held();
    match world.source.state() {
        SourceState::Live => prop_assert_eq!(&world.applied.held, &held),
        SourceState::Partial => prop_assert!(world.applied.held.is_subset(&held)),
        state => prop_assert!(false, "still {:?}", state),
    }
    prop_assert!(world.applied.gapless);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn with_a_replay_endpoint(capacity in prop_oneof![Just(3_usize), Just(10), Just(1_000)],
                              steps in prop::collection::vec(step(), 0..120)) {
        check(true, capacity, steps)?;
    }

    #[test]
    fn without_a_replay_endpoint(steps in prop::collection::vec(step(), 0..120)) {
        check(false, 1, steps)?;
    }
}
