//! What each fault may cost: which requests, in which way, for how long, and why. Everything else must be served.
//!
//! A rollout, a change of routing or of the count, a pod that is deleted with its grace, a drained or cordoned node, a lost operator, API
//! server, kubelet or DNS, lost events, an object deleted or edited by hand: nothing.

use std::net::IpAddr;
use std::time::Duration;

use lmetric_testkit::Phase;
use serde::Serialize;

use crate::clock::At;
use crate::fault::{Component, Fault, Pool};

/// A picker reads an idle engine every 5 s (give or take a tenth), and one where a request failed at once; it leaves an engine
/// out from the first refused read.
const ENGINE_NOTICED: Duration = Duration::from_secs(6);
/// Envoy leaves a picker out from the first connection that fails; one that vanished, after two health checks of 1 s.
const PICKER_NOTICED: Duration = Duration::from_secs(2);
/// The kubelet lists containers every second, then status, EndpointSlice and kube-proxy (which waits for 1 s between two changes) follow;
/// on two busy cores that is 5 s at most. Afterwards nobody may connect to the Envoy that was killed.
const ENVOY_NOTICED: Duration = Duration::from_secs(5);
/// 12 s of the controller manager's grace period, up to 2 s since the last heartbeat, and as above until kube-proxy knows.
const NODE_NOTICED: Duration = Duration::from_secs(12 + 2 + 5);
/// An engine that falls silent: an idle one is read every 5 s, its answer is waited for 1 s, a new connection 1.2 s; then it is out.
const SILENT_ENGINE_NOTICED: Duration = Duration::from_secs(8);
/// A picker that falls silent: two health checks of 1 s, with up to 1 s before the first, and 2 s that a message may take.
const SILENT_PICKER_NOTICED: Duration = Duration::from_secs(5);
/// The simulator takes the order a moment after it is written down, and ends it as late.
const ERRORS_LINGER: Duration = Duration::from_secs(1);

/// A fault that was injected.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Happened {
    /// What.
    pub(crate) fault: Fault,
    /// When.
    pub(crate) at: At,
    /// When it was undone, where there is something to undo.
    pub(crate) undone: Option<At>,
    /// When the fleet was whole again.
    pub(crate) settled: Option<At>,
    /// The pod or node that was hit, for a person.
    pub(crate) victim: String,
    /// Addresses of the engines that were hit.
    pub(crate) engines: Vec<IpAddr>,
    /// Pools that lost their last pod of a kind, which Kubernetes replaces only after minutes.
    pub(crate) bereft: Vec<(Pool, Component)>,
}

/// Which requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope<'a> {
    /// Those that a picker sent to one of these engines.
    Engines(&'a [IpAddr]),
    /// Those of a pool, whichever Envoy and picker they met.
    Pool(Pool),
    /// All.
    Everything,
}

/// Requests of which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Under way at that moment.
    UnderWay(At),
    /// Begun from the first to the second.
    Begun(At, At),
}

/// In which ways they may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Their engine ended: cut, or answered 503 by Envoy if no answer had begun.
    Ended,
    /// Their Envoy ended: cut, or without an answer.
    EnvoyEnded,
    /// Envoy answered 503: no picker, or no such engine.
    Refused,
    /// No Envoy, or it ended before it answered.
    NoEnvoy,
    /// The engine's own error.
    EngineError,
    /// Their server fell silent, or was found to be gone.
    Vanished,
}

impl Loss {
    fn covers(self, phase: Phase) -> bool {
        match self {
            Self::Ended => matches!(phase, Phase::Cut | Phase::Unanswered | Phase::Status(503)),
            Self::EnvoyEnded => matches!(phase, Phase::Cut | Phase::Unanswered | Phase::Unconnected),
            Self::Refused => phase == Phase::Status(503),
            Self::NoEnvoy => matches!(phase, Phase::Unconnected | Phase::Unanswered),
            Self::EngineError => phase == Phase::Status(500),
            Self::Vanished => !matches!(phase, Phase::Wrong | Phase::Status(500)),
        }
    }
}

/// One part of what a fault may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost<'a> {
    /// Of whom.
    pub(crate) scope: Scope<'a>,
    /// Of which time.
    pub(crate) when: When,
    /// In which way.
    pub(crate) loss: Loss,
}

impl Cost<'_> {
    /// Whether it is the reason of this failure.
    pub(crate) fn covers(
        &self,
        pool: Pool,
        engine: Option<IpAddr>,
        began: At,
        ended: At,
        phase: Phase,
    ) -> bool {
        let scope = match self.scope {
            Scope::Engines(engines) => engine.is_some_and(|engine| engines.contains(&engine)),
            Scope::Pool(of) => of == pool,
            Scope::Everything => true,
        };
        let when = match self.when {
            When::UnderWay(at) => began <= at && at <= ended,
            When::Begun(from, until) => from <= began && began <= until,
        };
        scope && when && self.loss.covers(phase)
    }
}

