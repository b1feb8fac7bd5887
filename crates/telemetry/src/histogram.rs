//! A histogram without a lock: buckets of atomics, in a few shards so that threads rarely share a cache line.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};

/// Power of two; more threads than this share shards.
const SHARDS: usize = 8;

/// Observations counted into fixed buckets. Clones share the counts. An observation costs one search among
/// the bounds and two relaxed additions; encoding sums the shards.
#[derive(Clone)]
pub struct Histogram(Arc<Inner>);

struct Inner {
    bounds: Box<[f64]>,
    shards: Box<[Shard]>,
}

#[repr(align(128))]
struct Shard {
    buckets: Box<[AtomicU64]>,
    /// The sum in `f64` bits.
    sum: AtomicU64,
}

impl Histogram {
    /// Upper bounds, ascending; the bucket for everything above is added.
    pub fn new(bounds: impl IntoIterator<Item = f64>) -> Self {
        let bounds: Box<[f64]> = bounds.into_iter().collect();
        debug_assert!(bounds.is_sorted(), "bounds of a histogram ascend");
        let shards = (0..SHARDS)
            .map(|_| Shard {
                buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
                sum: AtomicU64::new(0),
            })
            .collect();
        Self(Arc::new(Inner { bounds, shards }))
    }

    /// Bounds from 10 µs to 10 s, three to a decade: for durations in seconds.
    pub fn seconds() -> Self {
        Self::new([
            1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0,
            5.0, 10.0,
        ])
    }

    /// Counts one observation.
    pub fn observe(&self, value: f64) {
        let Inner { bounds, shards } = &*self.0;
        let shard = &shards[shard_of_thread()];
        let bucket = bounds.partition_point(|bound| *bound < value);
        shard.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let mut sum = shard.sum.load(Ordering::Relaxed);
        loop {
            let next = (f64::from_bits(sum) + value).to_bits();
            match shard
                .sum
                .compare_exchange_weak(sum, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => sum = now,
            }
        }
    }

    /// Counts a duration, in seconds.
    pub fn observe_duration(&self, value: Duration) {
        self.observe(value.as_secs_f64());
    }

    /// Observations so far.
    pub fn count(&self) -> u64 {
        self.0
            .shards
            .iter()
            .flat_map(|shard| &shard.buckets)
            .map(|bucket| bucket.load(Ordering::Relaxed))
            .sum()
    }

    /// Sum of all observations.
    pub fn sum(&self) -> f64 {
        self.0
            .shards
            .iter()
            .map(|shard| f64::from_bits(shard.sum.load(Ordering::Relaxed)))
            .sum()
    }
}

/// Threads get shards in turn.
fn shard_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    std::thread_local! {
        static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    SHARD.with(|shard| *shard)
}

impl fmt::Debug for Histogram {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Histogram")
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let Inner { bounds, shards } = &*self.0;
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds
            .enumerate()
            .map(|(at, bound)| {
                let count = shards
                    .iter()
                    .map(|shard| shard.buckets[at].load(Ordering::Relaxed))
                    .sum();
                (bound, count)
            })
            .collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum(), count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Observes the time from its making to its drop.
#[derive(Debug)]
pub struct Timer {
    histogram: Histogram,
    started: tokio::time::Instant,
}

impl Timer {
    /// Starts now.
    pub fn start(histogram: &Histogram) -> Self {
        Self {
            histogram: histogram.clone(),
            started: tokio::time::Instant::now(),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.histogram.observe_duration(self.started.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_of_many_threads_are_all_counted_and_cumulative() {
        let histogram = Histogram::new([1.0, 2.0]);
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let histogram = histogram.clone();
                scope.spawn(move || {
                    for _ in 0..1_000 {
                        histogram.observe(f64::from(thread % 4));
                    }
                });
            }
        });
        assert_eq!(histogram.count(), 16_000);
        assert_eq!(histogram.sum(), 4_000.0 * (1.0 + 2.0 + 3.0));
        let mut registry = crate::registry();
        registry.register("sizes", "Sizes", histogram);
        let page = crate::encode(&registry).expect("encodes");
        for line in [
            r#"lmetric_sizes_bucket{le="1"} 8000"#,
            r#"lmetric_sizes_bucket{le="2"} 12000"#,
            r#"lmetric_sizes_bucket{le="+Inf"} 16000"#,
            "lmetric_sizes_count 16000",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }
}
