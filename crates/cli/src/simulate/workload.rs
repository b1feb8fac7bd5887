//! A trace as a simulation needs it: who arrives when, and the block keys of a prompt that nobody wrote.
//!
//! A trace's ids stand for blocks of its own size and everything before them. The key of an engine's block is
//! chained from the ids that it overlaps and where it lies in them, so that two prompts share keys exactly as far as they
//! share ids. The engine's own hash of a block is that key: what the picker learns by mapping, it is given here.

use std::{collections::HashMap, sync::Arc};

use lmetric_engine::{BlockHash, Prompt as EnginePrompt};
use lmetric_prefix::{BlockKey, BlockSize, Chain, ContentHash, KeySeed, KeySpace};
use lmetric_scheduler::{Prompt, SpaceSpec};

use crate::trace::{Pacing, Trace, TraceRequest, schedule};

/// Tokenizer group of the fleet.
const GROUP: &str = "fleet";

/// One request to place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// Index into the trace.
    pub index: u32,
    /// Nanoseconds since the simulation began.
    pub at: u64,
    /// Conversation that it belongs to.
    pub session: u64,
}

/// Requests of a trace in the order of their arrival.
#[derive(Clone, Debug)]
pub struct Workload<'a> {
    trace: &'a Trace,
    /// In order of arrival.
    pub jobs: Vec<Job>,
}

impl<'a> Workload<'a> {
    /// Those that `pacing` lets through and that are at most `longest` tokens, answer included. O(n log n + blocks).
    pub fn new(trace: &'a Trace, pacing: Pacing, longest: Option<u32>) -> Self {
        let sessions = sessions(trace);
        let fits = |request: &TraceRequest| {
            let tokens = request.input_tokens.saturating_add(request.output_tokens);
            longest.is_none_or(|longest| tokens <= longest)
        };
        let jobs = schedule(&trace.requests, pacing)
            .into_iter()
            .filter(|arrival| fits(&trace.requests[arrival.index]))
            .map(|arrival| Job {
                index: arrival.index as u32,
                at: arrival.at.as_nanos() as u64,
                session: sessions[arrival.index],
            })
            .collect();
        Self { trace, jobs }
    }

    /// The request behind a job.
    pub fn request(&self, job: &Job) -> &'a TraceRequest {
        &self.trace.requests[job.index as usize]
    }

    /// Tokens per block of the trace.
    pub fn block_size(&self) -> u32 {
        self.trace.block_size
    }

    /// Seconds from the first arrival to the last.
    pub fn span(&self) -> f64 {
        let first = self.jobs.first().map_or(0, |job| job.at);
        self.jobs.last().map_or(0.0, |job| (job.at - first) as f64 / 1e9)
    }

    /// Only jobs that `keep` likes.
    #[must_use]
    pub fn part(&self, keep: impl Fn(&Job) -> bool) -> Self {
        Self {
            trace: self.trace,
            jobs: self.jobs.iter().copied().filter(keep).collect(),
        }
    }
}

/// Conversations: a request whose ids begin with *all* full blocks of an earlier one goes on with that one's. By line.
fn sessions(trace: &Trace) -> Vec<u64> {
    let mut ends: HashMap<u64, u64> = HashMap::new();
    let mut sessions = Vec::with_capacity(trace.requests.len());
    for (number, request) in trace.requests.iter().enumerate() {
        let full = (request.input_tokens / trace.block_size) as usize;
        let ids = &request.blocks[..full.min(request.blocks.len())];
        let known = ids.iter().rev().find_map(|id| ends.get(id).copied());
        let session = known.unwrap_or(number as u64 + 1);
        // what everybody shares is nobody's conversation
        if ids.len() > 1
            && let Some(last) = ids.last()
        {
            ends.insert(*last, session);
        }
        sessions.push(session);
    }
    sessions
}

/// Makes both views of a prompt: the scheduler's and the engine's.
#[derive(Clone, Debug)]
pub struct Prompts {
    root: BlockKey,
    space: SpaceSpec,
    trace_block: u32,
}

impl Prompts {
    /// Prompts of a trace with blocks of `trace_block` tokens for engines with blocks of `engine_block`.
    pub fn new(engine_block: BlockSize, trace_block: u32) -> Self {
        let space = SpaceSpec {
            group: GROUP.into(),
            block_size: engine_block,
        };
        let root = KeySeed::new(0).root(&KeySpace {
            group: GROUP,
            lora: None,
            salt: None,
            block_size: engine_block,
        });
        Self {
            root,
            space,
            trace_block,
        }
    }

    /// Group and block size of the fleet.
    pub fn space(&self) -> &SpaceSpec {
        &self.space
    }

    /// The key before the first block.
    pub fn root(&self) -> BlockKey {
        self.root
    }

