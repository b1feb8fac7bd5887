//! Draining an engine.

use std::{net::SocketAddr, thread, time::Instant};

use crate::{
    Ended, Pace,
    args::EngineTask,
    http::{Answer, NoAnswer, ask},
    pickers::{Count, Pickers},
};

const RUNNING: &str = "vllm:num_requests_running";
const WAITING: &str = "vllm:num_requests_waiting";
/// So many rounds in a row without a request: one may be on its way between the first look at pickers and at the engine.
const QUIET_ROUNDS: u32 = 2;

/// What the engine says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// Its port refuses, or its health check says that its core is dead.
    Dead,
    /// It does not answer, or not with counts that are known.
    Unknown,
    /// Running and waiting requests.
    Requests(u64),
}

/// Takes the engine out of every picker and waits for its last request, until `task.timeout` is over.
pub fn drain(task: EngineTask, pace: Pace) -> Ended {
    let EngineTask {
        pickers,
        engines,
        pod,
        timeout,
    } = task;
    let deadline = Instant::now() + timeout;
    let mut pickers = Pickers::new(pickers, &pod, pace);
    let mut quiet = 0;
    loop {
        let sent = pickers.ask();
        let own = own(&engines, pace);
        let idle =
            match (sent, own) {
                (_, Own::Dead) => return Ended::Dead,
                (Count::Nobody | Count::Requests(0), Own::Requests(0))
                | (Count::Requests(0), Own::Unknown) => true,
                (Count::Unknown | Count::Requests(_), _)
                | (Count::Nobody, Own::Unknown | Own::Requests(_)) => false,
            };
        quiet = if idle { quiet + 1 } else { 0 };
        if quiet >= QUIET_ROUNDS {
            return Ended::Drained;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ended::TimedOut(describe(sent, own));
        }
        thread::sleep(pace.poll.min(left));
    }
}

/// All ranks together. One whose port refuses serves nothing; when all do, the engine is dead.
fn own(engines: &[SocketAddr], pace: Pace) -> Own {
    let each: Vec<_> = engines.iter().map(|engine| rank(*engine, pace)).collect();
    if each.iter().all(|own| *own == Own::Dead) {
        return Own::Dead;
    }
    each.into_iter()
        .try_fold(0, |sum, own| match own {
            Own::Dead => Some(sum),
            Own::Unknown => None,
            Own::Requests(count) => Some(sum + count),
        })
        .map_or(Own::Unknown, Own::Requests)
}

fn rank(engine: SocketAddr, pace: Pace) -> Own {
    let own = match ask("GET", engine, "/metrics", pace.answer) {
        Ok(Answer { status: 200, body }) => requests(&body).map_or(Own::Unknown, Own::Requests),
        Ok(_) | Err(NoAnswer::Late | NoAnswer::Garbled) => Own::Unknown,
        Err(NoAnswer::Nobody(_)) => Own::Dead,
    };
    if own == Own::Requests(0) || own == Own::Dead {
        return own;
    }
    // a dead core leaves its last counts behind
    match ask("GET", engine, "/health", pace.answer) {
        Ok(Answer { status: 503, .. }) | Err(NoAnswer::Nobody(_)) => Own::Dead,
        Ok(_) | Err(NoAnswer::Late | NoAnswer::Garbled) => own,
    }
}

/// Running and waiting requests of a page of metrics; `None` if it names neither.
fn requests(page: &str) -> Option<u64> {
    let mut sum = None;
    for line in page.lines() {
        let Some((series, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let name = series.split('{').next().unwrap_or(series);
        if name == RUNNING || name == WAITING {
            let value: f64 = value.parse().ok()?;
            sum = Some(sum.unwrap_or(0) + value.max(0.0) as u64);
        }
    }
    sum
}

fn describe(sent: Count, own: Own) -> String {
    let sent = match sent {
        Count::Nobody => "no picker can be reached".to_owned(),
        Count::Unknown => "a picker does not answer".to_owned(),
        Count::Requests(count) => format!("pickers count {count} requests"),
    };
    match own {
        Own::Dead | Own::Unknown => format!("{sent}, the engine does not tell its own"),
        Own::Requests(count) => format!("{sent}, the engine {count}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_and_waiting_of_all_ranks_are_summed_and_nothing_else() {
        let page = "# HELP vllm:num_requests_running Number of requests in model execution batches.\n\
            # TYPE vllm:num_requests_running gauge\n\
            vllm:num_requests_running{engine=\"0\",model_name=\"a b\"} 3.0\n\
            vllm:num_requests_running{engine=\"1\",model_name=\"a b\"} 1.0\n\
            vllm:num_requests_waiting{engine=\"0\",model_name=\"a b\"} 2.0\n\
            vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 2.0\n\
            vllm:num_requests_swapped{engine=\"0\"} 9.0\n";
        assert_eq!(requests(page), Some(6));
        assert_eq!(requests("vllm:num_requests_running 0.0\n"), Some(0));
        assert_eq!(requests("process_cpu_seconds_total 1.0\n"), None);
        assert_eq!(requests("vllm:num_requests_running nonsense\n"), None);
    }
}
