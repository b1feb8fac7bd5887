//! From a seed to what happens, and in which order.
//!
//! Faults come in rounds. Each round has every kind once, in an order of its own, so that any half hour has seen them all. Between two steps
//! the fleet has recovered, so that a window of one fault never hides what another one did; the exceptions are the strikes that
//! fall into something that must cost nothing by itself (a rollout, a stopped API server).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use serde::Serialize;

use crate::fault::{BadSpec, Child, Component, Fault, Lasts, Pool};

/// Steps between two pauses of the load.
const BETWEEN_PAUSES: usize = 5;
/// Shortest time for a step, its recovery included.
const SHORTEST_STEP: Duration = Duration::from_secs(8);

/// One fault, perhaps with a second one in the middle of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Step {
    /// What happens.
    pub(crate) fault: Fault,
    /// What strikes while it goes on, so many seconds after it began.
    pub(crate) strike: Option<(Fault, u8)>,
    /// Seconds of calm before it.
    pub(crate) calm: u8,
    /// Whether the load pauses after it, so that the ledgers can be compared with nothing.
    pub(crate) pause: bool,
}

/// What a seed means for a run of a length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Plan {
    /// The seed.
    pub(crate) seed: u64,
    /// Steps in their order: more than fit into the time, whatever the machine.
    pub(crate) steps: Vec<Step>,
}

impl Plan {
    /// The plan of a seed for a run of `length`.
    pub(crate) fn new(seed: u64, length: Duration) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let count = (length.as_secs() / SHORTEST_STEP.as_secs()).max(1) as usize;
        let mut steps = Vec::new();
        while steps.len() < count {
            let mut round = round(&mut random);
            round.shuffle(&mut random);
            for fault in round {
                let strike = strike(&fault, &mut random);
                let calm = random.random_range(3..=8);
                let pause = (steps.len() + 1) % BETWEEN_PAUSES == 0;
                steps.push(Step {
                    fault,
                    strike,
                    calm,
                    pause,
                });
            }
        }
        steps.truncate(count);
        Self { seed, steps }
    }

    /// Leaves only the faults whose kind holds `part`, to study them; the plan is another one then.
    pub(crate) fn only(mut self, part: &str) -> Self {
        self.steps.retain(|step| step.fault.kind().contains(part));
        self
    }

    /// Tells two plans apart.
    pub(crate) fn hash(&self) -> String {
        let mut hasher = DefaultHasher::new();
        for step in &self.steps {
            format!("{step:?}").hash(&mut hasher);
        }
        format!("{:016x}", hasher.finish())
    }
}

fn round(random: &mut StdRng) -> Vec<Fault> {
    let mut faults = Vec::new();
    for component in Component::ALL {
        let pool = pool(random);
        faults.push(Fault::Kill {
            pool,
            component,
            index: random.random(),
        });
        let pool = other_or_same(pool, random);
        faults.push(Fault::DeletePod {
            pool,
            component,
            index: random.random(),
        });
    }
    faults.push(Fault::Hang {
        pool: pool(random),
        index: random.random(),
        lasts: lasts(random, 3, 12),
    });
    faults.push(Fault::Errors {
        pool: pool(random),
        index: random.random(),
        lasts: lasts(random, 3, 10),
    });
    faults.push(Fault::Refuse {
        pool: pool(random),
        index: random.random(),
        lasts: lasts(random, 3, 15),
    });
    faults.push(Fault::LoseEvents {
        pool: pool(random),
        index: random.random(),
        batches: random.random_range(1..=20),
    });
    faults.push(Fault::KillOperator);
    faults.push(Fault::KillDns);
    faults.push(Fault::Roll { pool: pool(random) });
    faults.push(Fault::Routing {
        pool: pool(random),
        lasts: lasts(random, 5, 15),
    });
    faults.push(Fault::ScaleDown {
        pool: pool(random),
        by: random.random_range(1..=2),
        lasts: lasts(random, 10, 25),
    });
    faults.push(Fault::ScaleUp {
        pool: pool(random),
        lasts: lasts(random, 10, 25),
    });
    faults.push(Fault::ScaleToZero {
        pool: pool(random),
        lasts: lasts(random, 25, 40),
    });
    faults.push(Fault::BadSpec {
        pool: pool(random),
        bad: if random.random() {
            BadSpec::Image
        } else {
            BadSpec::PodTemplate
        },
        lasts: lasts(random, 10, 25),
    });
    faults.push(Fault::DeleteChild {
        pool: pool(random),
        child: child(random),
    });
    faults.push(Fault::EditChild {
        pool: pool(random),
        child: child(random),
    });
    // longer than Kubernetes takes to notice (12 s), shorter than it waits until it evicts (300 s)
    faults.push(Fault::CrashNode {
        lasts: lasts(random, 25, 45),
    });
    faults.push(Fault::StopKubelet {
        lasts: lasts(random, 5, 40),
    });
    faults.push(Fault::Drain {
        lasts: lasts(random, 5, 15),
    });
    faults.push(Fault::Cordon {
        lasts: lasts(random, 5, 10),
    });
    faults.push(Fault::StopApi {
        hangs: random.random(),
        lasts: lasts(random, 5, 60),
    });
    faults
}

