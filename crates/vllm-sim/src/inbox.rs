//! Where an HTTP request waits for what its engine requests generate.
//!
//! The engine side only counts tokens up, so a reader that is late finds all of them at once and a slow
//! client costs no memory.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::task::AtomicWaker;
use lmetric_engine::Finished;
use parking_lot::Mutex;

/// Why nothing more comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The engine cannot ever run the request.
    Refused(String),
    /// The engine core died.
    Died,
}

/// How far one choice is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// Tokens generated.
    pub(crate) produced: u32,
    /// Set when that is all.
    pub(crate) finished: Option<Finished>,
}

#[derive(Debug)]
struct State {
    choices: Vec<Progress>,
    failure: Option<Failure>,
}

/// One HTTP request's choices.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    waker: AtomicWaker,
}

impl Inbox {
    /// For so many choices.
    pub(crate) fn new(choices: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                choices: vec![Progress::default(); choices],
                failure: None,
            }),
            waker: AtomicWaker::new(),
        })
    }

    /// A choice got further.
    pub(crate) fn deliver(&self, choice: u32, progress: Progress) {
        self.state.lock().choices[choice as usize] = progress;
        self.waker.wake();
    }

    /// No choice will get further.
    pub(crate) fn fail(&self, failure: Failure) {
        self.state.lock().failure.get_or_insert(failure);
        self.waker.wake();
    }

    /// Ready when `seen` is behind what was generated; copies it there.
    pub(crate) fn poll(&self, seen: &mut [Progress], context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.waker.register(context.waker());
        let state = self.state.lock();
        if *seen != *state.choices {
            seen.copy_from_slice(&state.choices);
            return Poll::Ready(Ok(()));
        }
        match &state.failure {
            Some(failure) => Poll::Ready(Err(failure.clone())),
            None => Poll::Pending,
        }
    }
}
