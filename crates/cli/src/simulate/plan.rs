//! Which runs a study is made of, and running one of them.

use std::time::Duration;

use lmetric_engine::{EngineConfig, Gpu, Model, SimulatedSteps};
use lmetric_scheduler::{EngineModel, HotspotAction, PolicyKind, SchedulerConfig};

use super::{
    fleet::FleetSpec,
    measure::Measured,
    study::Share,
    workload::{Job, Workload},
    world::{self, Run, Wiring},
};
use crate::{
    trace::{Pacing, Trace},
    units::Window,
};

/// Of three parts of the requests, the canary gets one.
const PARTS: u64 = 3;

/// One run that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Policy.
    pub policy: PolicyKind,
    /// Parameter and value, if it belongs to a sweep.
    pub sweep: Option<(String, String)>,
    /// Which part of the fleet.
    pub share: Share,
    /// Arrivals per trace arrival.
    pub rate_scale: f64,
    /// Rate scale ÷ capacity.
    pub fraction: Option<f64>,
    /// Seed.
    pub seed: u64,
    /// The detector's action.
    pub hotspot: HotspotAction,
}

impl Planned {
    /// Whether both are the same run, whatever sweep they belong to.
    pub fn is_same_run(&self, other: &Self) -> bool {
        let Self {
            policy,
            sweep: _,
            share,
            rate_scale,
            fraction: _,
            seed,
            hotspot,
        } = self;
        (*policy, *share, *seed, *hotspot) == (other.policy, other.share, other.seed, other.hotspot)
            && *rate_scale == other.rate_scale
    }
}

/// What all runs share.
pub struct Bench<'a> {
    /// Trace.
    pub trace: &'a Trace,
    /// Whole fleet.
    pub fleet: &'a FleetSpec,
    /// Part of the trace.
    pub window: Window,
    /// Jitter.
    pub jitter: Duration,
    /// Longest request.
    pub longest: Option<u32>,
    /// Delays.
    pub wiring: Wiring,
    /// Blocks of open reservations count as held.
    pub overlay: bool,
}

impl Bench<'_> {
    /// The requests of a run.
    pub fn workload(&self, planned: &Planned) -> Workload<'_> {
        let whole = self.arrivals(planned.rate_scale, planned.seed);
        match planned.share {
            Share::Whole => whole,
            Share::Canary => whole.part(|job| is_canary(job, planned.seed)),
            Share::Rest => whole.part(|job| !is_canary(job, planned.seed)),
        }
    }

    /// All requests at a rate.
    pub fn arrivals(&self, rate_scale: f64, seed: u64) -> Workload<'_> {
        let pacing = Pacing {
            window: self.window,
            rate_scale,
            jitter: self.jitter,
            seed,
            speed: 1.0,
        };
        Workload::new(self.trace, pacing, self.longest)
    }

    /// Makes the run; `None` when `progress` ended it.
    pub fn run(&self, planned: &Planned, progress: impl Fn(u64) -> bool) -> anyhow::Result<Option<Measured>> {
        let fleet = match planned.share {
            Share::Whole => self.fleet.clone(),
            Share::Canary => self.fleet.share(1, 3),
            Share::Rest => self.fleet.share(2, 3),
        };
        let workload = self.workload(planned);
        let keep_forecasts = matches!(planned.policy, PolicyKind::LlmDTtft(_));
        let scheduler = SchedulerConfig {
            policy: planned.policy,
            engine: self.engine_model(planned.policy),
            hotspot: planned.hotspot,
            overlay: self.overlay,
            decisions: usize::from(keep_forecasts),
            ..SchedulerConfig::default()
        };
        world::run(
            &Run {
                fleet: &fleet,
                workload: &workload,
                scheduler,
                wiring: self.wiring,
                seed: planned.seed,
                keep_forecasts,
            },
            progress,
        )
    }

    /// The step times that a policy asks for: a named profile's, else those of the fleet's first kind.
    fn engine_model(&self, policy: PolicyKind) -> Option<EngineModel> {
        let choice = policy.engine()?;
        let own = &self.fleet.parts.first()?.engine;
        let config = match choice.model.profile().and_then(Model::profile) {
            None => own.clone(),
            Some(model) => EngineConfig {
                gpu: Gpu::profile(choice.gpu.profile())?,
                model,
                ..own.clone()
            },
        };
        Some(EngineModel::new(SimulatedSteps::new(&config)))
    }
}

/// Conversations stay on one side.
fn is_canary(job: &Job, seed: u64) -> bool {
    xxhash_rust::xxh3::xxh3_64_with_seed(&job.session.to_le_bytes(), seed).is_multiple_of(PARTS)
}
