//! Reads `testdata/`.

use std::path::PathBuf;

use serde_json::Value;

pub(crate) struct Line {
    pub(crate) step: String,
    pub(crate) endpoint: String,
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) seq: u64,
    /// First element of the decoded side; `serde_json` rounds it, `str::parse` does not.
    pub(crate) timestamp: f64,
    pub(crate) decoded: Value,
}

impl Line {
    pub(crate) fn payload(&self) -> &[u8] {
        self.frames.last().unwrap()
    }

    /// Events of the decoded side.
    pub(crate) fn events(&self) -> &[Value] {
        self.decoded[1].as_array().unwrap()
    }
}

pub(crate) fn testdata() -> PathBuf {
    // asked at run time: checkouts that share a target folder may share this program
    let package: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    package.join("testdata")
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn frames(value: &Value) -> Vec<Vec<u8>> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| hex(frame.as_str().unwrap()))
        .collect()
}

/// `name` is relative to `testdata/` and has no extension.
pub(crate) fn live(name: &str) -> Vec<Line> {
    let path = testdata().join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .map(|text| {
            let line: Value = serde_json::from_str(text).unwrap();
            let (_, decoded) = text.split_once("\"decoded\":[").unwrap();
            Line {
                timestamp: decoded.split(',').next().unwrap().parse().unwrap(),
                step: line["step"].as_str().unwrap().to_owned(),
                endpoint: line["endpoint"].as_str().unwrap().to_owned(),
                frames: frames(&line["frames"]),
                seq: line["seq"].as_u64().unwrap(),
                decoded: line["decoded"].clone(),
            }
        })
        .collect()
}

/// Names of all files of live messages.
pub(crate) fn all_live() -> Vec<String> {
    let mut names = Vec::new();
    for folder in ["events", "events-0.16"] {
        for entry in std::fs::read_dir(testdata().join(folder)).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            if let Some(name) = file.strip_suffix(".jsonl")
                && !name.ends_with(".replay")
            {
                names.push(format!("{folder}/{name}"));
            }
        }
    }
    names.sort();
    assert_eq!(names.len(), 21, "{names:?}");
    names
}

/// One exchange with a replay socket.
pub(crate) struct Replay {
    pub(crate) socket: String,
    pub(crate) start: u64,
    pub(crate) total: usize,
    pub(crate) messages: Vec<Vec<Vec<u8>>>,
}

pub(crate) fn replays(name: &str) -> Vec<Replay> {
    let folder = testdata();
    let read = |extension: &str| std::fs::read_to_string(folder.join(format!("{name}.{extension}")));
    let exchanges: Vec<Value> = match read("replay.jsonl") {
        Ok(lines) => lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
        Err(_) => serde_json::from_str(&read("replay.json").unwrap()).unwrap(),
    };
    exchanges
        .iter()
        .map(|exchange| {
            let kept = exchange.get("messages_kept").unwrap_or(&exchange["frames"]);
            let messages: Vec<_> = kept.as_array().unwrap().iter().map(frames).collect();
            Replay {
                socket: exchange["socket"].as_str().unwrap_or("dealer").to_owned(),
                start: exchange["start_seq"].as_u64().unwrap(),
                total: exchange["messages_total"]
                    .as_u64()
                    .map_or(messages.len(), |n| n as usize),
                messages,
            }
        })
        .collect()
}
