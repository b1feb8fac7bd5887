//! The largest rate that a fleet keeps up with under any policy, measured offline as the paper profiles its clusters.
//!
//! A rate is kept up with when the mean TTFT of the last quarter of arrivals is at most 1.5 × that of the second: queues
//! do not grow. It must also be less than a twentieth of the time in which all arrive: where the second quarter holds a burst, or
//! everything comes at once, the first condition says nothing. For the first policy the scale is raised by half until that fails and then halved in between, to 5 %. Each
//! further policy is first asked whether it keeps up with more than the best one so far, which takes one run; only one that does is
//! searched for its own limit. So the first policy should be a promising one.

use tokio_util::sync::CancellationToken;

use super::{
    measure::Figures,
    plan::{Bench, Planned},
    pool::each,
    study::Share,
};
use lmetric_scheduler::{HotspotAction, PolicyKind};

/// How much longer the last quarter may wait than the second one.
const GROWTH: f64 = 1.5;
/// The longest wait of the last quarter, as a share of the time in which all arrive.
const LONGEST: f64 = 0.05;
/// The search ends when the bounds are this close.
const CLOSE: f64 = 1.05;
/// Factor of the search for a rate that is too high.
const RAISE: f64 = 1.5;
/// Scales that are tried lie between these.
const LEAST: f64 = 1.0 / 64.0;
const MOST: f64 = 256.0;

/// The largest scale that any policy keeps up with, and that of each one that was better than those before it.
pub(super) type Found = (f64, Vec<(PolicyKind, f64)>);

/// Looks for the largest scale that any of `policies` keeps up with; `None` when `stop` ended the search.
pub fn search(
    bench: &Bench<'_>,
    policies: &[PolicyKind],
    seed: u64,
    threads: Option<usize>,
    stop: &CancellationToken,
) -> anyhow::Result<Option<Found>> {
    let jobs = bench.arrivals(1.0, seed).jobs.len() as u64;
    let Some((first, others)) = policies.split_first() else {
        return Ok(None);
    };
    // about eight runs
    let alone = each(
        std::slice::from_ref(first),
        threads,
        "capacity",
        8 * jobs,
        stop,
        |policy, progress| limit(bench, *policy, seed, (None, None), progress),
    )?;
    let Some(mut best) = alone.into_iter().next().flatten() else {
        return Ok(None);
    };
    let mut found = vec![(*first, best)];
    let mut open = others.to_vec();
    while !open.is_empty() && best * CLOSE <= MOST {
        let scale = best * CLOSE;
        let asked = each(
            &open,
            threads,
            "capacity",
            open.len() as u64 * jobs,
            stop,
            |policy, progress| keeps_up_at(bench, *policy, seed, scale, progress),
        )?;
        let mut better = Vec::new();
        for (policy, keeps) in open.into_iter().zip(asked) {
            match keeps {
                None => return Ok(None),
                Some(true) => better.push(policy),
                Some(false) => {}
            }
        }
        let Some((next, rest)) = better.split_first() else {
            break;
        };
        let own = each(
            std::slice::from_ref(next),
            threads,
            "capacity",
            4 * jobs,
            stop,
            |policy, progress| limit(bench, *policy, seed, (Some(scale), None), progress),
        )?;
        let Some(own) = own.into_iter().next().flatten() else {
            return Ok(None);
        };
        best = own;
        found.push((*next, own));
        open = rest.to_vec();
    }
    Ok(Some((best, found)))
}

/// One policy's limit, between scales that are known to be kept up with and not; `None` when `progress` ended the search.
fn limit(
    bench: &Bench<'_>,
    policy: PolicyKind,
    seed: u64,
    (mut kept, mut lost): (Option<f64>, Option<f64>),
    progress: &dyn Fn(u64) -> bool,
) -> anyhow::Result<Option<f64>> {
    let mut scale = kept.map_or(1.0, |kept| kept * CLOSE);
    loop {
        let Some(keeps) = keeps_up_at(bench, policy, seed, scale, progress)? else {
            return Ok(None);
        };
        if keeps {
            kept = Some(scale);
        } else {
            lost = Some(scale);
        }
        scale = match (kept, lost) {
            (Some(kept), Some(lost)) if lost / kept <= CLOSE => return Ok(Some(kept)),
            (Some(kept), Some(lost)) => (kept * lost).sqrt(),
            (Some(kept), None) if kept >= MOST => return Ok(Some(kept)),
            (Some(kept), None) => kept * RAISE,
            (None, Some(lost)) if lost <= LEAST => return Ok(Some(lost)),
            (None, Some(lost)) => lost / RAISE,
            (None, None) => return Ok(None),
        };
    }
}

fn keeps_up_at(
    bench: &Bench<'_>,
    policy: PolicyKind,
    seed: u64,
    rate_scale: f64,
    progress: &dyn Fn(u64) -> bool,
) -> anyhow::Result<Option<bool>> {
    let planned = Planned {
        policy,
        sweep: None,
        share: Share::Whole,
        rate_scale,
        fraction: None,
        seed,
        hotspot: HotspotAction::Filter,
    };
    let measured = bench.run(&planned, progress)?;
    Ok(measured.map(|measured| {
        let Figures {
            requests,
            rate,
            quarters_ms,
            ..
        } = measured.outcome(0.0).figures;
        keeps_up(quarters_ms, 1_000.0 * requests as f64 / rate)
    }))
}

/// By the mean TTFT of each quarter, and the time in which all requests arrived.
fn keeps_up([_, second, _, last]: [f64; 4], arrivals_ms: f64) -> bool {
    last <= GROWTH * second && last <= LONGEST * arrivals_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_grows_by_half_is_not_kept_up_with() {
        assert!(keeps_up([10.0, 20.0, 25.0, 30.0], 1e6));
        assert!(!keeps_up([10.0, 20.0, 25.0, 30.1], 1e6));
    }

    #[test]
    fn a_burst_in_the_second_quarter_hides_no_queue() {
        assert!(!keeps_up([9_000.0, 90_000.0, 80_000.0, 70_000.0], 360_000.0));
        assert!(keeps_up([1_000.0, 9_000.0, 8_000.0, 7_000.0], 360_000.0));
    }
}
