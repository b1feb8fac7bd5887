//! The picker's own admin pages: what every endpoint looks like now, and how the latest requests were placed;
//! and where engines announce their end.

mod drain;
mod live;
mod pages;
mod shadow;
mod status;

use lmetric_kvevents::SourceState;

pub use drain::router as drain_router;
pub use live::{LiveParts, router as live_router};
pub use pages::{Pages, router};
pub use shadow::router as shadow_router;
pub use status::{StatusPages, router as status_router};

/// Stable name of a source's state.
pub fn state_name(state: SourceState) -> &'static str {
    match state {
        SourceState::Live => "live",
        SourceState::Partial => "partial",
        SourceState::Stale => "stale",
        SourceState::Down => "down",
    }
}
