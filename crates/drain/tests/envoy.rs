//! Draining an Envoy, against an admin that says what a test wants.

mod support;

use std::time::{Duration, Instant};

use lmetric_drain::{Ended, Pace, envoy::drain};
use support::{Server, nobody};

const QUICK: Pace = Pace {
    poll: Duration::from_millis(20),
    answer: Duration::from_millis(200),
    reach: Duration::from_millis(300),
    linger: Duration::from_millis(200),
};

fn admin(mut active: impl FnMut() -> u64 + Send + 'static) -> Server {
    Server::start(move |method, path| {
        Some(match (method, path) {
            ("POST", "/healthcheck/fail" | "/drain_listeners?graceful&inboundonly") => {
                (200, "OK\n".to_owned())
            }
            ("GET", "/stats?filter=http.openai.downstream_rq_active") => {
                (200, format!("http.openai.downstream_rq_active: {}\n", active()))
            }
            _ => (404, String::new()),
        })
    })
}

#[test]
fn health_fails_before_the_port_closes_and_the_last_request_is_waited_for() {
    let mut left = 30;
    let envoy = admin(move || {
        left = u64::saturating_sub(left, 1);
        left
    });
    assert_eq!(
        drain(envoy.address, Duration::from_secs(20), QUICK),
        Ended::Drained
    );
    let asked = envoy.asked();
    assert_eq!(asked[0], "POST /healthcheck/fail");
    assert_eq!(asked[1], "POST /drain_listeners?graceful&inboundonly");
    assert!(asked.len() >= 2 + 31, "{}", asked.len());
}

#[test]
fn an_idle_envoy_stays_while_nodes_learn_that_it_goes() {
    let started = Instant::now();
    assert_eq!(
        drain(admin(|| 0).address, Duration::from_secs(20), QUICK),
        Ended::Drained
    );
    assert!(started.elapsed() >= QUICK.linger);
}

#[test]
fn a_dead_envoy_ends_it_at_once_and_a_busy_one_at_the_timeout() {
    assert_eq!(drain(nobody(), Duration::from_secs(20), QUICK), Ended::Dead);
    assert_eq!(
        drain(admin(|| 3).address, Duration::from_millis(300), QUICK),
        Ended::TimedOut("Envoy counts 3 requests".to_owned())
    );
}
