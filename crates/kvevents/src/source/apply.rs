//! What a batch does to the blocks of a source.

use std::sync::Arc;

use lmetric_prefix::{BlockKey, BlockSize, ContentHash, KeySeed, KeySpace};
use smallvec::SmallVec;

use super::{
    Adopt, SourceConfig, SourceStats,
    blocks::{Before, Blocks, Cause, EngineHash, NodeId, Removal},
    inferred::Inferred,
    orphans::{Orphan, Orphans},
    queue::{Follows, Queue, Run},
    reports::Reports,
    space::{self, Lora, Medium},
    tiers::Tiers,
};
use crate::{
    Adoption, Op,
    wire::{Decoder, Event, Hash, Removed, Stored},
};

/// KV cache groups that are told apart; more than any model has.
const MOST_GROUPS: usize = 64;

/// Searches among open reservations that one batch may cause.
const MOST_SEARCHES: u32 = 64;

/// Entries kept for each block of the GPU cache.
const BOUND_FACTOR: usize = 2;

/// Blocks counted in each other medium, for each block of the GPU cache.
const OFFLOAD_FACTOR: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Group {
    number: u16,
    /// Whether its blocks tell what can be hit.
    indexed: bool,
    block_size: Option<BlockSize>,
}

/// What applying a batch came to, beyond its operations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Applied {
    /// How often the batch said that everything is gone.
    pub(super) clears: u64,
    /// Part of the batch could not be read.
    pub(super) broken: bool,
}

/// Everything that is known of one engine's cache.
#[derive(Debug)]
pub(super) struct Cache {
    group: Arc<str>,
    seed: KeySeed,
    rank: Option<u16>,
    gpu_blocks: usize,
    blocks: Blocks,
    orphans: Orphans,
    tiers: Tiers,
    reports: Reports,
    inferred: Inferred,
    groups: SmallVec<[Group; 2]>,
    decoder: Decoder,
    queue: Queue,
    /// Root of prompts without LoRA and salt in blocks of this size, of which nearly all are.
    plain_root: Option<(BlockSize, BlockKey)>,
    stats: SourceStats,
    searches: u32,
    /// Number of the batch that is applied.
    batch: u64,
}

impl Cache {
    pub(super) fn new(config: SourceConfig) -> Self {
        let SourceConfig {
            group,
            seed,
            rank,
            replay: _,
            gpu_blocks,
        } = config;
        Self {
            group,
            seed,
            rank,
            gpu_blocks: gpu_blocks as usize,
            blocks: Blocks::default(),
            orphans: Orphans::default(),
            tiers: Tiers::default(),
            reports: Reports::default(),
            inferred: Inferred::default(),
            groups: SmallVec::new(),
            decoder: Decoder::default(),
            queue: Queue::default(),
            plain_root: None,
            stats: SourceStats::default(),
            searches: 0,
            batch: 0,
        }
    }

    pub(super) fn set_blocks(&mut self, gpu_blocks: u32) {
        self.gpu_blocks = gpu_blocks as usize;
        while self.used() > self.bound() && self.drop_orphan() {}
    }

    pub(super) fn block_size(&self) -> Option<BlockSize> {
        self.groups.iter().find(|group| group.indexed)?.block_size
    }

    pub(super) fn is_degraded(&self) -> bool {
        self.stats.degraded
    }

    pub(super) fn malformed(&mut self) {
        self.stats.malformed += 1;
    }

    pub(super) fn expect_report(&mut self, keys: Vec<BlockKey>) {
        self.reports.expect(keys);
    }

    pub(super) fn stats(&self) -> SourceStats {
        SourceStats {
            held: self.blocks.held() as u64,
            offloaded: self.tiers.len() as u64,
            orphans: self.orphans.len() as u64,
            used: self.used() as u64,
            bound: self.bound() as u64,
            ..self.stats.clone()
        }
    }

