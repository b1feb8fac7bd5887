//! The DevTools protocol: JSON messages, each ended by a zero byte; answers by number, events by session.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, bail};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{ChildStdin, ChildStdout},
    sync::oneshot,
    time::timeout,
};

/// A browser that says nothing for this long hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Events kept of each session; what comes after them is lost.
const MOST_EVENTS: usize = 10_000;

/// Clones are the same.
#[derive(Clone)]
pub(super) struct Pipe(Arc<Shared>);

struct Shared {
    to: tokio::sync::Mutex<ChildStdin>,
    next: AtomicU64,
    heard: Arc<Mutex<Heard>>,
}

#[derive(Default)]
struct Heard {
    waiting: HashMap<u64, oneshot::Sender<Value>>,
    events: HashMap<String, Vec<Value>>,
}

impl Pipe {
    pub(super) fn new(to: ChildStdin, from: ChildStdout) -> Self {
        let heard = Arc::new(Mutex::new(Heard::default()));
        tokio::spawn(listen(from, heard.clone()));
        Self(Arc::new(Shared {
            to: tokio::sync::Mutex::new(to),
            next: AtomicU64::new(1),
            heard,
        }))
    }

    /// Calls a method, of the browser or of a session, and waits for its result.
    pub(super) async fn call(
        &self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> anyhow::Result<Value> {
        let id = self.0.next.fetch_add(1, Relaxed);
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let (tell, told) = oneshot::channel();
        self.0.heard.lock().waiting.insert(id, tell);
        let mut bytes = serde_json::to_vec(&message)?;
        bytes.push(0);
        {
            let mut to = self.0.to.lock().await;
            to.write_all(&bytes).await.context("the browser has ended")?;
            to.flush().await?;
        }
        let answer = timeout(PATIENCE, told)
            .await
            .with_context(|| format!("{method}: no answer within {PATIENCE:?}"))?
            .with_context(|| format!("{method}: the browser has ended"))?;
        match &answer["error"] {
            Value::Null => Ok(answer["result"].clone()),
            error => bail!("{method}: {error}"),
        }
    }

    /// Events of a session since the last call.
    pub(super) fn take_events(&self, session: &str) -> Vec<Value> {
        let mut heard = self.0.heard.lock();
        heard.events.remove(session).unwrap_or_default()
    }
}

/// Hands out what the browser says until it ends; whoever waits then is told so.
async fn listen(from: ChildStdout, heard: Arc<Mutex<Heard>>) {
    let mut from = BufReader::new(from);
    let mut bytes = Vec::new();
    while matches!(from.read_until(0, &mut bytes).await, Ok(1..)) {
        bytes.pop();
        if let Ok(message) = serde_json::from_slice::<Value>(&bytes) {
            let mut heard = heard.lock();
            if let Some(id) = message["id"].as_u64() {
                if let Some(waiting) = heard.waiting.remove(&id) {
                    // who waited may have given up
                    let _ = waiting.send(message);
                }
            } else if let Some(session) = message["sessionId"].as_str() {
                let events = heard.events.entry(session.to_owned()).or_default();
                if events.len() < MOST_EVENTS {
                    events.push(message);
                }
            }
        }
        bytes.clear();
    }
    heard.lock().waiting.clear();
}
