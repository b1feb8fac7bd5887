//! Open reservations by number. A [`ReservationId`] is a serial number and a place, so that a closed one is never found again
//! and ids sort by age.

use super::{Reservation, ReservationId};

const PLACE_BITS: u32 = 24;

/// Up to 16 M open reservations; O(1) everywhere.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    places: Vec<Option<Reservation>>,
    free: Vec<u32>,
    serial: u64,
}

impl Slab {
    /// Puts in what `build` makes of its id. `None` when all places are taken.
    pub(crate) fn insert(&mut self, build: impl FnOnce(ReservationId) -> Reservation) -> Option<u32> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.places.len() < 1 << PLACE_BITS => {
                self.places.push(None);
                self.places.len() as u32 - 1
            }
            None => return None,
        };
        self.serial += 1;
        let id = ReservationId((self.serial << PLACE_BITS) | u64::from(place));
        self.places[place as usize] = Some(build(id));
        Some(place)
    }

    /// Where `id` is, while it is open.
    pub(crate) fn place(&self, id: ReservationId) -> Option<u32> {
        let place = (id.0 & ((1 << PLACE_BITS) - 1)) as u32;
        let found = self.places.get(place as usize)?.as_ref()?;
        (found.id == id).then_some(place)
    }

    pub(crate) fn take(&mut self, place: u32) -> Option<Reservation> {
        let taken = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(taken)
    }

    pub(crate) fn get(&self, place: u32) -> Option<&Reservation> {
        self.places.get(place as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut Reservation> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