    /// Forgets what is held; the counters stay.
    pub(super) fn clear(&mut self, ops: &mut Vec<Op>) {
        self.clear_gpu(ops);
        self.tiers.clear();
        self.reports.clear();
        self.groups.clear();
    }

    /// Applies a batch. What cannot be read is counted and left out.
    pub(super) fn apply(&mut self, payload: &[u8], adopt: &mut Adopt<'_>, ops: &mut Vec<Op>) -> Applied {
        let mut applied = Applied::default();
        if let Some(rank) = self.rank
            && let Ok(Some(of_batch)) = Decoder::rank(payload)
            && of_batch != i64::from(rank)
        {
            self.stats.skipped += 1;
            return applied;
        }
        self.searches = 0;
        self.batch += 1;
        let mut decoder = std::mem::take(&mut self.decoder);
        let read = decoder.decode(payload, |event| match event {
            Event::Stored(stored) => self.stored(&stored, adopt, ops),
            Event::Removed(removed) => {
                self.store_queued(adopt, ops);
                self.removed(&removed, ops);
            }
            Event::Cleared => {
                self.store_queued(adopt, ops);
                applied.clears += 1;
                self.clear_gpu(ops);
            }
        });
        self.decoder = decoder;
        self.store_queued(adopt, ops);
        if let Ok(summary) = read {
            self.stats.skipped += u64::from(summary.skipped);
            self.stats.unknown_fields += u64::from(summary.unknown_fields);
            self.stats.batches += 1;
        } else {
            self.malformed();
            applied.broken = true;
        }
        self.blocks.tell_gapless(ops);
        applied
    }

    /// Holds `keys` by inference, until the engine has stored a cache full of other blocks.
    pub(super) fn infer(&mut self, keys: &[BlockKey], ops: &mut Vec<Op>) {
        let missing = self.blocks.missing(keys);
        if self.used() + missing > self.bound() || self.inferred.len() >= self.gpu_blocks {
            return;
        }
        if let Some(last) = self.blocks.infer(keys, ops)
            && self.blocks.pin(last)
        {
            self.inferred.add(self.blocks.key(last), self.gpu_blocks as u64);
        }
        self.blocks.tell_gapless(ops);
    }

    fn used(&self) -> usize {
        self.blocks.used() + self.orphans.len()
    }

    fn bound(&self) -> usize {
        (BOUND_FACTOR * self.gpu_blocks).min(Blocks::MOST)
    }

    fn clear_gpu(&mut self, ops: &mut Vec<Op>) {
        self.blocks.clear();
        self.orphans = Orphans::default();
        self.inferred.clear();
        self.stats.degraded = false;
        if ops.last() != Some(&Op::Clear) {
            ops.push(Op::Clear);
        }
    }

    fn stored(&mut self, stored: &Stored<'_, '_>, adopt: &mut Adopt<'_>, ops: &mut Vec<Op>) {
        let Some(medium) = Medium::of(stored.medium).filter(|_| space::is_local(stored.locality)) else {
            self.stats.skipped += 1;
            return;
        };
        let Some(group) = self.indexed_group(stored) else {
            self.stats.skipped += 1;
            return;
        };
        if medium != Medium::Gpu {
            self.offloaded(medium, group, stored);
            return;
        }
        let Some(size) = space::dense_block_size(stored).filter(|&size| self.has_block_size(group, size))
        else {
            self.stats.skipped += 1;
            return;
        };
        let lora = Lora::of(stored);
        if lora == Lora::Unnamed {
            self.stats.unnamed_lora += 1;
            return;
        }
        let mut queue = std::mem::take(&mut self.queue);
        queue.push(group, stored.hashes.iter().map(Hash::get), |contents| {
            let salt = space::contents(stored, size, lora, contents);
            match stored.parent {
                Some(parent) => Follows::Hash(parent.get()),
                None => Follows::Root {
                    root: self.root(lora.name(), salt, size),
                    unseen_salt: stored.extra_keys.is_none(),
                },
            }
        });
        self.queue = queue;
        if self.queue.is_enough() {
            self.store_queued(adopt, ops);
        }
    }

