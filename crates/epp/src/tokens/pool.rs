//! A few threads that tokenize, behind a bounded queue. Tokenizing a long prompt takes milliseconds of pure
//! computing; on the async threads it would hold up every other stream.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// The queue is full: nobody waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Threads and their queue. Dropping it ends the threads after the jobs that wait.
pub struct Pool(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    most: usize,
}

struct Queue {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Pool {
    /// `threads` threads; at most `most` jobs wait.
    pub fn new(threads: usize, most: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Queue {
                jobs: VecDeque::new(),
                closed: false,
            }),
            work: Condvar::new(),
            most,
        });
        let pool = Self(shared);
        for at in 0..threads {
            let shared = pool.0.clone();
            std::thread::Builder::new()
                .name(format!("tokenize-{at}"))
                .spawn(move || shared.work())?;
        }
        Ok(pool)
    }

    /// Queues `job`; its result arrives on the channel. A job whose receiver is gone is not begun. A job that
    /// panics closes its channel and nothing else.
    pub fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Full> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move || {
            if !sender.is_closed() {
                // nobody may be waiting any more
                let _ = sender.send(job());
            }
        });
        let mut queue = self.0.queue.lock();
        if queue.jobs.len() >= self.0.most {
            return Err(Full);
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.0.work.notify_one();
        Ok(receiver)
    }

    /// Jobs that wait.
    pub fn waiting(&self) -> usize {
        self.0.queue.lock().jobs.len()
    }
}

impl Shared {
    fn work(&self) {
        loop {
            let job = {
                let mut queue = self.queue.lock();
                loop {
                    if let Some(job) = queue.jobs.pop_front() {
                        break job;
                    }
                    if queue.closed {
                        return;
                    }
                    self.work.wait(&mut queue);
                }
            };
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
                tracing::error!("tokenizing a request panicked; the request goes on with an estimate");
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.0.queue.lock().closed = true;
        self.0.work.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn jobs_run_and_a_panic_costs_only_its_own_job() {
        let pool = Pool::new(1, 8).expect("threads");
        let bad = pool.submit(|| -> u32 { panic!("on purpose") }).expect("room");
        let good = pool.submit(|| 7).expect("room");
        assert!(bad.await.is_err());
        assert_eq!(good.await, Ok(7));
    }

    #[tokio::test]
    async fn a_pool_that_is_dropped_does_what_waits() {
        let pool = Pool::new(1, 8).expect("threads");
        let (release, held) = mpsc::channel::<()>();
        let first = pool.submit(move || held.recv()).expect("room");
        let second = pool.submit(|| 7).expect("room");
        drop(pool);
        release.send(()).expect("held");
        first.await.expect("runs").expect("released");
        assert_eq!(second.await, Ok(7));
    }

    #[tokio::test]
    async fn a_full_queue_refuses_at_once_and_abandoned_jobs_are_skipped() {
        let pool = Pool::new(1, 2).expect("threads");
        let (release, held) = mpsc::channel::<()>();
        let (began, started) = oneshot::channel();
        let first = pool
            .submit(move || {
                began.send(()).expect("somebody waits");
                held.recv()
            })
            .expect("room");
        started.await.expect("began");
        let (ran, runs) = mpsc::channel();
        let abandoned = pool.submit(move || ran.send(())).expect("room");
        drop(abandoned);
        let last = pool.submit(|| ()).expect("room");
        assert_eq!(pool.submit(|| ()).err(), Some(Full));
        release.send(()).expect("held");
        first.await.expect("runs").expect("released");
        last.await.expect("runs");
        assert!(runs.try_recv().is_err(), "an abandoned job ran");
    }
}
