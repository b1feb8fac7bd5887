//! When each request of a trace is sent.

use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::TraceRequest;
use crate::units::Window;

/// How a trace's clock becomes the replay's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pacing {
    /// Part of the trace that is replayed, by its own timestamps (before jitter).
    pub window: Window,
    /// Arrivals per trace arrival: 2 replays twice as fast in model time.
    pub rate_scale: f64,
    /// Each arrival is moved by U(0, this), in trace time.
    pub jitter: Duration,
    /// Seed of the jitter.
    pub seed: u64,
    /// Model seconds per real second.
    pub speed: f64,
}

/// One request to send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Index into the trace.
    pub index: usize,
    /// When, in real time since the replay began.
    pub at: Duration,
}

/// Orders the window's requests by jittered arrival. A request's jitter depends on the seed and its line only, so
/// the same request moves by the same amount in every window. O(n log n).
pub fn schedule(requests: &[TraceRequest], pacing: Pacing) -> Vec<Arrival> {
    let Pacing {
        window,
        rate_scale,
        jitter,
        seed,
        speed,
    } = pacing;
    let mut arrivals: Vec<Arrival> = requests
        .iter()
        .enumerate()
        .filter(|(_, request)| window.contains(request.at))
        .map(|(index, request)| {
            let moved = request.at - window.start + jitter.as_secs_f64() * unit(seed, request.line);
            Arrival {
                index,
                at: Duration::from_secs_f64(moved / rate_scale / speed),
            }
        })
        .collect();
    arrivals.sort_by_key(|arrival| (arrival.at, arrival.index));
    arrivals
}

/// A number in [0, 1) from the seed and a line; the same on every machine and in every version.
fn unit(seed: u64, line: u32) -> f64 {
    (xxh3_64_with_seed(&line.to_le_bytes(), seed) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(at: impl IntoIterator<Item = f64>) -> Vec<TraceRequest> {
        at.into_iter()
            .zip(1..)
            .map(|(at, line)| TraceRequest {
                line,
                at,
                input_tokens: 1,
                output_tokens: 1,
                blocks: vec![],
            })
            .collect()
    }

    const PLAIN: Pacing = Pacing {
        window: Window::ALL,
        rate_scale: 1.0,
        jitter: Duration::ZERO,
        seed: 1,
        speed: 1.0,
    };

    #[test]
    fn rate_and_speed_divide_the_trace_clock() {
        let window = Window {
            start: 10.0,
            end: 20.0,
        };
        let arrivals = schedule(
            &requests([0.0, 10.0, 18.0, 20.0]),
            Pacing {
                window,
                rate_scale: 2.0,
                speed: 4.0,
                ..PLAIN
            },
        );
        assert_eq!(
            arrivals,
            [
                Arrival {
                    index: 1,
                    at: Duration::ZERO
                },
                Arrival {
                    index: 2,
                    at: Duration::from_secs(1)
                }
            ]
        );
    }

    #[test]
    fn jitter_is_uniform_and_fixed_by_the_seed() {
        let all = requests(std::iter::repeat_n(0.0, 10_000));
        let pacing = Pacing {
            jitter: Duration::from_secs(3),
            ..PLAIN
        };
        let arrivals = schedule(&all, pacing);
        assert_eq!(arrivals, schedule(&all, pacing));
        assert_ne!(arrivals, schedule(&all, Pacing { seed: 2, ..pacing }));
        assert!(arrivals.is_sorted_by_key(|a| a.at));
        let seconds = |i: usize| arrivals[i].at.as_secs_f64();
        assert!(seconds(9_999) < 3.0);
        for quarter in 1..4 {
            let quantile = seconds(quarter * 2_500);
            assert!((quantile - 0.75 * quarter as f64).abs() < 0.05, "{quantile}");
        }
    }

    #[test]
    fn a_request_moves_by_the_same_amount_in_every_window() {
        let all = requests([0.0, 5.0]);
        let pacing = Pacing {
            jitter: Duration::from_secs(3),
            ..PLAIN
        };
        let whole = schedule(&all, pacing);
        let late = schedule(
            &all,
            Pacing {
                window: Window { start: 5.0, end: 6.0 },
                ..pacing
            },
        );
        let difference = whole[1].at.as_secs_f64() - 5.0 - late[0].at.as_secs_f64();
        assert!(difference.abs() < 1e-6, "{difference}");
    }
}
