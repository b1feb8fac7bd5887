//! The picker's decisions as `/debug/decisions` writes them (`lmetric_scheduler::Decision`).

use serde::Deserialize;

/// What the admin endpoint answers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Decisions {
    /// The picker's clock, nanoseconds since it began.
    #[serde(default)]
    pub now: Option<u64>,
    /// Newest first.
    pub decisions: Vec<Decision>,
}

/// One pick.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Decision {
    /// Request id.
    pub request_id: String,
    /// Model asked for.
    pub model: String,
    /// When, on the picker's clock.
    #[serde(default)]
    pub at: u64,
    /// Policy.
    pub policy: String,
    /// Prompt tokens over all prompts.
    pub tokens: u64,
    /// Engine requests that this HTTP request becomes.
    pub weight: u64,
    /// Winner's address.
    pub winner: String,
    /// Winner's data-parallel rank.
    #[serde(default)]
    pub rank: Option<u16>,
    /// Candidates that tied with the winner.
    #[serde(default)]
    pub ties: u64,
    /// Candidates with their addresses, best first.
    pub candidates: Vec<(String, Candidate)>,
    /// How many there were in all.
    #[serde(default)]
    pub candidate_count: u64,
    /// Hotspot class whose holders were filtered out.
    #[serde(default)]
    pub filtered_class: Option<u64>,
}

/// One candidate as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Candidate {
    /// The endpoint's slot, which tells ranks of one address apart.
    #[serde(default)]
    pub slot: u16,
    /// Hit tokens.
    pub hit: u64,
    /// Q before this request.
    pub q: u64,
    /// BS before this request.
    pub bs: u64,
    /// The policy's score; JSON has no infinity, so `null` is one.
    #[serde(default)]
    pub score: Option<f64>,
    /// Removed by the hotspot filter.
    #[serde(default)]
    pub filtered: bool,
}

impl Decision {
    /// P-token of a candidate: what its engine would prefill before this request's first token,
    /// `Q + max(w, L − hit)`.
    pub fn p_tokens(&self, candidate: &Candidate) -> u64 {
        candidate.q + self.tokens.saturating_sub(candidate.hit).max(self.weight)
    }

    /// Batch size with this request, `BS + w`.
    pub const fn batch(&self, candidate: &Candidate) -> u64 {
        candidate.bs + self.weight
    }

    /// The winner among the candidates.
    pub fn won(&self) -> Option<&Candidate> {
        self.candidates
            .iter()
            .find(|(address, _)| *address == self.winner)
            .map(|(_, candidate)| candidate)
    }
}
