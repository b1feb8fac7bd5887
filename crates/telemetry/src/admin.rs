//! The admin server: liveness, readiness, metrics, the log filter, and whatever the process adds.

use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, put},
};
use parking_lot::RwLock;
use prometheus_client::registry::Registry;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use crate::{CONTENT_TYPE, Logs, encode};

/// What stands between the process and being ready. Clones are the same. Ready when nothing does.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Blockers>);

#[derive(Debug)]
struct Blockers {
    reasons: RwLock<BTreeMap<&'static str, String>>,
    ready: watch::Sender<bool>,
}

impl Default for Blockers {
    fn default() -> Self {
        Self {
            reasons: RwLock::default(),
            ready: watch::Sender::new(true),
        }
    }
}

impl Readiness {
    /// Not ready because of `what`, in words for a person.
    pub fn block(&self, what: &'static str, why: impl Into<String>) {
        let mut reasons = self.0.reasons.write();
        reasons.insert(what, why.into());
        self.0.ready.send_replace(false);
    }

    /// `what` no longer stands in the way.
    pub fn clear(&self, what: &'static str) {
        let mut reasons = self.0.reasons.write();
        reasons.remove(what);
        self.0.ready.send_replace(reasons.is_empty());
    }

    /// Nothing stands in the way.
    pub fn is_ready(&self) -> bool {
        *self.0.ready.borrow()
    }

    /// Changes of [`Readiness::is_ready`].
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.0.ready.subscribe()
    }

    /// Everything that stands in the way, one line each.
    pub fn reasons(&self) -> String {
        let mut lines = String::new();
        for (what, why) in self.0.reasons.read().iter() {
            lines.push_str(what);
            lines.push_str(": ");
            lines.push_str(why);
            lines.push('\n');
        }
        lines
    }
}

/// The admin server, bound but not serving yet.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    router: Router,
}

#[derive(Clone)]
struct Shared {
    registry: Arc<Registry>,
    readiness: Readiness,
    logs: Logs,
}

impl Admin {
    /// Serves on `listener`; `more` are the process's own routes.
    pub fn new(
        listener: TcpListener,
        registry: Registry,
        readiness: Readiness,
        logs: Logs,
        more: Router,
    ) -> Self {
        let shared = Shared {
            registry: Arc::new(registry),
            readiness,
            logs,
        };
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .route("/debug/log", put(set_log).get(log))
            .with_state(shared)
            .merge(more);
        Self { listener, router }
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `token` is cancelled. Routes may ask who calls, by axum's `ConnectInfo<SocketAddr>`.
    pub async fn serve(self, token: CancellationToken) -> io::Result<()> {
        let service = self.router.into_make_service_with_connect_info::<SocketAddr>();
        axum::serve(self.listener, service)
            .with_graceful_shutdown(token.cancelled_owned())
            .await
    }
}

async fn metrics(State(shared): State<Shared>) -> Response {
    match encode(&shared.registry) {
        Ok(page) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], page).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn ready(State(shared): State<Shared>) -> Response {
    if shared.readiness.is_ready() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, shared.readiness.reasons()).into_response()
}

async fn set_log(State(shared): State<Shared>, filter: String) -> Response {
    match shared.logs.set(filter.trim()) {
        Ok(()) => {
            tracing::info!(filter = filter.trim(), "log filter replaced");
            format!("{}\n", shared.logs.filter()).into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

async fn log(State(shared): State<Shared>) -> String {
    format!("{}\n", shared.logs.filter())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("connects");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.expect("writes");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("reads");
        let status = answer[9..12].parse().expect("a status");
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status, body.to_owned())
    }

    #[tokio::test]
    async fn readiness_metrics_and_the_log_filter_can_be_asked_for() {
        let readiness = Readiness::default();
        readiness.block("endpoints", "the endpoints file was not read yet");
        let more = Router::new().route("/own", get(|| async { "own" }));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let admin = Admin::new(
            listener,
            crate::registry(),
            readiness.clone(),
            Logs::detached("info").expect("good filter"),
            more,
        );
        let address = admin.address().expect("an address");
        let token = CancellationToken::new();
        let server = tokio::spawn(admin.serve(token.clone()));

        assert_eq!(ask(address, "GET", "/healthz", "").await.0, 200);
        let (status, reasons) = ask(address, "GET", "/readyz", "").await;
        assert_eq!(
            (status, reasons.as_str()),
            (503, "endpoints: the endpoints file was not read yet\n")
        );
        readiness.clear("endpoints");
        assert_eq!(ask(address, "GET", "/readyz", "").await.0, 200);
        assert_eq!(ask(address, "GET", "/metrics", "").await.0, 200);
        assert_eq!(ask(address, "GET", "/own", "").await.1, "own");
        assert_eq!(ask(address, "PUT", "/debug/log", "debug\n").await.0, 200);
        assert_eq!(ask(address, "GET", "/debug/log", "").await.1, "debug\n");
        let (status, why) = ask(address, "PUT", "/debug/log", "a=loud").await;
        assert_eq!(status, 400);
        assert!(why.contains("write a level"), "{why}");

        token.cancel();
        server.await.expect("joins").expect("serves");
    }
}
