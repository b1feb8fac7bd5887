//! One producer of snapshots for all viewers, which runs only while there is one.
//!
//! A viewer holds a receiver of the latest snapshot: one that reads slowly misses some and keeps nothing waiting. When
//! the last receiver is gone, the producer ends at its next turn and forgets what it made.

use std::{sync::Arc, time::Duration};

use lmetric_telemetry::Tasks;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

/// Viewers at once; the next is refused.
pub(super) const MOST_VIEWERS: usize = 16;
/// Between two snapshots.
const PERIOD: Duration = Duration::from_secs(1);

/// A snapshot, shared by all who get it; empty: none yet.
pub(super) type Snapshot = Arc<str>;

pub(super) struct Feed {
    make: Box<dyn Fn() -> Snapshot + Send + Sync>,
    news: watch::Sender<Snapshot>,
    /// The producer runs. Also the lock under which viewers join and it decides to end.
    running: Mutex<bool>,
    tasks: Tasks,
}

impl Feed {
    /// `make` is called once a second, while somebody looks.
    pub(super) fn new(tasks: Tasks, make: impl Fn() -> Snapshot + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            make: Box::new(make),
            news: watch::Sender::new(Snapshot::from("")),
            running: Mutex::new(false),
            tasks,
        })
    }

    /// One more viewer, who leaves by dropping what it gets. `None` when there are too many.
    pub(super) fn join(self: &Arc<Self>) -> Option<watch::Receiver<Snapshot>> {
        let mut running = self.running.lock();
        if self.news.receiver_count() >= MOST_VIEWERS {
            return None;
        }
        let viewer = self.news.subscribe();
        if !std::mem::replace(&mut *running, true) {
            let feed = Arc::clone(self);
            self.tasks
                .spawn_child("live", self.tasks.token(), async move { feed.produce().await });
        }
        Some(viewer)
    }

    async fn produce(&self) {
        let mut period = interval(PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            period.tick().await;
            {
                let mut running = self.running.lock();
                if self.news.receiver_count() == 0 {
                    *running = false;
                    self.news.send_replace(Snapshot::from(""));
                    return;
                }
            }
            self.news.send_replace((self.make)());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    fn counting() -> (Arc<Feed>, Arc<AtomicUsize>) {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = made.clone();
        let (tasks, _) = Tasks::new();
        let feed = Feed::new(tasks, move || {
            let number = counter.fetch_add(1, Relaxed) + 1;
            Snapshot::from(number.to_string())
        });
        (feed, made)
    }

    async fn pass(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_made_while_nobody_looks() {
        let (feed, made) = counting();
        pass(10).await;
        assert_eq!(made.load(Relaxed), 0, "before the first viewer");
        let viewer = feed.join().expect("there is room");
        pass(10).await;
        let seen = made.load(Relaxed);
        assert!((10..=11).contains(&seen), "once a second: {seen}");
        drop(viewer);
        pass(60).await;
        assert_eq!(made.load(Relaxed), seen, "after the last viewer");
        let mut viewer = feed.join().expect("there is room");
        assert_eq!(&**viewer.borrow_and_update(), "", "nothing old is shown");
        viewer.changed().await.expect("made anew");
        assert_eq!(**viewer.borrow(), *(seen + 1).to_string());
    }

    #[tokio::test(start_paused = true)]
    async fn many_viewers_share_each_snapshot_and_the_next_is_refused() {
        let (feed, made) = counting();
        let mut viewers: Vec<_> = (0..MOST_VIEWERS).filter_map(|_| feed.join()).collect();
        assert_eq!(viewers.len(), MOST_VIEWERS);
        assert!(feed.join().is_none());
        pass(5).await;
        let seen = made.load(Relaxed);
        assert!((5..=6).contains(&seen), "one producer for all: {seen}");
        for viewer in &viewers {
            assert_eq!(**viewer.borrow(), *seen.to_string());
        }
        viewers.pop();
        assert!(feed.join().is_some(), "a place was freed");
    }
}
