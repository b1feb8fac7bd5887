//! The two-phase hotspot detector (paper §5.2): takes the holders of one class's prefix out of the running for that class
//! while the class is too large for them.
//!
//! Phase 1, for each class c of a request: n_c of n arrivals in a sliding minute; M = this request's candidates that hold c's
//! prefix (overlay included), M̄ the rest. Alarm iff |M| ≥ 1, |M̄| ≥ 1, n_c ≥ 64, the window has been full once, and
//! `n_c · |M̄| > (n − n_c) · |M|`. Phase 2: after the alarm, `2|M|` *consecutive* requests of the class whose best score inside M is
//! at most their best outside ⇒ the action is in force for c until phase 1 no longer holds.

mod classes;
mod window;

use std::time::Duration;

use classes::{Class, Classes, Seen};
use lmetric_prefix::BlockKey;
use window::Window;

use crate::{Time, config::Pace};

/// Tokens between two depths at which prefixes are told apart.
const DEPTH_TOKENS: u32 = 512;
const WINDOW: Duration = Duration::from_mins(1);
const LEAST_ARRIVALS: u32 = 64;
/// Notes kept for a log; further ones are dropped.
const MOST_NOTES: usize = 64;

/// Something that deserves a log line; at most one of each kind per class and minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct HotspotNote {
    /// Key of the class's last shared block.
    pub class: u64,
    /// Length of its prefix, tokens.
    pub depth_tokens: u32,
    /// False: an alarm. True: the action is in force.
    pub in_force: bool,
    /// Endpoints that hold the prefix.
    pub holders: u32,
    /// Candidates that do not.
    pub others: u32,
    /// Its arrivals in the window.
    pub arrivals: u32,
    /// All arrivals in the window.
    pub all_arrivals: u32,
}

/// A request, as the detector sees it.
pub(crate) struct Arrival<'a> {
    /// Keys of its (first) prompt.
    pub(crate) keys: &'a [BlockKey],
    /// Tokens per block.
    pub(crate) block_tokens: u32,
    /// For each candidate, tokens of the prompt that it holds or is about to fill.
    pub(crate) held: &'a [u64],
    /// For each candidate, its score.
    pub(crate) scores: &'a [f64],
}

/// Follows classes; the clock is passed in. O(depths + classes of the request × candidates) per request.
#[derive(Debug)]
pub(crate) struct Detector {
    window: Window,
    classes: Classes,
    notes: Vec<HotspotNote>,
    alarms: u64,
    filters: u64,
    /// Scratch: the request's keys at depths 1, 2, ….
    depths: Vec<BlockKey>,
    /// Scratch: number of arrivals at each depth.
    counts: Vec<u32>,
}

