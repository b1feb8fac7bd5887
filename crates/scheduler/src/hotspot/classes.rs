//! The classes that hit most: Space-Saving (Metwally et al., 2005) with 256 entries, weighted by hit tokens in a sliding minute.

use std::time::Duration;

use lmetric_prefix::BlockKey;

use crate::{Time, key_map::KeyMap};

const MOST: usize = 256;
/// Parts of the window; weight leaves it part by part.
const PARTS: usize = 12;

/// What its last request found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) depth_tokens: u32,
    /// Candidates that held its prefix.
    pub(super) holders: u32,
    pub(super) others: u32,
}

/// One class that is followed.
#[derive(Debug)]
pub(super) struct Class {
    key: BlockKey,
    parts: [u64; PARTS],
    weight: u64,
    /// Phase 1 holds.
    pub(super) alarmed: bool,
    /// Consecutive requests that M would have won.
    pub(super) streak: u32,
    /// Phase 2 is over.
    pub(super) in_force: bool,
    pub(super) seen: Seen,
    noted: [Option<Time>; 2],
}

impl Class {
    fn new(key: BlockKey) -> Self {
        Self {
            key,
            parts: [0; PARTS],
            weight: 0,
            alarmed: false,
            streak: 0,
            in_force: false,
            seen: Seen::default(),
            noted: [None; 2],
        }
    }

    pub(super) fn key(&self) -> BlockKey {
        self.key
    }

    pub(super) fn is_in_force(&self) -> bool {
        self.in_force
    }

    /// Phase 1 does not hold: everything starts over.
    pub(super) fn calm(&mut self) {
        self.alarmed = false;
        self.streak = 0;
        self.in_force = false;
    }

    /// Whether a note of this kind is due, at most one in `span`.
    pub(super) fn may_note(&mut self, in_force: bool, now: Time, span: Duration) -> bool {
        let last = &mut self.noted[usize::from(in_force)];
        let due = last.is_none_or(|last| now >= last.after(span));
        if due {
            *last = Some(now);
        }
        due
    }
}

/// At most 256 classes; O(1) for a known one, O(256) when one is replaced.
#[derive(Debug)]
pub(super) struct Classes {
    entries: Vec<Class>,
    places: KeyMap<usize>,
    part: Duration,
    /// Number of the current part since the beginning.
    current: u64,
}

impl Classes {
    pub(super) fn new(span: Duration) -> Self {
        Self {
            entries: Vec::new(),
            places: KeyMap::default(),
            part: span.div_f64(PARTS as f64),
            current: 0,
        }
    }

    /// Lets weight that has left the window go.
    pub(super) fn advance(&mut self, now: Time) {
        let current = now.0 / (self.part.as_nanos() as u64).max(1);
        let passed = current.saturating_sub(self.current).min(PARTS as u64);
        self.current = self.current.max(current);
        for back in 0..passed {
            let gone = ((self.current - back) % PARTS as u64) as usize;
            for class in &mut self.entries {
                class.weight -= std::mem::take(&mut class.parts[gone]);
            }
        }
    }

    /// The class `key` hit `tokens`. `None` for one that is not followed. Call [`Self::advance`] first.
    pub(super) fn hit(&mut self, key: BlockKey, tokens: u64) -> Option<&mut Class> {
        let part = (self.current % PARTS as u64) as usize;
        let at = match self.places.get(&key) {
            Some(at) => *at,
            None if tokens == 0 => return None,
            None if self.entries.len() < MOST => {
                self.entries.push(Class::new(key));
                self.places.insert(key, self.entries.len() - 1);
                self.entries.len() - 1
            }
            None => {
                let (at, least) = self
                    .entries
                    .iter()
                    .enumerate()
                    .min_by_key(|(_, class)| class.weight)?;
                let inherited = least.weight;
                self.places.remove(&least.key);
                self.entries[at] = Class::new(key);
                self.entries[at].parts[part] = inherited;
                self.entries[at].weight = inherited;
                self.places.insert(key, at);
                at
            }
        };
        let class = &mut self.entries[at];
        class.parts[part] += tokens;
        class.weight += tokens;
        Some(class)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Class> {
        self.entries.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Class> {
        self.entries.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_classes_survive_a_flood_of_light_ones() {
        let mut classes = Classes::new(Duration::from_mins(1));
        for round in 0..200_u64 {
            let now = Time::from_secs_f64(round as f64 * 0.2);
            classes.advance(now);
            for heavy in 0..10 {
                classes.hit(BlockKey::from_raw(heavy), 1_000);
            }
            for light in 0..40 {
                classes.hit(BlockKey::from_raw(1_000 + round * 40 + light), 10);
            }
        }
        assert_eq!(classes.entries.len(), MOST);
        for heavy in 0..10 {
            let at = classes.places[&BlockKey::from_raw(heavy)];
            assert_eq!(classes.entries[at].weight, 200_000);
        }
    }

    #[test]
    fn weight_leaves_with_the_window() {
        let mut classes = Classes::new(Duration::from_mins(1));
        let key = BlockKey::from_raw(1);
        classes.hit(key, 500);
        classes.advance(Time::from_secs_f64(30.0));
        classes.hit(key, 70);
        assert_eq!(classes.entries[0].weight, 570);
        classes.advance(Time::from_secs_f64(62.0));
        assert_eq!(classes.entries[0].weight, 70);
        classes.advance(Time::from_secs_f64(1_000.0));
        assert_eq!(classes.entries[0].weight, 0);
    }

    #[test]
    fn a_class_that_hits_nothing_is_not_followed() {
        let mut classes = Classes::new(Duration::from_mins(1));
        assert!(classes.hit(BlockKey::from_raw(1), 0).is_none());
    }
}