    /// Applies the runs that were read.
    fn store_queued(&mut self, adopt: &mut Adopt<'_>, ops: &mut Vec<Op>) {
        if self.queue.is_empty() {
            return;
        }
        let mut queue = std::mem::take(&mut self.queue);
        self.blocks
            .fetch(queue.hashes(), queue.runs().filter_map(first_key));
        ops.reserve(queue.hashes().len());
        for run in queue.runs() {
            let before = match run.head.follows {
                Follows::Hash(parent) => self.blocks.find(run.engine_hash(parent)).map(Before::Node),
                Follows::Root { root, unseen_salt } => {
                    let salted = self.salted_root(&run, unseen_salt, adopt);
                    Some(Before::Root(salted.unwrap_or(root)))
                }
            };
            self.store_run(&run, before, adopt, ops);
        }
        queue.clear();
        self.queue = queue;
    }

    fn root(&mut self, lora: Option<&str>, salt: Option<&str>, block_size: BlockSize) -> BlockKey {
        let plain = lora.is_none() && salt.is_none();
        if let Some((size, root)) = self.plain_root
            && plain
            && size == block_size
        {
            return root;
        }
        let root = self.seed.root(&KeySpace {
            group: &self.group,
            lora,
            salt,
            block_size,
        });
        if plain {
            self.plain_root = Some((block_size, root));
        }
        root
    }

    /// An engine that sends no extra keys does not show salts: an open reservation with the same contents may.
    fn salted_root(&mut self, run: &Run<'_>, unseen_salt: bool, adopt: &mut Adopt<'_>) -> Option<BlockKey> {
        if !unseen_salt {
            return None;
        }
        let adoption = self.search(run.contents, adopt)?;
        adoption.prefix.is_empty().then_some(adoption.parent)
    }

    fn search(&mut self, contents: &[ContentHash], adopt: &mut Adopt<'_>) -> Option<Adoption> {
        if self.searches >= MOST_SEARCHES {
            return None;
        }
        self.searches += 1;
        adopt(contents)
    }

    fn store_run(&mut self, run: &Run<'_>, before: Option<Before>, adopt: &mut Adopt<'_>, ops: &mut Vec<Op>) {
        let saying = self.saying(run, before);
        let root = match before {
            Some(Before::Root(root)) => root,
            _ => BlockKey::from_raw(0),
        };
        let mut before = before;
        let mut parent = run.parent();
        let mut waits = false;
        for (&hash, &content) in run.hashes.iter().zip(run.contents) {
            let engine_hash = run.engine_hash(hash);
            if let Some(node) = self.blocks.find(engine_hash) {
                if saying == Saying::New {
                    self.blocks.add_copy(engine_hash, node);
                    self.count_store(ops);
                    ops.push(Op::Store {
                        parent: self.blocks.key_before(node, root),
                        key: self.blocks.key(node),
                    });
                }
                before = Some(Before::Node(node));
            } else if let Some(known) = before {
                let copies = self.orphans.take(engine_hash).map_or(0, |orphan| orphan.copies);
                if !self.make_room() {
                    return;
                }
                let cause = if saying == Saying::Again {
                    Cause::Reported
                } else {
                    Cause::Computed
                };
                let copies = copies.saturating_add(u16::from(saying == Saying::New || copies == 0));
                self.count_store(ops);
                let node = self.blocks.store(engine_hash, known, content, copies, cause, ops);
                self.adopt_children(engine_hash, node, ops);
                before = Some(Before::Node(node));
            } else if let Some(parent) = parent {
                if !self.orphans.add_copy(engine_hash, self.batch) {
                    if !self.make_room_for_orphan() {
                        return;
                    }
                    self.orphans.add(Orphan {
                        hash: engine_hash,
                        parent,
                        content,
                        copies: 1,
                        batch: self.batch,
                    });
                }
                self.count_store(ops);
                waits = true;
            }
            parent = Some(hash);
        }
        if waits
            && before.is_none()
            && let Some(parent) = run.parent()
            && let Some(adoption) = self.search(run.contents, adopt)
        {
            self.adopt_by_content(run.engine_hash(parent), &adoption, ops);
        }
    }

