//! Wakes at a moment, to a tenth of a millisecond. Tokio's own timer rounds up to whole milliseconds, which is as much as what is
//! measured here.

use std::{cmp::Ordering, collections::BinaryHeap, sync::Arc, thread::JoinHandle, time::Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

/// One thread that wakes all who wait; it ends when the timer is dropped, and then nobody waits any longer.
#[derive(Debug)]
pub struct Timer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: BinaryHeap<Waiting>,
    over: bool,
}

#[derive(Debug)]
struct Waiting {
    due: Instant,
    wake: oneshot::Sender<()>,
}

impl Timer {
    /// Starts the thread.
    pub fn start() -> anyhow::Result<Self> {
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("timer".to_owned());
        Ok(Self {
            shared,
            thread: Some(thread.spawn(move || of_thread.run())?),
        })
    }

    /// Ends at `due`, or at once when that is over.
    pub async fn until(&self, due: Instant) {
        if due <= Instant::now() {
            return;
        }
        let (wake, woken) = oneshot::channel();
        {
            let mut queue = self.shared.queue.lock();
            let is_first = queue.waiting.peek().is_none_or(|first| due < first.due);
            queue.waiting.push(Waiting { due, wake });
            if is_first {
                self.shared.changed.notify_one();
            }
        }
        // a timer that was dropped wakes too
        let _ = woken.await;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.queue.lock().over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut queue = self.queue.lock();
        while !queue.over {
            let first = queue.waiting.peek().map(|first| first.due);
            match first {
                None => self.changed.wait(&mut queue),
                Some(due) if due > Instant::now() => {
                    self.changed.wait_until(&mut queue, due);
                }
                Some(_) => {
                    if let Some(waiting) = queue.waiting.pop() {
                        // who waited may be gone
                        let _ = waiting.wake.send(());
                    }
                }
            }
        }
        queue.waiting.clear();
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The earliest is the greatest.
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        other.due.cmp(&self.due)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn nobody_wakes_early() {
        let timer = Timer::start().unwrap();
        let started = Instant::now();
        let sleeps = [30, 10, 20].map(|milliseconds| {
            let due = started + Duration::from_millis(milliseconds);
            let timer = &timer;
            async move {
                timer.until(due).await;
                assert!(Instant::now() >= due);
            }
        });
        futures::future::join_all(sleeps).await;
        assert!(timer.shared.queue.lock().waiting.is_empty());
    }

    #[test]
    fn the_earliest_is_woken_first() {
        let now = Instant::now();
        let mut queue = BinaryHeap::new();
        for milliseconds in [30, 10, 20] {
            let (wake, _) = oneshot::channel();
            let due = now + Duration::from_millis(milliseconds);
            queue.push(Waiting { due, wake });
        }
        let first = queue.pop().map(|first| first.due);
        assert_eq!(first, Some(now + Duration::from_millis(10)));
    }

    #[tokio::test]
    async fn a_timer_that_ends_lets_nobody_wait() {
        let timer = Timer::start().unwrap();
        let shared = Arc::clone(&timer.shared);
        let (wake, woken) = oneshot::channel();
        shared.queue.lock().waiting.push(Waiting {
            due: Instant::now() + Duration::from_hours(1),
            wake,
        });
        drop(timer);
        assert!(woken.await.is_err());
    }
}
