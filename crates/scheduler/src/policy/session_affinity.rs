//! A session stays on its endpoint: rendezvous hashing of the session over the candidates, so that only the sessions of an endpoint
//! that goes are moved. A request without a session goes where fewest requests are.

use rand::RngCore;

use super::{Policy, View};
use crate::endpoint::mix;

#[derive(Debug)]
pub(super) struct SessionAffinity;

impl Policy for SessionAffinity {
    fn score(&mut self, view: &View<'_>, scores: &mut Vec<f64>, _rng: &mut dyn RngCore) {
        scores.extend(view.candidates.iter().map(|candidate| match view.asked.session {
            Some(session) => -(mix(session, candidate.identity) as f64),
            None => candidate.batch as f64,
        }));
    }
}
