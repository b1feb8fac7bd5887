//! Slots and who has them. A slot is used again only after its index entries are gone.

use lmetric_prefix::SourceId;

use super::{Endpoint, EndpointId, Face};

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    endpoint: Option<Endpoint>,
    /// Removed; the index may still hold its blocks.
    retired: bool,
}

/// What is known of an endpoint's face.
#[derive(Clone, Debug)]
struct Seen {
    /// Somebody may have changed it, or time does.
    stale: bool,
    /// None when nobody has the slot.
    face: Option<Face>,
}

const STALE: Seen = Seen {
    stale: true,
    face: None,
};

/// Every endpoint by slot.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    slots: Vec<Slot>,
    /// By slot; whoever reaches for an endpoint to change it makes its face stale.
    faces: Vec<Seen>,
    free: Vec<u16>,
}

impl Fleet {
    /// Takes a slot for the endpoint that `build` makes. `None` when all 65,536 are taken.
    pub(crate) fn add(&mut self, build: impl FnOnce(EndpointId) -> Endpoint) -> Option<EndpointId> {
        let number = if let Some(number) = self.free.pop() {
            number
        } else {
            let number = u16::try_from(self.slots.len()).ok()?;
            self.slots.push(Slot::default());
            self.faces.push(STALE);
            number
        };
        self.faces[usize::from(number)] = STALE;
        let slot = &mut self.slots[usize::from(number)];
        slot.generation += 1;
        let id = EndpointId {
            slot: SourceId(number),
            generation: slot.generation,
        };
        slot.endpoint = Some(build(id));
        Some(id)
    }

    /// Removes the endpoint and retires its slot.
    pub(crate) fn remove(&mut self, id: EndpointId) -> Option<Endpoint> {
        let slot = self.slots.get_mut(usize::from(id.slot.0))?;
        if slot.generation != id.generation {
            return None;
        }
        let endpoint = slot.endpoint.take()?;
        slot.retired = true;
        self.faces[usize::from(id.slot.0)] = STALE;
        Some(endpoint)
    }

    /// Takes the endpoint out for a moment; [`Self::put_back`] returns it.
    pub(crate) fn lift(&mut self, id: EndpointId) -> Option<Endpoint> {
        let slot = self.slots.get_mut(usize::from(id.slot.0))?;
        if slot.generation != id.generation {
            return None;
        }
        self.faces[usize::from(id.slot.0)] = STALE;
        slot.endpoint.take()
    }

    pub(crate) fn put_back(&mut self, endpoint: Endpoint) {
        let at = usize::from(endpoint.id.slot.0);
        if let Some(slot) = self.slots.get_mut(at) {
            self.faces[at] = STALE;
            slot.endpoint = Some(endpoint);
        }
    }

    /// A retired slot may be used again; anything else is left alone.
    pub(crate) fn free(&mut self, number: SourceId) {
        if let Some(slot) = self.slots.get_mut(usize::from(number.0))
            && slot.retired
        {
            slot.retired = false;
            self.free.push(number.0);
        }
    }

    pub(crate) fn get_mut(&mut self, id: EndpointId) -> Option<&mut Endpoint> {
        self.at_mut(id.slot)
            .filter(|endpoint| endpoint.id.generation == id.generation)
    }

    pub(crate) fn at(&self, slot: SourceId) -> Option<&Endpoint> {
        self.slots.get(usize::from(slot.0))?.endpoint.as_ref()
    }

    pub(crate) fn at_mut(&mut self, slot: SourceId) -> Option<&mut Endpoint> {
        let at = usize::from(slot.0);
        self.faces.get_mut(at)?.stale = true;
        self.slots[at].endpoint.as_mut()
    }

    /// Slots that have ever been taken.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Looks at the endpoint at `slot` if its last face may not be true any more.
    pub(crate) fn refresh(&mut self, slot: usize, look: impl FnOnce(&mut Endpoint) -> Face) {
        let seen = &mut self.faces[slot];
        if seen.stale {
            seen.face = self.slots[slot].endpoint.as_mut().map(look);
            seen.stale = seen.face.as_ref().is_some_and(|face| face.restless);
        }
    }

    /// The face of the endpoint at `slot`, as it was refreshed last.
    pub(crate) fn face(&self, slot: usize) -> Option<&Face> {
        self.faces[slot].face.as_ref()
    }

    /// In the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.slots.iter().filter_map(|slot| slot.endpoint.as_ref())
    }

    /// In the order of their slots.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Endpoint> {
        for seen in &mut self.faces {
            seen.stale = true;
        }
        self.slots.iter_mut().filter_map(|slot| slot.endpoint.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EndpointSpec, SchedulerConfig};

    fn add(fleet: &mut Fleet) -> EndpointId {
        let spec = EndpointSpec {
            address: "10.0.0.1:8000".parse().unwrap(),
            rank: None,
            group: "g".into(),
            block_size: None,
        };
        let pace = SchedulerConfig::default().pace();
        fleet.add(|id| Endpoint::new(id, spec, None, pace)).unwrap()
    }

    #[test]
    fn a_slot_is_not_used_again_before_it_is_freed() {
        let mut fleet = Fleet::default();
        let first = add(&mut fleet);
        assert!(fleet.remove(first).is_some());
        let second = add(&mut fleet);
        assert_ne!(first.slot, second.slot);
        fleet.free(first.slot);
        fleet.free(first.slot);
        let third = add(&mut fleet);
        assert_eq!(third.slot, first.slot);
        assert_ne!(third.generation, first.generation);
        assert_ne!(add(&mut fleet).slot, first.slot, "freed twice, used once");
    }

    #[test]
    fn a_stale_id_never_meets_a_newer_endpoint() {
        let mut fleet = Fleet::default();
        let stale = add(&mut fleet);
        fleet.remove(stale);
        fleet.free(stale.slot);
        let fresh = add(&mut fleet);
        assert!(fleet.get_mut(stale).is_none());
        assert!(fleet.remove(stale).is_none());
        assert!(fleet.get_mut(fresh).is_some());
    }

    #[test]
    fn all_slots_can_be_taken_and_then_none() {
        let mut fleet = Fleet::default();
        for _ in 0..=u16::MAX {
            add(&mut fleet);
        }
        assert!(fleet.add(|_| unreachable!()).is_none());
    }
}
