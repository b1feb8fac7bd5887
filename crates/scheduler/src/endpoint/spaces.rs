//! Key spaces (tokenizer group × block size), numbered, so that a pick compares numbers instead of names.

use std::sync::Arc;

use super::Fleet;
use crate::SpaceSpec;

/// Number of a [`SpaceSpec`]; never given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpaceId(u16);

/// Distinct spaces that a request's keys are computed for; endpoints of further ones count by load only.
const MOST: usize = 4;

/// Every space ever seen: one entry for each group and block size, so a handful.
#[derive(Debug, Default)]
pub(crate) struct Spaces(Vec<SpaceSpec>);

impl Spaces {
    /// The number of `spec`, new or known. `None` after 65,536 distinct ones.
    pub(crate) fn intern(&mut self, spec: SpaceSpec) -> Option<SpaceId> {
        if let Some(known) = self.find(&spec) {
            return Some(known);
        }
        let id = u16::try_from(self.0.len()).ok()?;
        self.0.push(spec);
        Some(SpaceId(id))
    }

    /// The number of `spec`, if any endpoint ever had it. O(spaces).
    pub(crate) fn find(&self, spec: &SpaceSpec) -> Option<SpaceId> {
        self.0
            .iter()
            .position(|known| known == spec)
            .map(|at| SpaceId(at as u16))
    }

    /// The spaces of `fleet`, those of most endpoints first, at most four.
    pub(crate) fn in_use(&self, fleet: &Fleet) -> Arc<[SpaceSpec]> {
        let mut count = vec![0_usize; self.0.len()];
        for space in fleet.iter().filter_map(|endpoint| endpoint.space) {
            count[usize::from(space.0)] += 1;
        }
        let mut used: Vec<usize> = (0..count.len()).filter(|at| count[*at] > 0).collect();
        used.sort_by_key(|at| std::cmp::Reverse(count[*at]));
        used.truncate(MOST);
        used.into_iter().map(|at| self.0[at].clone()).collect()
    }
}