    /// O(blocks).
    pub fn make(&self, request: &TraceRequest) -> (Prompt, EnginePrompt) {
        let size = self.space.block_size.get();
        let blocks = request.input_tokens / size;
        let mut contents = Vec::with_capacity(blocks as usize);
        let mut keys = Vec::with_capacity(blocks as usize);
        let mut parent = self.root;
        for block in 0..blocks {
            let content = self.content(request, block * size, size);
            parent = parent.child(content);
            contents.push(content);
            keys.push(parent);
        }
        let hashes: Arc<[BlockHash]> = keys.iter().map(|key| BlockHash(key.get())).collect();
        let chain = Chain {
            block_size: self.space.block_size,
            root: self.root,
            contents,
            keys,
        };
        let prompt = Prompt {
            tokens: request.input_tokens,
            chains: vec![(self.space.clone(), Arc::new(chain))],
        };
        let root = BlockHash(self.root.get());
        (
            prompt,
            EnginePrompt::synthetic(request.input_tokens, root, hashes),
        )
    }

    /// What lies in the `size` tokens from `from` on: for each id that they touch, the id and where in it they begin.
    fn content(&self, request: &TraceRequest, from: u32, size: u32) -> ContentHash {
        let word = |position: u32| {
            let place = (position / self.trace_block) as usize;
            // a tail shorter than a trace block may have no id: it is the request's own
            let id = request
                .blocks
                .get(place)
                .copied()
                .unwrap_or(u64::MAX - u64::from(request.line));
            [id as u32, (id >> 32) as u32, position % self.trace_block]
        };
        let first = word(from);
        let next = (from / self.trace_block + 1) * self.trace_block;
        if next >= from + size {
            return ContentHash::of(&first);
        }
        let mut words = first.to_vec();
        for position in (next..from + size).step_by(self.trace_block as usize) {
            words.extend(word(position));
        }
        ContentHash::of(&words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TraceFormat;

    fn request(line: u32, input_tokens: u32, blocks: &[u64]) -> TraceRequest {
        TraceRequest {
            line,
            at: 0.0,
            input_tokens,
            output_tokens: 1,
            blocks: blocks.to_vec(),
        }
    }

    fn shared(engine_block: u32, trace_block: u32, one: &TraceRequest, other: &TraceRequest) -> usize {
        let prompts = Prompts::new(BlockSize::new(engine_block).unwrap(), trace_block);
        let keys = |request| prompts.make(request).0.chains[0].1.keys.clone();
        let (one, other) = (keys(one), keys(other));
        one.iter().zip(&other).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn prompts_share_keys_as_far_as_they_share_ids() {
        let (one, other) = (request(1, 1_300, &[5, 6, 7]), request(2, 1_400, &[5, 6, 8]));
        assert_eq!(shared(16, 512, &one, &other), 64);
        assert_eq!(shared(128, 512, &one, &other), 8);
        // an engine block that spans ids is shared only when all of them are
        assert_eq!(shared(1_024, 512, &one, &other), 1);
        let (one, other) = (request(1, 64, &[1, 2, 3, 4]), request(2, 64, &[1, 2, 3, 5]));
        assert_eq!(shared(16, 16, &one, &other), 3);
        assert_eq!(shared(32, 16, &one, &other), 1);
    }

    #[test]
    fn both_views_name_a_block_alike() {
        let prompts = Prompts::new(BlockSize::new(16).unwrap(), 512);
        let (ours, engines) = prompts.make(&request(1, 600, &[5, 6]));
        assert_eq!(engines.len(), 600);
        let keys: Vec<u64> = ours.chains[0].1.keys.iter().map(|key| key.get()).collect();
        let hashes: Vec<u64> = engines.hashes().iter().map(|hash| hash.0).collect();
        assert_eq!((keys.len(), keys), (37, hashes));
    }

    #[test]
    fn a_conversation_goes_on_where_all_of_an_earlier_prompt_is_repeated() {
        let trace = Trace {
            format: TraceFormat::Mooncake,
            block_size: 512,
            requests: vec![
                request(1, 1_100, &[0, 1, 2]),
                request(2, 1_100, &[0, 9, 10]),
                request(3, 2_000, &[0, 1, 2, 3]),
                request(4, 2_600, &[0, 1, 2, 3, 4, 5]),
                request(5, 600, &[0, 77]),
            ],
            recorded: None,
            hash: 0,
        };
        let sessions = sessions(&trace);
        assert_eq!(sessions[0], sessions[2]);
        assert_eq!(sessions[2], sessions[3]);
        assert_ne!(sessions[0], sessions[1]);
        assert!(!sessions[..4].contains(&sessions[4]));
    }
}
