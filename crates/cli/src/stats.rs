//! Means and quantiles, exact.

use serde::{Deserialize, Serialize};

/// A set of figures in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90 % are at most this.
    pub p90: f64,
    /// 99 % are at most this.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

impl Stats {
    /// All zero for no figures. Quantiles are nearest-rank: figures that were really measured. O(n log n).
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let Some(max) = sorted.last().copied() else {
            return Self::default();
        };
        Self {
            count: sorted.len() as u64,
            mean: rounded(sorted.iter().sum::<f64>() / sorted.len() as f64),
            p50: quantile(&sorted, 0.50),
            p90: quantile(&sorted, 0.90),
            p99: quantile(&sorted, 0.99),
            max,
        }
    }
}

/// The nearest-rank quantile of sorted figures, which must not be empty.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// To a thousandth: microseconds, where the figure is milliseconds.
pub fn rounded(figure: f64) -> f64 {
    (figure * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_rank() {
        let stats = Stats::of((1..=200).rev().map(f64::from));
        let expected = Stats {
            count: 200,
            mean: 100.5,
            p50: 100.0,
            p90: 180.0,
            p99: 198.0,
            max: 200.0,
        };
        assert_eq!(stats, expected);
        assert_eq!(
            Stats::of([7.0]),
            Stats {
                count: 1,
                mean: 7.0,
                p50: 7.0,
                p90: 7.0,
                p99: 7.0,
                max: 7.0
            }
        );
        assert_eq!(Stats::of([]), Stats::default());
    }
}
