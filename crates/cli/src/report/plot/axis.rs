//! The logarithmic time axis.

use super::{Curve, LEFT, RIGHT};
use crate::stats::quantile;

/// A logarithmic axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// From the 1st percentile of the fastest curve to the last request of the slowest, widened to at least a factor
    /// of four.
    pub(super) fn over(curves: &[Curve<'_>]) -> Self {
        let ends = |pick: fn(&[f64]) -> f64| {
            curves
                .iter()
                .filter(|curve| !curve.sorted.is_empty())
                .map(move |curve| pick(&curve.sorted))
        };
        let low = ends(|sorted| quantile(sorted, 0.01)).fold(f64::INFINITY, f64::min);
        let high = ends(|sorted| quantile(sorted, 1.0)).fold(0.0, f64::max);
        if !low.is_finite() || high <= 0.0 {
            return Self {
                low: 1.0,
                high: 1_000.0,
            };
        }
        let (low, high) = (low * 0.92, high * 1.05);
        let missing = (4.0 / (high / low)).max(1.0).sqrt();
        Self {
            low: low / missing,
            high: high * missing,
        }
    }

    /// Where a time lies, within the plot.
    pub(super) fn x(self, ms: f64) -> f64 {
        let along = (ms / self.low).ln() / (self.high / self.low).ln();
        LEFT + along.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    /// Ticks at 1, 2 and 5 of each decade; labelled all, or 1 and 3, or 1, so that at most seven are.
    pub(super) fn ticks(self) -> Vec<(f64, bool)> {
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let at = |steps: &[f64]| -> Vec<f64> {
            decades
                .clone()
                .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)))
                .filter(|ms| (self.low..=self.high).contains(ms))
                .collect()
        };
        let labelled = [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]]
            .into_iter()
            .map(at)
            .find(|ticks| ticks.len() <= 7)
            .unwrap_or_default();
        let mut ticks: Vec<(f64, bool)> = labelled.iter().map(|ms| (*ms, true)).collect();
        ticks.extend(
            at(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
                .into_iter()
                .filter(|ms| !labelled.contains(ms))
                .map(|ms| (ms, false)),
        );
        ticks
    }
}

pub(crate) fn tick_label(ms: f64) -> String {
    if ms >= 1_000.0 {
        format!("{} s", ms / 1e3)
    } else {
        format!("{ms} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_axis_labels_few_ticks_inside_its_range() {
        for (low, high) in [(8.0, 90.0), (40.0, 61_000.0), (0.3, 2.0e6), (100.0, 400.0)] {
            let ticks = Axis { low, high }.ticks();
            let labelled = ticks.iter().filter(|(_, labelled)| *labelled).count();
            assert!((1..=7).contains(&labelled), "{low}..{high}: {labelled}");
            assert!(ticks.iter().all(|(ms, _)| (low..=high).contains(ms)));
        }
        assert_eq!(tick_label(200.0), "200 ms");
        assert_eq!(tick_label(5_000.0), "5 s");
    }
}