    /// What a run that begins a prompt says: a request in report mode makes the engine announce again what it
    /// already holds.
    fn saying(&mut self, run: &Run<'_>, before: Option<Before>) -> Saying {
        let Some(Before::Root(root)) = before.filter(|_| !self.reports.is_empty()) else {
            return Saying::New;
        };
        let mut key = root;
        let mut keys = Vec::with_capacity(run.contents.len());
        for &content in run.contents {
            key = key.child(content);
            keys.push(key);
        }
        if !self.reports.take(&keys) {
            Saying::New
        } else if self.blocks.knows_first(keys[0]) {
            Saying::Again
        } else {
            Saying::Unsure
        }
    }

    fn count_store(&mut self, ops: &mut Vec<Op>) {
        self.stats.stored += 1;
        self.inferred.stored();
        while let Some(key) = self.inferred.expired() {
            self.blocks.unpin(key, ops);
        }
    }

    /// Gives every orphan that waits for `hash`, and those that wait for them, a place behind `node`.
    fn adopt_children(&mut self, hash: EngineHash, node: NodeId, ops: &mut Vec<Op>) {
        if self.orphans.is_empty() {
            return;
        }
        let mut parents: SmallVec<[(EngineHash, NodeId); 8]> = SmallVec::from_slice(&[(hash, node)]);
        while let Some((parent, node)) = parents.pop() {
            while let Some(orphan) = self.orphans.take_child(parent) {
                let Orphan {
                    hash,
                    parent: _,
                    content,
                    copies,
                    batch,
                } = orphan;
                let cause = if batch == self.batch {
                    Cause::Computed
                } else {
                    Cause::Earlier
                };
                // an orphan becomes a block, so the number of entries stays
                let child = self
                    .blocks
                    .store(hash, Before::Node(node), content, copies, cause, ops);
                self.stats.adopted += 1;
                parents.push((hash, child));
            }
        }
    }

    /// Places orphans behind `parent`, whose block is the last of `adoption.prefix`. Orphans before it must fit
    /// the prefix, block by block; the block above them gets its hash, those further up are inferred.
    fn adopt_by_content(&mut self, parent: EngineHash, adoption: &Adoption, ops: &mut Vec<Op>) {
        let Adoption { parent: key, prefix } = adoption;
        if prefix.last() != Some(key) {
            return;
        }
        let mut top = parent;
        let mut depth = prefix.len();
        while let Some(orphan) = self.orphans.get(top) {
            // block `depth - 1` is this orphan, so there must be one before it, and the keys must agree
            if depth < 2 || prefix[depth - 2].child(orphan.content) != prefix[depth - 1] {
                return;
            }
            top.hash = orphan.parent;
            depth -= 1;
        }
        if self.blocks.find(top).is_some() {
            return;
        }
        let known = &prefix[..depth];
        let missing = self.blocks.missing(known);
        if self.used() + missing + 1 > self.bound() {
            return;
        }
        if let Some(node) = self.blocks.infer(known, ops) {
            self.blocks.lead_to(top, node, 1);
            self.adopt_children(top, node, ops);
        }
    }