/// Whether a fault may cost no request at all.
pub(crate) fn costs_nothing(fault: &Fault) -> bool {
    match fault {
        Fault::Kill { .. }
        | Fault::Errors { .. }
        | Fault::Refuse { .. }
        | Fault::ScaleToZero { .. }
        | Fault::CrashNode { .. } => false,
        Fault::DeletePod { .. }
        | Fault::Hang { .. }
        | Fault::LoseEvents { .. }
        | Fault::KillOperator
        | Fault::KillDns
        | Fault::Roll { .. }
        | Fault::Routing { .. }
        | Fault::ScaleDown { .. }
        | Fault::ScaleUp { .. }
        | Fault::BadSpec { .. }
        | Fault::DeleteChild { .. }
        | Fault::EditChild { .. }
        | Fault::StopKubelet { .. }
        | Fault::Drain { .. }
        | Fault::Cordon { .. }
        | Fault::StopApi { .. } => true,
    }
}

/// What a fault may cost, as far as it is known `now`.
pub(crate) fn costs(happened: &Happened, now: At) -> Vec<Cost<'_>> {
    let at = happened.at;
    let engines = Scope::Engines(&happened.engines);
    let cost = |scope, when, loss| Cost { scope, when, loss };
    match &happened.fault {
        Fault::Kill { pool, component, .. } => match component {
            Component::Engine => vec![
                cost(engines, When::UnderWay(at), Loss::Ended),
                cost(engines, When::Begun(at, at + ENGINE_NOTICED), Loss::Refused),
            ],
            // streams in progress go on without their picker
            Component::Picker => vec![
                cost(Scope::Pool(*pool), When::UnderWay(at), Loss::Refused),
                cost(
                    Scope::Pool(*pool),
                    When::Begun(at, at + PICKER_NOTICED),
                    Loss::Refused,
                ),
            ],
            Component::Envoy => vec![
                cost(Scope::Pool(*pool), When::UnderWay(at), Loss::EnvoyEnded),
                cost(
                    Scope::Pool(*pool),
                    When::Begun(at, at + ENVOY_NOTICED),
                    Loss::NoEnvoy,
                ),
            ],
        },
        Fault::Errors { lasts, .. } => vec![
            cost(engines, When::UnderWay(at), Loss::EngineError),
            cost(
                engines,
                When::Begun(at, at + (*lasts).into() + ERRORS_LINGER),
                Loss::EngineError,
            ),
        ],
        Fault::Refuse { .. } => vec![
            cost(engines, When::UnderWay(at), Loss::Ended),
            cost(engines, When::Begun(at, at + ENGINE_NOTICED), Loss::Ended),
        ],
        Fault::ScaleToZero { pool, .. } => {
            let over = happened.settled.unwrap_or(now);
            vec![
                cost(Scope::Pool(*pool), When::UnderWay(at), Loss::Refused),
                cost(Scope::Pool(*pool), When::Begun(at, over), Loss::Refused),
            ]
        }
        Fault::CrashNode { .. } => crash(happened, now),
        fault => {
            debug_assert!(costs_nothing(fault), "{fault} has no costs");
            Vec::new()
        }
    }
}

fn crash(happened: &Happened, now: At) -> Vec<Cost<'_>> {
    let at = happened.at;
    let cost = |scope, when, loss| Cost { scope, when, loss };
    let begun = |noticed| When::Begun(at, at + noticed);
    let mut costs = vec![
        // through an Envoy or to an engine of the node; nobody can tell which Envoy a request met
        cost(Scope::Everything, When::UnderWay(at), Loss::Vanished),
        cost(Scope::Everything, begun(NODE_NOTICED), Loss::NoEnvoy),
        cost(Scope::Everything, begun(SILENT_PICKER_NOTICED), Loss::Refused),
        cost(
            Scope::Engines(&happened.engines),
            begun(SILENT_ENGINE_NOTICED),
            Loss::Vanished,
        ),
    ];
    let over = happened.settled.unwrap_or(now);
    for (pool, component) in &happened.bereft {
        let loss = match component {
            Component::Engine | Component::Picker => Loss::Refused,
            Component::Envoy => Loss::NoEnvoy,
        };
        costs.push(cost(Scope::Pool(*pool), When::Begun(at, over), loss));
    }
    costs
}
