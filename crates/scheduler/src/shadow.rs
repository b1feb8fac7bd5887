//! A second policy beside the live one: it scores every pick over the same candidates and features, reserves nothing and changes
//! nothing.
//!
//! It has its own state, detector and random numbers, so that the live picks are the same with and without it. What it
//! sees is the fleet as the live policy loads it: caches and queues are those that the live picks made.

use std::net::SocketAddr;

use lmetric_prefix::SourceId;
use rand::{SeedableRng, rngs::SmallRng};
use serde::{Deserialize, Serialize};

use crate::{
    EndpointId, HotspotAction, PickRequest, SchedulerConfig, Time,
    endpoint::{Endpoint, Fleet},
    hotspot::Detector,
    pick::{arrival, heat},
    policy::{self, Asked, Candidate, Policy, Queued, View, draw},
};

/// Of its random numbers: the shadow draws alike in every process.
const SEED: u64 = 0x5ad0;

/// What one of the two policies came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Requests that it chose an endpoint for.
    pub picks: u64,
    /// Prompt tokens that were not held where it chose, as predicted at the pick.
    pub prefill_tokens: u64,
}

/// One endpoint under both policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShadowEndpoint {
    /// `ip:port`.
    pub address: SocketAddr,
    /// Rank.
    pub rank: Option<u16>,
    /// By the live policy.
    pub live: Side,
    /// By the shadow.
    pub shadow: Side,
}

/// The shadow beside the live policy since it was configured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShadowView {
    /// The live policy, with parameters that differ from its source's.
    pub live_policy: String,
    /// The shadow.
    pub shadow_policy: String,
    /// Requests that both chose for.
    pub picks: u64,
    /// Of these, those where they chose the same endpoint.
    pub agreed: u64,
    /// Prompt tokens of all these requests.
    pub prompt_tokens: u64,
    /// All picks by the live policy.
    pub live: Side,
    /// All by the shadow.
    pub shadow: Side,
    /// Coefficient of variation of picks over the endpoints of now, live policy.
    pub live_spread: f64,
    /// The same for the shadow.
    pub shadow_spread: f64,
    /// The endpoints of now, in the order of their slots.
    pub endpoints: Vec<ShadowEndpoint>,
}

/// A pick, after the live choice.
pub(crate) struct Seen<'a> {
    pub(crate) request: &'a PickRequest<'a>,
    pub(crate) asked: &'a Asked<'a>,
    pub(crate) backlog: &'a [Queued],
    pub(crate) held: &'a [u64],
    pub(crate) action: HotspotAction,
    pub(crate) now: Time,
    /// Place of the live choice among the candidates.
    pub(crate) winner: usize,
}

/// Picks of both by endpoint; void for another endpoint that has the slot later.
#[derive(Clone, Copy, Debug, Default)]
struct Sides {
    live: Side,
    shadow: Side,
}

pub(crate) struct Shadow {
    live_name: String,
    own_name: String,
    policy: Box<dyn Policy>,
    detector: Detector,
    rng: SmallRng,
    scores: Vec<f64>,
    filtered: Vec<bool>,
    total: Sides,
    agreed: u64,
    prompt_tokens: u64,
    by_slot: Vec<Sides>,
}

impl Side {
    fn add(&mut self, tokens: u64) {
        self.picks += 1;
        self.prefill_tokens += tokens;
    }
}

impl Shadow {
    /// The one that `config` asks for, with nothing seen yet.
    pub(crate) fn of(config: &SchedulerConfig) -> Option<Self> {
        let shadow = config.shadow.as_ref()?;
        let alone = SchedulerConfig {
            policy: shadow.policy,
            engine: shadow.engine.clone(),
            ..config.clone()
        };
        Some(Self {
            live_name: config.policy.to_string(),
            own_name: shadow.policy.to_string(),
            policy: policy::build(&alone),
            detector: Detector::new(config.pace()),
            rng: SmallRng::seed_from_u64(SEED),
            scores: Vec::new(),
            filtered: Vec::new(),
            total: Sides::default(),
            agreed: 0,
            prompt_tokens: 0,
            by_slot: Vec::new(),
        })
    }

    pub(crate) fn wants_backlog(&self) -> bool {
        self.policy.wants_backlog()
    }

    /// Lets go of what its detector needs no longer.
    pub(crate) fn advance(&mut self, now: Time) {
        self.detector.advance(now);
    }

