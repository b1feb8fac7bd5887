//! Why the winner won, in one sentence, for whoever shows a decision to a person.

use crate::{CandidateView, Decision};

/// The reason, without the name of the winner in front.
pub fn reason(decision: &Decision) -> String {
    let Some(won) = decision.won() else {
        return "is not among the candidates that the picker kept, so its reason is not known".to_owned();
    };
    let policy = &*decision.policy;
    let mut clauses = match policy {
        "lmetric" => lmetric(decision, won),
        "vllm" => scored(decision, won, "its 4 × waiting + running"),
        "least-request" => vec![format!("won because it had the fewest requests, {}", won.bs)],
        "round-robin" => vec!["won because it was its turn".to_owned()],
        "random" => vec![format!(
            "won by lot among {}",
            candidates(decision.candidate_count)
        )],
        other => scored(decision, won, &format!("its score by {other}")),
    };
    if decision.ties > 1 && matches!(policy, "lmetric" | "vllm" | "least-request") {
        clauses[0] = format!("{} (drawn by lot from {} that tied)", clauses[0], decision.ties);
    }
    if policy == "lmetric" {
        clauses.extend(best_hit(decision, won));
    }
    if let Some(class) = decision.filtered_class {
        let out = decision
            .candidates
            .iter()
            .filter(|(_, candidate)| candidate.filtered)
            .count();
        let holders = if out == 1 {
            "1 holder of its prefix was".to_owned()
        } else {
            format!("{out} holders of its prefix were")
        };
        clauses.push(format!(
            "{holders} out of the running, because class {class:016x} had become a hotspot"
        ));
    }
    clauses.join("; ")
}

fn lmetric(decision: &Decision, won: &CandidateView) -> Vec<String> {
    let product = product(decision, won);
    if decision.candidate_count == 1 {
        return vec![format!("won because it was the only candidate ({product})")];
    }
    let mut clauses = vec![format!("won because its product {product} was the smallest")];
    if let Some((address, next)) = runner_up(decision)
        && won.score > 0.0
        && next.score.is_finite()
        && next.score > won.score
    {
        clauses.push(format!(
            "runner-up {address} was {}",
            higher(next.score / won.score)
        ));
    }
    clauses
}

/// `P-token × (BS + w) = score`; the score alone where the picker's is another, as when it goes by load only.
fn product(decision: &Decision, candidate: &CandidateView) -> String {
    let (p, batch) = (decision.p_tokens(candidate) as f64, decision.batch(candidate));
    let product = p * batch as f64;
    let score = candidate.score;
    if score.is_finite() && (score - product).abs() > 0.02 * product {
        short_count(score)
    } else {
        format!("{} × {batch} = {}", short_count(p), short_count(product))
    }
}

fn scored(decision: &Decision, won: &CandidateView, what: &str) -> Vec<String> {
    let score = short_count(won.score);
    let mut clauses = vec![format!("won because {what}, {score}, was the smallest")];
    if let Some((address, next)) = runner_up(decision)
        && next.score.is_finite()
        && next.score > won.score
    {
        clauses.push(format!("runner-up {address} had {}", short_count(next.score)));
    }
    clauses
}

/// The best candidate that is not the winner and was in the running.
fn runner_up(decision: &Decision) -> Option<&(String, CandidateView)> {
    let won = decision.won()?.slot;
    decision
        .candidates
        .iter()
        .filter(|(address, candidate)| {
            (*address != decision.winner || candidate.slot != won) && !candidate.filtered
        })
        .min_by(|(_, a), (_, b)| a.score.total_cmp(&b.score))
}

/// Where the best hit was, when the winner did not have it, and what spoke against going there.
fn best_hit(decision: &Decision, won: &CandidateView) -> Option<String> {
    let (address, best) = decision
        .candidates
        .iter()
        .max_by_key(|(_, candidate)| candidate.hit)?;
    let percent = |hit: u32| 100.0 * f64::from(hit) / f64::from(decision.tokens.max(1));
    let tokens = short_count(f64::from(best.hit));
    if best.hit == 0 {
        return Some("nobody held any of its prompt".to_owned());
    }
    if best.hit == won.hit {
        return Some(format!(
            "it also had the best hit, {tokens} tokens ({:.0} %)",
            percent(won.hit)
        ));
    }
    if best.filtered {
        return Some(format!("the best hit, {tokens} tokens, was on {address}"));
    }
    let queue = format!("its queue of {} tokens", short_count(f64::from(best.q)));
    let batch = format!("its batch of {}", best.bs);
    let against = match (best.q > won.q, best.bs > won.bs) {
        (true, true) => format!("{queue} and {batch}"),
        (true, false) => queue,
        _ => batch,
    };
    Some(format!(
        "the best hit was on {address}, {tokens} tokens ({:.0} %), but {against} weighed more",
        percent(best.hit)
    ))
}

