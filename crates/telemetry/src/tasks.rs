//! Long-lived tasks: one way to spawn them, one token that ends them, one wait for all.

use std::{future::Future, time::Duration};

use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;

/// The tasks of a process. Clones are the same set.
#[derive(Clone, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    token: CancellationToken,
    ended: mpsc::Sender<&'static str>,
}

/// Tells when a task ended that should have run as long as the process.
#[derive(Debug)]
pub struct Ended(mpsc::Receiver<&'static str>);

impl Tasks {
    /// An empty set, and the news of tasks that ended too early.
    pub fn new() -> (Self, Ended) {
        let (ended, news) = mpsc::channel(1);
        let tasks = Self {
            tracker: TaskTracker::new(),
            token: CancellationToken::new(),
            ended,
        };
        (tasks, Ended(news))
    }

    /// Cancelled when the process shuts down.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Spawns a task that must run until shutdown; it gets the shutdown token. If it ends or panics before,
    /// [`Ended::first`] says so: the process should stop rather than limp.
    pub fn spawn<F>(&self, name: &'static str, task: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        struct Report {
            name: &'static str,
            token: CancellationToken,
            ended: mpsc::Sender<&'static str>,
        }
        impl Drop for Report {
            fn drop(&mut self) {
                if !self.token.is_cancelled() {
                    // a full channel means that another task ended first
                    let _ = self.ended.try_send(self.name);
                }
            }
        }
        let report = Report {
            name,
            token: self.token.clone(),
            ended: self.ended.clone(),
        };
        let task = task(self.token.clone());
        let span = tracing::info_span!("task", task = name);
        self.tracker.spawn(
            async move {
                let _report = report;
                task.await;
            }
            .instrument(span),
        );
    }

    /// Spawns a task that may end whenever it likes (one endpoint's scraper, say); it gets a child token.
    pub fn spawn_child<F>(
        &self,
        name: &'static str,
        token: &CancellationToken,
        task: F,
    ) -> tokio::task::JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let token = token.clone();
        let span = tracing::info_span!("task", task = name);
        self.tracker.spawn(
            async move {
                tokio::select! {
                    () = token.cancelled() => {}
                    () = task => {}
                }
            }
            .instrument(span),
        )
    }

    /// Cancels the token and waits for all tasks, at most `patience`. False when some had to be left behind.
    pub async fn shut_down(&self, patience: Duration) -> bool {
        self.token.cancel();
        self.tracker.close();
        tokio::time::timeout(patience, self.tracker.wait()).await.is_ok()
    }
}

impl Ended {
    /// Name of the first task that ended before shutdown; pending until then.
    pub async fn first(&mut self) -> &'static str {
        match self.0.recv().await {
            Some(name) => name,
            None => std::future::pending().await,
        }
    }
}

/// Resolves at SIGTERM or SIGINT, with its name.
pub async fn termination() -> Result<&'static str, std::io::Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_or_panics_before_shutdown_is_news() {
        for panics in [false, true] {
            let (tasks, mut ended) = Tasks::new();
            tasks.spawn("steady", |token| async move { token.cancelled().await });
            tasks.spawn("fragile", move |_| async move { assert!(!panics, "on purpose") });
            assert_eq!(ended.first().await, "fragile");
            assert!(tasks.shut_down(Duration::from_secs(1)).await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_waits_no_longer_than_its_patience() {
        let (tasks, mut ended) = Tasks::new();
        tasks.spawn("deaf", |_| std::future::pending());
        tasks.spawn("prompt", |token| async move { token.cancelled().await });
        assert!(!tasks.shut_down(Duration::from_secs(1)).await);
        let silence = tokio::time::timeout(Duration::from_millis(1), ended.first()).await;
        assert!(silence.is_err(), "tasks that end in a shutdown are no news");
    }
}