impl Detector {
    pub(crate) fn new(pace: Pace) -> Self {
        let span = pace.real(WINDOW);
        Self {
            window: Window::new(span),
            classes: Classes::new(span),
            notes: Vec::new(),
            alarms: 0,
            filters: 0,
            depths: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// Counts the arrival. For every class of it whose action is in force, `hot` is told the depth in tokens, the
    /// longest first, with the class.
    pub(crate) fn arrive(&mut self, arrival: &Arrival<'_>, now: Time, mut hot: impl FnMut(u32, BlockKey)) {
        let Arrival {
            keys,
            block_tokens,
            held,
            scores,
        } = *arrival;
        let step = DEPTH_TOKENS.div_ceil(block_tokens.max(1));
        self.depths.clear();
        self.depths
            .extend(keys.chunks_exact(step as usize).filter_map(|part| part.last()));
        self.window.arrive(&self.depths, now);
        self.classes.advance(now);
        self.counts.clear();
        self.counts
            .extend(self.depths.iter().map(|key| self.window.count(*key)));

        let longest = held.iter().copied().max().unwrap_or(0);
        for at in (0..self.depths.len()).rev() {
            let count = self.counts[at];
            let deeper = self.counts.get(at + 1).copied().unwrap_or(0);
            // a boundary: count(d + 1) < 0.9 · count(d)
            if u64::from(deeper) * 10 >= u64::from(count) * 9 {
                continue;
            }
            let depth = (at as u32 + 1) * step * block_tokens;
            let Some(class) = self.classes.hit(self.depths[at], longest.min(u64::from(depth))) else {
                continue;
            };
            let sight = Sight::new(held, scores, depth);
            let all = self.window.arrivals();
            let holds = self.window.was_full(now) && sight.is_uneven(count, all);
            let (alarms, filters) = (&mut self.alarms, &mut self.filters);
            let event = class.follow(holds, &sight);
            class.seen = Seen {
                depth_tokens: depth,
                holders: sight.inside,
                others: sight.outside,
            };
            match event {
                Some(false) => *alarms += 1,
                Some(true) => *filters += 1,
                None => {}
            }
            if let Some(in_force) = event
                && class.may_note(in_force, now, self.window.span())
                && self.notes.len() < MOST_NOTES
            {
                self.notes.push(HotspotNote {
                    class: self.depths[at].get(),
                    depth_tokens: depth,
                    in_force,
                    holders: sight.inside,
                    others: sight.outside,
                    arrivals: count,
                    all_arrivals: all,
                });
            }
            if class.is_in_force() {
                hot(depth, self.depths[at]);
            }
        }
    }

    /// Lets go of what has left the window. O(classes).
    pub(crate) fn advance(&mut self, now: Time) {
        self.window.expire(now);
        self.classes.advance(now);
        for class in self.classes.iter_mut() {
            if self.window.count(class.key()) < LEAST_ARRIVALS {
                class.calm();
            }
        }
    }

    pub(crate) fn alarms(&self) -> u64 {
        self.alarms
    }

    pub(crate) fn filters(&self) -> u64 {
        self.filters
    }

    /// The classes whose alarm holds, the most frequent first.
    pub(crate) fn now(&self) -> Vec<HotspotNote> {
        let mut alarmed: Vec<HotspotNote> = self
            .classes
            .iter()
            .filter(|class| class.alarmed)
            .map(|class| {
                let Seen {
                    depth_tokens,
                    holders,
                    others,
                } = class.seen;
                HotspotNote {
                    class: class.key().get(),
                    depth_tokens,
                    in_force: class.is_in_force(),
                    holders,
                    others,
                    arrivals: self.window.count(class.key()),
                    all_arrivals: self.window.arrivals(),
                }
            })
            .collect();
        alarmed.sort_by_key(|note| (std::cmp::Reverse(note.arrivals), note.class));
        alarmed
    }

    pub(crate) fn take_notes(&mut self) -> Vec<HotspotNote> {
        std::mem::take(&mut self.notes)
    }
}

/// The candidates, divided into M and M̄ for one class.
struct Sight {
    inside: u32,
    outside: u32,
    best_inside: f64,
    best_outside: f64,
}

impl Sight {
    fn new(held: &[u64], scores: &[f64], depth: u32) -> Self {
        let mut sight = Self {
            inside: 0,
            outside: 0,
            best_inside: f64::INFINITY,
            best_outside: f64::INFINITY,
        };
        for (held, score) in held.iter().zip(scores) {
            if *held >= u64::from(depth) {
                sight.inside += 1;
                sight.best_inside = sight.best_inside.min(*score);
            } else {
                sight.outside += 1;
                sight.best_outside = sight.best_outside.min(*score);
            }
        }
        sight
    }

    /// Equation 2 of the paper fails: x/x̄ > |M|/|M̄|.
    fn is_uneven(&self, count: u32, all: u32) -> bool {
        self.inside >= 1
            && self.outside >= 1
            && count >= LEAST_ARRIVALS
            && u64::from(count) * u64::from(self.outside)
                > u64::from(all.saturating_sub(count)) * u64::from(self.inside)
    }
}

impl Class {
    /// One more request of the class. `Some(false)`: an alarm is raised; `Some(true)`: the action comes into force.
    fn follow(&mut self, phase_one: bool, sight: &Sight) -> Option<bool> {
        if !phase_one {
            self.calm();
            return None;
        }
        if !self.alarmed {
            self.alarmed = true;
            return Some(false);
        }
        if self.in_force {
            return None;
        }
        if sight.best_inside > sight.best_outside {
            self.streak = 0;
            return None;
        }
        self.streak += 1;
        if self.streak < 2 * sight.inside {
            return None;
        }
        self.in_force = true;
        Some(true)
    }
}
