//! Baselines as a person would tune them: the best of what was swept on the same requests, figure by figure.
//!
//! A baseline is any policy that is not this project's. Its settings are its source's parameters and every value of a sweep at the
//! same rate. The best is taken for each figure by itself, so that no single setting need reach all of them: ratios against it
//! are the least that can be said.

use super::groups::{Figure, Group, groups, is_plain};
use crate::simulate::{Share, Study};

/// A policy with several settings.
pub(super) struct Tuned<'a> {
    /// Its name.
    pub(super) policy: &'static str,
    settings: Vec<Group<'a>>,
}

impl<'a> Tuned<'a> {
    /// Settings that were tried, the source's among them.
    pub(super) fn tried(&self) -> usize {
        self.settings.len()
    }

    /// The smallest value of a figure, and the setting that reaches it.
    pub(super) fn best(&self, figure: Figure) -> (f64, &'a str) {
        let all = self
            .settings
            .iter()
            .map(|group| (group.mean(figure), group.label()));
        let least = all.min_by(|one, other| one.0.total_cmp(&other.0));
        least.unwrap_or((f64::NAN, ""))
    }
}

/// Every baseline that was swept at `rate`, in the order of the study.
pub(super) fn tuned(study: &Study, rate: f64) -> Vec<Tuned<'_>> {
    let all = groups(study, |cell| {
        cell.rate_scale == rate
            && cell.share == Share::Whole
            && !cell.policy.name().starts_with("lmetric")
            && (cell.sweep.is_some() || (is_plain(cell) && cell.policy.changes().is_empty()))
    });
    let mut found: Vec<Tuned<'_>> = Vec::new();
    for group in all {
        let policy = group.first().policy.name();
        match found.iter_mut().find(|tuned| tuned.policy == policy) {
            // a value of the sweep may be the source's own
            Some(tuned) if tuned.settings.iter().any(|known| known.label() == group.label()) => {}
            Some(tuned) => tuned.settings.push(group),
            None => found.push(Tuned {
                policy,
                settings: vec![group],
            }),
        }
    }
    found.retain(|tuned| tuned.settings.len() > 1);
    found
}
