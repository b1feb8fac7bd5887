//! Policies: each one a pure function of the request, the candidates and its own state, that gives every candidate a score.
//!
//! The smallest score wins and equal ones are drawn uniformly at random, for all of them alike; a policy that draws or
//! ranks for itself says so with its scores. The names and parameters are `lmetric-policy`'s; what they mean is here, one
//! file each, with the source and the formula. No policy allocates once its buffers have grown.

mod aibrix;
mod bailian;
mod dynamo;
mod forecast;
mod least_request;
mod llm_d;
mod llm_d_ttft;
mod lmetric;
mod lmetric_marginal;
mod polyserve;
mod power_of_two;
mod preble;
mod prefix_affinity;
mod random;
mod round_robin;
mod session_affinity;
#[cfg(test)]
mod tests;
mod vllm;

use forecast::Forecast;
use lmetric_policy::{Aibrix, Bailian, LlmDTtft, PolyServe};
use lmetric_prefix::{BlockKey, SourceId};
use rand::RngCore;

use crate::{PolicyKind, SchedulerConfig, endpoint::KvUse};

/// What a policy may know of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// Engine requests that it becomes, at least 1.
    pub(crate) weight: u32,
    /// L over its distinct prompts.
    pub(crate) tokens: u64,
    /// Keys of its (first) prompt.
    pub(crate) keys: &'a [BlockKey],
    /// Tokens per block of `keys`.
    pub(crate) block_tokens: u32,
    /// Hash of its session.
    pub(crate) session: Option<u64>,
    /// Now, in seconds of model time.
    pub(crate) seconds: f64,
}

/// What a policy may know of an endpoint; foreign load is included, but for `resident`, `pairs` and the backlog.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) slot: SourceId,
    /// Hash of its address and rank.
    pub(crate) identity: u64,
    /// Hit tokens over the request's prompts, capped at what an engine would hit.
    pub(crate) hit: u64,
    /// Q.
    pub(crate) queued: u64,
    /// BS.
    pub(crate) batch: u64,
    /// The part of BS with no own event and no output yet.
    pub(crate) waiting: u64,
    /// The part of BS whose prefill is not over.
    pub(crate) prefilling: u64,
    /// Prompt tokens of the requests in BS.
    pub(crate) resident: u64,
    /// Twice the pairs of tokens that the attention of Q has to see.
    pub(crate) pairs: u64,
    /// Tokens that its KV cache takes.
    pub(crate) kv_tokens: Option<u64>,
    /// What of it is taken, by the last scrape.
    pub(crate) kv_use: Option<KvUse>,
    /// Its part of the backlog.
    pub(crate) backlog: (u32, u32),
}

impl Candidate {
    /// Share of the KV cache that requests use, as the last scrape had it; before the first one, what prompts in flight
    /// would take. 0 while its size is unknown.
    fn kv_share(&self) -> f64 {
        let room = self.kv_tokens.filter(|room| *room > 0);
        let used = self.kv_use.map_or(self.resident, |kv_use| kv_use.used);
        room.map_or(0.0, |room| (used as f64 / room as f64).min(1.0))
    }

    /// Tokens of the KV cache that are taken once what is pledged is computed; `None` while no scrape has told.
    fn kv_taken(&self) -> Option<u64> {
        self.kv_use.map(|kv_use| kv_use.used + kv_use.pledged)
    }
}

/// A request whose prefill is not over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    /// Its Q.
    pub(crate) left: u32,
    /// Its L.
    pub(crate) tokens: u32,
}

/// What a policy sees at a pick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) asked: &'a Asked<'a>,
    pub(crate) candidates: &'a [Candidate],
    /// Oldest first for each candidate; empty unless the policy wants it.
    pub(crate) backlog: &'a [Queued],
}

impl View<'_> {
    /// `max(w, Σ(L − hit))`.
    fn new_tokens(&self, candidate: &Candidate) -> u64 {
        let weight = u64::from(self.asked.weight);
        self.asked.tokens.saturating_sub(candidate.hit).max(weight)
    }

    /// Share of the prompt that is held.
    fn hit_ratio(&self, candidate: &Candidate) -> f64 {
        candidate.hit as f64 / self.asked.tokens.max(1) as f64
    }

    fn most(&self, figure: impl Fn(&Candidate) -> u64) -> u64 {
        self.candidates.iter().map(figure).max().unwrap_or(0)
    }

    fn least(&self, figure: impl Fn(&Candidate) -> u64) -> u64 {
        self.candidates.iter().map(figure).min().unwrap_or(0)
    }

    fn backlog(&self, candidate: &Candidate) -> &[Queued] {
        let (from, to) = candidate.backlog;
        self.backlog.get(from as usize..to as usize).unwrap_or(&[])
    }
}