fn higher(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 1.01 => "less than 1 % higher".to_owned(),
        ratio if ratio < 1.2 => format!("{:.0} % higher", (ratio - 1.0) * 100.0),
        ratio => format!("{ratio:.1}× as high"),
    }
}

fn candidates(count: u32) -> String {
    if count == 1 {
        "1 candidate".to_owned()
    } else {
        format!("{count} candidates")
    }
}

/// A count in at most four characters or so: `940`, `3.2k`, `12.9k`, `140k`, `2.1M`, `∞`.
pub fn short_count(count: f64) -> String {
    const STEPS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let size = count.abs();
    if size.is_infinite() {
        return "∞".to_owned();
    }
    for (at, suffix) in STEPS {
        if size >= at * 0.9995 {
            let scaled = count / at;
            return if scaled.abs() < 99.95 {
                format!("{scaled:.1}{suffix}")
            } else {
                format!("{scaled:.0}{suffix}")
            };
        }
    }
    if size == size.trunc() || size >= 99.5 {
        format!("{count:.0}")
    } else {
        format!("{count:.1}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(slot: u16, hit: u32, q: u32, bs: u32, score: f64) -> CandidateView {
        CandidateView {
            slot,
            hit,
            q,
            bs,
            score,
            filtered: false,
        }
    }

    fn decision(policy: &str, candidates: Vec<CandidateView>) -> Decision {
        let candidates: Vec<_> = candidates
            .into_iter()
            .map(|c| (format!("127.0.1.{}:8000", c.slot), c))
            .collect();
        Decision {
            request_id: "r1".to_owned(),
            model: "m".to_owned(),
            at: 0,
            policy: policy.to_owned().into(),
            tokens: 4_000,
            weight: 1,
            winner: candidates[0].0.clone(),
            rank: None,
            ties: 1,
            candidate_count: candidates.len() as u32,
            candidates,
            filtered_class: None,
        }
    }

    #[test]
    fn lmetric_names_the_product_the_runner_up_and_the_best_hit() {
        let decision = decision(
            "lmetric",
            vec![
                candidate(1, 800, 0, 3, 12_800.0),
                candidate(2, 0, 0, 4, 20_000.0),
                candidate(3, 3_200, 21_000, 9, 218_000.0),
            ],
        );
        assert_eq!(
            reason(&decision),
            "won because its product 3.2k × 4 = 12.8k was the smallest; runner-up 127.0.1.2:8000 was 1.6× as high; \
             the best hit was on 127.0.1.3:8000, 3.2k tokens (80 %), but its queue of 21.0k tokens and its batch of 9 weighed more"
        );
    }

    #[test]
    fn a_winner_with_the_best_hit_a_cold_fleet_and_a_tie_are_told_apart() {
        let best = decision(
            "lmetric",
            vec![candidate(1, 3_984, 0, 0, 16.0), candidate(2, 0, 0, 0, 4_000.0)],
        );
        assert!(
            reason(&best).ends_with("it also had the best hit, 4.0k tokens (100 %)"),
            "{}",
            reason(&best)
        );
        let mut cold = decision(
            "lmetric",
            vec![candidate(1, 0, 0, 0, 4_000.0), candidate(2, 0, 0, 0, 4_000.0)],
        );
        cold.ties = 2;
        assert_eq!(
            reason(&cold),
            "won because its product 4.0k × 1 = 4.0k was the smallest (drawn by lot from 2 that tied); nobody held any of its prompt"
        );
        let only = decision("lmetric", vec![candidate(1, 0, 0, 0, 4_000.0)]);
        assert!(reason(&only).starts_with("won because it was the only candidate (4.0k × 1 = 4.0k)"));
    }

    #[test]
    fn a_hotspot_filter_is_told() {
        let mut hot = decision(
            "lmetric",
            vec![candidate(1, 0, 0, 1, 8_000.0), candidate(2, 3_984, 0, 0, 16.0)],
        );
        hot.candidates[1].1.filtered = true;
        hot.filtered_class = Some(0xabc);
        let text = reason(&hot);
        assert!(!text.contains("runner-up"), "{text}");
        assert!(text.ends_with("1 holder of its prefix was out of the running, because class 0000000000000abc had become a hotspot"), "{text}");
    }

    #[test]
    fn other_policies_give_their_own_reasons() {
        let of = |policy: &str| {
            reason(&decision(
                policy,
                vec![candidate(1, 0, 0, 2, 6.0), candidate(2, 0, 0, 2, 7.0)],
            ))
        };
        assert_eq!(
            of("vllm"),
            "won because its 4 × waiting + running, 6, was the smallest; runner-up 127.0.1.2:8000 had 7"
        );
        assert_eq!(of("round-robin"), "won because it was its turn");
        assert_eq!(of("random"), "won by lot among 2 candidates");
        assert_eq!(of("least-request"), "won because it had the fewest requests, 2");
    }
}
