//! One endpoint's place: who has it now, what his engine has cached, and what it says of it.

use lmetric_scheduler::{EndpointId, Time};

use super::agenda::Flight;
use crate::{
    cache::Cache,
    fleet::{Feed, Fleet},
    payload::{Run, step},
    workload::BLOCK,
};

/// An endpoint and its engine.
pub struct Seat {
    /// Who has it.
    pub id: EndpointId,
    /// His publisher.
    pub feed: Feed,
    /// His engine's cache.
    pub cache: Cache,
    /// How often his engine was started again.
    pub process: u32,
    /// Until then his engine answers every request with an error.
    pub broken: Time,
}

impl Seat {
    /// The prompt is computed: one event. Returns how many of its blocks the cache had.
    pub fn prefill(&mut self, fleet: &Fleet, flight: &Flight) -> usize {
        let hashes = &flight.conversation.hashes[..flight.prompt];
        let held = self.cache.held(hashes);
        let gone = self.cache.take(hashes);
        if held < flight.prompt {
            self.say(fleet, flight, (held, flight.prompt), &gone);
        }
        held
    }

    /// The answer is there: an event for each block that is new. None where the prompt had to make room meanwhile.
    pub fn decode(&mut self, fleet: &Fleet, flight: &Flight) {
        let all = &flight.conversation.hashes[..flight.answered];
        if self.cache.held(all) < flight.prompt {
            return;
        }
        let new: Vec<usize> = (flight.prompt..flight.answered)
            .filter(|block| self.cache.held(&all[*block..=*block]) == 0)
            .collect();
        let mut gone = self.cache.take(all);
        for block in new {
            self.say(fleet, flight, (block, block + 1), &std::mem::take(&mut gone));
        }
    }

    fn say(&mut self, fleet: &Fleet, flight: &Flight, (from, to): (usize, usize), gone: &[u64]) {
        let conversation = &flight.conversation;
        let before = from.checked_sub(1);
        let run = Run {
            parent: before.map(|before| conversation.hashes[before]),
            hashes: &conversation.hashes[from..to],
            tokens: &conversation.tokens[from * BLOCK..to * BLOCK],
        };
        fleet.receive(self.id.slot.0, &mut self.feed, &step(gone, &[run]));
    }
}
