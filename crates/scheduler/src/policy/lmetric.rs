//! LMetric (OSDI'26, arXiv 2603.15202, figure 17b): `(Q + max(w, Σ(L − hit))) × (BS + w)`.
//!
//! P-token — what the engine must prefill before this request's first token — times batch size. `BS + w` and the floor
//! of `w` tokens keep an idle endpoint, or a full hit, from scoring zero whatever else is there.
//!
//! The paper's ablations (figures 18 and 19) replace a factor: `1 − hit / L` for P-token; prompt tokens in flight, this
//! request's included, or only the requests in decode for BS; and P-token without Q.

use lmetric_policy::{Crowd, Lmetric as Parameters, Work};
use rand::RngCore;

use super::{Policy, View};

#[derive(Debug)]
pub(super) struct Lmetric(pub(super) Parameters);

impl Policy for Lmetric {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, _rng: &mut dyn RngCore) {
        let Parameters { work, crowd, queue } = self.0;
        let weight = u64::from(view.asked.weight);
        scores.extend(view.candidates.iter().map(|candidate| {
            let new = view.new_tokens(candidate);
            let work = match work {
                Work::PToken if queue => (candidate.queued + new) as f64,
                Work::PToken => new as f64,
                Work::MissRatio => new as f64 / view.asked.tokens.max(1) as f64,
            };
            let crowd = match crowd {
                Crowd::Bs => candidate.batch + weight,
                Crowd::Tokens => candidate.resident + view.asked.tokens,
                Crowd::Decode => candidate.batch.saturating_sub(candidate.prefilling) + weight,
            };
            work * crowd as f64
        }));
    }

    fn is_guarded(&self) -> bool {
        true
    }
}
