use proptest::prelude::*;

use super::{Before, Blocks, Cause, EngineHash, plain::Plain};
use crate::Op;
use lmetric_prefix::{BlockKey, ContentHash};

const ROOT: u64 = 77;

/// A block of a small forest: its content, and the one before it. Two of three go on with the one before them.
fn before(number: u32) -> Option<u32> {
    match number % 6 {
        _ if number < 4 => None,
        0 => Some(number / 2),
        5 => Some(3),
        _ => Some(number - 1),
    }
}

fn content(number: u32) -> ContentHash {
    ContentHash::of(&[number])
}

/// Keys from the first block of the prompt to this one.
fn chain(number: u32) -> Vec<BlockKey> {
    let mut path = vec![number];
    while let Some(above) = before(path[path.len() - 1]) {
        path.push(above);
    }
    let mut key = BlockKey::from_raw(ROOT);
    path.iter()
        .rev()
        .map(|number| {
            key = key.child(content(*number));
            key
        })
        .collect()
}

fn key(number: u32) -> BlockKey {
    *chain(number).last().unwrap()
}

/// The engine's hash of a block; `salt` gives the same block another.
fn hash(number: u32, salt: u64, group: u16) -> EngineHash {
    EngineHash {
        hash: u64::from(number) | salt << 40,
        group,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Store(u32, u64, u16, u16, bool),
    Remove(u32, u64, u16),
    Infer(u32, bool),
    Senseless(Vec<u64>),
    Unpin(u32),
    Forget,
    Gapless,
    Clear,
}

fn salt() -> impl Strategy<Value = u64> {
    prop_oneof![8 => Just(0_u64), 1 => 1_u64..3]
}

fn group() -> impl Strategy<Value = u16> {
    prop_oneof![8 => Just(1_u16), 1 => Just(0_u16)]
}

fn copies() -> impl Strategy<Value = u16> {
    prop_oneof![6 => Just(1_u16), 1 => 2_u16..4, 1 => Just(300_u16), 1 => Just(u16::MAX)]
}

fn step(blocks: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..blocks, salt(), group(), copies(), any::<bool>())
            .prop_map(|(n, s, g, c, again)| Step::Store(n, s, g, c, again)),
        8 => (0..blocks, salt(), group()).prop_map(|(n, s, g)| Step::Remove(n, s, g)),
        2 => (0..blocks, any::<bool>()).prop_map(|(n, pin)| Step::Infer(n, pin)),
        1 => prop::collection::vec(0_u64..6, 1..5).prop_map(Step::Senseless),
        2 => (0..blocks).prop_map(Step::Unpin),
        1 => Just(Step::Forget),
        2 => Just(Step::Gapless),
    ]
}

/// Both books.
#[derive(Default)]
struct Both {
    blocks: Blocks,
    plain: Plain,
}

impl Both {
    fn check(&self, blocks: u32) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.blocks.used(), self.plain.used());
        prop_assert_eq!(self.blocks.held(), self.plain.held());
        for number in 0..blocks {
            for (salt, group) in [(0, 1), (0, 0), (1, 1)] {
                let hash = hash(number, salt, group);
                let found = self.blocks.find(hash);
                prop_assert_eq!(found.map(|node| self.blocks.key(node)), self.plain.find(hash));
                if let (Some(node), Some(key)) = (found, self.plain.find(hash)) {
                    let root = BlockKey::from_raw(ROOT);
                    let above = self.plain.parent(key).unwrap_or(root);
                    prop_assert_eq!(self.blocks.key_before(node, root), above);
                }
            }
            let chain = chain(number);
            prop_assert_eq!(self.blocks.missing(&chain), self.plain.missing(&chain));
            prop_assert_eq!(self.blocks.knows_first(chain[0]), self.plain.knows(chain[0]));
        }
        Ok(())
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let (mut said, mut expected) = (Vec::new(), Vec::new());
        match *step {
            Step::Store(number, salt, group, copies, again) => {
                let hash_of = |number| hash(number, salt, group);
                let hash = hash_of(number);
                if let Some(node) = self.blocks.find(hash) {
                    if again {
                        self.blocks.add_copy(hash, node);
                        self.plain.add_copy(hash);
                    }
                    return Ok(());
                }
                let above = before(number).map(hash_of);
                let (node, plain) = match above {
                    None => (
                        Before::Root(BlockKey::from_raw(ROOT)),
                        (BlockKey::from_raw(ROOT), false),
                    ),
                    Some(above) => match self.blocks.find(above) {
                        Some(node) => (Before::Node(node), (self.blocks.key(node), true)),
                        None => return Ok(()),
                    },
                };
                let cause = if again { Cause::Earlier } else { Cause::Computed };
                self.blocks
                    .store(hash, node, content(number), copies, cause, &mut said);
                self.plain
                    .store(hash, plain, content(number), copies, cause, &mut expected);
            }
            Step::Remove(number, salt, group) => {
                let hash = hash(number, salt, group);
                prop_assert_eq!(
                    self.blocks.remove(hash, &mut said),
                    self.plain.remove(hash, &mut expected)
                );
            }
            Step::Infer(number, pin) => {
                let keys = chain(number);
                let last = self.blocks.infer(&keys, &mut said).unwrap();
                self.plain.infer(&keys, &mut expected);
                // what is inferred has a child or a pin
                if pin || !self.blocks.chains.nodes.has_children(last) {
                    prop_assert_eq!(self.blocks.pin(last), self.plain.pin(keys[keys.len() - 1]));
                }
            }
            Step::Senseless(ref raw) => {
                let keys: Vec<BlockKey> = raw.iter().map(|raw| BlockKey::from_raw(*raw)).collect();
                let last = self.blocks.infer(&keys, &mut said).unwrap();
                self.plain.infer(&keys, &mut expected);
                prop_assert_eq!(self.blocks.pin(last), self.plain.pin(keys[keys.len() - 1]));
                prop_assert_eq!(self.blocks.missing(&keys), 0);
            }
            Step::Unpin(number) => {
                self.blocks.unpin(key(number), &mut said);
                self.plain.unpin(key(number), &mut expected);
            }
            Step::Forget => prop_assert_eq!(self.blocks.forget_copies(), self.plain.forget_copies()),
            Step::Gapless => {
                self.blocks.tell_gapless(&mut said);
                self.plain.tell_gapless(&mut expected);
            }
            Step::Clear => {
                self.blocks.clear();
                self.plain = Plain::default();
            }
        }
        prop_assert_eq!(said, expected);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn compact_books_say_what_plain_books_say(steps in prop::collection::vec(step(40), 1..300)) {
        let mut both = Both::default();
        for step in &steps {
            both.take(step)?;
            prop_assert_eq!(both.blocks.used(), both.plain.used());
        }
        both.check(40)?;
        both.take(&Step::Clear)?;
        both.check(40)?;
    }
}

