//! A site with models' files, as a test wants it: what it was asked for, and what it answers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Longest head of a request.
const MOST_LINES: usize = 64;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Path and query.
    pub path: String,
    /// Headers by lower-case name.
    pub headers: BTreeMap<String, String>,
}

/// One answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// HTTP status.
    pub status: u16,
    /// Headers, but for the length.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Answered {
    /// An answer without headers.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// An HTTP server. Dropping it ends it.
#[derive(Debug)]
pub struct Mirror {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    server: JoinHandle<()>,
}

impl Mirror {
    /// Answers every request with what `answer` says.
    pub async fn start(
        at: SocketAddr,
        answer: impl Fn(&Asked) -> Answered + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(at).await?;
        let address = listener.local_addr()?;
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (log, answer) = (asked.clone(), Arc::new(answer));
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, answer) = (log.clone(), answer.clone());
                tokio::spawn(async move {
                    // a client may leave at any time
                    let _ = serve(stream, &log, &*answer).await;
                });
            }
        });
        Ok(Self {
            address,
            asked,
            server,
        })
    }

    /// Serves the files of `folder` as every repository at every revision, in the form of Hugging Face's hub; with a token,
    /// to nobody who does not show it.
    pub async fn hub(at: SocketAddr, folder: &Path, token: Option<&str>) -> std::io::Result<Self> {
        let (folder, token) = (folder.to_owned(), token.map(|token| format!("Bearer {token}")));
        Self::start(at, move |asked| {
            if token.is_some() && asked.headers.get("authorization") != token.as_ref() {
                return Answered::new(401, "").header("x-error-code", "GatedRepo");
            }
            let file = asked.path.split_once("/resolve/").and_then(|(_, rest)| {
                let (_revision, file) = rest.split_once('/')?;
                std::fs::read(folder.join(PathBuf::from(file).file_name()?)).ok()
            });
            match file {
                Some(bytes) => Answered::new(200, bytes),
                None => Answered::new(404, "").header("x-error-code", "EntryNotFound"),
            }
        })
        .await
    }

    /// `http://ip:port`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(
    stream: TcpStream,
    log: &Mutex<Vec<Asked>>,
    answer: &(dyn Fn(&Asked) -> Answered + Send + Sync),
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 || lines.len() == MOST_LINES {
            return Ok(());
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let path = lines
        .first()
        .and_then(|line| line.split(' ').nth(1))
        .unwrap_or("/");
    let headers = lines.iter().skip(1).filter_map(|line| line.split_once(": "));
    let asked = Asked {
        path: path.to_owned(),
        headers: headers
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect(),
    };
    let Answered {
        status,
        headers,
        body,
    } = answer(&asked);
    log.lock().push(asked);
    let mut head = format!(
        "HTTP/1.1 {status} -\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.extend([name, ": ", &value, "\r\n"]);
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await
}
