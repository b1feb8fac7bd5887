//! A source that is fed, and an index that believes what it says.

use std::{collections::BTreeSet, sync::Arc};

use lmetric_kvevents::{Adoption, Command, Generation, Op, Outcome, ReplayId, Source, SourceConfig};
use lmetric_prefix::{BlockKey, KeySeed, PrefixIndex, SourceId};

const ID: SourceId = SourceId(3);

pub(super) struct Fed {
    source: Source,
    generation: Generation,
    replay: Option<ReplayId>,
    /// Numbers of the next messages: live, replayed.
    next: (u64, u64),
    index: PrefixIndex,
    held: BTreeSet<u64>,
    gapless: bool,
    asked: u64,
    /// The largest bound so far: what is held stays held when the engine names fewer blocks later.
    bound: u64,
}

impl Fed {
    pub(super) fn new(gpu_blocks: u32, replay: bool, ranked: bool) -> Self {
        let mut source = Source::new(SourceConfig {
            group: Arc::from("tiny"),
            seed: KeySeed::new(17),
            rank: ranked.then_some(0),
            replay,
            gpu_blocks,
        });
        let mut out = Outcome::default();
        let generation = source.connected(&mut out);
        let bound = source.stats().bound;
        let mut fed = Self {
            source,
            generation,
            replay: None,
            next: (0, 0),
            index: PrefixIndex::new(),
            held: BTreeSet::new(),
            gapless: true,
            asked: 0,
            bound,
        };
        fed.take(out);
        fed
    }

    pub(super) fn step(&mut self, kind: u8, payload: &[u8]) {
        let mut out = Outcome::default();
        let adopts = kind & 8 != 0;
        self.asked += 1;
        let asked = self.asked;
        // somebody's open reservation fits
        let mut adopt = |_: &[_]| {
            let key = |raw| BlockKey::from_raw(raw + 1);
            adopts.then(|| Adoption {
                parent: key(asked % 5),
                prefix: (0..=asked % 5).map(key).collect(),
            })
        };
        match kind & 7 {
            6 => {
                let keys: Vec<_> = payload
                    .chunks_exact(8)
                    .filter_map(|raw| raw.try_into().ok().map(u64::from_le_bytes))
                    .map(BlockKey::from_raw)
                    .collect();
                if adopts {
                    self.source.expect_report(keys);
                } else {
                    self.source.infer(&keys, &mut out);
                }
            }
            7 => self.connection(payload, &mut adopt, &mut out),
            5 => {
                if let Some(id) = self.replay {
                    let seq = self.next.1;
                    self.next.1 += 1;
                    self.source.replayed(id, seq, payload, &mut adopt, &mut out);
                }
            }
            gap => {
                let seq = self.next.0 + u64::from(gap == 4);
                self.next.0 = seq + 1;
                self.source
                    .live(self.generation, seq, payload, &mut adopt, &mut out);
            }
        }
        self.take(out);
    }

    fn connection(&mut self, payload: &[u8], adopt: &mut lmetric_kvevents::Adopt<'_>, out: &mut Outcome) {
        let (what, value) = match payload {
            [] => return,
            [what] => (what, 0),
            [what, value, ..] => (what, *value),
        };
        match what % 8 {
            0 => self.generation = self.source.connected(out),
            1 => self.source.disconnected(self.generation),
            2 => self.source.restarted(out),
            3 => self.source.probe(out),
            4 => self.source.set_blocks(u32::from(value)),
            5 => self.source.malformed(),
            6 => {
                if let Some(id) = self.replay.take() {
                    self.source.replay_ended(id, adopt, out);
                }
            }
            _ => {
                if let Some(id) = self.replay.take() {
                    self.source.replay_failed(id, adopt, out);
                }
            }
        }
    }

    /// As the transport and the index do.
    fn take(&mut self, out: Outcome) {
        for op in out.ops {
            match op {
                Op::Store { key, .. } | Op::Adopt { key, .. } => {
                    self.index.insert(ID, key);
                    self.held.insert(key.get());
                }
                Op::Infer { key } => {
                    assert!(self.index.insert(ID, key), "inferred what is held");
                    self.held.insert(key.get());
                }
                Op::Remove { key } => {
                    assert!(self.index.remove(ID, key), "removed what is not held");
                    assert!(self.held.remove(&key.get()));
                }
                Op::Clear => {
                    self.index.clear(ID);
                    self.held.clear();
                    self.gapless = true;
                }
                Op::Gapless(gapless) => {
                    assert_ne!(gapless, self.gapless, "told twice");
                    self.gapless = gapless;
                }
            }
        }
        match out.command {
            Some(Command::Resubscribe) => {
                let mut out = Outcome::default();
                self.source.disconnected(self.generation);
                self.generation = self.source.connected(&mut out);
                self.next.0 = 0;
                self.take(out);
            }
            Some(Command::Replay { from, id }) => {
                self.replay = Some(id);
                self.next.1 = from;
            }
            None => {}
        }
    }

    /// Bounds, and that the source, the index and the plain count agree.
    pub(super) fn check(&mut self) {
        let stats = self.source.stats();
        self.bound = self.bound.max(stats.bound);
        assert!(stats.used <= self.bound, "{stats:?}");
        assert_eq!(stats.held as usize, self.held.len(), "{stats:?}");
        assert_eq!(self.index.held_by(ID), self.held.len());
    }
}
