//! Distributions of one rank, with vLLM's buckets; times are model time.

use std::time::Duration;

use lmetric_engine::Finished;

const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
const PER_TOKEN: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
const LATENCY: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];
const TOKENS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0,
];

/// Counts per bucket.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    fn observe(&mut self, value: f64) {
        self.counts[self.bounds.partition_point(|bound| *bound < value)] += 1;
        self.sum += value;
    }

    /// Upper bounds with the count of values at or below; the last one is infinite.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }))
    }

    /// Sum of all values.
    pub(crate) fn sum(&self) -> f64 {
        self.sum
    }

    /// Number of values.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The distributions that vLLM's page shows per request.
#[derive(Clone, Debug)]
pub(crate) struct Histograms {
    /// Arrival to first token, s.
    pub(crate) first_token: Histogram,
    /// Between first and last token, per token, s.
    pub(crate) per_token: Histogram,
    /// Arrival to last token, s.
    pub(crate) latency: Histogram,
    /// Arrival to first step, s.
    pub(crate) queue: Histogram,
    /// Prompt tokens.
    pub(crate) prompt: Histogram,
    /// Generated tokens.
    pub(crate) generation: Histogram,
}

impl Default for Histograms {
    fn default() -> Self {
        Self {
            first_token: Histogram::new(FIRST_TOKEN),
            per_token: Histogram::new(PER_TOKEN),
            latency: Histogram::new(LATENCY),
            queue: Histogram::new(LATENCY),
            prompt: Histogram::new(TOKENS),
            generation: Histogram::new(TOKENS),
        }
    }
}

impl Histograms {
    pub(crate) fn first_token(&mut self, arrived: Duration, now: Duration) {
        self.first_token
            .observe(now.saturating_sub(arrived).as_secs_f64());
    }

    pub(crate) fn finished(&mut self, now: Duration, prompt: u32, generated: u32, done: &Finished) {
        let since = |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64();
        if generated > 1 {
            self.per_token
                .observe(since(done.first_token, now) / f64::from(generated - 1));
        }
        self.latency.observe(since(done.arrived, now));
        self.queue.observe(since(done.arrived, done.admitted));
        self.prompt.observe(f64::from(prompt));
        self.generation.observe(f64::from(generated));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_counts_below_it() {
        let mut histogram = Histogram::new(TOKENS);
        for value in [1.0, 3.0, 5000.0] {
            histogram.observe(value);
        }
        let counts: Vec<u64> = histogram.cumulative().map(|(_, count)| count).collect();
        assert_eq!(counts, [1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3]);
        assert_eq!((histogram.count(), histogram.sum()), (3, 5004.0));
    }
}
