//! Reading the two published layouts, Mooncake's and Qwen-Bailian's, a recording of the picker and CSV, line by line with errors
//! a person can act on.

use std::{
    fmt,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};
use thiserror::Error;
use xxhash_rust::xxh3::Xxh3Default;

use super::{TraceRequest, csv::Header, line::Line};

/// Longest line that is read: 2 M block ids of 8 digits.
const LINE_BYTES: usize = 16 << 20;

/// Which layout a trace has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TraceFormat {
    /// kvcache-ai/Mooncake, FAST'25 release: timestamps in ms, blocks of 512 tokens.
    Mooncake,
    /// alibaba-edu/qwen-bailian-usagetraces-anon: timestamps in s, `chat_id`, blocks of 16 tokens.
    Bailian,
    /// A header `timestamp,input_length,output_length[,hash_ids]`, then one request a line: timestamps in s, ids
    /// separated by blanks, blocks of 16 tokens.
    Csv,
}

impl TraceFormat {
    fn of(first: &Map<String, Value>) -> Self {
        if first.contains_key("chat_id") {
            Self::Bailian
        } else {
            Self::Mooncake
        }
    }

    /// Tokens per block where the user names no other.
    pub const fn block_size(self) -> u32 {
        match self {
            Self::Mooncake => 512,
            Self::Bailian | Self::Csv => 16,
        }
    }

    pub(super) const fn per_second(self) -> f64 {
        match self {
            Self::Mooncake => 1_000.0,
            Self::Bailian | Self::Csv => 1.0,
        }
    }
}

impl fmt::Display for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mooncake => "mooncake",
            Self::Bailian => "bailian",
            Self::Csv => "csv",
        })
    }
}

/// Why a trace cannot be used. One line: file, line, field and the remedy.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("{path}: {source}; give the path of a trace in JSON lines with --trace")]
    Read {
        /// File.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is no JSON object.
    #[error(
        "{path}:{line}: not a JSON object ({problem}); each line must be one request, like {{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 20, \"hash_ids\": [0, 1]}}"
    )]
    Json {
        /// File.
        path: PathBuf,
        /// Line, from 1.
        line: u32,
        /// What is wrong.
        problem: String,
    },
    /// A field is missing or has a bad value.
    #[error("{path}:{line}: field {field:?}: {problem}; {remedy}")]
    Field {
        /// File.
        path: PathBuf,
        /// Line, from 1.
        line: u32,
        /// Field.
        field: &'static str,
        /// What is wrong.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// Nothing in it.
    #[error("{path}: no request in it; give a trace in JSON lines with --trace")]
    Empty {
        /// File.
        path: PathBuf,
    },
}

/// What the first line of a recording of the picker says.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Model time ÷ real time when it was made; timestamps are model time already.
    pub speed: Option<f64>,
    /// `full`: answers were seen; `light`: they were not.
    pub mode: Option<String>,
    /// Requests whose answers' lengths are estimates.
    pub estimated: u64,
}

/// A trace in memory.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Layout.
    pub format: TraceFormat,
    /// Tokens per block of `hash_ids`.
    pub block_size: u32,
    /// Requests in the order of their arrival; those that arrived at once in the file's order.
    pub requests: Vec<TraceRequest>,
    /// How it was recorded, if the picker made it.
    pub recorded: Option<Recorded>,
    /// xxh3 of the file's bytes, so that two runs can be known to have replayed the same.
    pub hash: u64,
}

