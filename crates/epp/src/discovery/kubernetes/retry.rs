//! How soon a watch that broke is begun again.

use std::time::Duration;

use kube::runtime::{utils::Backoff, watcher::DefaultBackoff};
use rand::Rng as _;

/// The longest wait. The client's own backoff goes to half a minute and more, for which a picker would not see new
/// engines after the API server is back; a request every few seconds from each picker is no burden for it.
pub(super) const LONGEST: Duration = Duration::from_secs(5);

/// The client's backoff, cut short.
#[derive(Default)]
pub(super) struct Retry(DefaultBackoff);

impl Iterator for Retry {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let longest = LONGEST.mul_f64(rand::rng().random_range(0.7..=1.0));
        self.0.next().map(|wait| wait.min(longest))
    }
}

impl Backoff for Retry {
    fn reset(&mut self) {
        self.0.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_tried_again_for_ever_and_never_after_more_than_five_seconds() {
        let waits: Vec<_> = Retry::default().take(50).collect();
        assert_eq!(waits.len(), 50);
        assert!(waits.iter().all(|wait| *wait <= LONGEST), "{waits:?}");
        assert!(waits[49] > LONGEST / 2, "it does grow: {waits:?}");
    }
}
