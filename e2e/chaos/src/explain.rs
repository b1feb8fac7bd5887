//! Whether a failed request has a reason.

use crate::clock::At;
use crate::cost::{Happened, costs};
use crate::record::Record;

/// The fault that explains a failure, as its place in `faults`: the latest that does.
pub(crate) fn explain(record: &Record, faults: &[Happened], now: At) -> Option<usize> {
    let phase = record.phase()?;
    faults.iter().rposition(|fault| {
        costs(fault, now)
            .iter()
            .any(|cost| cost.covers(record.pool, record.engine, record.began, record.ended, phase))
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use lmetric_testkit::{Failure, Phase};

    use super::*;
    use crate::fault::{BadSpec, Child, Component, Fault, Lasts, Pool};

    const NOW: At = At(1_000_000);

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 244, 2, last])
    }

    fn happened(fault: Fault, at: u64) -> Happened {
        Happened {
            fault,
            at: At::second(at),
            undone: None,
            settled: None,
            victim: String::new(),
            engines: vec![address(1)],
            bereft: Vec::new(),
        }
    }

    fn kill(component: Component) -> Fault {
        Fault::Kill {
            pool: Pool::Alpha,
            component,
            index: 0,
        }
    }

    fn failed(began: u64, ended: u64, engine: u8, phase: Phase) -> Record {
        Record {
            id: "1".to_owned(),
            pool: Pool::Alpha,
            began: At::second(began),
            ended: At::second(ended),
            engine: Some(address(engine)),
            failure: Some(Failure {
                phase,
                why: String::new(),
            }),
        }
    }

    fn is_explained(record: &Record, fault: Fault, at: u64) -> bool {
        explain(record, &[happened(fault, at)], NOW).is_some()
    }

    #[test]
    fn a_killed_engine_explains_its_own_streams_and_no_others() {
        let engine = || kill(Component::Engine);
        assert!(is_explained(&failed(8, 10, 1, Phase::Cut), engine(), 10));
        assert!(is_explained(&failed(11, 11, 1, Phase::Status(503)), engine(), 10));
        // another engine's, one that ended before, one that began when pickers had to know, one that merely lacks tokens
        assert!(!is_explained(&failed(8, 10, 2, Phase::Cut), engine(), 10));
        assert!(!is_explained(&failed(8, 9, 1, Phase::Cut), engine(), 10));
        assert!(!is_explained(
            &failed(17, 17, 1, Phase::Status(503)),
            engine(),
            10
        ));
        assert!(!is_explained(&failed(8, 10, 1, Phase::Wrong), engine(), 10));
        // nobody knows to which engine it went
        let mut lost = failed(8, 10, 1, Phase::Cut);
        lost.engine = None;
        assert!(!is_explained(&lost, engine(), 10));
    }

    #[test]
    fn a_killed_picker_explains_two_seconds_of_refusals_in_its_pool_and_no_cut_stream() {
        let picker = || kill(Component::Picker);
        assert!(is_explained(&failed(12, 12, 2, Phase::Status(503)), picker(), 10));
        assert!(!is_explained(
            &failed(13, 13, 2, Phase::Status(503)),
            picker(),
            10
        ));
        assert!(!is_explained(&failed(8, 11, 2, Phase::Cut), picker(), 10));
        let mut other = failed(11, 11, 2, Phase::Status(503));
        other.pool = Pool::Beta;
        assert!(!is_explained(&other, picker(), 10));
    }

    #[test]
    fn a_killed_envoy_explains_what_it_held_and_seconds_without_connection() {
        let envoy = || kill(Component::Envoy);
        assert!(is_explained(&failed(5, 10, 2, Phase::Cut), envoy(), 10));
        assert!(is_explained(&failed(14, 14, 2, Phase::Unconnected), envoy(), 10));
        assert!(!is_explained(&failed(16, 16, 2, Phase::Unconnected), envoy(), 10));
        assert!(!is_explained(&failed(12, 13, 2, Phase::Cut), envoy(), 10));
        assert!(!is_explained(&failed(9, 11, 2, Phase::Status(503)), envoy(), 10));
    }

    #[test]
    fn what_must_cost_nothing_explains_nothing() {
        let (pool, lasts, index) = (Pool::Alpha, Lasts(10), 0);
        let free = [
            Fault::DeletePod {
                pool,
                component: Component::Engine,
                index,
            },
            Fault::Hang { pool, index, lasts },
            Fault::LoseEvents {
                pool,
                index,
                batches: 3,
            },
            Fault::KillOperator,
            Fault::KillDns,
            Fault::Roll { pool },
            Fault::Routing { pool, lasts },
            Fault::ScaleDown { pool, by: 1, lasts },
            Fault::ScaleUp { pool, lasts },
            Fault::BadSpec {
                pool,
                bad: BadSpec::Image,
                lasts,
            },
            Fault::DeleteChild {
                pool,
                child: Child::PickerService,
            },
            Fault::EditChild {
                pool,
                child: Child::PickerService,
            },
            Fault::StopKubelet { lasts },
            Fault::Drain { lasts },
            Fault::Cordon { lasts },
            Fault::StopApi { hangs: true, lasts },
        ];
        for fault in free {
            for phase in [
                Phase::Unconnected,
                Phase::Unanswered,
                Phase::Status(503),
                Phase::Status(500),
                Phase::Cut,
                Phase::Silent,
                Phase::Wrong,
            ] {
                let record = failed(9, 11, 1, phase);
                assert!(!is_explained(&record, fault.clone(), 10), "{fault}: {phase:?}");
            }
        }
    }

    #[test]
    fn a_crashed_node_costs_seconds_and_not_its_absence() {
        let crash = || Fault::CrashNode { lasts: Lasts(40) };
        assert!(is_explained(&failed(5, 70, 1, Phase::Silent), crash(), 10));
        assert!(is_explained(&failed(28, 31, 2, Phase::Unconnected), crash(), 10));
        assert!(is_explained(&failed(12, 14, 1, Phase::Status(503)), crash(), 10));
        // the picker must have left the engine out, the gateway the picker, kube-proxy the Envoy
        assert!(!is_explained(&failed(19, 21, 1, Phase::Status(503)), crash(), 10));
        assert!(!is_explained(&failed(16, 18, 2, Phase::Status(503)), crash(), 10));
        assert!(!is_explained(&failed(33, 36, 2, Phase::Unconnected), crash(), 10));
        // unless it took the pool's last picker with it
        let mut bereft = happened(crash(), 10);
        bereft.bereft.push((Pool::Alpha, Component::Picker));
        let refused = failed(40, 40, 2, Phase::Status(503));
        assert!(explain(&refused, &[bereft.clone()], NOW).is_some());
        bereft.settled = Some(At::second(35));
        assert!(explain(&refused, &[bereft], NOW).is_none());
    }

    #[test]
    fn errors_of_an_engine_last_as_long_as_they_were_ordered() {
        let errors = || Fault::Errors {
            pool: Pool::Alpha,
            index: 0,
            lasts: Lasts(5),
        };
        assert!(is_explained(&failed(14, 14, 1, Phase::Status(500)), errors(), 10));
        assert!(!is_explained(
            &failed(17, 17, 1, Phase::Status(500)),
            errors(),
            10
        ));
        assert!(!is_explained(
            &failed(14, 14, 2, Phase::Status(500)),
            errors(),
            10
        ));
        assert!(!is_explained(
            &failed(14, 14, 1, Phase::Status(503)),
            errors(),
            10
        ));
    }

    #[test]
    fn the_latest_fault_is_named() {
        let faults = [
            happened(kill(Component::Picker), 10),
            happened(kill(Component::Picker), 11),
        ];
        let record = failed(12, 12, 2, Phase::Status(503));
        assert_eq!(explain(&record, &faults, NOW), Some(1));
        let mut served = record;
        served.failure = None;
        assert_eq!(explain(&served, &faults, NOW), None);
    }
}
