//! What the tests of several modules share.

use std::path::PathBuf;

/// A captured answer of vLLM.
pub(crate) struct Captured {
    pub(crate) content_type: String,
    /// Without chunked framing.
    pub(crate) body: Vec<u8>,
}

fn split(message: &[u8]) -> (&str, &[u8]) {
    let end = message
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .expect("a captured message has a head");
    (
        std::str::from_utf8(&message[..end]).expect("heads are text"),
        &message[end + 4..],
    )
}

/// This package's folder. Asked at run time: checkouts that share a target folder may share this program.
fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// The tokenizer of the tests.
pub(crate) fn tiny_qwen2() -> PathBuf {
    package().join("../tokenize/testdata/tiny-qwen2")
}

fn read(name: &str, side: &str) -> Vec<u8> {
    let path = package().join(format!("testdata/http/{name}.{side}.txt"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The answer captured under `name`.
pub(crate) fn captured(name: &str) -> Captured {
    let message = read(name, "response");
    let (head, body) = split(&message);
    let header = |wanted: &str| {
        head.lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(key, _)| key.eq_ignore_ascii_case(wanted))
            .map(|(_, value)| value.to_owned())
    };
    let body = if header("transfer-encoding").is_some() {
        unchunk(body)
    } else {
        body.to_vec()
    };
    Captured {
        content_type: header("content-type").unwrap_or_default(),
        body,
    }
}

/// Path and body of the request captured under `name`.
pub(crate) fn captured_request(name: &str) -> (String, Vec<u8>) {
    let message = read(name, "request");
    let (head, body) = split(&message);
    let path = head.split(' ').nth(1).expect("a request line has a path");
    (path.to_owned(), body.to_vec())
}

fn unchunk(mut chunked: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = chunked
            .windows(2)
            .position(|window| window == b"\r\n")
            .expect("a chunk has a size line");
        let size = std::str::from_utf8(&chunked[..end]).expect("sizes are text");
        let size = usize::from_str_radix(size, 16).expect("sizes are hexadecimal");
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&chunked[end + 2..end + 2 + size]);
        chunked = &chunked[end + 2 + size + 2..];
    }
}
