//! The engines' doors: an address each, HTTP for requests and scrapes, KV events and their replay over ZeroMQ. All in one thread.

use std::{
    convert::Infallible,
    net::{SocketAddr, TcpListener},
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use lmetric_testkit::Loopback;
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use vllm_sim::{
    args::EventFormat,
    publisher::{Framing, Publisher, Sockets},
};

use super::{
    answer::answer,
    board::{Board, HEADER},
    chats::MODEL,
    engine::Engine,
    timer::Timer,
};

type Body = UnsyncBoxBody<Bytes, Infallible>;

const HTTP: u16 = 8_000;
const EVENTS: u16 = 5_557;
const REPLAY: u16 = 5_657;
/// Messages kept for replays; vLLM keeps 10,000. None is asked for unless one was lost.
const KEPT: usize = 1_000;

/// Running engines. They end when this is dropped.
pub struct Engines {
    /// In order of their addresses.
    pub all: Vec<Arc<Engine>>,
    cancel: CancellationToken,
    thread: Option<JoinHandle<()>>,
    ports: [u16; 2],
}

struct Door {
    address: SocketAddr,
    http: TcpListener,
    sockets: Sockets,
}

impl Engines {
    /// So many, on hosts 1, 2, … of `net`.
    pub fn start(net: &Loopback, count: u8, board: &Arc<Board>, timer: &Arc<Timer>) -> anyhow::Result<Self> {
        let doors: Vec<Door> = (1..=count)
            .map(|host| Door::open(net, host))
            .collect::<anyhow::Result<_>>()?;
        let (started, starting) = mpsc::channel();
        let cancel = CancellationToken::new();
        let (token, board, timer) = (cancel.clone(), Arc::clone(board), Arc::clone(timer));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new().name("engines".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(async {
                let tasks = TaskTracker::new();
                let opened = open(doors, &board, &timer, &token, &tasks).await;
                // who started this waits for it
                let _ = started.send(opened);
                token.cancelled().await;
            });
        })?;
        let mut engines = Self {
            all: Vec::new(),
            cancel,
            thread: Some(thread),
            ports: [net.port(EVENTS), net.port(REPLAY)],
        };
        engines.all = starting.recv().context("the engines' thread ended")??;
        Ok(engines)
    }

    /// Entries of an endpoints file for the first `count` of them.
    pub fn entries(&self, count: usize) -> Vec<Value> {
        let [events, replay] = self.ports;
        let entry = |engine: &Arc<Engine>| {
            let ip = engine.address.ip();
            json!({
                "address": engine.address.to_string(),
                "model": MODEL,
                "events": format!("tcp://{ip}:{events}"),
                "replay": format!("tcp://{ip}:{replay}"),
            })
        };
        self.all.iter().take(count).map(entry).collect()
    }

    /// Addresses of the first `count`.
    pub fn addresses(&self, count: usize) -> Vec<SocketAddr> {
        self.all.iter().take(count).map(|engine| engine.address).collect()
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        self.cancel.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Door {
    fn open(net: &Loopback, host: u8) -> anyhow::Result<Self> {
        let [http, events, replay] = [HTTP, EVENTS, REPLAY].map(|port| {
            let address = net.at(host, port);
            let listener = TcpListener::bind(address).with_context(|| format!("{address}: cannot listen"))?;
            listener.set_nonblocking(true)?;
            anyhow::Ok(listener)
        });
        Ok(Self {
            address: net.at(host, HTTP),
            http: http?,
            sockets: Sockets {
                events: events?,
                replay: replay?,
            },
        })
    }
}

async fn open(
    doors: Vec<Door>,
    board: &Arc<Board>,
    timer: &Arc<Timer>,
    token: &CancellationToken,
    tasks: &TaskTracker,
) -> anyhow::Result<Vec<Arc<Engine>>> {
    let mut engines = Vec::with_capacity(doors.len());
    for Door {
        address,
        http,
        sockets,
    } in doors
    {
        let framing = Framing {
            format: EventFormat::Map,
            topic: Bytes::new(),
            buffer_steps: KEPT,
        };
        let publisher = Publisher::start(sockets, framing, tasks).await?;
        let engine = Arc::new(Engine::new(
            address,
            publisher,
            Arc::clone(board),
            Arc::clone(timer),
        ));
        let listener = tokio::net::TcpListener::from_std(http)?;
        tasks.spawn(accept(Arc::clone(&engine), listener, token.clone()));
        engines.push(engine);
    }
    Ok(engines)
}

async fn accept(engine: Arc<Engine>, listener: tokio::net::TcpListener, token: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            () = token.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // no more files to open: others must close first
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            continue;
        };
        // without it answers only come a little later
        let _ = stream.set_nodelay(true);
        let engine = Arc::clone(&engine);
        let token = token.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| serve(Arc::clone(&engine), request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // a connection that breaks is the other side's business
            let _ = token.run_until_cancelled(connection).await;
        });
    }
}

async fn serve(engine: Arc<Engine>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    Ok(match (&head.method, head.uri.path()) {
        (&Method::POST, "/v1/chat/completions") => {
            let turn = head.headers.get(HEADER).and_then(|value| value.to_str().ok());
            let Some((turn, remembers)) = turn.and_then(|turn| engine.board.find(turn)) else {
                return Ok(plain(StatusCode::NOT_FOUND, "text/plain", String::new()));
            };
            let busy = engine.begin();
            if body.collect().await.is_err() {
                return Ok(plain(StatusCode::BAD_REQUEST, "text/plain", String::new()));
            }
            let stream = StreamBody::new(answer(busy, turn, remembers).await);
            respond(
                StatusCode::OK,
                "text/event-stream; charset=utf-8",
                BodyExt::boxed_unsync(stream),
            )
        }
        (&Method::GET, "/metrics") => plain(
            StatusCode::OK,
            "text/plain; version=1.0.0; charset=utf-8",
            engine.metrics(),
        ),
        (&Method::GET, "/v1/models") => {
            let models = json!({"object": "list", "data": [{"id": MODEL, "object": "model", "root": MODEL, "max_model_len": 40_960}]});
            plain(StatusCode::OK, "application/json", models.to_string())
        }
        (&Method::GET, "/health") => plain(StatusCode::OK, "text/plain", String::new()),
        _ => plain(StatusCode::NOT_FOUND, "text/plain", String::new()),
    })
}

fn plain(status: StatusCode, content_type: &'static str, body: String) -> Response<Body> {
    respond(status, content_type, Full::new(Bytes::from(body)).boxed_unsync())
}

fn respond(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let content_type = http::HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
