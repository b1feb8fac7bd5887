//! The last decisions, for `/debug/decisions` and `lmetric explain`.
//!
//! A ring whose entries keep their memory: recording a pick copies numbers and allocates nothing once the ring is full.
//! 1,000 decisions of 65 candidates each are less than 8 MiB.

use std::{borrow::Cow, cmp::Ordering, collections::VecDeque, net::SocketAddr};

use serde::{Deserialize, Deserializer, Serialize};

use crate::{PolicyKind, Time};

/// Candidates kept of one decision, besides the winner.
const BEST: usize = 64;
/// Bytes kept of a request id or a model name.
const TEXT: usize = 256;

/// One candidate as it was seen at a pick.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CandidateView {
    /// Slot, which tells ranks of one address apart.
    #[serde(default)]
    pub slot: u16,
    /// Hit tokens over all prompts.
    pub hit: u32,
    /// Q before this request.
    pub q: u32,
    /// BS before this request, foreign load included.
    pub bs: u32,
    /// The policy's score; smaller is better. Infinity is `null` in JSON.
    #[serde(default = "infinity", deserialize_with = "finite_or_null")]
    pub score: f64,
    /// Removed by the hotspot filter.
    #[serde(default)]
    pub filtered: bool,
}

fn infinity() -> f64 {
    f64::INFINITY
}

fn finite_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
}

/// A finished pick, as `/debug/decisions` writes it and `lmetric explain` reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Request id.
    pub request_id: String,
    /// Model.
    pub model: String,
    /// When, nanoseconds since start.
    #[serde(default)]
    pub at: u64,
    /// Policy.
    pub policy: Cow<'static, str>,
    /// Prompt tokens over all prompts.
    pub tokens: u32,
    /// w.
    pub weight: u32,
    /// Winner's address.
    pub winner: String,
    /// Winner's rank.
    #[serde(default)]
    pub rank: Option<u16>,
    /// How many candidates tied with the winner.
    #[serde(default)]
    pub ties: u32,
    /// Candidates, best first (the 64 best and the winner), each with the address it had.
    pub candidates: Vec<(String, CandidateView)>,
    /// How many candidates there were in all.
    #[serde(default)]
    pub candidate_count: u32,
    /// Hotspot class whose holders were filtered out, if any.
    #[serde(default)]
    pub filtered_class: Option<u64>,
}

impl Decision {
    /// P-token of a candidate: what its engine would prefill before this request's first token, `Q + max(w, L − hit)`.
    pub fn p_tokens(&self, candidate: &CandidateView) -> u64 {
        let uncached = self.tokens.saturating_sub(candidate.hit).max(self.weight);
        u64::from(candidate.q) + u64::from(uncached)
    }

    /// Batch size with this request, `BS + w`.
    pub fn batch(&self, candidate: &CandidateView) -> u64 {
        u64::from(candidate.bs) + u64::from(self.weight)
    }

    /// The winner among the candidates.
    pub fn won(&self) -> Option<&CandidateView> {
        self.candidates
            .iter()
            .find(|(address, _)| *address == self.winner)
            .map(|(_, candidate)| candidate)
    }
}

/// What a pick records.
pub(crate) struct Record<'a> {
    pub(crate) request_id: &'a str,
    pub(crate) model: &'a str,
    pub(crate) at: Time,
    pub(crate) policy: PolicyKind,
    pub(crate) tokens: u64,
    pub(crate) weight: u32,
    /// Place of the winner among the candidates.
    pub(crate) winner: usize,
    pub(crate) rank: Option<u16>,
    pub(crate) ties: u32,
    pub(crate) class: Option<u64>,
}

#[derive(Debug)]
struct Entry {
    request_id: String,
    model: String,
    at: Time,
    policy: PolicyKind,
    tokens: u32,
    weight: u32,
    winner: SocketAddr,
    rank: Option<u16>,
    ties: u32,
    candidates: Vec<(SocketAddr, CandidateView)>,
    count: u32,
    class: Option<u64>,
}

