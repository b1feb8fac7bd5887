//! Whether a model's tokenizer and template are those that its engines use.
//!
//! The scheduler notices requests whose engine stored blocks but none of the expected ones. A fifth of a
//! hundred requests is no accident (a wrong chat template makes it all of them): from then on the group's
//! tokens come from the engines.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Requests that are judged together.
const WINDOW: u32 = 100;
/// Mismatches among them that end the trust: 20 %.
const TOO_MANY: u32 = 20;

/// Trust in one group's tokenizer.
#[derive(Debug)]
pub struct Trust {
    kept: AtomicBool,
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    checked: u32,
    mismatched: u32,
}

impl Default for Trust {
    fn default() -> Self {
        Self {
            kept: AtomicBool::new(true),
            window: Mutex::default(),
        }
    }
}

impl Trust {
    /// The tokenizer may be used.
    pub fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// More requests were checked. True when that ended the trust.
    pub fn checked(&self, requests: u32, mismatched: u32) -> bool {
        let mut window = self.window.lock();
        window.checked = window.checked.saturating_add(requests);
        window.mismatched = window.mismatched.saturating_add(mismatched);
        if window.checked < WINDOW {
            return false;
        }
        // of a window that a burst made longer, the same share
        let too_many = u64::from(window.mismatched) * u64::from(WINDOW)
            >= u64::from(TOO_MANY) * u64::from(window.checked);
        *window = Window::default();
        too_many && self.kept.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_a_hundred_ends_the_trust_once() {
        let trust = Trust::default();
        assert!(!trust.checked(99, 19));
        assert!(!trust.checked(1, 0), "19 of 100");
        assert!(trust.is_kept());
        assert!(!trust.checked(99, 20));
        assert!(trust.checked(1, 0), "20 of 100");
        assert!(!trust.is_kept());
        assert!(!trust.checked(100, 100), "the news comes once");
    }
}
