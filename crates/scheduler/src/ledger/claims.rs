//! Which open reservations of one endpoint have a block in their prompt, and where.
//!
//! Each prompt claims a run: all its blocks before its first own event, those from its reach on afterwards. Keys are chained,
//! so a block stands at the same position in every prompt that has it, and prompts that share a block share all before it. That
//! makes a dense list of runs enough: a pick compares one key for each of them (its *front*, the first outstanding block), and a
//! stored run of blocks is located once, by its first block. Nothing is kept for each block.

use std::sync::Arc;

use lmetric_prefix::{BlockKey, Chain};

use crate::key_map::KeyMap;

/// Ends of streams that are remembered; more are all forgotten, and looked for once more.
const MOST_TIPS: usize = 1 << 12;

/// Block `position` of prompt `track` of the reservation at `place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) place: u32,
    pub(crate) track: u32,
    pub(crate) position: u32,
}

/// The first outstanding block of a run; a position past the last block's when none is.
#[derive(Clone, Copy, Debug)]
struct Front {
    key: BlockKey,
    position: u32,
}

#[derive(Debug)]
struct Run {
    place: u32,
    track: u32,
    /// First block that is claimed.
    low: u32,
    /// Counts the runs of this endpoint.
    serial: u64,
    chain: Arc<Chain>,
}

/// What is known of the block that was last stored of some stream.
#[derive(Clone, Copy, Debug)]
enum Tip {
    /// Where it stands.
    At(u32),
    /// No prompt has it whose run's serial is at most this.
    Absent(u64),
}

impl Run {
    fn keys(&self) -> &[BlockKey] {
        &self.chain.keys
    }

    fn claim(&self, position: u32) -> Claim {
        Claim {
            place: self.place,
            track: self.track,
            position,
        }
    }
}

/// Claims of one endpoint's open reservations; all operations are O(runs), but for a stored block that begins a stream
/// nobody expected: that one is searched for in all prompts, O(their blocks).
#[derive(Debug, Default)]
pub(crate) struct Claims {
    runs: Vec<Run>,
    /// Of each run.
    fronts: Vec<Front>,
    serial: u64,
    /// Where streams of stored blocks, answers above all, have come to.
    tips: KeyMap<Tip>,
}

impl Claims {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Claims a prompt: its blocks from `low` on, of which those from `reach` on are outstanding. Instead of what it claimed
    /// before; nothing when `low` is its end.
    pub(crate) fn set(&mut self, place: u32, track: u32, chain: &Arc<Chain>, low: u32, reach: u32) {
        let at = self.find(place, track);
        if low as usize >= chain.keys.len() {
            if let Some(at) = at {
                self.drop_run(at);
            }
            return;
        }
        let front = Front {
            key: chain.keys.get(reach as usize).copied().unwrap_or(chain.root),
            position: reach,
        };
        if let Some(at) = at {
            self.runs[at].low = low;
            self.fronts[at] = front;
        } else {
            self.serial += 1;
            self.runs.push(Run {
                place,
                track,
                low,
                serial: self.serial,
                chain: Arc::clone(chain),
            });
            self.fronts.push(front);
        }
    }

    /// The prompt claims nothing any more.
    pub(crate) fn remove(&mut self, place: u32, track: u32) {
        if let Some(at) = self.find(place, track) {
            self.drop_run(at);
        }
    }

    /// Where `key`, which was stored after `parent`, stands in the prompts that have it, claimed or not. None when no prompt has it.
    pub(crate) fn position(&self, parent: BlockKey, key: BlockKey) -> Option<u32> {
        let fronts = self.fronts.iter().zip(&self.runs);
        let front = fronts
            .clone()
            .find(|(front, run)| front.key == key && (front.position as usize) < run.keys().len());
        if let Some((front, _)) = front {
            return Some(front.position);
        }
        let after = match self.tips.get(&parent) {
            Some(Tip::At(position)) => {
                let next = position + 1;
                let has = |run: &Run| run.keys().get(next as usize) == Some(&key);
                return self.runs.iter().any(has).then_some(next);
            }
            Some(Tip::Absent(serial)) => *serial,
            None => 0,
        };
        self.runs
            .iter()
            .filter(|run| run.serial > after)
            .find_map(|run| place_in(run.keys(), key))
    }

    /// A stream that went on after `parent` has come to `last`, which stands at `position` where that is known; else no prompt has it.
    pub(crate) fn came_to(&mut self, parent: BlockKey, last: BlockKey, position: Option<u32>) {
        self.tips.remove(&parent);
        if self.tips.len() >= MOST_TIPS {
            self.tips.clear();
        }
        let tip = position.map_or(Tip::Absent(self.serial), Tip::At);
        self.tips.insert(last, tip);
    }

