//! Writes the seeds of all targets from the fixtures of the repository: `cargo run -p lmetric-fuzz --example seeds`.

use std::{fs, path::Path};

use lmetric_fuzz::{
    folders::{corpus, files, repository},
    request_body::PATHS,
};
use serde_json::Value;

/// Longer fixtures make slow seeds.
const MOST: usize = 16 << 10;

fn main() -> std::io::Result<()> {
    for folder in ["crates/epp/testdata/http", "crates/vllm-sim/testdata/http"] {
        requests(&repository(folder))?;
    }
    exchanges(&repository("crates/epp/testdata/http"))?;
    for folder in [
        "crates/kvevents/testdata/events",
        "crates/kvevents/testdata/events-0.16",
    ] {
        events(&repository(folder))?;
    }
    for folder in [
        "crates/api/testdata/good-pools",
        "crates/api/testdata/bad-pools",
        "manifests/examples",
    ] {
        pools(&repository(folder))?;
    }
    configurations()
}

fn put(target: &str, name: &str, seed: &[u8]) -> std::io::Result<()> {
    if seed.len() > MOST {
        return Ok(());
    }
    let folder = corpus(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), seed)
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Head and body of a captured message.
fn split(message: &[u8]) -> (&[u8], &[u8]) {
    let end = message.windows(4).position(|window| window == b"\r\n\r\n");
    end.map_or((message, &[]), |end| (&message[..end], &message[end + 4..]))
}

fn path(head: &[u8]) -> String {
    let line = String::from_utf8_lossy(head);
    line.split(' ').nth(1).unwrap_or_default().to_owned()
}

fn requests(folder: &Path) -> std::io::Result<()> {
    for file in files(folder) {
        let message = fs::read(&file)?;
        let (head, body) = split(&message);
        let path = path(head);
        let api = PATHS.iter().position(|known| path.ends_with(known));
        if let Some(api) =
            api.filter(|_| file.to_string_lossy().ends_with(".request.txt") && !body.is_empty())
        {
            put(
                "request_body",
                &stem(&file).replace(".request", ""),
                &[&[api as u8], body].concat(),
            )?;
        }
    }
    Ok(())
}

/// Octets with their number in front of them.
fn counted(octets: &[u8]) -> Vec<u8> {
    [&(octets.len() as u16).to_le_bytes()[..], octets].concat()
}

