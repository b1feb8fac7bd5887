//! Whatever an engine sends: no panic, no more memory than the bound, and operations that fit each other. And
//! whatever consistent stores and removals it sends in any order: what the plain model says.

use std::collections::{BTreeSet, HashMap};

use lmetric_kvevents::Adoption;
use lmetric_prefix::{BlockKey, ContentHash};
use proptest::prelude::*;
use rmpv::Value;

use crate::{
    captures,
    encode::{self, BLOCK, batch, with},
    plain::{self, Fed},
};

fn within_bound(fed: &Fed) -> Result<(), TestCaseError> {
    let stats = fed.source.stats();
    prop_assert!(stats.used <= stats.bound, "{stats:?}");
    prop_assert!(stats.offloaded <= 2 * stats.bound, "{stats:?}");
    prop_assert_eq!(stats.held as usize, fed.applied.held.len());
    Ok(())
}

/// Events that are well-formed and make no sense: few hashes, so that they meet.
fn event() -> impl Strategy<Value = Value> {
    let hash = 0_u64..24;
    let hashes = prop::collection::vec(hash.clone(), 0..6);
    let store = (
        hashes.clone(),
        prop::option::of(hash),
        0_u32..3,
        0_u64..3,
        0_usize..12,
    )
        .prop_map(|(hashes, parent, token, group, odd)| {
            let event = encode::stored(&hashes, parent, &vec![token; hashes.len() * BLOCK as usize]);
            let event = with(event, "group_idx", Some(group.into()));
            match odd {
                0 => with(event, "medium", Some("CPU".into())),
                1 => with(event, "kv_cache_spec_kind", Some("mamba".into())),
                2 => with(event, "extra_keys", None),
                3 => with(event, "lora_name", Some("a".into())),
                4 => with(event, "block_size", Some(u64::MAX.into())),
                _ => event,
            }
        });
    let remove = (hashes, 0_u64..3)
        .prop_map(|(hashes, group)| with(encode::removed(&hashes), "group_idx", Some(group.into())));
    prop_oneof![
        8 => store,
        8 => remove,
        1 => Just(encode::all_cleared()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn senseless_events_stay_within_the_bound(
        batches in prop::collection::vec(prop::collection::vec(event(), 1..6), 1..40),
        gpu_blocks in 1_u32..12,
        adopts in prop::collection::vec(prop::option::of(prop::collection::vec(0_u64..9, 0..4)), 1..8),
    ) {
        let mut fed = Fed::new(gpu_blocks);
        let mut asked = 0;
        for (at, events) in batches.into_iter().enumerate() {
            fed.feed_adopting(&batch(events), &mut |_| {
                asked += 1;
                let prefix: Vec<BlockKey> =
                    adopts[asked % adopts.len()].as_ref()?.iter().map(|&raw| BlockKey::from_raw(raw)).collect();
                Some(Adoption { parent: *prefix.last().unwrap_or(&BlockKey::from_raw(1)), prefix })
            });
            if at % 7 == 3 {
                let mut out = lmetric_kvevents::Outcome::default();
                let keys: Vec<BlockKey> = (0..at as u64 % 5).map(BlockKey::from_raw).collect();
                fed.source.infer(&keys, &mut out);
                fed.source.expect_report(keys);
                fed.applied.take(out);
            }
            within_bound(&fed)?;
        }
    }

    #[test]
    fn events_in_one_batch_hold_what_they_hold_one_by_one(
        batches in prop::collection::vec(prop::collection::vec(event(), 1..30), 1..12),
    ) {
        let (mut together, mut alone) = (Fed::new(4_096), Fed::new(4_096));
        for events in batches {
            for event in &events {
                alone.feed(&batch(vec![event.clone()]));
            }
            together.feed(&batch(events));
            prop_assert_eq!(&together.applied.held, &alone.applied.held);
            prop_assert_eq!(together.applied.gapless, alone.applied.gapless);
            let (mut whole, parts) = (together.source.stats(), alone.source.stats());
            (whole.batches, whole.last_seq) = (parts.batches, parts.last_seq);
            prop_assert_eq!(whole, parts);
        }
    }

    #[test]
    fn altered_captures_stay_within_the_bound(changes in prop::collection::vec((0_usize..53, any::<u16>(), any::<u8>()), 1..200)) {
        let mut lines = captures::live("events/evict-b16-28blocks");
        for (line, at, byte) in changes {
            let payload = lines[line].frames.last_mut().unwrap();
            let at = usize::from(at) % payload.len();
            payload[at] = byte;
        }
        let mut fed = Fed::new(28);
        for line in &lines {
            fed.feed(line.payload());
            within_bound(&fed)?;
        }
    }
}

/// A forest of blocks: each has one parent, or begins a prompt.
fn parent(block: u64) -> Option<u64> {
    match (block % 5, block % 7) {
        (0, _) => None,
        (rest, 3) => Some(block - rest),
        _ => Some(block - 1),
    }
}

fn content(block: u64) -> [u32; BLOCK as usize] {
    [block as u32 + 1; BLOCK as usize]
}

fn key(block: u64) -> BlockKey {
    let before = parent(block).map_or_else(|| plain::root(None, None, BLOCK), key);
    before.child(ContentHash::of(&content(block)))
}

/// Copies of blocks, and whether each has found its place; the obvious way.
#[derive(Default)]
struct Model(HashMap<u64, (u32, bool)>);

impl Model {
    fn placed(&self, block: u64) -> bool {
        self.0.get(&block).is_some_and(|(_, placed)| *placed)
    }

    fn store(&mut self, block: u64) {
        let place = parent(block).is_none_or(|parent| self.placed(parent));
        let entry = self.0.entry(block).or_insert((0, place));
        entry.0 += 1;
        loop {
            let found = self.0.iter().find(|(block, (_, placed))| {
                !placed && parent(**block).is_none_or(|parent| self.placed(parent))
            });
            let Some(block) = found.map(|(block, _)| *block) else {
                return;
            };
            self.0.get_mut(&block).unwrap().1 = true;
        }
    }

    fn remove(&mut self, block: u64) {
        if let Some(entry) = self.0.get_mut(&block) {
            entry.0 -= 1;
            if entry.0 == 0 {
                self.0.remove(&block);
            }
        }
    }

    fn held(&self) -> BTreeSet<u64> {
        self.0
            .iter()
            .filter(|(_, (_, placed))| *placed)
            .map(|(block, _)| key(*block).get())
            .collect()
    }

    fn has_hole(&self) -> bool {
        self.0
            .iter()
            .any(|(block, (_, placed))| *placed && parent(*block).is_some_and(|parent| !self.placed(parent)))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn stores_and_removals_in_any_order_leave_what_the_plain_model_says(
        steps in prop::collection::vec((0_u64..30, any::<bool>()), 1..200)
    ) {
        let mut fed = Fed::new(1_000);
        let mut model = Model::default();
        for (block, stores) in steps {
            if stores {
                model.store(block);
                fed.feed(&batch(vec![encode::stored(&[block], parent(block), &content(block))]));
            } else {
                model.remove(block);
                fed.feed(&batch(vec![encode::removed(&[block])]));
            }
            prop_assert_eq!(&fed.applied.held, &model.held());
            prop_assert_eq!(fed.applied.gapless, !model.has_hole());
            let waiting = model.0.values().filter(|(_, placed)| !placed).count();
            prop_assert_eq!(fed.source.stats().orphans as usize, waiting);
        }
        for block in 0..30 {
            while model.0.contains_key(&block) {
                model.remove(block);
                fed.feed(&batch(vec![encode::removed(&[block])]));
            }
        }
        prop_assert_eq!(fed.source.stats().used, 0);
    }
}
