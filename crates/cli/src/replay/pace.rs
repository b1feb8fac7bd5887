//! Waiting for a moment, to well under a millisecond.

use std::{
    thread,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

/// The system may wake a sleeper this late; the rest is waited for awake.
const SLACK: Duration = Duration::from_micros(150);
/// How long a cancelled wait may go on.
const NAP: Duration = Duration::from_millis(20);

/// Returns at `moment`, or soon after a cancellation; false then.
pub(super) fn sleep_until(moment: Instant, cancel: &CancellationToken) -> bool {
    loop {
        if cancel.is_cancelled() {
            return false;
        }
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        if left > SLACK {
            thread::sleep(left.saturating_sub(SLACK).min(NAP));
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_never_met_early_and_a_cancellation_ends_the_wait() {
        let cancel = CancellationToken::new();
        let moment = Instant::now() + Duration::from_millis(5);
        assert!(sleep_until(moment, &cancel));
        assert!(Instant::now() >= moment);
        assert!(
            sleep_until(moment, &cancel),
            "a moment that is past needs no wait"
        );
        cancel.cancel();
        assert!(!sleep_until(Instant::now() + Duration::from_hours(1), &cancel));
    }
}
