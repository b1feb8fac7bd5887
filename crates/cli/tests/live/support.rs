//! An OpenAI-shaped server in this process, that answers as it is told.

use std::{
    convert::Infallible,
    io::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response,
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// How a request is answered.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A stream of the asked number of tokens, `wait` before the first, `gap` between two.
    Tokens {
        wait: Duration,
        gap: Duration,
        cached: u64,
    },
    /// A status with an OpenAI error body.
    Status(u16),
    /// Two tokens, then the connection breaks.
    Break,
    /// Two tokens, then an error object.
    EngineError,
    /// A plain JSON answer to a request for a stream.
    Plain,
    /// No answer at all.
    Hang,
    /// This JSON, 200.
    Json(String),
}

/// What arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) path: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Value,
}

/// The server; it stops when dropped.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    seen: Arc<parking_lot::Mutex<Vec<Seen>>>,
    /// Answers whose client left before their end.
    aborted: Arc<AtomicU64>,
    _server: AbortOnDropHandle<()>,
}

impl Fake {
    pub(crate) async fn start(answer: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::listen(answer, None).await
    }

    /// Over TLS, with a certificate of its own whose PEM is returned.
    pub(crate) async fn start_tls(
        answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
    ) -> (Self, String) {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![own.cert.der().clone()], key)
                .unwrap();
        let fake = Self::listen(answer, Some(TlsAcceptor::from(Arc::new(config)))).await;
        (fake, own.cert.pem())
    }

    async fn listen(
        answer: impl Fn(usize) -> Answer + Send + Sync + 'static,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let aborted = Arc::new(AtomicU64::new(0));
        let (answer, all, left) = (Arc::new(answer), seen.clone(), aborted.clone());
        let server = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (answer, all, left, tls) = (answer.clone(), all.clone(), left.clone(), tls.clone());
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let (answer, all, left) = (answer.clone(), all.clone(), left.clone());
                        async move { Ok::<_, Infallible>(serve(request, &*answer, &all, left).await) }
                    });
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = match tls {
                        None => server.serve_connection(TokioIo::new(socket), service).await,
                        Some(tls) => match tls.accept(socket).await {
                            Ok(socket) => server.serve_connection(TokioIo::new(socket), service).await,
                            Err(_) => Ok(()),
                        },
                    };
                });
            }
        });
        Self {
            address,
            seen,
            aborted,
            _server: AbortOnDropHandle::new(server),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    pub(crate) fn aborted(&self) -> u64 {
        self.aborted.load(Ordering::SeqCst)
    }
}

async fn serve(
    request: Request<Incoming>,
    answer: &(impl Fn(usize) -> Answer + Sync),
    all: &parking_lot::Mutex<Vec<Seen>>,
    left: Arc<AtomicU64>,
) -> Response<Body> {
    let at = Instant::now();
    let (parts, body) = request.into_parts();
    let body = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let number = {
        let mut all = all.lock();
        let path = parts.uri.to_string();
        all.push(Seen {
            at,
            path,
            headers: parts.headers,
            body: body.clone(),
        });
        all.len() - 1
    };
    let chat = parts.uri.path().contains("chat");
    match answer(number) {
        Answer::Tokens { wait, gap, cached } => {
            let tokens = body["max_tokens"].as_u64().unwrap_or(1);
            let prompt = match body["prompt"].as_array() {
                Some(ids) => ids.len(),
                None => body["messages"][0]["content"]
                    .as_str()
                    .unwrap_or("")
                    .split_whitespace()
                    .count(),
            };
            let usage = json!({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": tokens,
                "prompt_tokens_details": {"cached_tokens": cached}}});
            let pace = stream::iter(0..tokens).then(move |i| async move {
                tokio::time::sleep(if i == 0 { wait } else { gap }).await;
                event(&token(chat))
            });
            let end = stream::iter([event(&usage), "data: [DONE]\n\n".to_owned()]);
            let opening =
                chat.then(|| event(&json!({"choices": [{"delta": {"role": "assistant", "content": ""}}]})));
            streamed(stream::iter(opening).chain(pace).chain(end).map(Ok), left)
        }
        Answer::Break => {
            let tokens = stream::iter([Ok(event(&token(chat))), Ok(event(&token(chat)))]);
            let broken = stream::once(async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Err(std::io::Error::other("the engine died"))
            });
            streamed(tokens.chain(broken), left)
        }
        Answer::EngineError => {
            let error = json!({"error": {"message": "EngineCore encountered an issue.", "code": 500}});
            let events = [event(&token(chat)), event(&error), "data: [DONE]\n\n".to_owned()];
            streamed(stream::iter(events.map(Ok)), left)
        }
        Answer::Status(status) => {
            let body = json!({"error": {"message": "no endpoint is ready", "code": status}}).to_string();
            plain(status, body)
        }
        Answer::Plain => plain(200, json!({"choices": [{"text": "x"}]}).to_string()),
        Answer::Json(body) => plain(200, body),
        Answer::Hang => {
            std::future::pending::<()>().await;
            plain(500, String::new())
        }
    }
}

fn token(chat: bool) -> Value {
    if chat {
        json!({"choices": [{"delta": {"content": "x"}}]})
    } else {
        json!({"choices": [{"text": "x"}]})
    }
}

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn plain(status: u16, body: String) -> Response<Body> {
    let body = Full::new(Bytes::from(body))
        .map_err(|never: Infallible| match never {})
        .boxed_unsync();
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(body)
        .unwrap()
}

/// Counts itself when it is dropped before its end.
struct Watched(Arc<AtomicU64>, bool);

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.1 {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn streamed(
    events: impl Stream<Item = std::io::Result<String>> + Send + 'static,
    left: Arc<AtomicU64>,
) -> Response<Body> {
    let watched = Watched(left, false);
    let events = events
        .map(Some)
        .chain(stream::iter([None]))
        .scan(watched, |watched, event| {
            watched.1 |= event.is_none();
            std::future::ready(event.map(|event| event.map(|text| Frame::data(Bytes::from(text)))))
        });
    let body = StreamBody::new(events).boxed_unsync();
    Response::builder()
        .header("content-type", "text/event-stream; charset=utf-8")
        .body(body)
        .unwrap()
}

/// A trace of `count` requests, `every` milliseconds apart, 600 tokens in two blocks, `output` tokens out.
pub(crate) fn trace(folder: &Path, count: u64, every: u64, output: u64) -> PathBuf {
    let path = folder.join("trace.jsonl");
    let mut file = std::fs::File::create(&path).unwrap();
    for i in 0..count {
        let line = json!({"timestamp": i * every, "input_length": 600, "output_length": output, "hash_ids": [0, i + 1]});
        writeln!(file, "{line}").unwrap();
    }
    path
}
