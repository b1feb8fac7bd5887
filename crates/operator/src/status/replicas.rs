//! Whether enough engines serve, and whether a rollout moves.

use lmetric_api::pool::{IntOrString, RolloutStrategy, reason};

use super::{
    Verdict,
    conditions::{Draft, FALSE, Said, TRUE},
    engines::is_stuck,
};
use crate::rollout;

impl Draft<'_> {
    pub(super) fn available(&self) -> Said {
        let spec = &self.facts.pool.spec;
        if spec.replicas == 0 {
            return (
                FALSE,
                reason::SCALED_TO_ZERO,
                "spec.replicas is 0; raise it to serve".to_owned(),
            );
        }
        let may_lack = match spec.rollout.strategy {
            RolloutStrategy::Auto => 1,
            RolloutStrategy::RollingUpdate => amount(&spec.rollout.unavailable(), spec.replicas),
            RolloutStrategy::Recreate => 0,
        };
        let needed = (spec.replicas - may_lack).max(1);
        let message = format!(
            "{} engines are available, {needed} are needed",
            self.engines.available
        );
        if self.engines.available >= needed {
            return (TRUE, reason::AS_EXPECTED, message);
        }
        match self.engines.findings.first() {
            Some(finding) => (FALSE, finding.reason, format!("{message}; {}", finding.message)),
            None => (FALSE, reason::STARTING, message),
        }
    }

    pub(super) fn progressing(&self) -> Said {
        let spec = &self.facts.pool.spec;
        let Some(running) = self.running else {
            return match self.verdict {
                Verdict::Unbuildable(words) => (FALSE, reason::INVALID_SPEC, words.to_owned()),
                Verdict::Applied(_) => (TRUE, reason::ROLLING_OUT, "engines are being made".to_owned()),
            };
        };
        if rollout::is_complete(running) && self.engines.existing == spec.replicas {
            let message = if self.engines.draining > 0 {
                format!(
                    "every engine is current; {} finish their requests",
                    self.engines.draining
                )
            } else {
                "every engine is current".to_owned()
            };
            return (FALSE, reason::COMPLETE, message);
        }
        if spec.rollout.paused {
            let message =
                "changes wait because spec.rollout.paused is true; set it to false to go on".to_owned();
            return (FALSE, reason::PAUSED, message);
        }
        if is_stuck(running) {
            let finding = self.engines.findings.first();
            let reason = finding.map_or(reason::START_TIMEOUT, |finding| finding.reason);
            let words = finding.map_or("no engine became ready in time", |finding| {
                finding.message.as_str()
            });
            return (FALSE, reason, format!("the rollout does not move: {words}"));
        }
        let count = format!(
            "{} of {} engines are of the current template, {} of these ready; {} ready in all",
            self.engines.updated, spec.replicas, self.engines.updated_ready, self.engines.ready
        );
        match self
            .engines
            .findings
            .first()
            .filter(|finding| finding.reason == reason::STARTING)
        {
            Some(starting) => (TRUE, reason::STARTING, format!("{count}; {}", starting.message)),
            None => (TRUE, reason::ROLLING_OUT, count),
        }
    }
}

/// A count, or a percentage of `whole` rounded down, as Deployments do for unavailable pods.
fn amount(value: &IntOrString, whole: i32) -> i32 {
    match value {
        IntOrString::Int(count) => *count,
        IntOrString::String(text) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(0);
            whole * percent / 100
        }
    }
}
