//! Dynamo's three indexes behind one face.

use clap::ValueEnum;
use dynamo_kv_router::{
    ConcurrentRadixTreeCompressed, LocalBlockHash, OverlapScores, PositionalIndexer, RadixTree, RouterEvent,
    SyncIndexer, ThreadPoolIndexer, indexer::positional::SearchMode,
};
use tokio::runtime::Runtime;

use crate::workload::BLOCK;

/// Blocks that a strided search leaps over; Dynamo's own programs use this many.
const STRIDE: usize = 32;

/// Which index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `RadixTree`, applied by the caller
    Radix,
    /// `ConcurrentRadixTreeCompressed` with one thread that applies
    Compressed,
    /// `PositionalIndexer` with one thread that applies
    Positional,
}

/// An index that events are applied to and prompts are looked up in.
pub enum Index {
    /// Single-threaded.
    Radix(RadixTree),
    /// Dynamo's default in a router.
    Compressed(ThreadPoolIndexer<ConcurrentRadixTreeCompressed>, Runtime),
    /// By position.
    Positional(ThreadPoolIndexer<PositionalIndexer>, Runtime),
}

impl Index {
    /// An empty one.
    pub fn new(kind: Kind) -> Self {
        let runtime = || {
            tokio::runtime::Builder::new_current_thread()
                .build()
                .expect("a runtime without I/O starts")
        };
        match kind {
            Kind::Radix => Self::Radix(RadixTree::new()),
            Kind::Compressed => Self::Compressed(
                ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), 1, BLOCK),
                runtime(),
            ),
            Kind::Positional => {
                let index = PositionalIndexer::new_with_mode(STRIDE, SearchMode::Strided);
                Self::Positional(ThreadPoolIndexer::new(index, 1, BLOCK), runtime())
            }
        }
    }

    /// Applies an event, or hands it to the thread that does.
    pub fn apply(&mut self, event: RouterEvent) {
        match self {
            // a removal of what the tree has dropped already is an error to it, not to the workload
            Self::Radix(tree) => drop(tree.apply_event(event)),
            Self::Compressed(pool, _) => pool.enqueue_event(event).expect("its thread lives"),
            Self::Positional(pool, _) => pool.enqueue_event(event).expect("its thread lives"),
        }
    }

    /// Waits until all events that were handed over are applied.
    pub fn drain(&self) {
        match self {
            Self::Radix(_) => {}
            Self::Compressed(pool, runtime) => {
                runtime.block_on(pool.flush_and_wait()).expect("its thread lives");
            }
            Self::Positional(pool, runtime) => {
                runtime.block_on(pool.flush_and_wait()).expect("its thread lives");
            }
        }
    }

    /// Gives up nodes that nobody holds any more: Dynamo does it every five minutes of events that come in.
    pub fn sweep(&self) {
        match self {
            // this one does it at once
            Self::Radix(_) => {}
            Self::Compressed(pool, _) => pool.backend().run_cleanup_task(),
            Self::Positional(pool, _) => pool.backend().run_cleanup_task(),
        }
    }

    /// How much of a prompt each endpoint holds.
    pub fn find(&self, prompt: &[LocalBlockHash]) -> OverlapScores {
        match self {
            // this one wants the hashes for itself
            Self::Radix(tree) => tree.find_matches(prompt.to_vec(), false),
            Self::Compressed(pool, _) => pool.backend().find_matches(prompt, false),
            Self::Positional(pool, _) => pool.backend().find_matches(prompt, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use dynamo_kv_router::protocols::WorkerWithDpRank;

    use super::*;
    use crate::workload::Workload;

    #[test]
    fn every_index_answers_what_the_workload_stored() {
        let workload = Workload::new(20, 2, 4, 3);
        let mut held = vec![HashSet::<u64>::new(); 4];
        for event in &workload.events {
            let hashes = &workload.conversations[event.conversation].hashes[event.from..event.to];
            held[event.endpoint as usize].extend(hashes);
        }
        assert_eq!(held.iter().map(HashSet::len).sum::<usize>(), workload.pairs);
        for kind in Kind::value_variants() {
            let mut index = Index::new(*kind);
            workload.router_events().for_each(|event| index.apply(event));
            index.drain();
            for conversation in &workload.conversations {
                let scores = index.find(&conversation.local).scores;
                for (endpoint, holder) in held.iter().enumerate() {
                    let run = conversation
                        .hashes
                        .iter()
                        .take_while(|hash| holder.contains(hash));
                    let said = scores.get(&WorkerWithDpRank::new(endpoint as u64, 0));
                    assert_eq!(said.copied().unwrap_or(0) as usize, run.count(), "{kind:?}");
                }
            }
        }
    }
}