/// A strike for a third of the faults that must cost nothing by themselves and leave the other pods alone.
fn strike(during: &Fault, random: &mut StdRng) -> Option<(Fault, u8)> {
    let (pool_in_motion, latest) = match during {
        Fault::Roll { pool } => (Some(*pool), 15),
        Fault::ScaleUp { pool, lasts } | Fault::ScaleDown { pool, lasts, .. } => (Some(*pool), lasts.0),
        Fault::Routing { lasts, .. } | Fault::StopApi { lasts, .. } | Fault::Cordon { lasts } => {
            (None, lasts.0)
        }
        _ => return None,
    };
    if !random.random_ratio(1, 3) {
        return None;
    }
    let mut component = *Component::ALL.choose(random)?;
    let mut pool = pool(random);
    if component == Component::Engine && pool_in_motion == Some(pool) {
        // an engine that may be ending anyway proves nothing
        pool = other(pool);
    }
    if matches!(during, Fault::StopApi { .. }) && component == Component::Envoy {
        // nobody could take its address out of the Service
        component = Component::Picker;
    }
    let fault = match (during, random.random_range(0..4)) {
        (Fault::StopApi { .. }, 0) => Fault::LoseEvents {
            pool,
            index: random.random(),
            batches: 5,
        },
        (_, 0) => Fault::KillOperator,
        _ => Fault::Kill {
            pool,
            component,
            index: random.random(),
        },
    };
    Some((fault, random.random_range(1..=latest.max(2) - 1)))
}

fn pool(random: &mut StdRng) -> Pool {
    if random.random() { Pool::Alpha } else { Pool::Beta }
}

fn other(pool: Pool) -> Pool {
    match pool {
        Pool::Alpha => Pool::Beta,
        Pool::Beta => Pool::Alpha,
    }
}

fn other_or_same(first: Pool, random: &mut StdRng) -> Pool {
    if random.random_ratio(3, 4) {
        other(first)
    } else {
        first
    }
}

fn child(random: &mut StdRng) -> Child {
    Child::ALL[random.random_range(0..Child::ALL.len())]
}

fn lasts(random: &mut StdRng, shortest: u8, longest: u8) -> Lasts {
    Lasts(random.random_range(shortest..=longest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const HALF_HOUR: Duration = Duration::from_mins(30);

    proptest! {
        #[test]
        fn one_seed_is_one_plan(seed: u64) {
            let plan = Plan::new(seed, HALF_HOUR);
            let again = Plan::new(seed, HALF_HOUR);
            prop_assert_eq!(plan.hash(), again.hash());
            prop_assert_eq!(&plan, &again);
            prop_assert_ne!(plan.hash(), Plan::new(seed ^ 1, HALF_HOUR).hash());
        }

        #[test]
        fn a_longer_run_of_a_seed_begins_like_a_shorter_one(seed: u64) {
            let (short, long) = (Plan::new(seed, HALF_HOUR / 6), Plan::new(seed, HALF_HOUR));
            prop_assert_eq!(&long.steps[..short.steps.len()], &short.steps[..]);
        }

        #[test]
        fn every_kind_comes_in_every_round(seed: u64) {
            let plan = Plan::new(seed, HALF_HOUR);
            let round = round(&mut StdRng::seed_from_u64(seed)).len();
            for steps in plan.steps.chunks_exact(round) {
                let kinds: BTreeSet<_> = steps.iter().map(|step| step.fault.kind()).collect();
                prop_assert_eq!(kinds.len(), round);
            }
        }

        #[test]
        fn a_second_fault_is_a_strike_into_what_costs_nothing_and_falls_before_its_end(seed: u64) {
            for step in Plan::new(seed, HALF_HOUR).steps {
                let Some((strike, after)) = step.strike else { continue };
                prop_assert!(strike.is_strike(), "{}", strike);
                prop_assert!(crate::cost::costs_nothing(&step.fault), "{}", step.fault);
                let lasts = step.fault.lasts();
                prop_assert!(lasts.is_zero() || Duration::from_secs(after.into()) < lasts);
                if let (Fault::StopApi { .. }, Fault::Kill { component, .. }) = (&step.fault, &strike) {
                    prop_assert_ne!(*component, Component::Envoy);
                }
            }
        }

        #[test]
        fn what_is_taken_away_comes_back_before_kubernetes_gives_it_up(seed: u64) {
            for step in Plan::new(seed, HALF_HOUR).steps {
                if matches!(step.fault, Fault::CrashNode { .. } | Fault::StopKubelet { .. }) {
                    prop_assert!(step.fault.lasts() < Duration::from_mins(5));
                }
            }
        }
    }
}
