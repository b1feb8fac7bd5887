//! The ledger, the policies, the hotspot detector and `pick`: choose and reserve in one atomic step.
//!
//! Sync; no I/O; the clock ([`Time`]) and the random numbers are passed in, so the simulator and the
//! picker run the same code.
//!
//! A request's way: [`Scheduler::pick`] → [`Scheduler::first_output`], [`Scheduler::served_by`], … → [`Scheduler::release`].
//! An event's way: the index is written, then [`Scheduler::stored`]. Inside: `endpoint` (who there is and how it fares),
//! `ledger` (what is open, Q and BS), `policy` (one file each), `hotspot`, and `pick`, which brings them together.

mod checks;
mod config;
mod decisions;
mod endpoint;
mod hotspot;
mod key_map;
mod ledger;
mod pick;
mod policy;
mod reason;
mod request;
mod scheduler;
mod shadow;
mod state;
mod sync;
mod time;

pub use checks::{HitCheck, TokenCheck};
pub use config::{HotspotAction, SchedulerConfig, ShadowConfig};
pub use decisions::{CandidateView, Decision};
pub use endpoint::{EndpointId, EndpointSpec, EndpointView, Recent, ScrapeSample};
pub use hotspot::HotspotNote;
pub use ledger::{Computed, ReservationId};
pub use lmetric_policy::{EngineModel, PolicyKind};
pub use reason::{reason, short_count};
pub use request::{NoEndpoint, Outcome, Pick, PickRequest, Prompt, SpaceSpec, Subset};
pub use scheduler::Scheduler;
pub use shadow::{ShadowEndpoint, ShadowView, Side};
pub use state::Counters;
pub use time::Time;
