//! An engine that is as much of vLLM as scraping and the token ladder see.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

/// What the engine answers with.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    pub(crate) running: u32,
    pub(crate) waiting: u32,
    pub(crate) block_size: u32,
    pub(crate) started: f64,
    pub(crate) awake: bool,
    /// (name, adapter)
    pub(crate) models: Vec<(&'static str, bool)>,
    pub(crate) models_status: StatusCode,
    pub(crate) sources: Option<Value>,
    pub(crate) render: Option<Value>,
    pub(crate) tokenize: Option<Value>,
    pub(crate) token_delay: Duration,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            running: 0,
            waiting: 0,
            block_size: 16,
            started: 1_000.0,
            awake: true,
            models: vec![("m", false)],
            models_status: StatusCode::OK,
            sources: None,
            render: None,
            tokenize: None,
            token_delay: Duration::ZERO,
        }
    }
}

/// A running engine; it stops when it is dropped.
pub(crate) struct Engine {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

struct Shared {
    behaviour: Mutex<Behaviour>,
    scrapes: AtomicUsize,
    lists: AtomicUsize,
    asked: Mutex<Vec<(String, Value)>>,
}

impl Engine {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            behaviour: Mutex::new(behaviour),
            scrapes: AtomicUsize::new(0),
            lists: AtomicUsize::new(0),
            asked: Mutex::default(),
        });
        let router = Router::new().fallback(answer).with_state(shared.clone());
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("serves");
        });
        Self {
            address,
            shared,
            server,
        }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.shared.behaviour.lock());
    }

    pub(crate) fn scrapes(&self) -> usize {
        self.shared.scrapes.load(Ordering::Relaxed)
    }

    pub(crate) fn lists(&self) -> usize {
        self.shared.lists.load(Ordering::Relaxed)
    }

    /// Paths and bodies that were posted.
    pub(crate) fn asked(&self) -> Vec<(String, Value)> {
        self.shared.asked.lock().clone()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, uri: Uri, body: String) -> Response {
    let behaviour = shared.behaviour.lock().clone();
    match uri.path() {
        "/metrics" => {
            shared.scrapes.fetch_add(1, Ordering::Relaxed);
            page(&behaviour).into_response()
        }
        "/v1/models" => {
            shared.lists.fetch_add(1, Ordering::Relaxed);
            let data: Vec<Value> = behaviour
                .models
                .iter()
                .map(|(id, adapter)| json!({"id": id, "parent": adapter.then_some("m")}))
                .collect();
            (behaviour.models_status, Json(json!({"data": data}))).into_response()
        }
        "/kv_event_sources" => found(behaviour.sources),
        path => {
            let body = serde_json::from_str(&body).unwrap_or(Value::Null);
            shared.asked.lock().push((path.to_owned(), body));
            let result = if path.ends_with("/render") {
                behaviour.render
            } else {
                behaviour.tokenize.filter(|_| path == "/tokenize")
            };
            if result.is_some() {
                tokio::time::sleep(behaviour.token_delay).await;
            }
            found(result)
        }
    }
}

fn found(value: Option<Value>) -> Response {
    match value {
        Some(value) => Json(value).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn page(behaviour: &Behaviour) -> String {
    let Behaviour {
        running,
        waiting,
        block_size,
        started,
        awake,
        ..
    } = behaviour;
    let awake = u8::from(*awake);
    format!(
        "# TYPE vllm:num_requests_running gauge\n\
         vllm:num_requests_running{{engine=\"0\",model_name=\"m\"}} {running}.0\n\
         vllm:num_requests_waiting{{engine=\"0\",model_name=\"m\"}} {waiting}.0\n\
         vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"m\"}} 0.25\n\
         vllm:engine_sleep_state{{engine=\"0\",model_name=\"m\",sleep_state=\"awake\"}} {awake}.0\n\
         vllm:cache_config_info{{block_size=\"{block_size}\",enable_prefix_caching=\"True\",engine=\"0\",num_gpu_blocks=\"1024\"}} 1.0\n\
         process_start_time_seconds {started}\n"
    )
}
