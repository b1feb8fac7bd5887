//! Reads a vLLM metrics page line by line as it arrives, keeping only the few families that placing needs.
//!
//! A page is 50–80 KB and nine tenths of it are histogram buckets; a line is looked at only if it has the name of
//! one of ours. No tree is built and no line is copied unless it straddles two pieces of the body.

use memchr::{memchr, memchr2};

/// The families that are read.
const OURS: [&[u8]; 7] = [
    b"process_start_time_seconds",
    b"vllm:num_requests_running",
    b"vllm:num_requests_waiting",
    b"vllm:kv_cache_usage_perc",
    b"vllm:gpu_cache_usage_perc",
    b"vllm:cache_config_info",
    b"vllm:engine_sleep_state",
];
/// Longest line that is kept when a piece of the body ends inside it.
const LONGEST_LINE: usize = 64 << 10;
/// Most engines (data-parallel ranks) on one page.
const MOST_ENGINES: usize = 256;

/// What one page said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// By engine (data-parallel rank), ascending.
    pub engines: Vec<(u16, EngineMetrics)>,
    /// `process_start_time_seconds`.
    pub process_start: Option<f64>,
}

/// One engine's figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineMetrics {
    /// `vllm:num_requests_running`.
    pub running: Option<u32>,
    /// `vllm:num_requests_waiting`.
    pub waiting: Option<u32>,
    /// `vllm:kv_cache_usage_perc`, 0–1.
    pub kv_usage: Option<f64>,
    /// Tokens per block.
    pub block_size: Option<u32>,
    /// Blocks in the GPU cache.
    pub gpu_blocks: Option<u32>,
    /// Whether prefixes are cached at all.
    pub prefix_caching: Option<bool>,
    /// `vllm:engine_sleep_state{sleep_state="awake"}`.
    pub awake: Option<bool>,
}

impl Page {
    /// Figures of `rank`; without one, of the whole address: requests of its engines added up, and the first
    /// engine's cache.
    pub fn of(&self, rank: Option<u16>) -> Option<EngineMetrics> {
        let only = || match self.engines.as_slice() {
            [(_, only)] => Some(only.clone()),
            _ => None,
        };
        if let Some(rank) = rank {
            let own = self.engines.iter().find(|(engine, _)| *engine == rank);
            return own.map(|(_, metrics)| metrics.clone()).or_else(only);
        }
        let mut engines = self.engines.iter().map(|(_, metrics)| metrics);
        let mut sum = engines.next()?.clone();
        for engine in engines {
            sum.running = add(sum.running, engine.running);
            sum.waiting = add(sum.waiting, engine.waiting);
            sum.kv_usage = match (sum.kv_usage, engine.kv_usage) {
                (Some(one), Some(other)) => Some(one.max(other)),
                (one, other) => one.or(other),
            };
            sum.awake = match (sum.awake, engine.awake) {
                (Some(one), Some(other)) => Some(one && other),
                (one, other) => one.or(other),
            };
        }
        Some(sum)
    }

    fn engine(&mut self, rank: u16) -> Option<&mut EngineMetrics> {
        let at = match self.engines.binary_search_by_key(&rank, |(engine, _)| *engine) {
            Ok(at) => at,
            Err(_) if self.engines.len() >= MOST_ENGINES => return None,
            Err(at) => {
                self.engines.insert(at, (rank, EngineMetrics::default()));
                at
            }
        };
        Some(&mut self.engines[at].1)
    }

    fn line(&mut self, line: &[u8]) {
        // most lines fail here
        let name = memchr2(b'{', b' ', line).map_or(line, |end| &line[..end]);
        if !OURS.contains(&name) {
            return;
        }
        let Ok(line) = std::str::from_utf8(line) else {
            return;
        };
        let (name, labels, value) = match line.split_once('{') {
            Some((name, rest)) => match split_labels(rest) {
                Some((labels, value)) => (name, labels, value),
                None => return,
            },
            None => match line.split_once(' ') {
                Some((name, value)) => (name, "", value),
                None => return,
            },
        };
        let Some(value) = value
            .split_ascii_whitespace()
            .next()
            .and_then(|value| value.parse::<f64>().ok())
        else {
            return;
        };
        if name == "process_start_time_seconds" {
            self.process_start = Some(value);
            return;
        }
        let rank = label(labels, "engine")
            .and_then(|rank| rank.parse().ok())
            .unwrap_or(0);
        let Some(engine) = self.engine(rank) else { return };
        match name {
            "vllm:num_requests_running" => engine.running = add(engine.running, count(value)),
            "vllm:num_requests_waiting" => engine.waiting = add(engine.waiting, count(value)),
            "vllm:kv_cache_usage_perc" | "vllm:gpu_cache_usage_perc" => engine.kv_usage = Some(value),
            "vllm:engine_sleep_state" => {
                if label(labels, "sleep_state") == Some("awake") {
                    engine.awake = Some(value > 0.0);
                }
            }
            _ => {
                engine.block_size = label(labels, "block_size").and_then(|size| size.parse().ok());
                engine.gpu_blocks = label(labels, "num_gpu_blocks").and_then(|blocks| blocks.parse().ok());
                engine.prefix_caching = match label(labels, "enable_prefix_caching") {
                    Some("True" | "true") => Some(true),
                    Some("False" | "false") => Some(false),
                    _ => None,
                };
            }
        }
    }
}

