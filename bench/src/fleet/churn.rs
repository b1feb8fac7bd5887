//! A fleet that does not stay as it is: endpoints come and go, publishers restart.

use lmetric_kvevents::{EventSink, Outcome, SourceState};
use lmetric_prefix::SourceId;
use lmetric_scheduler::{EndpointId, EndpointSpec, Time};

use super::{Feed, Fleet};

impl Fleet {
    /// One more endpoint, the `number`th ever: ready, its events believed. `None` when every slot is taken.
    pub fn join(&self, number: u32) -> Option<EndpointId> {
        let [_, high, middle, low] = number.to_be_bytes();
        let id = self.scheduler.add(EndpointSpec {
            address: ([10, high, middle, low], 8_000).into(),
            rank: None,
            group: self.space.group.clone(),
            block_size: Some(self.space.block_size),
        })?;
        self.scheduler.set_ready(id, true);
        self.sink.admit(id);
        self.sink.state_changed(id.slot, SourceState::Live);
        Some(id)
    }

    /// It is gone, and in the picker's order: its reservations first, then its events, its blocks, its slot.
    pub fn leave(&self, id: EndpointId, now: Time) {
        self.scheduler.remove(id, now);
        self.sink.dismiss(id);
        self.sink.clear(id.slot);
        self.scheduler.free_slot(id.slot);
    }

    /// Its engine is a new process, and the picker was told so.
    pub fn restart(&self, id: EndpointId, feed: &mut Feed, now: Time) {
        let mut outcome = Outcome::default();
        feed.source.restarted(&mut outcome);
        self.sink.apply(SourceId(id.slot.0), &outcome.ops);
        self.scheduler.restarted(id, now);
        feed.generation = feed.source.connected(&mut Outcome::default());
        feed.next = 0;
    }
}

impl Feed {
    /// The publisher is a new process and nobody was told: it numbers its messages from 0 again.
    pub fn restart_silently(&mut self) {
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use lmetric_epp::clock::Clock;

    use super::*;
    use crate::payload::{Run, batch};

    fn message(hash: u64) -> Vec<u8> {
        batch(&[Run {
            parent: None,
            hashes: &[hash],
            tokens: &[hash as u32; 16],
        }])
    }

    #[test]
    fn whoever_leaves_or_restarts_leaves_no_block_behind() {
        let fleet = Fleet::empty(Clock::start());
        let id = fleet.join(0).unwrap();
        let mut feed = fleet.source();
        let held = || fleet.index.read().len();
        fleet.receive(id.slot.0, &mut feed, &message(1));
        fleet.receive(id.slot.0, &mut feed, &message(2));
        assert_eq!(held(), 2);
        feed.restart_silently();
        fleet.receive(id.slot.0, &mut feed, &message(3));
        assert_eq!(held(), 1, "what the process before held is gone");
        fleet.restart(id, &mut feed, Time::default());
        assert_eq!(held(), 0);
        fleet.receive(id.slot.0, &mut feed, &message(4));
        assert_eq!(held(), 1, "the new process is heard");
        fleet.leave(id, Time::default());
        assert_eq!(held(), 0);
        assert_eq!(fleet.join(1).unwrap().slot, id.slot, "the slot is free again");
    }
}
