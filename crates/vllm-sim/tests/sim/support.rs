//! A fleet in this process on free ports, and an HTTP/1.1 client that shows every byte.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use vllm_sim::{Args, Fleet};

/// Starts engines with these flags on free ports of 127.0.0.1 and the addresses after it.
pub(crate) async fn fleet(flags: &str) -> Fleet {
    let line = format!("vllm-sim --first-address 127.0.0.1 --port 0 --kv-port 0 --replay-port 0 {flags}");
    let args = Args::try_parse_from(line.split_whitespace()).unwrap();
    Fleet::start(&args).await.unwrap()
}

/// This package's folder. Asked at run time: checkouts that share a target folder may share this program.
fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// The tokenizer of the captures.
pub(crate) fn tokenizer() -> PathBuf {
    package().join("../tokenize/testdata/tiny-qwen2")
}

pub(crate) fn data(name: &str) -> PathBuf {
    package().join("testdata").join(name)
}

/// An answer, its chunks put together.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
    /// The body ended as its framing says.
    pub(crate) complete: bool,
}

impl Reply {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, rest) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0);
        let lower = head.to_ascii_lowercase();
        let (body, complete) = if lower.contains("transfer-encoding: chunked") {
            unchunk(rest)
        } else {
            let length = lower
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.lines().next());
            let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
            (rest.to_owned(), rest.len() >= length)
        };
        Self {
            status,
            head: head.to_owned(),
            body,
            complete: complete && status > 0,
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The JSON of every `data:` line but `[DONE]`.
    pub(crate) fn events(&self) -> Vec<Value> {
        let lines = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        lines
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }
}

fn unchunk(mut rest: &str) -> (String, bool) {
    let mut body = String::new();
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else {
            return (body, false);
        };
        if size == 0 {
            return (body, true);
        }
        let Some(chunk) = tail.get(..size) else {
            return (body + tail, false);
        };
        body.push_str(chunk);
        rest = tail.get(size + 2..).unwrap_or("");
    }
    (body, false)
}

/// Sends raw bytes and reads to the end of the connection.
pub(crate) async fn raw(address: SocketAddr, request: &[u8]) -> std::io::Result<Reply> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    Ok(Reply::parse(&bytes))
}

fn request(method: &str, path: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Reply {
    raw(address, request("GET", path, "").as_bytes()).await.unwrap()
}

pub(crate) async fn post(address: SocketAddr, path: &str, body: &Value) -> Reply {
    raw(address, request("POST", path, &body.to_string()).as_bytes())
        .await
        .unwrap()
}

/// [`post`] that leaves the connection to the caller once something has come.
pub(crate) async fn open(address: SocketAddr, path: &str, body: &Value) -> (TcpStream, Vec<u8>) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(request("POST", path, &body.to_string()).as_bytes())
        .await
        .unwrap();
    let mut bytes = vec![0; 1 << 16];
    let length = stream.read(&mut bytes).await.unwrap();
    bytes.truncate(length);
    (stream, bytes)
}

pub(crate) async fn state(address: SocketAddr) -> Value {
    get(address, "/sim/state").await.json()
}

/// Waits until `check` holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    let began = Instant::now();
    while !check().await {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "waited in vain until {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