fn add(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}

/// A gauge of requests; nonsense (negative, NaN) is none.
fn count(value: f64) -> Option<u32> {
    (value >= 0.0).then_some(value as u32)
}

/// Splits `a="x",b="y"} 1.0` after its labels; quoted braces do not count.
fn split_labels(rest: &str) -> Option<(&str, &str)> {
    let mut quoted = false;
    let mut escaped = false;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some((&rest[..at], &rest[at + 1..])),
            _ => {}
        }
    }
    None
}

/// Value of one label, as written (none of ours holds an escape).
fn label<'a>(labels: &'a str, wanted: &str) -> Option<&'a str> {
    let mut rest = labels;
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let mut escaped = false;
        let end = after.bytes().position(|byte| {
            if escaped {
                escaped = false;
                return false;
            }
            escaped = byte == b'\\';
            byte == b'"'
        })?;
        if name == wanted {
            return Some(&after[..end]);
        }
        rest = after[end + 1..].trim_start_matches([',', ' ']);
    }
}

/// Builds a [`Page`] from the pieces of a body.
#[derive(Debug, Default)]
pub struct PageReader {
    page: Page,
    /// Beginning of the line that the last piece ended in.
    open: Vec<u8>,
}

impl PageReader {
    /// The next piece of the body.
    pub fn push(&mut self, mut piece: &[u8]) {
        while let Some(end) = memchr(b'\n', piece) {
            let (line, rest) = piece.split_at(end);
            if self.open.is_empty() {
                self.page.line(line);
            } else {
                self.open.extend_from_slice(line);
                let line = std::mem::take(&mut self.open);
                self.page.line(&line);
            }
            piece = &rest[1..];
        }
        if self.open.len() + piece.len() <= LONGEST_LINE {
            self.open.extend_from_slice(piece);
        } else {
            // too long to be one of ours: what follows, up to the line's end, begins like none of them
            self.open.clear();
            self.open.push(b'#');
        }
    }

    /// The body ended.
    pub fn finish(mut self) -> Page {
        let line = std::mem::take(&mut self.open);
        self.page.line(&line);
        self.page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: &str = include_str!("../../testdata/metrics-load-24-requests-peak.txt");
    const RANKS: &str = include_str!("../../testdata/metrics-idle-dp2.txt");

    fn read(text: &str, piece: usize) -> Page {
        let mut reader = PageReader::default();
        for piece in text.as_bytes().chunks(piece) {
            reader.push(piece);
        }
        reader.finish()
    }

    #[test]
    fn a_captured_page_under_load_is_read_however_it_is_cut() {
        for piece in [1, 7, 1_000, usize::MAX] {
            let page = read(BUSY, piece);
            assert_eq!(
                page.of(None),
                Some(EngineMetrics {
                    running: Some(16),
                    waiting: Some(8),
                    kv_usage: Some(0.111_341_716_518_129_63),
                    block_size: Some(16),
                    gpu_blocks: Some(8_192),
                    prefix_caching: Some(true),
                    awake: Some(true),
                }),
                "in pieces of {piece}"
            );
            assert_eq!(page.of(Some(0)), page.of(None));
            assert_eq!(page.process_start, Some(1_796_013_112.54));
        }
    }

    #[test]
    fn ranks_of_one_page_are_kept_apart_and_added_up() {
        let text = RANKS.replace(
            "vllm:num_requests_running{engine=\"1\",model_name=\"tiny-qwen2\"} 0.0",
            "vllm:num_requests_running{engine=\"1\",model_name=\"tiny-qwen2\"} 3.0",
        );
        let page = read(&text, 4_096);
        assert_eq!(page.engines.len(), 2);
        assert_eq!(page.process_start, None);
        let of = |rank| page.of(rank).map(|engine| engine.gpu_blocks);
        assert_eq!(of(Some(1)), Some(Some(1_024)));
        assert_eq!(of(Some(7)), None, "a rank that the page does not know");
    }

    #[test]
    fn foreign_and_broken_lines_are_passed_over() {
        let page = read(
            "# HELP vllm:num_requests_running x\nvllm:num_requests_running{engine=\"0\",model_name=\"a}\\\"b\"} 2.0\n\
             vllm:num_requests_running{engine=\"0\n vllm:num_requests_waiting 4\nvllm:num_requests_waiting{engine=\"0\"} NaN\n\
             vllm:num_requests_waiting{engine=\"0\"} five\nother 1",
            3,
        );
        let engine = page.of(None).expect("an engine");
        assert_eq!((engine.running, engine.waiting), (Some(2), None));
    }

    #[test]
    fn a_line_without_end_costs_bounded_memory() {
        let mut reader = PageReader::default();
        for _ in 0..1_000 {
            reader.push(&[b'x'; 1_000]);
        }
        assert!(reader.open.capacity() <= 2 * LONGEST_LINE);
        reader.push(b"\nvllm:num_requests_running 1\n");
        assert_eq!(
            reader.finish().of(None).and_then(|engine| engine.running),
            Some(1)
        );
    }
}