    /// The claims on the block `key` at `position`.
    pub(crate) fn at(&self, position: u32, key: BlockKey) -> impl Iterator<Item = Claim> + '_ {
        self.runs
            .iter()
            .filter(move |run| run.low <= position && run.keys().get(position as usize) == Some(&key))
            .map(move |run| run.claim(position))
    }

    /// Whether somebody claims `key`, which was stored after `parent`.
    pub(crate) fn any_on(&self, parent: BlockKey, key: BlockKey) -> bool {
        self.position(parent, key)
            .is_some_and(|position| self.at(position, key).next().is_some())
    }

    /// The prompts that have the first of `stored` at `position`, and where each ceases to agree with it (its own positions).
    pub(crate) fn sharing<'a>(
        &'a self,
        position: u32,
        stored: &'a [(BlockKey, BlockKey)],
    ) -> impl Iterator<Item = (Claim, u32)> + 'a {
        self.runs.iter().filter_map(move |run| {
            let keys = run.keys().get(position as usize..)?;
            let first = stored.first()?.1;
            if *keys.first()? != first {
                return None;
            }
            let same = agreement(keys, |at| stored.get(at).map(|(_, key)| *key));
            Some((run.claim(position), position + same as u32))
        })
    }

    /// First block that the prompt of `claim` claims; past its end when it claims nothing.
    pub(crate) fn low(&self, claim: Claim) -> u32 {
        self.find(claim.place, claim.track)
            .map_or(u32::MAX, |at| self.runs[at].low)
    }

    /// The claims on `key` of prompts whose last full block it is.
    pub(crate) fn ending(&self, key: BlockKey) -> impl Iterator<Item = Claim> + '_ {
        self.runs
            .iter()
            .filter(move |run| run.keys().last() == Some(&key))
            .map(|run| run.claim(run.keys().len() as u32 - 1))
    }

    /// End of the run of outstanding blocks that begins with block `at` of `keys`, if some reservation fills that block.
    pub(crate) fn filled(&self, keys: &[BlockKey], at: usize) -> Option<usize> {
        self.fronts.iter().zip(&self.runs).find_map(|(front, run)| {
            let position = front.position as usize;
            // who shares a block shares those before it
            if position > at || keys[position] != front.key || run.keys().get(at) != Some(&keys[at]) {
                return None;
            }
            let rest = &run.keys()[at..];
            Some(at + agreement(rest, |more| keys.get(at + more).copied()))
        })
    }

    fn find(&self, place: u32, track: u32) -> Option<usize> {
        self.runs
            .iter()
            .position(|run| run.place == place && run.track == track)
    }

    fn drop_run(&mut self, at: usize) {
        self.runs.swap_remove(at);
        self.fronts.swap_remove(at);
    }
}

/// Length of the common beginning of two chains that agree on their first block. Chained keys never agree again once they differ.
fn agreement(left: &[BlockKey], right: impl Fn(usize) -> Option<BlockKey>) -> usize {
    let agrees = |at: usize| right(at) == Some(left[at]);
    if agrees(left.len() - 1) {
        return left.len();
    }
    let (mut agree, mut differ) = (1, left.len() - 1);
    while agree < differ {
        let middle = agree + (differ - agree) / 2;
        if agrees(middle) {
            agree = middle + 1;
        } else {
            differ = middle;
        }
    }
    agree.min(left.len())
}

