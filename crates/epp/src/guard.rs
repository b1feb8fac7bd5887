//! One placed request: the pick, and the promise that its reservation ends exactly once.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use lmetric_scheduler::{Outcome, Pick, Scheduler};

use parking_lot::Mutex;

use crate::{clock::Clock, record::Recording, refusal::Refusal, request::ParsedRequest};

/// Decides where a request goes.
pub trait Place: Send + Sync + 'static {
    /// Chooses an endpoint and reserves it. Dropping the future, or the placement, gives the reservation back.
    /// The request is shared, so that its prompts can go to another thread without a copy.
    fn place(&self, request: Arc<ParsedRequest>) -> impl Future<Output = Result<Placement, Refusal>> + Send;
}

/// What was seen of an answer when it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The engine's `:status`.
    pub status: Option<u16>,
    /// Some of its body passed by.
    pub body_seen: bool,
    /// Generated tokens, as the engine counts them.
    pub output_tokens: Option<u64>,
    /// Events of a stream that carried output.
    pub output_events: u64,
}

impl Answer {
    /// Tokens of the answer: the engine's own count, else one for each event of a stream, as vLLM sends them.
    pub fn tokens(&self) -> Option<u64> {
        self.output_tokens
            .or((self.output_events > 0).then_some(self.output_events))
    }
}

/// An open reservation, as the stream reports to it.
pub trait Reservation: Send + Sync + 'static {
    /// The engine's `:status`, of an answer that goes on.
    fn status(&self, status: u16);
    /// The first generated output passed by.
    fn first_output(&self);
    /// The gateway sent the request to this address instead of the picked one.
    fn served_by(&self, address: SocketAddr);
    /// The engine's answer says how many prompt tokens it found in its cache.
    fn cached_tokens(&self, tokens: u64);
    /// What was seen of the answer; called right before the release, if at all.
    fn answered(&self, answer: Answer) {
        let _ = answer;
    }
    /// The request ended. Called exactly once.
    fn release(&self, outcome: Outcome);
}

/// What else wants to know the engine's own figure of cached tokens (keys held by inference, self-check).
pub trait Inference: Send + Sync + 'static {
    /// The engine found `tokens` prompt tokens of this request in its cache.
    fn cached_tokens(&self, pick: &Pick, tokens: u64);
}

/// Who finds out whether an engine still answers.
pub trait Doubt: Send + Sync + 'static {
    /// A request failed at this address, or the gateway passed it over.
    fn doubt(&self, address: SocketAddr);
}

/// A reservation in the scheduler's ledger.
struct Reserved {
    pick: Pick,
    /// Where the request went, if not to the picked address.
    went_to: OnceLock<SocketAddr>,
    scheduler: Arc<Scheduler>,
    clock: Clock,
    doubt: Arc<dyn Doubt>,
    inference: Option<Box<dyn Inference>>,
    answer: OnceLock<Answer>,
    recording: Mutex<Option<Recording>>,
}

impl Reservation for Reserved {
    fn status(&self, status: u16) {
        self.scheduler
            .status(self.pick.reservation, status, self.clock.now());
    }

    fn first_output(&self) {
        self.scheduler
            .first_output(self.pick.reservation, self.clock.now());
    }

    fn served_by(&self, address: SocketAddr) {
        self.scheduler
            .served_by(self.pick.reservation, address, self.clock.now());
        // a second address cannot be told from a message sent twice
        let _ = self.went_to.set(address);
        self.doubt.doubt(self.pick.address);
    }

    fn cached_tokens(&self, tokens: u64) {
        self.scheduler.cached_tokens(self.pick.reservation, tokens);
        if let Some(inference) = &self.inference {
            inference.cached_tokens(&self.pick, tokens);
        }
    }

    fn answered(&self, answer: Answer) {
        if let Some(tokens) = answer.tokens() {
            self.scheduler.output_tokens(self.pick.reservation, tokens);
        }
        // there is but one
        let _ = self.answer.set(answer);
    }

    fn release(&self, outcome: Outcome) {
        self.scheduler
            .release(self.pick.reservation, outcome, self.clock.now());
        let recording = self.recording.lock().take();
        if let Some(recording) = recording {
            recording.end(outcome, self.answer.get().unwrap_or(&Answer::default()));
        }
        if matches!(outcome, Outcome::ServerError | Outcome::Unreachable) {
            self.doubt
                .doubt(*self.went_to.get().unwrap_or(&self.pick.address));
        }
    }
}

/// A placed request. Reports what the stream sees of it; dropping it ends it.
pub struct Placement {
    pick: Pick,
    reservation: Box<dyn Reservation>,
    output_seen: bool,
    finished: bool,
}