impl Trace {
    /// Reads a file. The layout is told by its first line (`chat_id` is Bailian's) unless given. O(bytes).
    pub fn open(
        path: &Path,
        format: Option<TraceFormat>,
        block_size: Option<u32>,
    ) -> Result<Self, TraceError> {
        let file = std::fs::File::open(path).map_err(|source| TraceError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::read(path, BufReader::new(file), format, block_size)
    }

    /// Reads lines from anywhere; `path` is for errors.
    pub fn read(
        path: &Path,
        mut lines: impl BufRead,
        format: Option<TraceFormat>,
        block_size: Option<u32>,
    ) -> Result<Self, TraceError> {
        let mut hasher = Xxh3Default::new();
        let mut requests = Vec::new();
        let mut layout = format.map(|format| (format, block_size.unwrap_or(format.block_size())));
        let mut header = None;
        let mut recorded: Option<Recorded> = None;
        let mut bytes = Vec::new();
        for line in 1u32.. {
            bytes.clear();
            let mut limited = (&mut lines).take(LINE_BYTES as u64 + 1);
            let read = limited
                .read_until(b'\n', &mut bytes)
                .map_err(|source| TraceError::Read {
                    path: path.to_owned(),
                    source,
                })?;
            if read == 0 {
                break;
            }
            let json = |problem: String| TraceError::Json {
                path: path.to_owned(),
                line,
                problem,
            };
            if read > LINE_BYTES {
                return Err(json(format!("longer than {} MiB", LINE_BYTES >> 20)));
            }
            hasher.update(&bytes);
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            let is_first = layout.is_none() || (requests.is_empty() && format.is_some());
            if header.is_none() && is_first && is_csv(&bytes, format) {
                header = Some(Header::parse(path, line, &String::from_utf8_lossy(&bytes))?);
                let format = TraceFormat::Csv;
                layout = Some((format, block_size.unwrap_or(format.block_size())));
                continue;
            }
            let object: Map<String, Value> = match (&header, layout) {
                (Some(header), Some((_, size))) => {
                    header.object(&String::from_utf8_lossy(&bytes), line, size)
                }
                _ => serde_json::from_slice(&bytes).map_err(|error| json(error.to_string()))?,
            };
            // a recording of the picker says first how it cut blocks, and again where its files were joined
            if !object.contains_key("timestamp") && object.contains_key("block_size") {
                let bad = |problem: String| TraceError::Field {
                    path: path.to_owned(),
                    line,
                    field: "block_size",
                    problem,
                    remedy: "record again, or name the block size with --block-size and remove this line"
                        .to_owned(),
                };
                let size = block_size_of(&object).ok_or_else(|| bad("not a number of tokens".to_owned()))?;
                let size = block_size.unwrap_or(size);
                if let Some((_, before)) = layout.filter(|(_, before)| recorded.is_some() && *before != size)
                {
                    return Err(bad(format!(
                        "{size}, and blocks before it were of {before} tokens"
                    )));
                }
                layout = Some((TraceFormat::Mooncake, size));
                recorded.get_or_insert_with(|| Recorded {
                    speed: object.get("speed").and_then(Value::as_f64),
                    mode: object.get("mode").and_then(Value::as_str).map(str::to_owned),
                    estimated: 0,
                });
                continue;
            }
            let (format, block_size) = *layout.get_or_insert_with(|| {
                let format = TraceFormat::of(&object);
                (format, block_size.unwrap_or(format.block_size()))
            });
            let line = Line {
                path,
                number: line,
                object,
            };
            requests.push(line.request(format, block_size)?);
            let is_estimated = line.is_estimated()?;
            if let Some(recorded) = &mut recorded {
                recorded.estimated += u64::from(is_estimated);
            }
        }
        let Some((format, block_size)) = layout.filter(|_| !requests.is_empty()) else {
            return Err(TraceError::Empty {
                path: path.to_owned(),
            });
        };
        // a recording is in the order of requests' ends
        requests.sort_by(|one: &TraceRequest, other| one.at.total_cmp(&other.at));
        Ok(Self {
            format,
            block_size,
            requests,
            recorded,
            hash: hasher.digest(),
        })
    }
}

fn block_size_of(first: &Map<String, Value>) -> Option<u32> {
    let size = u32::try_from(first.get("block_size")?.as_u64()?).ok()?;
    (size > 0).then_some(size)
}

/// Whether a first line is a CSV header: it is, unless it is a JSON object or another layout was named.
fn is_csv(bytes: &[u8], named: Option<TraceFormat>) -> bool {
    if let Some(format) = named {
        return format == TraceFormat::Csv;
    }
    // a broken JSON line is an error of JSON, not a strange header
    let text = bytes.trim_ascii();
    text.starts_with(b"timestamp") || text.windows(10).any(|part| part == b",timestamp")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Trace, TraceError> {
        Trace::read(Path::new("t.jsonl"), text.as_bytes(), None, None)
    }

    const GOOD: &str = r#"{"timestamp": 3000, "input_length": 600, "output_length": 20, "hash_ids": [0, 7]}"#;

    #[test]
    fn mooncake_counts_milliseconds_and_blocks_of_512() {
        let trace = read(&format!("{GOOD}\n\n{GOOD}")).unwrap();
        assert_eq!((trace.format, trace.block_size), (TraceFormat::Mooncake, 512));
        let [first, second] = &trace.requests[..] else {
            panic!("two requests")
        };
        assert_eq!(
            (first.at, first.input_tokens, first.output_tokens),
            (3.0, 600, 20)
        );
        assert_eq!(first.blocks, [0, 7]);
        assert_eq!((first.line, second.line), (1, 3));
    }

    #[test]
    fn bailian_counts_seconds_and_blocks_of_16() {
        let ids: Vec<String> = (0..33).map(|id| id.to_string()).collect();
        let line = format!(
            r#"{{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 521, "output_length": 132, "type": "text", "turn": 2, "hash_ids": [{}]}}"#,
            ids.join(",")
        );
        let trace = read(&line).unwrap();
        assert_eq!((trace.format, trace.block_size), (TraceFormat::Bailian, 16));
        assert_eq!(
            (trace.requests[0].at, trace.requests[0].blocks.len()),
            (61.114, 33)
        );
    }

    #[test]
    fn a_tail_shorter_than_a_block_may_have_no_id() {
        assert_eq!(
            read(&GOOD.replace("[0, 7]", "[0]")).unwrap().requests[0].blocks,
            [0]
        );
    }

    #[test]
    fn a_bad_line_is_named_with_its_field_and_the_remedy() {
        let cases = [
            (
                GOOD.replace("600", "\"x\""),
                "t.jsonl:2: field \"input_length\": \"x\" is not a token count; give a whole number",
            ),
            (
                GOOD.replace("3000", "1e300"),
                "field \"timestamp\": 1e+300 is not a time",
            ),
            (
                GOOD.replace("600", "0"),
                "field \"input_length\": 0 is not a token count",
            ),
            (
                GOOD.replace("3000", "-1"),
                "field \"timestamp\": -1 is not a time; give a number from 0 to 1e13",
            ),
            (
                GOOD.replace("output_length", "outputs"),
                "field \"output_length\": missing; add it",
            ),
            (
                GOOD.replace("[0, 7]", "[0, 7, 9, 11]"),
                "field \"hash_ids\": 4 ids of 512 tokens do not cover input_length 600 (2 would); correct the line, or give the trace's own block size with --block-size (about 150 here)",
            ),
            (
                GOOD.replace("[0, 7]", "[0, \"a\"]"),
                "field \"hash_ids\": \"a\" is not a block id",
            ),
            (GOOD.replace("[0, 7]", "7"), "field \"hash_ids\": 7 is not a list"),
            ("[1]".to_owned(), "t.jsonl:2: not a JSON object"),
            ("{\"timestamp\": ".to_owned(), "t.jsonl:2: not a JSON object"),
        ];
        for (bad, expected) in cases {
            let error = read(&format!("{GOOD}\n{bad}\n")).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}\nlacks\n{expected}");
            assert!(
                error.starts_with("t.jsonl:2: ") && !error.contains('\n'),
                "{error}"
            );
        }
        assert!(read("\n").unwrap_err().to_string().contains("no request in it"));
        let missing = Trace::open(Path::new("/nowhere.jsonl"), None, None)
            .unwrap_err()
            .to_string();
        assert!(
            missing.contains("/nowhere.jsonl") && missing.contains("--trace"),
            "{missing}"
        );
    }

