//! What is asked in the run that goes on: engines look here instead of into bodies.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::chats::Turn;

/// The header that names a request's place in the plan.
pub const HEADER: &str = "x-bench-turn";

/// The requests of one run.
#[derive(Debug, Default)]
pub struct Plan {
    /// In order.
    pub turns: Vec<Turn>,
    /// Whether engines remember and publish what they compute. Without a picker they do not: nothing would come of it, and the next
    /// run's picker would find the prompts of this one.
    pub remembers: bool,
}

/// The plan that is being carried out.
#[derive(Debug, Default)]
pub struct Board(ArcSwap<Plan>);

impl Board {
    /// This is what will be asked.
    pub fn put(&self, plan: Arc<Plan>) {
        self.0.store(plan);
    }

    /// The request that a header names, and whether to remember it.
    pub fn find(&self, header: &str) -> Option<(Turn, bool)> {
        let plan = self.0.load();
        let turn = plan.turns.get(header.parse::<usize>().ok()?)?;
        Some((turn.clone(), plan.remembers))
    }
}
