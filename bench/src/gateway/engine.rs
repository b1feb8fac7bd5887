//! A fake engine: a prefix cache that publishes what it stores and what gives way, as vLLM does, and answers that come at fixed times.
//! It computes nothing, and of a request it reads one header.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;
use lmetric_prefix::TokenId;
use parking_lot::Mutex;
use vllm_sim::publisher::Publisher;

use super::{
    board::Board,
    chats::{MODEL, Turn},
    timer::Timer,
};
use crate::{
    cache::Cache,
    payload::{Run, step},
    workload::{BLOCK, Conversation},
};

/// Blocks of its cache, as its metrics page says: 1 M tokens.
const GPU_BLOCKS: u32 = 65_536;
/// As captured from vLLM 0.32.
const CAPTURED: &str = include_str!("../../../crates/vllm-sim/data/metrics-page.txt");

/// What it has done.
#[derive(Debug, Default)]
pub struct Served {
    /// Requests.
    pub requests: AtomicU64,
    /// Tokens of their prompts.
    pub prompt: AtomicU64,
    /// Of these, tokens that the cache had.
    pub cached: AtomicU64,
}

/// One fake engine.
pub struct Engine {
    /// Where it listens.
    pub address: SocketAddr,
    /// What is asked now.
    pub board: Arc<Board>,
    /// When it answers.
    pub timer: Arc<Timer>,
    /// What it has done.
    pub served: Served,
    running: AtomicU32,
    memory: Mutex<Memory>,
    page: Page,
}

struct Memory {
    cache: Cache,
    publisher: Publisher,
}

impl Engine {
    /// It holds nothing.
    pub fn new(address: SocketAddr, publisher: Publisher, board: Arc<Board>, timer: Arc<Timer>) -> Self {
        Self {
            address,
            board,
            timer,
            served: Served::default(),
            running: AtomicU32::new(0),
            memory: Mutex::new(Memory {
                cache: Cache::new(GPU_BLOCKS as usize),
                publisher,
            }),
            page: Page::new(),
        }
    }

    /// A request is being served as long as this lives.
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.running.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// The prompt is computed: its blocks are stored. Returns how many of its tokens the cache had.
    pub fn prefill(&self, turn: &Turn) -> usize {
        let hashes = &turn.conversation().hashes;
        let to = turn.blocks(0);
        let held = self.memory.lock().store(turn.conversation(), 0, to);
        // the last token is always computed
        let cached = held.min((turn.prompt() - 1) / BLOCK) * BLOCK;
        debug_assert!(held <= hashes.len());
        self.served.requests.fetch_add(1, Ordering::Relaxed);
        self.served
            .prompt
            .fetch_add(turn.prompt() as u64, Ordering::Relaxed);
        self.served.cached.fetch_add(cached as u64, Ordering::Relaxed);
        cached
    }

    /// So many tokens of the answer are there now, after so many.
    pub fn decode(&self, turn: &Turn, before: usize, answered: usize) {
        let (from, to) = (turn.blocks(before), turn.blocks(answered));
        if from < to {
            self.memory.lock().store(turn.conversation(), from, to);
        }
    }

    /// It stored this before anyone asked: the blocks up to `to` of a conversation, without a word.
    pub fn remember(&self, conversation: &Conversation, to: usize) {
        self.memory.lock().cache.take(&conversation.hashes[..to]);
    }

    /// It has no more room than it has blocks.
    pub fn is_full_now(&self) {
        self.memory.lock().cache.is_full_now();
    }

    /// Publishes a message.
    pub fn publish(&self, message: Vec<u8>) {
        self.memory.lock().publish(message);
    }

    /// Its metrics page now.
    pub fn metrics(&self) -> String {
        self.page.of(self.running.load(Ordering::Relaxed))
    }
}

impl Memory {
    /// Stores blocks `from..to` of a conversation whose blocks before these were used just now, and says which are new. Returns how
    /// many of all up to `to` it had.
    fn store(&mut self, conversation: &Conversation, from: usize, to: usize) -> usize {
        let hashes = &conversation.hashes[from..to];
        let held = from + self.cache.held(hashes);
        let gone = self.cache.take(hashes);
        if held < to {
            self.publish(stored(conversation, held, to, &gone));
        }
        held
    }

    fn publish(&mut self, message: Vec<u8>) {
        self.publisher.send(Bytes::from(message), Instant::now(), false);
    }
}

fn stored(conversation: &Conversation, from: usize, to: usize, gone: &[u64]) -> Vec<u8> {
    let tokens: &[TokenId] = &conversation.tokens[from * BLOCK..to * BLOCK];
    step(
        gone,
        &[Run {
            parent: from.checked_sub(1).map(|before| conversation.hashes[before]),
            hashes: &conversation.hashes[from..to],
            tokens,
        }],
    )
}

/// A request that is being served.
pub struct Busy(Arc<Engine>);

impl Busy {
    /// By whom.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The captured page around the one figure that moves.
struct Page {
    before: String,
    after: String,
}

impl Page {
    fn new() -> Self {
        let text = CAPTURED.replace("tiny-qwen2", MODEL).replace(
            "num_gpu_blocks=\"8192\"",
            &format!("num_gpu_blocks=\"{GPU_BLOCKS}\""),
        );
        let sample = format!("vllm:num_requests_running{{engine=\"0\",model_name=\"{MODEL}\"}} ");
        let (before, rest) = text
            .split_once(&sample)
            .expect("the captured page has requests running");
        let after = rest.find('\n').map_or("", |end| &rest[end..]);
        Self {
            before: format!("{before}{sample}"),
            after: after.to_owned(),
        }
    }

    fn of(&self, running: u32) -> String {
        format!("{}{running}.0{}", self.before, self.after)
    }
}

#[cfg(test)]
mod tests {
    use lmetric_epp::scrape::PageReader;

    use super::*;

    #[test]
    fn the_metrics_page_says_what_a_picker_reads() {
        let mut reader = PageReader::default();
        reader.push(Page::new().of(3).as_bytes());
        let page = reader.finish().of(None).unwrap();
        assert_eq!((page.running, page.waiting), (Some(3), Some(0)));
        assert_eq!((page.gpu_blocks, page.block_size), (Some(GPU_BLOCKS), Some(16)));
        assert_eq!(page.prefix_caching, Some(true));
    }
}
