//! What an engine is asked to do, and how far it is.

use std::sync::Arc;
use std::time::Duration;

use crate::hash::mix;
use crate::pool::BlockId;
use crate::{BlockHash, RequestId};

/// A prompt: its length and the hashes of its full blocks, with its tokens if anyone has to see them.
#[derive(Clone, Debug)]
pub struct Prompt {
    len: u32,
    root: BlockHash,
    hashes: Arc<[BlockHash]>,
    tokens: Option<Arc<[u32]>>,
}

impl Prompt {
    /// A prompt of real tokens; `root` says what it may share with (see [`BlockHash::root`]). O(tokens).
    pub fn tokens(tokens: Arc<[u32]>, root: BlockHash, block_size: u32) -> Self {
        let mut hash = root;
        let hashes = tokens
            .chunks_exact(block_size as usize)
            .map(|block| {
                hash = hash.child(block);
                hash
            })
            .collect();
        Self {
            len: tokens.len() as u32,
            root,
            hashes,
            tokens: Some(tokens),
        }
    }

    /// A prompt of `len` tokens that nobody materialised: `hashes` are the chained hashes of its full blocks.
    pub fn synthetic(len: u32, root: BlockHash, hashes: Arc<[BlockHash]>) -> Self {
        Self {
            len,
            root,
            hashes,
            tokens: None,
        }
    }

    /// Tokens.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// No token at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Chained hashes of the full blocks.
    pub fn hashes(&self) -> &[BlockHash] {
        &self.hashes
    }

    /// The tokens, unless synthetic.
    pub fn token_ids(&self) -> Option<&[u32]> {
        self.tokens.as_deref()
    }
}

/// Which tokens a request generates.
#[derive(Clone, Debug)]
pub enum Output {
    /// Drawn from `vocabulary` by a hash of the seed and the position: the same seed repeats the same text.
    Drawn {
        /// Seed.
        seed: u64,
        /// Ids to draw from; empty gives the raw hash.
        vocabulary: Arc<[u32]>,
    },
    /// These, repeated from the start if there are too few.
    Given(Arc<[u32]>),
}

impl Output {
    /// The `index`-th generated token.
    pub fn token(&self, index: u32) -> u32 {
        match self {
            Self::Drawn { seed, vocabulary } => {
                let drawn = mix(*seed, u64::from(index));
                if vocabulary.is_empty() {
                    return drawn as u32;
                }
                vocabulary[(drawn % vocabulary.len() as u64) as usize]
            }
            Self::Given(tokens) => tokens
                .get(index as usize % tokens.len().max(1))
                .copied()
                .unwrap_or(0),
        }
    }
}

/// One engine request: a prompt, and how much follows it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Chosen by the caller; unique among the open requests of an engine.
    pub id: RequestId,
    /// What comes in.
    pub prompt: Prompt,
    /// What comes out.
    pub output: Output,
    /// Tokens to generate, at least 1.
    pub max_output: u32,
    /// Announce reused blocks again (`kv_cache_report_mode: full`).
    pub report_reused: bool,
}

/// What became of a finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Prompt tokens found in the cache at its first admission.
    pub cached_tokens: u32,
    /// Prompt tokens in full blocks that it added to the cache.
    pub created_tokens: u32,
    /// Times it was thrown out for want of blocks.
    pub preemptions: u32,
    /// When it was added.
    pub arrived: Duration,
    /// When a step took it up first.
    pub admitted: Duration,
    /// When its first token came out.
    pub first_token: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) request: Request,
    /// Hashes of full blocks after the prompt's own.
    grown: Vec<BlockHash>,
    pub(crate) blocks: Vec<BlockId>,
    /// Leading blocks that are cached (hit or stored).
    pub(crate) cached_blocks: u32,
    pub(crate) computed: u32,
    pub(crate) generated: u32,
    pub(crate) done: Finished,
    pub(crate) admitted: bool,
}

impl State {
    pub(crate) fn new(request: Request, now: Duration) -> Self {
        Self {
            request,
            grown: Vec::new(),
            blocks: Vec::new(),
            cached_blocks: 0,
            computed: 0,
            generated: 0,
            done: Finished {
                cached_tokens: 0,
                created_tokens: 0,
                preemptions: 0,
                arrived: now,
                admitted: now,
                first_token: now,
            },
            admitted: false,
        }
    }

    /// Tokens known so far: prompt and generated.
    pub(crate) fn known(&self) -> u32 {
        self.request.prompt.len() + self.generated
    }

    /// Nothing left but the one token that was generated last.
    pub(crate) fn decodes(&self) -> bool {
        self.generated > 0 && self.known() - self.computed == 1
    }

    pub(crate) fn hash(&self, block: u32) -> BlockHash {
        let own = self.request.prompt.hashes();
        own.get(block as usize)
            .copied()
            .unwrap_or_else(|| self.grown[block as usize - own.len()])
    }

    pub(crate) fn parent(&self, block: u32) -> Option<BlockHash> {
        block.checked_sub(1).map(|before| self.hash(before))
    }

    /// Hashes of all full blocks among the first `tokens` are known afterwards.
    pub(crate) fn hash_up_to(&mut self, tokens: u32, block_size: u32) {
        let own = self.request.prompt.hashes().len() as u32;
        for block in own + self.grown.len() as u32..tokens / block_size {
            let parent = self.parent(block).unwrap_or(self.request.prompt.root);
            let hash = if self.request.prompt.token_ids().is_some() {
                let tokens: smallvec::SmallVec<[u32; 128]> = self.block_tokens(block, block_size).collect();
                parent.child(&tokens)
            } else {
                let seed = match &self.request.output {
                    Output::Drawn { seed, .. } => *seed,
                    Output::Given(_) => self.request.id.0,
                };
                parent.marked_child(mix(seed, u64::from(block)))
            };
            self.grown.push(hash);
        }
    }

    /// Tokens of one full block; nothing for a synthetic prompt.
    pub(crate) fn block_tokens(&self, block: u32, block_size: u32) -> impl Iterator<Item = u32> + '_ {
        let prompt = self.request.prompt.token_ids();
        let positions = match prompt {
            Some(_) => block * block_size..(block + 1) * block_size,
            None => 0..0,
        };
        positions.map(move |position| {
            prompt
                .and_then(|tokens| tokens.get(position as usize).copied())
                .unwrap_or_else(|| self.request.output.token(position - self.request.prompt.len()))
        })
    }
}
