//! Sees which engines end, and when, and where the picker sent each request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use lmetric_testkit::{Admin, poll};
use serde_json::Value;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use crate::load::Record;
use crate::support::{Stage, selector};

const EVERY: Duration = Duration::from_millis(300);

/// What was seen of a pool's first engines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Address of each engine that was there at the beginning.
    pub(crate) engines: BTreeMap<String, String>,
    /// When one of them was first seen to be gone.
    pub(crate) gone: BTreeMap<String, Instant>,
    /// Address that each request was sent to, by its id.
    pub(crate) winners: BTreeMap<String, String>,
}

/// Looks at pool `p` until told to stop.
pub(crate) struct Watch {
    seen: Arc<Mutex<Seen>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Watch {
    /// Remembers the engines of now.
    pub(crate) async fn start(stage: &Stage) -> anyhow::Result<Self> {
        let (cluster, namespace) = (stage.cluster.clone(), stage.namespace.clone());
        let pods = cluster.pods(&namespace, &selector("p", "engine")).await?;
        let engines: anyhow::Result<BTreeMap<_, _>> = pods
            .into_iter()
            .map(|pod| {
                Ok((
                    pod.name.clone(),
                    pod.ip.context("an engine without address")?.to_string(),
                ))
            })
            .collect();
        let seen = Arc::new(Mutex::new(Seen {
            engines: engines?,
            ..Seen::default()
        }));
        let (stop, stopped) = watch::channel(false);
        let kept = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while !*stopped.borrow() {
                let now = cluster.pods(&namespace, &selector("p", "engine")).await?;
                let pickers = cluster.pods(&namespace, &selector("p", "picker")).await?;
                let mut decisions = Vec::new();
                for picker in pickers.iter().filter(|picker| picker.ready) {
                    let admin = Admin::new(cluster.pod(picker, 9_090)?.to());
                    // one that goes just now does not answer
                    decisions.extend(admin.decisions(100).await.unwrap_or_default());
                }
                let mut seen = kept.lock().await;
                for name in seen.engines.clone().into_keys() {
                    if !now.iter().any(|pod| pod.name == name) {
                        seen.gone.entry(name).or_insert_with(Instant::now);
                    }
                }
                seen.winners.extend(decisions.iter().filter_map(winner));
                drop(seen);
                tokio::time::sleep(EVERY).await;
            }
            Ok(())
        });
        Ok(Self { seen, stop, task })
    }

    /// Waits until `count` of the first engines are gone.
    pub(crate) async fn gone(&self, count: usize, limit: Duration) -> anyhow::Result<()> {
        let what = format!("{count} old engines to be gone");
        let gone = poll(&what, limit, EVERY, || async {
            let seen = self.seen.lock().await;
            if seen.gone.len() == count {
                Ok(())
            } else {
                Err(format!("gone: {:?}", seen.gone.keys()))
            }
        });
        Ok(gone.await?)
    }

    /// What was seen, after one more look.
    pub(crate) async fn finish(self) -> anyhow::Result<Seen> {
        tokio::time::sleep(2 * EVERY).await;
        self.stop.send_replace(true);
        self.task.await??;
        let seen = self.seen.lock().await.clone();
        Ok(seen)
    }
}

impl Seen {
    /// Each stream of an engine that went ended before the engine did; and each such engine had one.
    pub(crate) fn outlived_their_streams(&self, records: &[Record]) -> anyhow::Result<()> {
        for (name, gone) in &self.gone {
            let address = &self.engines[name];
            let mut count = 0;
            for record in records {
                if self.winners.get(&record.id) == Some(address) {
                    count += 1;
                    ensure!(
                        record.ended <= *gone,
                        "engine {name} was gone before the end of {record:?}"
                    );
                }
            }
            ensure!(
                count > 0,
                "engine {name} served no request, so its end proves nothing: {self:?}"
            );
        }
        Ok(())
    }
}

fn winner(decision: &Value) -> Option<(String, String)> {
    let id = decision["request_id"].as_str()?;
    let (address, _) = decision["winner"].as_str()?.rsplit_once(':')?;
    Some((id.to_owned(), address.to_owned()))
}