/// Searches without branching inside of a stretch, so that the compiler compares several keys at once.
fn place_in(keys: &[BlockKey], key: BlockKey) -> Option<u32> {
    const STRETCH: usize = 32;
    for (number, stretch) in keys.chunks(STRETCH).enumerate() {
        let found = stretch.iter().fold(0, |found, one| found | u8::from(*one == key));
        if found > 0 {
            let within = stretch.iter().position(|one| *one == key)?;
            return Some((number * STRETCH + within) as u32);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use lmetric_prefix::BlockSize;
    use proptest::prelude::*;

    use super::*;

    /// Prompts over few tokens, so that many share a beginning.
    fn chain(tokens: &[u32]) -> Arc<Chain> {
        let size = BlockSize::new(1).expect("not zero");
        Arc::new(Chain::new(BlockKey::from_raw(1), size, tokens))
    }

    fn prompts() -> impl Strategy<Value = Vec<(Vec<u32>, u32, u32)>> {
        // long ones are a common beginning with one token changed
        let prompt = (0_usize..90, 0_usize..90, 0_u32..3).prop_map(|(length, at, token)| {
            let mut tokens = vec![0; length];
            if let Some(changed) = tokens.get_mut(at) {
                *changed = token;
            }
            tokens
        });
        prop::collection::vec((prompt, 0_u32..90, 0_u32..90), 1..8)
    }

    proptest! {
        #[test]
        fn claims_equal_a_plain_list_of_blocks(prompts in prompts(), asked in (0_usize..90, 0_usize..90, 0_u32..3)) {
            let mut claims = Claims::default();
            let mut plain: Vec<(BlockKey, Claim)> = Vec::new();
            let mut fillers: Vec<(Arc<Chain>, usize)> = Vec::new();
            for (place, (tokens, low, more)) in prompts.iter().enumerate() {
                let chain = chain(tokens);
                let reach = low + more;
                claims.set(place as u32, 0, &chain, 0, 0);
                claims.set(place as u32, 0, &chain, *low, reach);
                let blocks = chain.keys.iter().enumerate().skip(*low as usize);
                plain.extend(blocks.map(|(at, key)| (*key, Claim { place: place as u32, track: 0, position: at as u32 })));
                fillers.push((chain, reach as usize));
            }
            let (length, at, token) = asked;
            let mut tokens = vec![0; length];
            if let Some(changed) = tokens.get_mut(at) {
                *changed = token;
            }
            let asked = chain(&tokens);
            let sorted = |mut claims: Vec<Claim>| {
                claims.sort_unstable_by_key(|claim| (claim.place, claim.position));
                claims
            };
            for (position, key) in asked.keys.iter().enumerate() {
                let expected = sorted(plain.iter().filter(|(known, _)| known == key).map(|(_, claim)| *claim).collect());
                prop_assert_eq!(sorted(claims.at(position as u32, *key).collect()), expected.clone());
                prop_assert_eq!(claims.any_on(asked.root, *key), !expected.is_empty());
                if let Some(found) = claims.position(asked.root, *key) {
                    prop_assert_eq!(found as usize, position);
                }
                let longest = fillers.iter().filter(|(chain, reach)| {
                    *reach <= position && chain.keys.get(position) == Some(key)
                }).map(|(chain, _)| chain.keys.iter().zip(&asked.keys).take_while(|(one, two)| one == two).count()).max();
                // any of them will do: whoever asks goes on from its end
                let mut reached = None;
                let mut from = position;
                while let Some(end) = (from < asked.keys.len()).then(|| claims.filled(&asked.keys, from)).flatten() {
                    prop_assert!(end > from);
                    (from, reached) = (end, Some(end));
                    if reached >= longest {
                        break;
                    }
                }
                prop_assert_eq!(reached.is_some(), longest.is_some());
                prop_assert!(reached >= longest);
            }
            let stored: Vec<_> = asked.keys.iter().map(|key| (BlockKey::from_raw(0), *key)).collect();
            for position in 0..stored.len() {
                for (claim, end) in claims.sharing(position as u32, &stored[position..]) {
                    let (chain, _) = &fillers[claim.place as usize];
                    let same = chain.keys.iter().zip(&asked.keys).take_while(|(one, two)| one == two).count();
                    prop_assert_eq!(end as usize, same);
                }
            }
            for place in 0..prompts.len() as u32 {
                claims.remove(place, 0);
            }
            prop_assert!(claims.is_empty());
        }

        #[test]
        fn a_stream_is_found_wherever_prompts_open_meanwhile(
            prompts in prompts(), streams in prop::collection::vec(((0_usize..90, 0_u32..3), 1_usize..40), 1..4),
        ) {
            let mut claims = Claims::default();
            let mut open: Vec<Arc<Chain>> = Vec::new();
            let streams: Vec<(Arc<Chain>, usize)> = streams.into_iter().map(|((at, token), step)| {
                let mut tokens = vec![0; 90];
                tokens[at] = token;
                (chain(&tokens), step)
            }).collect();
            let mut come = vec![0_usize; streams.len()];
            for (place, (tokens, low, _)) in prompts.iter().enumerate() {
                for ((stream, step), come) in streams.iter().zip(&mut come) {
                    let keys = &stream.keys[*come..(*come + step).min(stream.keys.len())];
                    let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
                        continue;
                    };
                    let parent = come.checked_sub(1).map_or(stream.root, |before| stream.keys[before]);
                    let expected = open.iter().any(|chain| chain.keys.contains(first)).then_some(*come as u32);
                    let found = claims.position(parent, *first);
                    prop_assert_eq!(found, expected);
                    *come += keys.len();
                    claims.came_to(parent, *last, found.map(|_| *come as u32 - 1));
                }
                let chain = chain(tokens);
                claims.set(place as u32, 0, &chain, 0, *low);
                open.push(chain);
            }
        }
    }
}
