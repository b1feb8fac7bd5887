//! A sliding minute of arrivals: how many there were, and how many shared each prefix.

use std::{collections::VecDeque, time::Duration};

use lmetric_prefix::BlockKey;

use crate::{Time, key_map::KeyMap};

/// Prefixes remembered, over all arrivals in the window; beyond that the oldest arrivals are forgotten early.
const MOST_PREFIXES: usize = 1 << 18;
/// Depths remembered of one arrival.
const MOST_DEPTHS: usize = 256;

/// Exact counts over the window. O(depths) per arrival, amortised.
#[derive(Debug)]
pub(super) struct Window {
    span: Duration,
    first: Option<Time>,
    arrivals: VecDeque<(Time, u16)>,
    prefixes: VecDeque<BlockKey>,
    counts: KeyMap<u32>,
}

impl Window {
    pub(super) fn new(span: Duration) -> Self {
        Self {
            span,
            first: None,
            arrivals: VecDeque::new(),
            prefixes: VecDeque::new(),
            counts: KeyMap::default(),
        }
    }

    pub(super) fn arrive(&mut self, depths: &[BlockKey], now: Time) {
        self.first.get_or_insert(now);
        self.expire(now);
        let depths = &depths[..depths.len().min(MOST_DEPTHS)];
        while self.prefixes.len() + depths.len() > MOST_PREFIXES {
            self.forget_oldest();
        }
        self.arrivals.push_back((now, depths.len() as u16));
        for key in depths {
            self.prefixes.push_back(*key);
            *self.counts.entry(*key).or_insert(0) += 1;
        }
    }

    pub(super) fn expire(&mut self, now: Time) {
        let horizon = now.before(self.span);
        while self.arrivals.front().is_some_and(|(at, _)| *at < horizon) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, depths)) = self.arrivals.pop_front() else {
            return;
        };
        for key in self.prefixes.drain(..usize::from(depths)) {
            if let hashbrown::hash_map::Entry::Occupied(mut count) = self.counts.entry(key) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }

    /// n.
    pub(super) fn arrivals(&self) -> u32 {
        self.arrivals.len() as u32
    }

    /// Arrivals that share the prefix that ends with `key`.
    pub(super) fn count(&self, key: BlockKey) -> u32 {
        self.counts.get(&key).copied().unwrap_or(0)
    }

    /// Whether a whole window has passed since the first arrival.
    pub(super) fn was_full(&self, now: Time) -> bool {
        self.first.is_some_and(|first| now >= first.after(self.span))
    }

    pub(super) fn span(&self) -> Duration {
        self.span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(raw: u64) -> BlockKey {
        BlockKey::from_raw(raw)
    }

    #[test]
    fn an_arrival_counts_for_a_minute() {
        let mut window = Window::new(Duration::from_mins(1));
        window.arrive(&[key(1), key(2)], Time::from_secs_f64(0.0));
        window.arrive(&[key(1), key(3)], Time::from_secs_f64(30.0));
        assert_eq!(
            (window.arrivals(), window.count(key(1)), window.count(key(2))),
            (2, 2, 1)
        );
        assert!(!window.was_full(Time::from_secs_f64(59.0)));
        window.expire(Time::from_secs_f64(61.0));
        assert_eq!(
            (window.arrivals(), window.count(key(1)), window.count(key(2))),
            (1, 1, 0)
        );
        assert!(window.was_full(Time::from_secs_f64(61.0)));
        window.expire(Time::from_secs_f64(100.0));
        assert_eq!((window.arrivals(), window.counts.len()), (0, 0));
    }

    #[test]
    fn memory_is_bounded_by_forgetting_the_oldest() {
        let mut window = Window::new(Duration::from_mins(1));
        let long: Vec<BlockKey> = (0..1_000).map(key).collect();
        for _ in 0..2_000 {
            window.arrive(&long, Time::default());
        }
        assert!(window.prefixes.len() <= MOST_PREFIXES);
        assert_eq!(window.arrivals() as usize, MOST_PREFIXES / MOST_DEPTHS);
        assert_eq!(window.count(key(0)), window.arrivals());
    }
}
