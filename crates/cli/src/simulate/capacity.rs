//! The largest rate that a fleet keeps up with, measured offline as the paper profiles its clusters.
//!
//! A rate is kept up with when the mean TTFT of the last quarter of arrivals is at most 1.5 × that of the second: queues
//! do not grow. The scale is doubled until that fails and then halved in between, to 5 %.

use super::{
    plan::{Bench, Planned},
    study::Share,
};
use lmetric_scheduler::{HotspotAction, PolicyKind};

/// How much longer the last quarter may wait than the second one.
const GROWTH: f64 = 1.5;
/// The search ends when the bounds are this close.
const CLOSE: f64 = 1.05;
/// Scales that are tried lie between these.
const LEAST: f64 = 1.0 / 64.0;
const MOST: f64 = 256.0;

/// Finds it for one policy; `None` when `progress` ended the search.
pub fn search(
    bench: &Bench<'_>,
    policy: PolicyKind,
    seed: u64,
    progress: &dyn Fn(u64) -> bool,
) -> anyhow::Result<Option<f64>> {
    let (mut kept, mut lost): (Option<f64>, Option<f64>) = (None, None);
    let mut scale = 1.0;
    loop {
        let planned = Planned {
            policy,
            sweep: None,
            share: Share::Whole,
            rate_scale: scale,
            fraction: None,
            seed,
            hotspot: HotspotAction::Filter,
        };
        let Some(measured) = bench.run(&planned, progress)? else {
            return Ok(None);
        };
        let quarters = measured.outcome(0.0).figures.quarters_ms;
        if keeps_up(quarters) {
            kept = Some(scale);
        } else {
            lost = Some(scale);
        }
        scale = match (kept, lost) {
            (Some(kept), Some(lost)) if lost / kept <= CLOSE => return Ok(Some(kept)),
            (Some(kept), Some(lost)) => (kept * lost).sqrt(),
            (Some(kept), None) if kept >= MOST => return Ok(Some(kept)),
            (Some(kept), None) => kept * 2.0,
            (None, Some(lost)) if lost <= LEAST => return Ok(Some(lost)),
            (None, Some(lost)) => lost / 2.0,
            (None, None) => return Ok(None),
        };
    }
}

fn keeps_up([_, second, _, last]: [f64; 4]) -> bool {
    last <= GROWTH * second
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_grows_by_half_is_not_kept_up_with() {
        assert!(keeps_up([10.0, 20.0, 25.0, 30.0]));
        assert!(!keeps_up([10.0, 20.0, 25.0, 30.1]));
    }
}
