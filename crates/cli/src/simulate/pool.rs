//! Many runs on all cores, with one bar for all of them.

use std::{
    io::IsTerminal as _,
    sync::atomic::{AtomicUsize, Ordering},
    thread::{self, available_parallelism},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Applies `work` to each item on as many threads as are wanted, the first ones first. `work` is given a function to call with the
/// requests that it has finished since the last call; it says whether to go on. Items that were not reached, or whose
/// work was given up, are `None`.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    threads: Option<usize>,
    name: &str,
    total: u64,
    stop: &CancellationToken,
    work: impl Fn(&T, &dyn Fn(u64) -> bool) -> anyhow::Result<Option<R>> + Sync,
) -> anyhow::Result<Vec<Option<R>>> {
    let cores = available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = threads.unwrap_or(cores).min(items.len()).max(1);
    let bar = Bar::new(name, total, items.len());
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<R>>> = Mutex::new(items.iter().map(|_| None).collect());
    let failure = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    let progress = |requests| {
                        bar.advance(requests, done.load(Ordering::Relaxed));
                        !stop.is_cancelled() && failure.lock().is_none()
                    };
                    if !progress(0) {
                        return;
                    }
                    match work(item, &progress) {
                        Ok(result) => results.lock()[at] = result,
                        Err(error) => {
                            failure.lock().get_or_insert(error);
                            return;
                        }
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    bar.close();
    match failure.into_inner() {
        Some(error) => Err(error),
        None => Ok(results.into_inner()),
    }
}

struct Bar {
    shown: ProgressBar,
    name: String,
    items: usize,
    /// When a line was written last; none on a terminal.
    said: Option<Mutex<Instant>>,
}

impl Bar {
    fn new(name: &str, total: u64, items: usize) -> Self {
        let template = "{prefix:>12.bold} {bar:32.cyan/238} {percent:>3} % {elapsed:>4}, {eta} left · {msg}";
        let style = ProgressStyle::with_template(template);
        match style {
            Ok(style) if std::io::stderr().is_terminal() => {
                let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(5));
                bar.set_style(style.progress_chars("━━─"));
                bar.set_prefix(name.to_owned());
                Self {
                    shown: bar,
                    name: name.to_owned(),
                    items,
                    said: None,
                }
            }
            _ => Self {
                shown: ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden()),
                name: name.to_owned(),
                items,
                said: Some(Mutex::new(Instant::now())),
            },
        }
    }

    fn advance(&self, requests: u64, done: usize) {
        self.shown.inc(requests);
        match &self.said {
            None => self.shown.set_message(format!("{done} of {} runs", self.items)),
            Some(said) => {
                let mut said = said.lock();
                if said.elapsed() >= LINE_EVERY {
                    *said = Instant::now();
                    eprintln!(
                        "{}: {} s, {done} of {} runs, {} requests",
                        self.name,
                        self.shown.elapsed().as_secs(),
                        self.items,
                        self.shown.position()
                    );
                }
            }
        }
    }

    fn close(&self) {
        self.shown.finish_and_clear();
    }
}