    #[test]
    fn another_block_size_is_accepted_when_given() {
        let line = GOOD.replace("[0, 7]", "[0, 7, 9, 11]");
        let trace = Trace::read(Path::new("t"), line.as_bytes(), None, Some(150)).unwrap();
        assert_eq!(trace.block_size, 150);
    }

    #[test]
    fn the_hash_follows_the_bytes() {
        assert_eq!(read(GOOD).unwrap().hash, read(GOOD).unwrap().hash);
        assert_ne!(
            read(GOOD).unwrap().hash,
            read(&GOOD.replace('7', "8")).unwrap().hash
        );
    }

    #[test]
    fn csv_has_a_header_and_counts_seconds() {
        let trace =
            read("timestamp,input_length,output_length,hash_ids\n0.5,40,3,1 2 3\r\n2,33,1,1 2 9\n").unwrap();
        assert_eq!((trace.format, trace.block_size), (TraceFormat::Csv, 16));
        let [first, second] = &trace.requests[..] else {
            panic!("two requests");
        };
        assert_eq!((first.at, first.input_tokens, first.output_tokens), (0.5, 40, 3));
        assert_eq!((second.at, &second.blocks), (2.0, &vec![1, 2, 9]));
    }

    #[test]
    fn csv_without_ids_shares_no_prefix() {
        let trace = read("output_length,timestamp,input_length\n3,0,40\n3,1,40\n").unwrap();
        assert_eq!(trace.requests[0].blocks.len(), 3);
        assert_ne!(trace.requests[0].blocks[0], trace.requests[1].blocks[0]);
    }

