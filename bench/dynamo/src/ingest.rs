//! vLLM's messages on their way to Dynamo's events: decoded and normalised as its ZMQ listener does it.

use dynamo_kv_router::{
    RouterEvent,
    protocols::WorkerWithDpRank,
    zmq_wire::{ZmqEventNormalizer, decode_event_batch},
};

use crate::{
    payload::{Layout, Run, batch},
    workload::{BLOCK, Numbers},
};

/// Events in a message: an engine's step.
pub const EVENTS: usize = 8;

/// Messages of fresh prompts, `per` blocks in an event, of `blocks` blocks in all at least.
pub fn messages(layout: Layout, per: usize, blocks: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut numbers = Numbers(seed);
    (0..blocks.div_ceil(per * EVENTS))
        .map(|_| {
            let runs: Vec<_> = (0..EVENTS)
                .map(|_| Run {
                    hashes: (0..per).map(|_| numbers.draw()).collect(),
                    tokens: numbers.tokens(per * BLOCK as usize),
                })
                .collect();
            batch(layout, &runs)
        })
        .collect()
}

/// What stands between an engine's socket and the index.
pub struct Listener {
    normalizer: ZmqEventNormalizer,
    worker: WorkerWithDpRank,
    sequence: u64,
}

impl Listener {
    /// The listener of this endpoint.
    pub fn new(endpoint: u64) -> Self {
        Self {
            normalizer: ZmqEventNormalizer::new(BLOCK),
            worker: WorkerWithDpRank::new(endpoint, 0),
            sequence: 0,
        }
    }

    /// A message comes; its events are given to `apply` one by one.
    pub fn receive(&mut self, payload: &[u8], mut apply: impl FnMut(RouterEvent)) {
        let message = decode_event_batch(payload).expect("vLLM's own layout");
        for event in message.events {
            let placed = self.normalizer.normalize(event, self.sequence, self.worker);
            let routed = placed.and_then(dynamo_kv_router::protocols::PlacementEvent::into_router_event);
            apply(routed.expect("a block that is stored on a GPU is of interest"));
        }
        self.sequence += 1;
    }
}

#[cfg(test)]
mod tests {
    use dynamo_kv_router::protocols::KvCacheEventData;

    use super::*;
    use crate::workload::hashed;

    fn blocks(layout: Layout) -> Vec<(u64, u64)> {
        let mut listener = Listener::new(0);
        let mut blocks = Vec::new();
        for payload in messages(layout, 3, 48, 1) {
            listener.receive(&payload, |event| {
                let KvCacheEventData::Stored(stored) = event.event.data else {
                    panic!("nothing else is sent");
                };
                blocks.extend(
                    stored
                        .blocks
                        .iter()
                        .map(|block| (block.block_hash.0, block.tokens_hash.0)),
                );
            });
        }
        blocks
    }

    #[test]
    fn both_layouts_say_the_same_blocks_and_none_is_lost() {
        let mut numbers = Numbers(1);
        let mut drawn = Vec::new();
        for _ in 0..16 {
            let hashes: Vec<_> = (0..3).map(|_| numbers.draw()).collect();
            let tokens = hashed(&numbers.tokens(3 * BLOCK as usize));
            drawn.extend(hashes.into_iter().zip(tokens.into_iter().map(|hash| hash.0)));
        }
        assert_eq!(blocks(Layout::Map), drawn);
        assert_eq!(blocks(Layout::Array), drawn);
    }
}
