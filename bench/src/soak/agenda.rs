//! What will become of requests that were picked.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    sync::Arc,
};

use lmetric_scheduler::{EndpointId, Outcome, ReservationId, Time};

use crate::workload::{Conversation, Numbers};

/// One request on its way.
#[derive(Clone, Debug)]
pub struct Flight {
    /// To release it.
    pub reservation: ReservationId,
    /// Where it was sent.
    pub endpoint: EndpointId,
    /// Which of the engine's processes has it.
    pub process: u32,
    /// What it asks, and what is answered.
    pub conversation: Arc<Conversation>,
    /// Blocks of the prompt.
    pub prompt: usize,
    /// Blocks with the answer.
    pub answered: usize,
}

/// What happens to it next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The engine has computed the prompt; after so long it ends.
    Begins(u64, Outcome),
    /// It ends.
    Ends(Outcome),
}

/// By time.
#[derive(Default)]
pub struct Agenda {
    due: BinaryHeap<Reverse<(Time, u64)>>,
    flights: HashMap<u64, (Flight, Then)>,
    number: u64,
}

impl Agenda {
    /// A request was picked: most begin within 50 ms and end within a second; one in twenty is given up before it begins, and a few fail.
    pub fn picked(&mut self, flight: Flight, now: Time, numbers: &mut Numbers) {
        let begins = 5_000_000 + numbers.below(45_000_000);
        let goes_on = 100_000_000 + numbers.below(800_000_000);
        let then = match numbers.below(100) {
            0..5 => Then::Ends(Outcome::ClientAbort),
            5 => Then::Ends(Outcome::Unreachable),
            6 => Then::Ends(Outcome::ServerError),
            7 => Then::Ends(Outcome::Unknown),
            8..13 => Then::Begins(goes_on / 4, Outcome::ClientAbort),
            _ => Then::Begins(goes_on, Outcome::Done),
        };
        self.put(Time(now.0 + begins), flight, then);
    }

    /// It happens at `at`.
    pub fn put(&mut self, at: Time, flight: Flight, then: Then) {
        self.number += 1;
        self.due.push(Reverse((at, self.number)));
        self.flights.insert(self.number, (flight, then));
    }

    /// The next that is due.
    pub fn next(&mut self, now: Time) -> Option<(Flight, Then)> {
        let Reverse((at, number)) = *self.due.peek()?;
        if at > now {
            return None;
        }
        self.due.pop();
        self.flights.remove(&number)
    }

    /// All that is not over.
    pub fn rest(self) -> impl Iterator<Item = Flight> {
        self.flights.into_values().map(|(flight, _)| flight)
    }
}