    /// Chooses for itself and counts both choices. As much work as the policy's own.
    pub(crate) fn see(&mut self, seen: &Seen<'_>, candidates: &[Candidate]) {
        let live = candidates[seen.winner];
        let tokens = seen.asked.tokens;
        let uncached = |candidate: &Candidate| tokens.saturating_sub(candidate.hit);
        let live_tokens = uncached(&live);

        self.score(seen, candidates);
        self.filtered.clear();
        self.filtered.resize(candidates.len(), false);
        let mut load_only = false;
        if seen.action != HotspotAction::Off
            && self.policy.is_guarded()
            && let Some(arrival) = arrival(seen.request, seen.held, &self.scores)
        {
            let heat = heat(
                &mut self.detector,
                seen.action,
                &arrival,
                seen.now,
                &mut self.filtered,
            );
            // its alarms are nobody's: the fleet is not placed by it
            self.detector.take_notes();
            load_only = heat.is_some_and(|heat| heat.load_only);
        }
        let mut choice = draw(&self.scores, |at| !self.filtered[at], &mut self.rng);
        if load_only {
            let mut blind: Vec<Candidate> = candidates.to_vec();
            for candidate in &mut blind {
                candidate.hit = 0;
            }
            self.score(seen, &blind);
            choice = draw(&self.scores, |_| true, &mut self.rng);
        }
        let Some((winner, _)) = choice else {
            return;
        };
        let view = View {
            asked: seen.asked,
            candidates,
            backlog: seen.backlog,
        };
        self.policy.chosen(&view, winner);
        let chosen = candidates[winner];
        self.agreed += u64::from(winner == seen.winner);
        self.prompt_tokens += tokens;
        self.total.live.add(live_tokens);
        self.total.shadow.add(uncached(&chosen));
        self.of_slot(live.slot).live.add(live_tokens);
        self.of_slot(chosen.slot).shadow.add(uncached(&chosen));
    }

    fn score(&mut self, seen: &Seen<'_>, candidates: &[Candidate]) {
        self.scores.clear();
        let view = View {
            asked: seen.asked,
            candidates,
            backlog: seen.backlog,
        };
        self.policy.score(&view, &mut self.scores, &mut self.rng);
    }

    fn of_slot(&mut self, slot: SourceId) -> &mut Sides {
        let at = usize::from(slot.0);
        if self.by_slot.len() <= at {
            self.by_slot.resize(at + 1, Sides::default());
        }
        &mut self.by_slot[at]
    }

    /// The endpoint is gone: another one will have its slot.
    pub(crate) fn forget(&mut self, id: EndpointId) {
        if let Some(sides) = self.by_slot.get_mut(usize::from(id.slot.0)) {
            *sides = Sides::default();
        }
    }

    /// O(endpoints).
    pub(crate) fn view(&self, fleet: &Fleet) -> ShadowView {
        let one = |endpoint: &Endpoint| {
            let at = usize::from(endpoint.id.slot.0);
            let Sides { live, shadow } = self.by_slot.get(at).copied().unwrap_or_default();
            ShadowEndpoint {
                address: endpoint.spec.address,
                rank: endpoint.spec.rank,
                live,
                shadow,
            }
        };
        let endpoints: Vec<ShadowEndpoint> = fleet.iter().map(one).collect();
        let Sides { live, shadow } = self.total;
        ShadowView {
            live_policy: self.live_name.clone(),
            shadow_policy: self.own_name.clone(),
            picks: live.picks,
            agreed: self.agreed,
            prompt_tokens: self.prompt_tokens,
            live,
            shadow,
            live_spread: spread(endpoints.iter().map(|endpoint| endpoint.live.picks)),
            shadow_spread: spread(endpoints.iter().map(|endpoint| endpoint.shadow.picks)),
            endpoints,
        }
    }
}

/// Coefficient of variation: standard deviation ÷ mean; 0 without any pick.
fn spread(picks: impl Iterator<Item = u64>) -> f64 {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for picks in picks {
        let picks = picks as f64;
        count += 1.0;
        sum += picks;
        squares += picks * picks;
    }
    if sum == 0.0 {
        return 0.0;
    }
    let mean = sum / count;
    (squares / count - mean * mean).max(0.0).sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_the_coefficient_of_variation() {
        assert_eq!(spread([].into_iter()), 0.0);
        assert_eq!(spread([0, 0].into_iter()), 0.0);
        assert_eq!(spread([5, 5, 5].into_iter()), 0.0);
        // mean 2, deviation 2
        assert_eq!(spread([0, 4].into_iter()), 1.0);
    }
}