/// The last decisions, oldest first.
#[derive(Debug)]
pub(crate) struct DecisionRing {
    entries: VecDeque<Entry>,
    most: usize,
    /// Places of the candidates to keep.
    order: Vec<u32>,
}

impl DecisionRing {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            most,
            order: Vec::new(),
        }
    }

    pub(crate) fn resize(&mut self, most: usize) {
        self.most = most;
        while self.entries.len() > most {
            self.entries.pop_front();
        }
    }

    /// Records a choice among `count` candidates: `rank` says of a place how it compares (filtered, score), `view` how it looked.
    /// Only the candidates that are kept are viewed. O(candidates).
    pub(crate) fn record(
        &mut self,
        record: &Record<'_>,
        count: usize,
        rank: impl Fn(usize) -> (bool, f64),
        view: impl Fn(usize) -> (SocketAddr, CandidateView),
    ) {
        if self.most == 0 || record.winner >= count {
            return;
        }
        let Record {
            request_id,
            model,
            at,
            policy,
            tokens,
            weight,
            winner,
            rank: winner_rank,
            ties,
            class,
        } = *record;
        let (winner_address, _) = view(winner);
        let mut entry = if self.entries.len() >= self.most {
            self.entries.pop_front()
        } else {
            None
        }
        .unwrap_or_else(|| Entry {
            request_id: String::new(),
            model: String::new(),
            at,
            policy,
            tokens: 0,
            weight,
            winner: winner_address,
            rank: winner_rank,
            ties,
            candidates: Vec::new(),
            count: 0,
            class,
        });
        replace_text(&mut entry.request_id, request_id);
        replace_text(&mut entry.model, model);
        entry.at = at;
        entry.policy = policy;
        entry.tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        entry.weight = weight;
        entry.winner = winner_address;
        entry.rank = winner_rank;
        entry.ties = ties;
        entry.class = class;
        entry.count = count as u32;
        entry.candidates.clear();
        if count <= BEST {
            entry.candidates.extend((0..count).map(view));
        } else {
            self.choose_best(count, winner, rank);
            entry
                .candidates
                .extend(self.order.iter().map(|at| view(*at as usize)));
        }
        self.entries.push_back(entry);
    }

    /// Leaves the places of the best and of the winner in `order`, ascending.
    fn choose_best(&mut self, count: usize, winner: usize, rank: impl Fn(usize) -> (bool, f64)) {
        self.order.clear();
        self.order.extend(0..count as u32);
        self.order.select_nth_unstable_by(BEST, |left, right| {
            better(rank(*left as usize), rank(*right as usize))
        });
        self.order.truncate(BEST);
        if !self.order.contains(&(winner as u32)) {
            self.order.push(winner as u32);
        }
        self.order.sort_unstable();
    }

    /// The latest `most`, newest first, the candidates of each best first.
    pub(crate) fn latest(&self, most: usize) -> Vec<Decision> {
        self.entries.iter().rev().take(most).map(Entry::show).collect()
    }
}

impl Entry {
    fn show(&self) -> Decision {
        let mut candidates: Vec<(String, CandidateView)> = self
            .candidates
            .iter()
            .map(|(address, view)| (address.to_string(), *view))
            .collect();
        candidates.sort_by(|(_, left), (_, right)| {
            better((left.filtered, left.score), (right.filtered, right.score))
        });
        Decision {
            request_id: self.request_id.clone(),
            model: self.model.clone(),
            at: self.at.0,
            policy: Cow::Borrowed(self.policy.name()),
            tokens: self.tokens,
            weight: self.weight,
            winner: self.winner.to_string(),
            rank: self.rank,
            ties: self.ties,
            candidates,
            candidate_count: self.count,
            filtered_class: self.class,
        }
    }
}

/// Compares (filtered, score): candidates that were filtered out come after those that were not.
fn better(left: (bool, f64), right: (bool, f64)) -> Ordering {
    left.0.cmp(&right.0).then(left.1.total_cmp(&right.1))
}