/// Captured exchanges in each body mode: headers, the body in two pieces, the answer in pieces.
fn exchanges(folder: &Path) -> std::io::Result<()> {
    for (at, file) in files(folder).into_iter().enumerate() {
        let name = file.to_string_lossy().into_owned();
        let Some(answer) = name
            .strip_suffix(".request.txt")
            .map(|name| format!("{name}.response.txt"))
        else {
            continue;
        };
        let (request, answer) = (fs::read(&file)?, fs::read(answer)?);
        let ((head, body), (answer_head, answer_body)) = (split(&request), split(&answer));
        let status = String::from_utf8_lossy(answer_head);
        let status = status.split(' ').nth(1).unwrap_or("200");
        let kind = if answer_body.windows(5).any(|window| window == b"data:") {
            "text/event-stream"
        } else {
            "application/json"
        };
        let headers = format!(
            ":method POST\n:path {}\ncontent-length {}",
            path(head),
            body.len()
        );
        let answer_headers = format!(":status {status}\ncontent-type {kind}");
        let half = body.len() / 2;
        let mut seed = vec![2 | (at as u8 & 3) << 3, (at * 11 % 50) as u8];
        let acts: [(u8, Option<u8>, &[u8]); 5] = [
            (0, Some(0), headers.as_bytes()),
            (1, Some(0), &body[..half]),
            (1, Some(1), &body[half..]),
            (9, None, &[2]),
            (4, Some(0), answer_headers.as_bytes()),
        ];
        for (kind, end, octets) in acts {
            seed.push(kind);
            seed.extend(end);
            seed.extend(if end.is_some() {
                counted(octets)
            } else {
                octets.to_vec()
            });
        }
        let pieces = answer_body.chunks(answer_body.len().div_ceil(4).max(1));
        let count = pieces.len();
        for (at, piece) in pieces.enumerate() {
            seed.extend([5, u8::from(at + 1 == count)]);
            seed.extend(counted(piece));
        }
        put("ext_proc", &stem(&file).replace(".request", ""), &seed)?;
    }
    Ok(())
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits
        .chunks_exact(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect()
}

/// Captured messages: their payloads, and the connection that they came over.
fn events(folder: &Path) -> std::io::Result<()> {
    for file in files(folder) {
        let name = stem(&file);
        if file.extension().is_none_or(|ending| ending != "jsonl") || name.contains("replay") {
            continue;
        }
        let version = folder.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{version}-{name}");
        let mut payloads = vec![27, 0];
        let mut connection = vec![0];
        connection.extend(greeting());
        for line in fs::read_to_string(&file)?.lines().take(12) {
            let line: Value = serde_json::from_str(line)?;
            let frames: Vec<_> = line["frames"].as_array().into_iter().flatten().collect();
            let frames: Vec<_> = frames
                .iter()
                .filter_map(|frame| frame.as_str())
                .map(hex)
                .collect();
            for (at, frame) in frames.iter().enumerate() {
                let more = u8::from(at + 1 < frames.len());
                if let Ok(short) = u8::try_from(frame.len()) {
                    connection.extend([more, short]);
                } else {
                    connection.push(more | 2);
                    connection.extend((frame.len() as u64).to_be_bytes());
                }
                connection.extend(frame);
            }
            if let Some(payload) = frames.last() {
                payloads.push(0);
                payloads.extend(counted(payload));
            }
            if connection.len() > MOST / 2 {
                break;
            }
        }
        put("kv_events", &name, &payloads)?;
        put("zmtp", &name, &connection)?;
    }
    Ok(())
}

/// Greeting and READY of a publisher.
fn greeting() -> Vec<u8> {
    let mut greeting = vec![0; 64];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    let ready = b"\x05READY\x0bSocket-Type\0\0\0\x03PUB";
    greeting.extend([4, ready.len() as u8]);
    greeting.extend(ready);
    greeting
}

fn pools(folder: &Path) -> std::io::Result<()> {
    for (at, file) in files(folder).into_iter().enumerate() {
        let text = fs::read_to_string(&file)?;
        let documents = text
            .split("\n---")
            .filter(|document| document.contains("kind: InferencePool"));
        for (number, document) in documents.enumerate() {
            let seed = [&[at as u8 & 7], document.as_bytes()].concat();
            put("inference_pool", &format!("{}-{number}", stem(&file)), &seed)?;
        }
    }
    Ok(())
}

/// Configurations in tests and documents: strings of the tests, blocks of YAML of the documents.
fn configurations() -> std::io::Result<()> {
    let sources = [
        "crates/api/tests/picker_config.rs",
        "crates/api/tests/endpoints_file.rs",
    ];
    for source in sources {
        let text = fs::read_to_string(repository(source))?;
        let raw = text
            .split("r#\"")
            .skip(1)
            .filter_map(|rest| rest.split("\"#").next());
        let plain = text.split('"').filter(|quoted| !quoted.contains(";\n"));
        let strings = raw.chain(plain).filter(|quoted| quoted.contains(": "));
        for (number, quoted) in strings.enumerate() {
            let seed = quoted.replace("\\n", "\n");
            put(
                "picker_config",
                &format!("{}-{number}", stem(Path::new(source))),
                seed.as_bytes(),
            )?;
        }
    }
    for page in files(&repository("docs")) {
        let text = fs::read_to_string(&page)?;
        let blocks = text
            .split("```yaml\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next());
        for (number, block) in blocks.filter(|block| !block.contains("kind: ")).enumerate() {
            put(
                "picker_config",
                &format!("{}-{number}", stem(&page)),
                block.as_bytes(),
            )?;
        }
    }
    Ok(())
}
