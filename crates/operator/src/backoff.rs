//! How long a pool waits after failures in a row. The runtime tells its error policy of failures only, so this
//! counts itself; a success forgets.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use parking_lot::Mutex;
use rand::Rng;

/// Wait after the first failure.
pub const FIRST: Duration = Duration::from_millis(500);
/// Longest wait, before jitter.
pub const CAP: Duration = Duration::from_mins(2);

/// Failures in a row, by pool.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: Mutex<HashMap<String, u32>>,
}

impl Backoff {
    /// Counts a failure of the pool with this UID. The wait doubles with each and is spread by a quarter, so that pools
    /// that failed together do not come back together.
    pub fn failed(&self, uid: &str, random: &mut impl Rng) -> Duration {
        let count = {
            let mut failures = self.failures.lock();
            let count = failures.entry(uid.to_owned()).or_default();
            *count = count.saturating_add(1);
            *count
        };
        let doubled = FIRST.saturating_mul(1 << (count - 1).min(16)).min(CAP);
        doubled.mul_f64(random.random_range(0.75..=1.25))
    }

    /// Forgets the failures of a pool that went well or is gone.
    pub fn succeeded(&self, uid: &str) {
        self.failures.lock().remove(uid);
    }

    /// Forgets every pool that is not `alive`, by UID.
    pub fn keep(&self, alive: &HashSet<String>) {
        self.failures.lock().retain(|uid, _| alive.contains(uid));
    }

    /// Pools with failures.
    pub fn failing(&self) -> usize {
        self.failures.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::SmallRng};

    use super::*;

    #[test]
    fn the_wait_doubles_up_to_the_cap_and_a_success_forgets() {
        let backoff = Backoff::default();
        let mut random = SmallRng::seed_from_u64(1);
        let mut expected = FIRST;
        for _ in 0..40 {
            let wait = backoff.failed("a", &mut random);
            assert!(
                wait >= expected.mul_f64(0.75) && wait <= expected.mul_f64(1.25),
                "{wait:?} {expected:?}"
            );
            expected = (expected * 2).min(CAP);
        }
        backoff.succeeded("a");
        assert_eq!(backoff.failing(), 0);
        assert!(backoff.failed("a", &mut random) <= FIRST.mul_f64(1.25));
    }

    #[test]
    fn pools_do_not_wait_for_each_other() {
        let backoff = Backoff::default();
        let mut random = SmallRng::seed_from_u64(2);
        for _ in 0..10 {
            backoff.failed("bad", &mut random);
        }
        assert!(backoff.failed("good", &mut random) <= FIRST.mul_f64(1.25));
    }
}