#[test]
fn books_of_many_blocks_agree_while_they_grow_turn_over_and_empty() {
    let blocks = 6_000;
    let mut both = Both::default();
    let mut number = 1_u32;
    for round in 0..4 {
        for _ in 0..3 * blocks {
            // a full cycle of a linear congruence, so that stores and removals come in no order
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (which, odd) = (number >> 8, number >> 4);
            let step = if odd % 8 < 5 {
                Step::Store(which % blocks, 0, 1, 1, odd % 3 == 0)
            } else {
                Step::Remove(which % blocks, 0, 1)
            };
            both.take(&step).unwrap();
        }
        both.check(blocks).unwrap();
        for number in (0..blocks).rev().filter(|number| round == 3 || number % 4 != 1) {
            while both.plain.find(hash(number, 0, 1)).is_some() {
                both.take(&Step::Remove(number, 0, 1)).unwrap();
            }
        }
        both.take(&Step::Gapless).unwrap();
        both.check(blocks).unwrap();
    }
    assert_eq!((both.blocks.used(), both.blocks.held()), (0, 0));
}

#[test]
fn a_block_with_many_children_finds_each_and_loses_each() {
    let mut both = Both::default();
    let children: Vec<u32> = (4..4_000).filter(|number| number % 6 == 5).collect();
    both.take(&Step::Store(3, 0, 1, 1, false)).unwrap();
    for child in &children {
        both.take(&Step::Store(*child, 0, 1, 1, false)).unwrap();
    }
    both.check(4_000).unwrap();
    // the parent goes first and stays as a hole until the last child goes
    both.take(&Step::Remove(3, 0, 1)).unwrap();
    for child in &children {
        both.take(&Step::Remove(*child, 0, 1)).unwrap();
    }
    both.take(&Step::Gapless).unwrap();
    assert_eq!((both.blocks.used(), both.blocks.chains.nodes.len()), (0, 0));
}

/// A chain of blocks as one prompt stores them.
fn fill(blocks: &mut Blocks, count: u32) {
    let mut at = Before::Root(BlockKey::from_raw(ROOT));
    let mut ops = Vec::new();
    for number in 0..count {
        // as random as an engine's hashes
        let hash = EngineHash {
            hash: ContentHash::of(&[number]).get(),
            group: 0,
        };
        at = Before::Node(blocks.store(hash, at, content(number), 1, Cause::Computed, &mut ops));
        ops.clear();
    }
}

#[test]
fn a_block_costs_about_thirty_bytes_at_any_size() {
    for count in [20_000, 21_000, 23_000, 26_000, 30_000, 33_000, 40_000] {
        let mut blocks = Blocks::default();
        fill(&mut blocks, count);
        let bytes = blocks.heap_bytes() as f64 / f64::from(count);
        println!("{count} blocks: {bytes:.1} bytes each");
        assert!(bytes <= 31.0, "{count} blocks: {bytes} bytes each");
    }
}

#[test]
fn memory_stays_where_it_is_while_blocks_come_and_go() {
    let mut blocks = Blocks::default();
    let mut ops = Vec::new();
    let hash = |number: u32| EngineHash {
        hash: ContentHash::of(&[number]).get(),
        group: 0,
    };
    let root = Before::Root(BlockKey::from_raw(ROOT));
    let window = 20_000;
    for number in 0..window {
        blocks.store(hash(number), root, content(number), 1, Cause::Computed, &mut ops);
    }
    let settled = blocks.heap_bytes();
    for number in window..12 * window {
        blocks.remove(hash(number - window), &mut ops);
        blocks.store(hash(number), root, content(number), 1, Cause::Computed, &mut ops);
        ops.clear();
    }
    let bytes = blocks.heap_bytes();
    assert!(bytes <= settled * 9 / 8, "{settled} bytes at first, {bytes} now");
    assert_eq!(blocks.used(), window as usize);
}

#[test]
fn what_is_said_of_a_block_that_is_reported_is_no_store() {
    let mut blocks = Blocks::default();
    let mut ops = Vec::new();
    let root = Before::Root(BlockKey::from_raw(ROOT));
    blocks.store(hash(0, 0, 0), root, content(0), 1, Cause::Reported, &mut ops);
    assert_eq!(ops, [Op::Infer { key: key(0) }]);
}
