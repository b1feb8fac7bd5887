//! A steady load of streams: what happened to each, and when.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use lmetric_testkit::{Client, Phase, complete_stream};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};

use crate::support::MODEL;

/// One request, from its start to its end.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Its `x-request-id`.
    pub(crate) id: String,
    /// When it was sent.
    pub(crate) began: Instant,
    /// When its answer was complete, or the error came.
    pub(crate) ended: Instant,
    /// What was wrong with it.
    pub(crate) error: Option<String>,
    /// It was answered 503 at once.
    pub(crate) refused: bool,
}

/// Requests that begin one after another until told to stop.
pub(crate) struct Load {
    records: Arc<Mutex<Vec<Record>>>,
    stop: tokio::sync::watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Load {
    /// Begins a stream of `tokens` tokens every `every`.
    pub(crate) fn start(client: Client, every: Duration, tokens: u32) -> Self {
        let records = Arc::new(Mutex::new(Vec::new()));
        let (stop, mut stopped) = tokio::sync::watch::channel(false);
        let kept = Arc::clone(&records);
        let task = tokio::spawn(async move {
            let mut streams = JoinSet::new();
            let mut beat = tokio::time::interval(every);
            for number in 0.. {
                tokio::select! {
                    _ = beat.tick() => {}
                    _ = stopped.changed() => break,
                }
                let (client, kept) = (client.clone(), Arc::clone(&kept));
                streams.spawn(async move {
                    let record = stream(&client, format!("load-{number}"), tokens).await;
                    kept.lock().await.push(record);
                });
            }
            streams.join_all().await;
        });
        Self { records, stop, task }
    }

    /// Begins no more, waits for the last to end, and tells what became of all, in the order of their beginnings.
    pub(crate) async fn finish(self) -> anyhow::Result<Vec<Record>> {
        self.stop.send_replace(true);
        self.task.await?;
        let mut records = std::mem::take(&mut *self.records.lock().await);
        records.sort_by_key(|record| record.began);
        Ok(records)
    }
}

/// Fails with the first few failures if there is any.
pub(crate) fn all_served(records: &[Record]) -> anyhow::Result<()> {
    ensure!(!records.is_empty(), "no request was sent");
    let failed: Vec<_> = records.iter().filter(|record| record.error.is_some()).collect();
    if !failed.is_empty() {
        let first = &failed[..failed.len().min(5)];
        bail!(
            "{} of {} requests failed: {first:#?}",
            failed.len(),
            records.len()
        );
    }
    Ok(())
}

/// One stream, complete only if it brought every token.
pub(crate) async fn stream(client: &Client, id: String, tokens: u32) -> Record {
    let began = Instant::now();
    let done = complete_stream(client, &id, MODEL, &format!("tell me about {id}"), tokens).await;
    let failure = done.err();
    Record {
        id,
        began,
        ended: Instant::now(),
        refused: failure
            .as_ref()
            .is_some_and(|failure| failure.phase == Phase::Status(503)),
        error: failure.map(|failure| failure.to_string()),
    }
}