fn replace_text(text: &mut String, new: &str) {
    text.clear();
    text.push_str(&new[..new.floor_char_boundary(TEXT)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(request_id: &str, winner: usize) -> Record<'_> {
        Record {
            request_id,
            model: "m",
            at: Time(5),
            policy: PolicyKind::LMETRIC,
            tokens: 10,
            weight: 1,
            winner,
            rank: None,
            ties: 1,
            class: None,
        }
    }

    fn put(ring: &mut DecisionRing, request_id: &str, winner: usize, scores: &[f64]) {
        let view = |at: usize| {
            let view = CandidateView {
                slot: at as u16,
                hit: 0,
                q: 0,
                bs: 0,
                score: scores[at],
                filtered: false,
            };
            (SocketAddr::from(([10, 0, 0, 1], at as u16)), view)
        };
        ring.record(
            &record(request_id, winner),
            scores.len(),
            |at| (false, scores[at]),
            view,
        );
    }

    #[test]
    fn the_newest_come_first_and_the_oldest_go() {
        let mut ring = DecisionRing::new(2);
        for id in ["a", "b", "c"] {
            put(&mut ring, id, 0, &[3.0, 1.0, 2.0]);
        }
        let shown = ring.latest(9);
        let ids: Vec<&str> = shown.iter().map(|one| one.request_id.as_str()).collect();
        assert_eq!(ids, ["c", "b"]);
        let order: Vec<u16> = shown[0].candidates.iter().map(|(_, view)| view.slot).collect();
        assert_eq!(order, [1, 2, 0]);
    }

    #[test]
    fn the_64_best_and_the_winner_are_kept_of_many() {
        let scores: Vec<f64> = (0..500).map(|at| f64::from((at * 7919) % 500)).collect();
        let worst = scores.iter().position(|score| *score == 499.0).unwrap();
        let mut ring = DecisionRing::new(4);
        put(&mut ring, "a", worst, &scores);
        let shown = &ring.latest(1)[0];
        let kept: Vec<f64> = shown.candidates.iter().map(|(_, view)| view.score).collect();
        let expected: Vec<f64> = (0..64).map(f64::from).chain([499.0]).collect();
        assert_eq!(kept, expected);
        assert_eq!(shown.candidate_count, 500);
        let (address, view) = &shown.candidates[0];
        assert_eq!(address.rsplit_once(':').unwrap().1, view.slot.to_string());
    }

    #[test]
    fn whatever_the_order_the_64_best_are_those_of_a_sort() {
        let ordered = |count: usize, step: usize| -> Vec<f64> {
            (0..count).map(|at| ((at * step) % count / 3) as f64).collect()
        };
        for (count, step) in [
            (65, 1),
            (66, 65),
            (127, 7),
            (128, 1),
            (129, 128),
            (193, 192),
            (1_000, 1),
            (1_000, 999),
            (1_000, 389),
        ] {
            let scores = ordered(count, step);
            let mut ring = DecisionRing::new(1);
            let best = (0..count)
                .min_by(|a, b| scores[*a].total_cmp(&scores[*b]))
                .unwrap();
            put(&mut ring, "a", best, &scores);
            let kept: Vec<f64> = ring.latest(1)[0]
                .candidates
                .iter()
                .map(|(_, view)| view.score)
                .collect();
            let mut sorted = scores.clone();
            sorted.sort_by(f64::total_cmp);
            assert_eq!(kept, &sorted[..kept.len()], "{count} by {step}");
            assert_eq!(kept.len(), 64, "{count} by {step}");
        }
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let mut ring = DecisionRing::new(1);
        put(&mut ring, &"ü".repeat(4_000), 0, &[1.0]);
        assert_eq!(ring.latest(1)[0].request_id, "ü".repeat(128));
    }

    #[test]
    fn a_full_ring_of_wide_decisions_is_less_than_8_mib() {
        let one = size_of::<Entry>() + (BEST * 8) * size_of::<(SocketAddr, CandidateView)>() / 7 + 2 * TEXT;
        assert!(1_000 * one < 8 << 20, "{one} bytes each");
    }
}
