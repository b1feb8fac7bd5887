//! The last rung: no tokenizer, no engine to ask. A token for every four bytes.
//!
//! The pseudo-ids are the bytes themselves, so equal prefixes of text give equal block keys: copies
//! of a prompt are still recognised as one class, while no engine's block can ever match.

use std::io;

use serde_json::Value;

use crate::chat::ChatRequest;
use crate::message::Message;
use crate::parts::Part;
use crate::tokenized::{Media, Tokenized};

/// Bytes that are counted as one token.
pub const BYTES_PER_TOKEN: usize = 4;

/// Estimates a plain prompt. Linear in its length.
pub fn estimate_text(text: &str) -> Tokenized {
    let mut chunks = Chunks::with_capacity(text.len());
    chunks.bytes(text.as_bytes());
    Tokenized::plain(chunks.finish())
}

/// Estimates a chat: tools, then message by message, so that a later turn begins like the earlier
/// one. Media count as placeholders, not by the bytes of their URLs.
pub fn estimate_chat(chat: &ChatRequest) -> Tokenized {
    let mut chunks = Chunks::with_capacity(0);
    let mut media = Vec::new();
    if let Some(tools) = &chat.tools {
        chunks.json(&Value::Array(tools.clone()));
    }
    if let Some(documents) = &chat.documents {
        chunks.json(&Value::Array(documents.clone()));
    }
    for message in &chat.messages {
        chunks.message(message, &mut media);
    }
    let ids = chunks.finish();
    let matchable = media.first().map_or(ids.len(), |first: &Media| first.offset);
    Tokenized {
        ids,
        media,
        matchable,
    }
}

/// Packs bytes into ids.
struct Chunks {
    ids: Vec<u32>,
    open: [u8; BYTES_PER_TOKEN],
    filled: usize,
}

impl Chunks {
    fn with_capacity(bytes: usize) -> Self {
        Self {
            ids: Vec::with_capacity(bytes / BYTES_PER_TOKEN + 1),
            open: [0; BYTES_PER_TOKEN],
            filled: 0,
        }
    }

    fn bytes(&mut self, mut bytes: &[u8]) {
        while self.filled > 0 && !bytes.is_empty() {
            self.byte(bytes[0]);
            bytes = &bytes[1..];
        }
        let (whole, rest) = bytes.as_chunks();
        self.ids
            .extend(whole.iter().map(|chunk| u32::from_le_bytes(*chunk)));
        for byte in rest {
            self.byte(*byte);
        }
    }

    fn byte(&mut self, byte: u8) {
        self.open[self.filled] = byte;
        self.filled += 1;
        if self.filled == BYTES_PER_TOKEN {
            self.ids.push(u32::from_le_bytes(self.open));
            self.filled = 0;
        }
    }

    fn message(&mut self, message: &Message, media: &mut Vec<Media>) {
        self.bytes(b"\n");
        self.bytes(message.role().unwrap_or_default().as_bytes());
        self.bytes(b"\n");
        match (message.text(), message.get("content")) {
            (Some(text), _) => self.bytes(text.as_bytes()),
            (None, Some(Value::Array(parts))) => {
                for part in parts {
                    match Part::of(part) {
                        Some(Part::Text(text, _)) => self.bytes(text.as_bytes()),
                        Some(Part::Media(..)) => {
                            media.push(Media {
                                offset: self.ids.len(),
                                length: 0,
                                hash: None,
                            });
                        }
                        Some(Part::ToolReference(name)) => self.bytes(name.as_bytes()),
                        Some(Part::Empty) | None => {}
                    }
                }
            }
            _ => {}
        }
        for name in ["reasoning", "reasoning_content", "tool_calls"] {
            match message.get(name) {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) => self.bytes(text.as_bytes()),
                Some(other) => self.json(other),
            }
        }
    }

    fn json(&mut self, value: &Value) {
        serde_json::to_writer(self, value).expect("writing JSON into memory cannot fail");
    }

    fn finish(mut self) -> Vec<u32> {
        if self.filled > 0 {
            self.open[self.filled..].fill(0);
            self.ids.push(u32::from_le_bytes(self.open));
        }
        self.ids
    }
}

impl io::Write for &mut Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
