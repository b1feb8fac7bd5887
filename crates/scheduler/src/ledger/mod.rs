//! The record of every reservation that is still open; Q and BS are sums over it.
//!
//! Invariants, held by [`open`] and [`detach`] alone: an endpoint's [`Load`] is the sum over its open reservations; its
//! [`Claims`] name exactly the blocks that these may still advance over. So both are zero and empty when none is open.

mod account;
mod answers;
mod claims;
mod clock;
mod overlay;
mod progress;
mod reservation;
mod slab;

pub(crate) use account::{Load, close, detach, end_output, follow_by_rate, open};
pub(crate) use answers::Answers;
pub(crate) use claims::Claims;
pub(crate) use clock::{Rates, WorkClock, advance};
pub(crate) use overlay::held_run;
pub use progress::Computed;
pub(crate) use progress::stored;
pub(crate) use reservation::Reservation;
pub(crate) use slab::Slab;

/// One open reservation; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReservationId(pub u64);
