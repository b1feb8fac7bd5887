//! What a stored run says about its key space, and the contents of its blocks.

use lmetric_prefix::{BlockSize, ContentHash};

use crate::wire::{BlockExtras, ExtraKey, ExtraKeys, Stored};

/// Where blocks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Medium {
    Gpu,
    Cpu,
    Storage,
}

impl Medium {
    /// `None` for a medium that nobody has told us about.
    pub(super) fn of(name: Option<&str>) -> Option<Self> {
        match name {
            None | Some("GPU") => Some(Self::Gpu),
            Some("CPU" | "CPU_PINNED") => Some(Self::Cpu),
            Some("STORAGE" | "FS" | "OBJ" | "DISK" | "EXTERNAL" | "SHARED_STORAGE") => Some(Self::Storage),
            Some(_) => None,
        }
    }
}

/// Whether blocks of this locality are the engine's own.
pub(super) fn is_local(locality: Option<&str>) -> bool {
    matches!(locality, None | Some("LOCAL"))
}

/// Whether a group of this kind holds every block of a prompt, so that its holders tell what can be hit.
pub(super) fn is_full_attention(kind: &str) -> bool {
    matches!(kind, "full_attention" | "mla_attention" | "sink_full_attention")
}

/// Size of the run's blocks if it is dense: every block is there with all its tokens.
pub(super) fn dense_block_size(stored: &Stored<'_, '_>) -> Option<BlockSize> {
    let size = BlockSize::new(u32::try_from(stored.block_size).ok()?)?;
    let blocks = stored.hashes.len();
    let extras_match = stored.extra_keys.as_ref().is_none_or(|keys| keys.len() == blocks);
    (blocks > 0 && extras_match && stored.tokens.len() == blocks.checked_mul(size.get() as usize)?)
        .then_some(size)
}

/// LoRA adapter of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lora<'p> {
    Base,
    Named(&'p str),
    /// An adapter whose requests cannot be told from others': its stores are not indexed.
    Unnamed,
}

impl<'p> Lora<'p> {
    /// Engines that send no extra keys, or a number without a name (0.16 and older), do not say enough.
    pub(super) fn of(stored: &Stored<'p, '_>) -> Self {
        match (stored.lora_name, stored.lora_id, &stored.extra_keys) {
            (None, None | Some(0), _) => Self::Base,
            (Some(name), _, Some(_)) => Self::Named(name),
            _ => Self::Unnamed,
        }
    }

    pub(super) fn name(self) -> Option<&'p str> {
        match self {
            Self::Named(name) => Some(name),
            Self::Base | Self::Unnamed => None,
        }
    }
}

/// Appends the content hash of each block of a dense run, extra keys folded in; the prompt's salt, if the run begins
/// the prompt and carries one. O(tokens).
pub(super) fn contents<'p>(
    stored: &Stored<'p, '_>,
    size: BlockSize,
    lora: Lora<'p>,
    contents: &mut Vec<ContentHash>,
) -> Option<&'p str> {
    let before = contents.len();
    contents.extend(
        stored
            .tokens
            .chunks_exact(size.get() as usize)
            .map(ContentHash::of),
    );
    let mut salt = None;
    for (at, (extras, content)) in stored
        .extra_keys
        .iter()
        .flat_map(ExtraKeys::iter)
        .zip(&mut contents[before..])
        .enumerate()
    {
        if !extras.is_empty() {
            let begins = at == 0 && stored.parent.is_none();
            let found = fold(&extras, begins, lora.name(), content);
            salt = salt.or(found);
        }
    }
    salt
}

/// Folds a block's extra keys into its content, but for the LoRA name and the salt, which belong to the key
/// space. Untagged text in the first block of a prompt is the salt if it is the last such text: before it come
/// the LoRA name and, in 0.18 and older, identifiers of multimodal items.
fn fold<'p>(
    extras: &BlockExtras<'p>,
    begins_prompt: bool,
    lora: Option<&str>,
    content: &mut ContentHash,
) -> Option<&'p str> {
    let mut lora = lora;
    let mut salt = None;
    let mut bare = None;
    for key in extras.iter() {
        match key {
            ExtraKey::Text(text) if lora == Some(text) => lora = None,
            ExtraKey::Text(text) => {
                if let Some(earlier) = bare.replace(text) {
                    *content = content.with_item(earlier, 0);
                }
            }
            ExtraKey::Item(identifier, offset) => *content = content.with_item(identifier, offset),
            ExtraKey::Lora(_) => {}
            ExtraKey::Salt(text) => salt = Some(text),
            ExtraKey::Other(bytes) => *content = content.mixed_with(bytes),
        }
    }
    match bare {
        Some(text) if begins_prompt && salt.is_none() => salt = Some(text),
        Some(text) => *content = content.with_item(text, 0),
        None => {}
    }
    salt
}
