//! Policies: each one a pure function of the request, the candidates and its own state, that gives every candidate a score.
//!
//! The smallest score wins and equal ones are drawn uniformly at random, for all of them alike; a policy that draws or
//! ranks for itself says so with its scores.

mod least_request;
mod lmetric;
mod random;
mod round_robin;
mod vllm;

use lmetric_prefix::SourceId;
use rand::RngCore;

use crate::PolicyKind;

/// What a policy may know of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// Engine requests that it becomes, at least 1.
    pub(crate) weight: u32,
    /// L over its distinct prompts.
    pub(crate) tokens: u64,
}

/// What a policy may know of an endpoint; foreign load is included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) slot: SourceId,
    /// Hit tokens over the request's prompts, capped at what an engine would hit.
    pub(crate) hit: u64,
    /// Q.
    pub(crate) queued: u64,
    /// BS.
    pub(crate) batch: u64,
    /// The part of BS with no own event and no output yet.
    pub(crate) waiting: u64,
}

/// One way to place requests.
pub(crate) trait Policy: Send {
    /// Appends one score for each candidate, in their order.
    fn score(
        &mut self,
        asked: &Asked,
        candidates: &[Candidate],
        scores: &mut Vec<f64>,
        rng: &mut dyn RngCore,
    );

    /// The winner; called once for each pick.
    fn chosen(&mut self, winner: &Candidate) {
        let _ = winner;
    }

    /// Whether it follows cached prefixes, so that it can make hotspots.
    fn follows_prefixes(&self) -> bool {
        false
    }
}

/// A policy in its first state.
pub(crate) fn build(kind: PolicyKind) -> Box<dyn Policy> {
    match kind {
        PolicyKind::Lmetric => Box::new(lmetric::Lmetric),
        PolicyKind::Vllm => Box::new(vllm::Vllm),
        PolicyKind::RoundRobin => Box::new(round_robin::RoundRobin::default()),
        PolicyKind::Random => Box::new(random::Random),
        PolicyKind::LeastRequest => Box::new(least_request::LeastRequest),
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

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::SmallRng};

    use super::*;

    fn candidate(slot: u16, hit: u64, queued: u64, batch: u64, waiting: u64) -> Candidate {
        Candidate {
            slot: SourceId(slot),
            hit,
            queued,
            batch,
            waiting,
        }
    }

    fn scores(kind: PolicyKind, asked: Asked, candidates: &[Candidate]) -> Vec<f64> {
        let mut scores = Vec::new();
        let mut rng = SmallRng::seed_from_u64(1);
        build(kind).score(&asked, candidates, &mut scores, &mut rng);
        scores
    }

    fn ask(weight: u32, tokens: u64) -> Asked {
        Asked { weight, tokens }
    }

    #[test]
    fn lmetric_multiplies_the_prefill_to_come_by_the_crowd() {
        let candidates = [
            candidate(0, 0, 0, 0, 0),       // 1000 × 1
            candidate(1, 960, 0, 24, 0),    // 40 × 25: as good as the idle one
            candidate(2, 960, 10, 18, 3),   // (10 + 40) × 19
            candidate(3, 1_000, 500, 1, 0), // nothing new still counts as one token
        ];
        assert_eq!(
            scores(PolicyKind::Lmetric, ask(1, 1_000), &candidates),
            [1_000.0, 1_000.0, 950.0, 1_002.0]
        );
        // four engine requests: (0 + 1000) × (0 + 4); a full hit costs at least four tokens
        assert_eq!(
            scores(PolicyKind::Lmetric, ask(4, 1_000), &candidates)[0],
            4_000.0
        );
        assert_eq!(
            scores(PolicyKind::Lmetric, ask(4, 1_000), &candidates)[3],
            504.0 * 5.0
        );
    }

    #[test]
    fn vllm_counts_a_waiting_request_four_times() {
        let candidates = [
            candidate(0, 999, 0, 10, 0), // 4·0 + 10
            candidate(1, 0, 900, 6, 2),  // 4·2 + 4
            candidate(2, 0, 0, 5, 1),    // 4·1 + 4
        ];
        assert_eq!(
            scores(PolicyKind::Vllm, ask(1, 1_000), &candidates),
            [10.0, 12.0, 8.0]
        );
    }

    #[test]
    fn least_request_looks_at_bs_alone() {
        let candidates = [candidate(0, 999, 0, 3, 0), candidate(1, 0, 9_000, 2, 2)];
        assert_eq!(
            scores(PolicyKind::LeastRequest, ask(1, 1_000), &candidates),
            [3.0, 2.0]
        );
    }

    #[test]
    fn round_robin_takes_every_slot_in_turn_even_when_some_come_and_go() {
        let mut policy = build(PolicyKind::RoundRobin);
        let mut rng = SmallRng::seed_from_u64(1);
        let mut turn = |slots: &[u16]| {
            let candidates: Vec<Candidate> = slots.iter().map(|slot| candidate(*slot, 0, 0, 0, 0)).collect();
            let mut scores = Vec::new();
            policy.score(&ask(1, 1), &candidates, &mut scores, &mut rng);
            let (at, ties) = draw(&scores, |_| true, &mut rng).unwrap();
            assert_eq!(ties, 1);
            policy.chosen(&candidates[at]);
            slots[at]
        };
        assert_eq!([turn(&[0, 3, 7]), turn(&[0, 3, 7]), turn(&[0, 3, 7])], [0, 3, 7]);
        assert_eq!(turn(&[0, 3, 7]), 0);
        assert_eq!(turn(&[0, 5, 7]), 5);
        assert_eq!(turn(&[0, 3]), 0);
    }

    #[test]
    fn random_and_ties_are_uniform_and_the_filter_holds() {
        let candidates: Vec<Candidate> = (0..8).map(|slot| candidate(slot, 0, 0, 0, 0)).collect();
        let scores = scores(PolicyKind::Random, ask(1, 1), &candidates);
        let mut rng = SmallRng::seed_from_u64(7);
        let mut count = [0_u32; 8];
        for _ in 0..8_000 {
            let (at, ties) = draw(&scores, |at| at != 2, &mut rng).unwrap();
            assert_eq!(ties, 7);
            count[at] += 1;
        }
        assert_eq!(count[2], 0);
        let others = count.iter().enumerate().filter(|(at, _)| *at != 2);
        // 8000 / 7 ≈ 1143, standard deviation 31
        assert!(
            others.map(|(_, n)| *n).all(|n| (1_000..1_290).contains(&n)),
            "{count:?}"
        );
        assert_eq!(draw(&scores, |_| false, &mut rng), None);
    }
}