impl Placement {
    /// A placement whose reservation is in `scheduler`'s ledger, and that is recorded by `recording`.
    pub fn reserved(
        pick: Pick,
        scheduler: Arc<Scheduler>,
        clock: Clock,
        doubt: Arc<dyn Doubt>,
        inference: Option<Box<dyn Inference>>,
        recording: Option<Recording>,
    ) -> Self {
        let reserved = Reserved {
            pick: pick.clone(),
            went_to: OnceLock::new(),
            scheduler,
            clock,
            doubt,
            inference,
            answer: OnceLock::new(),
            recording: Mutex::new(recording),
        };
        Self::new(pick, Box::new(reserved))
    }

    /// A placement that reports to `reservation`.
    pub fn new(pick: Pick, reservation: Box<dyn Reservation>) -> Self {
        Self {
            pick,
            reservation,
            output_seen: false,
            finished: false,
        }
    }

    /// The choice.
    pub fn pick(&self) -> &Pick {
        &self.pick
    }

    /// The engine's `:status`, of an answer that goes on: it tells at once whether the engine serves.
    pub fn status(&mut self, status: u16) {
        if !self.finished {
            self.reservation.status(status);
        }
    }

    /// The first generated output passed by; later calls do nothing.
    pub fn first_output(&mut self) {
        if !self.output_seen && !self.finished {
            self.output_seen = true;
            self.reservation.first_output();
        }
    }

    /// The gateway says who served the request. Nothing happens when that is who was picked.
    pub fn served_by(&mut self, address: SocketAddr) {
        if address != self.pick.address && !self.finished {
            self.reservation.served_by(address);
        }
    }

    /// Prompt tokens that the engine found in its cache.
    pub fn cached_tokens(&mut self, tokens: u64) {
        if !self.finished {
            self.reservation.cached_tokens(tokens);
        }
    }

    /// What was seen of the answer, right before its end.
    pub fn answered(&mut self, answer: Answer) {
        if !self.finished {
            self.reservation.answered(answer);
        }
    }

    /// Ends the request; later calls do nothing.
    pub fn finish(&mut self, outcome: Outcome) {
        if !self.finished {
            self.finished = true;
            self.reservation.release(outcome);
        }
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        self.finish(Outcome::Unknown);
    }
}

#[cfg(test)]
mod tests {
    use lmetric_prefix::SourceId;
    use lmetric_scheduler::{EndpointId, ReservationId};
    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Told(Arc<Mutex<Vec<String>>>);

    impl Told {
        fn note(&self, what: impl Into<String>) {
            self.0.lock().push(what.into());
        }
    }

    impl Reservation for Told {
        fn status(&self, status: u16) {
            self.note(format!("status {status}"));
        }

        fn first_output(&self) {
            self.note("output");
        }
        fn served_by(&self, address: SocketAddr) {
            self.note(format!("served {address}"));
        }
        fn cached_tokens(&self, tokens: u64) {
            self.note(format!("cached {tokens}"));
        }
        fn release(&self, outcome: Outcome) {
            self.note(format!("{outcome:?}"));
        }
    }

    fn placement(told: &Told) -> Placement {
        let pick = Pick {
            reservation: ReservationId(1),
            endpoint: EndpointId {
                slot: SourceId(0),
                generation: 0,
            },
            address: ([10, 0, 0, 1], 8000).into(),
            rank: None,
            hit_tokens: 0,
            charged_tokens: 0,
        };
        Placement::new(pick, Box::new(told.clone()))
    }

    #[test]
    fn a_placement_ends_once_however_often_it_is_finished() {
        let told = Told::default();
        let mut placed = placement(&told);
        placed.first_output();
        placed.first_output();
        placed.finish(Outcome::Done);
        placed.finish(Outcome::ServerError);
        placed.first_output();
        placed.cached_tokens(3);
        drop(placed);
        assert_eq!(*told.0.lock(), ["output", "Done"]);
    }

    #[test]
    fn a_dropped_placement_is_given_back() {
        let told = Told::default();
        drop(placement(&told));
        assert_eq!(*told.0.lock(), ["Unknown"]);
    }

    #[test]
    fn only_another_address_than_the_picked_one_is_told() {
        let told = Told::default();
        let mut placed = placement(&told);
        placed.served_by(([10, 0, 0, 1], 8000).into());
        placed.served_by(([10, 0, 0, 2], 8000).into());
        drop(placed);
        assert_eq!(*told.0.lock(), ["served 10.0.0.2:8000", "Unknown"]);
    }
}
