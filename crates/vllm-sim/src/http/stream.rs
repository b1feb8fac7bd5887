//! A generation as server-sent events.

use std::task::{Context, Poll};

use bytes::Bytes;

use super::body::Cut;
use super::error::DEAD_CHUNK;
use super::generation::{Generation, Usage};
use crate::inbox::{Failure, Progress};

/// How one API writes its events.
pub(crate) trait Events: Send {
    /// Written before anything else, at once.
    fn open(&mut self, _out: &mut Vec<u8>) {}
    /// Written with the first token of any choice.
    fn start(&mut self, out: &mut Vec<u8>, generation: &Generation);
    /// One token.
    fn token(&mut self, out: &mut Vec<u8>, generation: &Generation, token: StreamedToken);
    /// All choices are finished.
    fn end(&mut self, out: &mut Vec<u8>, usage: &Usage);
}

/// A token on its way to the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamedToken {
    /// Choice.
    pub(crate) choice: usize,
    /// Its number in the choice, from 0.
    pub(crate) index: u32,
    /// Token id.
    pub(crate) id: u32,
    /// Set with the last one: it ended before the limit.
    pub(crate) last: Option<bool>,
}

/// The body of a streamed answer.
pub(crate) struct TokenStream {
    generation: Generation,
    events: Box<dyn Events>,
    sent: Vec<u32>,
    seen: Vec<Progress>,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Opening,
    Waiting,
    Running,
    Done,
}

impl TokenStream {
    pub(crate) fn new(generation: Generation, events: Box<dyn Events>) -> Self {
        let choices = generation.choices().len();
        Self {
            generation,
            events,
            sent: vec![0; choices],
            seen: vec![Progress::default(); choices],
            state: State::Opening,
        }
    }

    /// The next chunk: every token that is there by now.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        if self.state == State::Done {
            return Poll::Ready(None);
        }
        let mut out = Vec::new();
        if self.state == State::Opening {
            self.state = State::Waiting;
            self.events.open(&mut out);
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(out.into())));
            }
        }
        match self.generation.poll(&mut self.seen, context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(_)) if self.generation.is_cut() => {
                self.state = State::Done;
                return Poll::Ready(Some(Err(Cut)));
            }
            Poll::Ready(Err(Failure::Died)) => {
                self.state = State::Done;
                out.extend_from_slice(DEAD_CHUNK.as_bytes());
                out.extend_from_slice(b"data: [DONE]\n\n");
            }
            Poll::Ready(Err(Failure::Refused(message))) => {
                self.state = State::Done;
                let error = super::error::ApiError::bad(message, None).body();
                out.extend_from_slice(format!("data: {error}\n\ndata: [DONE]\n\n").as_bytes());
            }
            Poll::Ready(Ok(())) => self.write_tokens(&mut out),
        }
        Poll::Ready(Some(Ok(out.into())))
    }

    fn write_tokens(&mut self, out: &mut Vec<u8>) {
        if self.state == State::Waiting {
            self.state = State::Running;
            self.events.start(out, &self.generation);
        }
        for choice in 0..self.seen.len() {
            let Progress { produced, finished } = self.seen[choice];
            for index in self.sent[choice]..produced {
                let plan = &self.generation.choices()[choice];
                let last = (index + 1 == produced && finished.is_some()).then_some(plan.stops);
                let token = StreamedToken {
                    choice,
                    index,
                    id: plan.output.token(index),
                    last,
                };
                self.events.token(out, &self.generation, token);
            }
            self.sent[choice] = produced;
        }
        if self.seen.iter().all(|progress| progress.finished.is_some()) {
            self.state = State::Done;
            self.events.end(out, &self.generation.usage(&self.seen));
        }
    }
}
