//! The live page, over HTTP.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use lmetric_api::PageAccess;
use lmetric_epp::{
    admin::{LiveParts, Pages, live_router},
    guard::{Place, Placement},
};
use lmetric_scheduler::{Outcome, PickRequest};
use lmetric_telemetry::{Admin, Logs, Readiness, Tasks};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    engine::{Behaviour, Engine},
    stage::{Stage, completion, endpoint, text},
};

/// What must never be shown.
const SECRET: &str = "hunter2";

struct Server {
    address: SocketAddr,
    tasks: Tasks,
}

impl Server {
    async fn start(stage: &Stage, access: PageAccess) -> Self {
        let (tasks, _) = Tasks::new();
        let routes = live_router(LiveParts {
            pages: Pages {
                scheduler: stage.scheduler.clone(),
                fleet: stage.fleet.clone(),
                ladder: stage.ladder.clone(),
                clock: stage.clock,
            },
            readiness: Readiness::default(),
            speed: 2.0,
            access,
            tasks: tasks.clone(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a free port");
        let registry = lmetric_telemetry::registry();
        let logs = Logs::detached("info").expect("a filter");
        let admin = Admin::new(listener, registry, Readiness::default(), logs, routes);
        let address = admin.address().expect("an address");
        tasks.spawn("admin", |token| async move {
            admin.serve(token).await.expect("serves");
        });
        Self { address, tasks }
    }

    /// Asks as a browser would whose address bar says `host`.
    async fn ask(&self, path: &str, host: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        let ask = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nX-Api-Key: {SECRET}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(ask.as_bytes()).await.expect("it reads");
        stream
    }

    async fn whole(&self, path: &str, host: &str) -> String {
        let mut answer = String::new();
        self.ask(path, host)
            .await
            .read_to_string(&mut answer)
            .await
            .expect("text");
        answer
    }
}

/// Reads until `wanted` snapshots came; the last one.
async fn snapshots(stream: &mut TcpStream, wanted: usize) -> (String, Value) {
    let mut read = String::new();
    loop {
        let whole = read.matches("\n\n").count();
        if whole >= wanted {
            let data = read.lines().rev().find_map(|line| line.strip_prefix("data: "));
            let snapshot = data.and_then(|data| serde_json::from_str(data).ok());
            if let Some(snapshot) = snapshot {
                return (read, snapshot);
            }
        }
        let mut bytes = vec![0; 64 << 10];
        let got = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut bytes)).await;
        let got = got.expect("news every second").expect("a stream");
        assert!(got > 0, "the stream ended: {read}");
        read.push_str(&String::from_utf8_lossy(&bytes[..got]));
    }
}

async fn open_requests(stage: &Stage) -> Vec<Placement> {
    let mut open = Vec::new();
    for request in [
        completion(&format!("{SECRET}-id"), 0..100),
        text("r1", &format!("my password is {SECRET}")),
    ] {
        let salted = lmetric_epp::request::ParsedRequest {
            cache_salt: Some(SECRET.to_owned()),
            ..request
        };
        open.push(stage.picker.place(Arc::new(salted)).await.expect("placed"));
    }
    // as when no list of models could be read
    let unheard = PickRequest {
        request_id: SECRET,
        model: SECRET,
        prompts: &[],
        weight: 1,
        estimated: true,
        subset: None,
        lora: None,
        session: None,
    };
    let picked = stage
        .scheduler
        .pick(&unheard, stage.clock.now(), &mut rand::rng());
    let picked = picked.expect("placed");
    stage
        .scheduler
        .release(picked.reservation, Outcome::Done, stage.clock.now());
    open
}

#[tokio::test]
async fn snapshots_tell_the_fleet_and_nothing_that_a_client_wrote() {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    stage.reconciler.apply(&[endpoint(engine.address)]);
    stage.ready(1).await;
    let server = Server::start(&stage, PageAccess::Loopback).await;
    let open = open_requests(&stage).await;
    let mut stream = server.ask("/live", "localhost:9090").await;
    let (all, snapshot) = snapshots(&mut stream, 2).await;

    assert!(!all.contains(SECRET), "{all}");
    let first = &snapshot["endpoints"][0];
    assert_eq!(first["address"], engine.address.to_string());
    assert_eq!(
        (&first["bs"], &first["state"], &first["events"]),
        (&2.into(), &"ready".into(), &"live".into())
    );
    assert_eq!(snapshot["totals"]["picks"], 3);
    assert_eq!(snapshot["policy"], "lmetric");
    let picks = snapshot["decisions"].as_array().expect("a list");
    let models: Vec<&Value> = picks.iter().map(|pick| &pick["model"]).collect();
    assert_eq!(
        models,
        [&Value::Null, &"m".into(), &"m".into()],
        "a model that nobody serves is the client's word"
    );
    for pick in picks {
        assert_eq!(pick["winner"], engine.address.to_string());
        let why = pick["why"].as_str().expect("a reason");
        assert!(why.starts_with("won because it was the only candidate"), "{why}");
    }
    let page = server.whole("/", "127.0.0.1").await;
    assert!(!page.contains(SECRET));
    drop(open);
    // an open stream must not keep the picker from ending
    assert!(server.tasks.shut_down(Duration::from_secs(2)).await);
}

#[tokio::test]
async fn the_page_carries_all_it_needs_and_lets_nothing_else_in() {
    let stage = Stage::new();
    let server = Server::start(&stage, PageAccess::Loopback).await;
    let page = server.whole("/", "localhost").await;
    let (head, body) = page.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let policy = head
        .lines()
        .find_map(|line| line.strip_prefix("content-security-policy: "))
        .expect("a policy");
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    let nonce = policy
        .split_once("script-src 'nonce-")
        .and_then(|(_, rest)| rest.split_once('\''))
        .map(|(nonce, _)| nonce)
        .expect("a nonce");
    assert_eq!(
        body.matches(&format!("nonce=\"{nonce}\"")).count(),
        2,
        "one style, one script"
    );
    for outside in [
        "https:",
        "src=",
        "@import",
        "url(",
        "innerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
    ] {
        assert!(!body.contains(outside), "{outside}");
    }
    assert!(!body.contains("{nonce}") && !body.contains("{style}") && !body.contains("{script}"));
    let again = server.whole("/", "localhost").await;
    assert!(!again.contains(nonce), "a nonce is used once");
}

#[tokio::test]
async fn who_is_not_meant_is_told_in_one_line() {
    let stage = Stage::new();
    let server = Server::start(&stage, PageAccess::Loopback).await;
    for path in ["/", "/live"] {
        let refused = server.whole(path, "picker.example:9090").await;
        assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
        assert!(refused.contains("kubectl port-forward"), "{refused}");
    }
    let healthy = server.whole("/healthz", "picker.example:9090").await;
    assert!(
        healthy.starts_with("HTTP/1.1 200"),
        "the rest of the port is as it was: {healthy}"
    );
    let off = Server::start(&stage, PageAccess::Off).await;
    assert!(off.whole("/", "localhost").await.starts_with("HTTP/1.1 404"));
    let open = Server::start(&stage, PageAccess::Anyone).await;
    assert!(
        open.whole("/", "picker.example")
            .await
            .starts_with("HTTP/1.1 200")
    );
}

#[tokio::test]
async fn the_seventeenth_viewer_waits() {
    let stage = Stage::new();
    let server = Server::start(&stage, PageAccess::Loopback).await;
    let mut viewers = Vec::new();
    for _ in 0..16 {
        let mut viewer = server.ask("/live", "localhost").await;
        snapshots(&mut viewer, 1).await;
        viewers.push(viewer);
    }
    let refused = server.whole("/live", "localhost").await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(
        refused.contains("16 viewers look at this picker already"),
        "{refused}"
    );
}
