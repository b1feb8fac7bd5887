//! One line of a trace: every field checked, every error naming it.

use std::path::Path;

use serde_json::{Map, Value};

use super::{TraceError, TraceFormat, TraceRequest};

/// Longest prompt or answer that is taken seriously.
const MOST_TOKENS: u64 = 16 << 20;
/// Latest timestamp that is: past any clock in milliseconds.
const MOST_TIME: f64 = 1e13;

/// A line that is a JSON object.
pub(super) struct Line<'a> {
    pub(super) path: &'a Path,
    /// From 1.
    pub(super) number: u32,
    pub(super) object: Map<String, Value>,
}

impl Line<'_> {
    /// The request that it describes, or the first field that is wrong.
    pub(super) fn request(&self, format: TraceFormat, block_size: u32) -> Result<TraceRequest, TraceError> {
        let at = self.number("timestamp")? / format.per_second();
        let input_tokens = self.tokens("input_length", 1)?;
        let output_tokens = self.tokens("output_length", 0)?;
        let blocks = self.blocks()?;
        let (full, all) = (input_tokens / block_size, input_tokens.div_ceil(block_size));
        if !(full as usize..=all as usize).contains(&blocks.len()) {
            return Err(self.bad(
                "hash_ids",
                format!(
                    "{} ids of {block_size} tokens do not cover input_length {input_tokens} ({all} would)",
                    blocks.len()
                ),
                match blocks.len() {
                    0 => "give the ids".to_owned(),
                    n => format!(
                        "correct the line, or give the trace's own block size with --block-size (about {} here)",
                        input_tokens.div_ceil(n as u32)
                    ),
                },
            ));
        }
        Ok(TraceRequest {
            line: self.number,
            at,
            input_tokens,
            output_tokens,
            blocks,
        })
    }

    fn field(&self, field: &'static str) -> Result<&Value, TraceError> {
        self.object.get(field).ok_or_else(|| {
            self.bad(
                field,
                "missing".to_owned(),
                "add it, or replay a trace in Mooncake's or Qwen-Bailian's layout".to_owned(),
            )
        })
    }

    fn number(&self, field: &'static str) -> Result<f64, TraceError> {
        let value = self.field(field)?;
        value
            .as_f64()
            .filter(|n| (0.0..=MOST_TIME).contains(n))
            .ok_or_else(|| {
                self.bad(
                    field,
                    format!("{} is not a time", shown(value)),
                    format!("give a number from 0 to {MOST_TIME:e}"),
                )
            })
    }

    fn tokens(&self, field: &'static str, least: u64) -> Result<u32, TraceError> {
        let value = self.field(field)?;
        match value.as_u64() {
            Some(count) if (least..=MOST_TOKENS).contains(&count) => Ok(count as u32),
            _ => Err(self.bad(
                field,
                format!("{} is not a token count", shown(value)),
                format!("give a whole number from {least} to {MOST_TOKENS}"),
            )),
        }
    }

    fn blocks(&self) -> Result<Vec<u64>, TraceError> {
        let value = self.field("hash_ids")?;
        let remedy = || "give a list of whole numbers, one for each block".to_owned();
        let list = value
            .as_array()
            .ok_or_else(|| self.bad("hash_ids", format!("{} is not a list", shown(value)), remedy()))?;
        list.iter()
            .map(|id| {
                id.as_u64()
                    .or_else(|| id.as_i64().map(|id| id as u64))
                    .ok_or_else(|| self.bad("hash_ids", format!("{} is not a block id", shown(id)), remedy()))
            })
            .collect()
    }

    /// Whether the answer's length was not told but estimated, as a recording of the picker says.
    pub(super) fn is_estimated(&self) -> Result<bool, TraceError> {
        match self.object.get("estimated") {
            None => Ok(false),
            Some(Value::Bool(estimated)) => Ok(*estimated),
            Some(value) => Err(self.bad(
                "estimated",
                format!("{} is not true or false", shown(value)),
                "write true or remove it".to_owned(),
            )),
        }
    }

    fn bad(&self, field: &'static str, problem: String, remedy: String) -> TraceError {
        TraceError::Field {
            path: self.path.to_owned(),
            line: self.number,
            field,
            problem,
            remedy,
        }
    }
}

/// A JSON value, cut so that the error stays one short line.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}