/// One way to place requests.
pub(crate) trait Policy: Send {
    /// Appends one score for each candidate, in their order.
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, rng: &mut dyn RngCore);

    /// Who won; called once for each pick.
    fn chosen(&mut self, view: &View<'_>, winner: usize) {
        let _ = (view, winner);
    }

    /// Whether the hotspot detector watches over it: its comparison is one of LMetric's scores.
    fn is_guarded(&self) -> bool {
        false
    }

    /// Whether it looks at the requests in each queue.
    fn wants_backlog(&self) -> bool {
        false
    }
}

/// A policy in its first state.
pub(crate) fn build(config: &SchedulerConfig) -> Box<dyn Policy> {
    let forecast = || Forecast::new(config.engine.clone());
    match config.policy {
        PolicyKind::Lmetric(own) => Box::new(lmetric::Lmetric(own)),
        PolicyKind::LmetricMarginal(own) => {
            Box::new(lmetric_marginal::Marginal::new(own, config.engine.as_ref()))
        }
        PolicyKind::Vllm => Box::new(vllm::Vllm),
        PolicyKind::Bailian(Bailian { lambda }) => Box::new(bailian::Bailian { lambda }),
        PolicyKind::Dynamo(own) => Box::new(dynamo::Dynamo(own)),
        PolicyKind::LlmD(own) => Box::new(llm_d::LlmD(own)),
        PolicyKind::LlmDTtft(LlmDTtft { error, .. }) => Box::new(llm_d_ttft::LlmDTtft {
            forecast: forecast(),
            error,
        }),
        PolicyKind::Aibrix(Aibrix { range, deviations }) => Box::new(aibrix::Aibrix {
            range: u64::from(range),
            deviations,
        }),
        PolicyKind::Preble(own) => Box::new(preble::Preble::new(own)),
        PolicyKind::PolyServe(PolyServe { ttft, tpot, .. }) => Box::new(polyserve::PolyServe {
            forecast: forecast(),
            ttft,
            tpot,
        }),
        PolicyKind::RoundRobin => Box::new(round_robin::RoundRobin::default()),
        PolicyKind::Random => Box::new(random::Random),
        PolicyKind::LeastRequest => Box::new(least_request::LeastRequest),
        PolicyKind::PowerOfTwo => Box::new(power_of_two::PowerOfTwo),
        PolicyKind::SessionAffinity => Box::new(session_affinity::SessionAffinity),
        PolicyKind::PrefixAffinity(own) => Box::new(prefix_affinity::PrefixAffinity(own)),
    }
}

/// The best of `scores` among those that `allowed` lets through, drawn uniformly from equal ones: (position, how many tied).
pub(crate) fn draw(
    scores: &[f64],
    allowed: impl Fn(usize) -> bool,
    rng: &mut dyn RngCore,
) -> Option<(usize, u32)> {
    let mut best: Option<(usize, u32)> = None;
    for (at, score) in scores.iter().enumerate().filter(|(at, _)| allowed(*at)) {
        best = match best {
            Some((leader, ties)) if *score == scores[leader] => {
                let ties = ties + 1;
                let takes = below(rng, ties) == 0;
                Some((if takes { at } else { leader }, ties))
            }
            Some((leader, ties)) if scores[leader] <= *score || score.is_nan() => Some((leader, ties)),
            _ => Some((at, 1)),
        };
    }
    best
}

/// A number below `bound`, its bias less than 2⁻³² · bound.
fn below(rng: &mut dyn RngCore, bound: u32) -> u32 {
    ((u64::from(rng.next_u32()) * u64::from(bound)) >> 32) as u32
}

/// A number between 0 and 1, neither included.
fn unit(rng: &mut dyn RngCore) -> f64 {
    (f64::from(rng.next_u32()) + 0.5) / 4_294_967_296.0
}
