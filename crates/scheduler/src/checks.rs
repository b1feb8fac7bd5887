//! Predictions compared with what engines really did.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use lmetric_prefix::{BlockKey, PrefixIndex};

use crate::{EndpointId, Time, endpoint::Fleet};

/// Checks kept until somebody takes them.
const MOST: usize = 4_096;
/// How long an event may come after the end of its request.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// A prediction checked when it could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitCheck {
    /// Predicted hit tokens.
    pub predicted: u64,
    /// What the engine really hit.
    pub real: u64,
}

/// Whether the keys that we computed for a request showed up among those that its engine stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenCheck {
    /// Tokenizer group of the endpoint.
    pub group: Arc<str>,
    /// False: a mismatch (as from a wrong chat template).
    pub matched: bool,
}

/// A request that ended without an own event although it should have had one.
#[derive(Debug)]
struct Doubt {
    until: Time,
    endpoint: EndpointId,
    key: BlockKey,
}

#[derive(Debug, Default)]
pub(crate) struct Checks {
    hits: VecDeque<HitCheck>,
    tokens: VecDeque<TokenCheck>,
    doubts: VecDeque<Doubt>,
    pub(crate) mismatches: u64,
}

impl Checks {
    pub(crate) fn hit(&mut self, check: HitCheck) {
        push(&mut self.hits, check);
    }

    pub(crate) fn matched(&mut self, group: &Arc<str>) {
        let group = Arc::clone(group);
        push(&mut self.tokens, TokenCheck { group, matched: true });
    }

    /// `key` should be held by `endpoint`; an event may still be on its way until then.
    pub(crate) fn doubt(&mut self, endpoint: EndpointId, key: BlockKey, until: Time) {
        let doubt = Doubt { until, endpoint, key };
        push(&mut self.doubts, doubt);
    }

    pub(crate) fn has_due(&self, now: Time) -> bool {
        self.doubts.front().is_some_and(|doubt| doubt.until <= now)
    }

    /// Decides the doubts whose time is over.
    pub(crate) fn settle(&mut self, fleet: &Fleet, index: &PrefixIndex, now: Time) {
        while self.has_due(now) {
            let Some(Doubt { endpoint, key, .. }) = self.doubts.pop_front() else {
                return;
            };
            // a source that went away or lost events says nothing
            let Some(found) = fleet
                .at(endpoint.slot)
                .filter(|found| found.id == endpoint && found.live)
            else {
                continue;
            };
            let matched = index.holds(endpoint.slot, key);
            self.mismatches += u64::from(!matched);
            let group = Arc::clone(&found.spec.group);
            push(&mut self.tokens, TokenCheck { group, matched });
        }
    }

    pub(crate) fn take_hits(&mut self) -> Vec<HitCheck> {
        self.hits.drain(..).collect()
    }

    pub(crate) fn take_tokens(&mut self) -> Vec<TokenCheck> {
        self.tokens.drain(..).collect()
    }
}

fn push<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() == MOST {
        queue.pop_front();
    }
    queue.push_back(item);
}