    fn removed(&mut self, removed: &Removed<'_>, ops: &mut Vec<Op>) {
        let Some(medium) = Medium::of(removed.medium).filter(|_| space::is_local(removed.locality)) else {
            self.stats.skipped += 1;
            return;
        };
        let Ok(number) = u16::try_from(removed.group.unwrap_or(0)) else {
            self.stats.skipped += 1;
            return;
        };
        if self
            .groups
            .iter()
            .any(|group| group.number == number && !group.indexed)
        {
            self.stats.skipped += 1;
            return;
        }
        for hash in removed.hashes.iter() {
            let hash = EngineHash {
                hash: hash.get(),
                group: number,
            };
            let gone = if medium == Medium::Gpu {
                self.blocks.remove(hash, ops) != Removal::Unknown || self.orphans.remove_copy(hash)
            } else {
                self.tiers.remove(medium, hash)
            };
            self.stats.removed += u64::from(gone);
        }
    }

    /// Blocks outside the GPU are counted by hash alone: many engines announce them without their tokens.
    fn offloaded(&mut self, medium: Medium, group: u16, stored: &Stored<'_, '_>) {
        let most = OFFLOAD_FACTOR * self.gpu_blocks;
        for hash in stored.hashes.iter() {
            let hash = EngineHash {
                hash: hash.get(),
                group,
            };
            if !self.tiers.store(medium, hash, most) {
                self.stats.refused += 1;
            }
        }
    }

    /// Number of the run's group, if its blocks tell what can be hit. Learns the kind of the group.
    fn indexed_group(&mut self, stored: &Stored<'_, '_>) -> Option<u16> {
        let number = u16::try_from(stored.group.unwrap_or(0)).ok()?;
        let indexed = stored.spec_kind.map(space::is_full_attention);
        if let Some(known) = self.groups.iter_mut().find(|group| group.number == number) {
            known.indexed = indexed.unwrap_or(known.indexed);
            return known.indexed.then_some(number);
        }
        if self.groups.len() >= MOST_GROUPS {
            return None;
        }
        let indexed = indexed.unwrap_or(true);
        self.groups.push(Group {
            number,
            indexed,
            block_size: None,
        });
        indexed.then_some(number)
    }

    /// Whether blocks of the group have this size; the first run decides. Another size is a partial block.
    fn has_block_size(&mut self, group: u16, size: BlockSize) -> bool {
        self.groups
            .iter_mut()
            .find(|known| known.number == group)
            .is_some_and(|known| *known.block_size.get_or_insert(size) == size)
    }

    /// Makes room for one more block: orphans go first, the oldest first; then counts of copies are set to
    /// one, so that entries which are never removed again can be; then the store is refused.
    fn make_room(&mut self) -> bool {
        if self.used() < self.bound() || self.drop_orphan() {
            return true;
        }
        self.stats.copies_forgotten += u64::from(self.blocks.forget_copies() > 0);
        self.refuse()
    }

    fn make_room_for_orphan(&mut self) -> bool {
        let full = self.used() >= self.bound() || self.orphans.len() >= self.gpu_blocks;
        !full || self.drop_orphan() || self.refuse()
    }

    fn drop_orphan(&mut self) -> bool {
        let dropped = self.orphans.drop_oldest();
        self.stats.orphans_dropped += u64::from(dropped);
        dropped
    }

    fn refuse(&mut self) -> bool {
        self.stats.refused += 1;
        self.stats.degraded = true;
        false
    }
}

/// Whether a run announces new copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saying {
    New,
    /// It repeats, for a request in report mode, what is held.
    Again,
    /// It may repeat what we never knew of (then nothing was computed), or be a prompt that reuses nothing.
    Unsure,
}

/// Key of a run's first block, if it begins a prompt and has no salt that we do not see.
fn first_key(run: Run<'_>) -> Option<BlockKey> {
    match run.head.follows {
        Follows::Root { root, .. } => run.contents.first().map(|content| root.child(*content)),
        Follows::Hash(_) => None,
    }
}

impl Run<'_> {
    fn engine_hash(&self, hash: u64) -> EngineHash {
        EngineHash {
            hash,
            group: self.head.group,
        }
    }

    fn parent(&self) -> Option<u64> {
        match self.head.follows {
            Follows::Hash(parent) => Some(parent),
            Follows::Root { .. } => None,
        }
    }
}