    #[test]
    fn a_bad_csv_line_names_file_line_and_field() {
        for (text, names) in [
            ("timestamp,input_length\n", "output_length"),
            (
                "timestamp,input_length,output_length\n0,x,3\n",
                "t.jsonl:2: field \"input_length\"",
            ),
            (
                "timestamp,input_length,output_length\n0,5\n",
                "t.jsonl:2: field \"output_length\"",
            ),
            (
                "timestamp,input_length,output_length,hash_ids\n0,40,3,1 b 3\n",
                "t.jsonl:2: field \"hash_ids\"",
            ),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(names), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_recording_says_how_it_cut_blocks_and_comes_in_the_order_of_ends() {
        let first = r#"{"block_size": 16, "speed": 4, "mode": "light"}"#;
        let text = [
            first,
            r#"{"timestamp": 1500.25, "input_length": 40, "output_length": 20, "hash_ids": [1, 2, 3]}"#,
            first,
            r#"{"timestamp": 900, "input_length": 40, "output_length": 90, "estimated": true, "hash_ids": [1, 2, 4]}"#,
        ]
        .join("\n");
        let trace = read(&text).unwrap();
        let [early, late] = &trace.requests[..] else {
            panic!("two requests");
        };
        assert_eq!((trace.block_size, early.at, late.at), (16, 0.9, 1.50025));
        assert_eq!((early.line, late.line), (4, 2));
        let recorded = trace.recorded.unwrap();
        assert_eq!(
            (recorded.speed, recorded.mode.as_deref()),
            (Some(4.0), Some("light"))
        );
        assert_eq!(recorded.estimated, 1);
        let other = text.replacen("16", "32", 1);
        let error = read(&other).unwrap_err().to_string();
        assert!(
            error.contains("field \"hash_ids\"") || error.contains("field \"block_size\""),
            "{error}"
        );
        let bad = text.replace("true", "1");
        let error = read(&bad).unwrap_err().to_string();
        assert!(
            error.contains("t.jsonl:4: field \"estimated\": 1 is not true or false"),
            "{error}"
        );
        let error = read(r#"{"block_size": 0, "speed": 4}"#).unwrap_err().to_string();
        assert!(error.contains("t.jsonl:1: field \"block_size\""), "{error}");
    }
}
