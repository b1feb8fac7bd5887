//! Draining the standalone Envoy.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Ended, Pace,
    http::{Answer, NoAnswer, ask},
};

/// Gauge of clients' requests that are not answered yet.
const ACTIVE: &str = "http.openai.downstream_rq_active";
const QUIET_ROUNDS: u32 = 2;

/// Fails the health check, closes the port to new connections a little later, and waits for the last request.
pub fn drain(admin: SocketAddr, timeout: Duration, pace: Pace) -> Ended {
    let started = Instant::now();
    for path in ["/healthcheck/fail", "/drain_listeners?graceful&inboundonly"] {
        if let Err(NoAnswer::Nobody(_)) = ask("POST", admin, path, pace.answer) {
            return Ended::Dead;
        }
    }
    let mut quiet = 0;
    loop {
        let active = match active(admin, pace) {
            Ok(active) => active,
            Err(NoAnswer::Nobody(_)) => return Ended::Dead,
            Err(NoAnswer::Late | NoAnswer::Garbled) => None,
        };
        quiet = if active == Some(0) { quiet + 1 } else { 0 };
        if quiet >= QUIET_ROUNDS && started.elapsed() >= pace.linger {
            return Ended::Drained;
        }
        let left = timeout.saturating_sub(started.elapsed());
        if left.is_zero() {
            let count = active.map_or_else(|| "an unknown number of".to_owned(), |count| count.to_string());
            return Ended::TimedOut(format!("Envoy counts {count} requests"));
        }
        thread::sleep(pace.poll.min(left));
    }
}

fn active(admin: SocketAddr, pace: Pace) -> Result<Option<u64>, NoAnswer> {
    let Answer { status, body } = ask("GET", admin, &format!("/stats?filter={ACTIVE}"), pace.answer)?;
    if status != 200 {
        return Ok(None);
    }
    Ok(body.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        (name == ACTIVE).then(|| value.trim().parse().ok())?
    }))
}
