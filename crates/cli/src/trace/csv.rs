//! A plain CSV trace: a header, then one request a line. Quoting is not needed and not known.

use std::path::Path;

use serde_json::{Map, Value};

use super::TraceError;

/// Columns that must be there.
const NEEDED: [&str; 3] = ["timestamp", "input_length", "output_length"];
/// The column of block ids, separated by blanks; a trace without it shares no prefix.
pub(super) const IDS: &str = "hash_ids";

/// Which column is which.
#[derive(Clone, Debug)]
pub(super) struct Header {
    columns: Vec<String>,
}

impl Header {
    /// Reads the first line.
    pub(super) fn parse(path: &Path, line: u32, text: &str) -> Result<Self, TraceError> {
        let columns: Vec<String> = text
            .trim()
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect();
        for field in NEEDED {
            if !columns.iter().any(|name| name == field) {
                return Err(TraceError::Field {
                    path: path.to_owned(),
                    line,
                    field,
                    problem: "not among the columns of the header".to_owned(),
                    remedy: "begin a CSV trace with timestamp,input_length,output_length and, to share prefixes, hash_ids; \
                             timestamps are seconds"
                        .to_owned(),
                });
            }
        }
        Ok(Self { columns })
    }

    /// One line as the object that a line of JSON would have been. `block_size` cuts the ids of a request without any.
    pub(super) fn object(&self, text: &str, line: u32, block_size: u32) -> Map<String, Value> {
        let mut object = Map::new();
        for (name, field) in self
            .columns
            .iter()
            .zip(text.trim_end_matches(['\r', '\n']).split(','))
        {
            let field = field.trim();
            let value = if name == IDS {
                Value::Array(field.split_ascii_whitespace().map(number).collect())
            } else {
                number(field)
            };
            object.insert(name.clone(), value);
        }
        let is_without = object
            .get(IDS)
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty);
        if is_without && let Some(tokens) = object.get("input_length").and_then(Value::as_u64) {
            let blocks = tokens.min(1 << 30).div_ceil(u64::from(block_size));
            let own = (1 << 63) | u64::from(line) << 31;
            object.insert(
                IDS.to_owned(),
                (0..blocks).map(|block| Value::from(own + block)).collect(),
            );
        }
        object
    }
}

fn number(text: &str) -> Value {
    if let Ok(whole) = text.parse::<u64>() {
        return Value::from(whole);
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Value::from(number),
        _ => Value::from(text),
    }
}
