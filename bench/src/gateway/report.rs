//! From runs to figures: what the picker adds, and whether that can be told from how Envoy alone differs from itself.

use std::time::Duration;

use super::{
    Args, Standing,
    measure::{Measured, Rate},
    rig::{Mode, Run},
};
use crate::results::{Figure, at, median};

/// Two quantiles, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    /// Half are below.
    pub p50: f64,
    /// One in a hundred is above.
    pub p99: f64,
}

impl Quantiles {
    fn of(times: &[u64]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        Self {
            p50: at(&sorted, 0.5) / 1e3,
            p99: at(&sorted, 0.99) / 1e3,
        }
    }

    fn less(self, other: Self) -> Self {
        Self {
            p50: self.p50 - other.p50,
            p99: self.p99 - other.p99,
        }
    }

    fn medians(all: &[Self]) -> Self {
        Self {
            p50: median(all.iter().map(|one| one.p50).collect()),
            p99: median(all.iter().map(|one| one.p99).collect()),
        }
    }

    fn figure(self, name: String) -> Figure {
        Figure {
            name,
            unit: "ms".to_owned(),
            p50: Some(self.p50),
            p99: Some(self.p99),
            value: None,
        }
    }
}

/// First byte of the median run.
fn first_byte<'a>(runs: impl Iterator<Item = &'a Run>) -> Quantiles {
    Quantiles::medians(&runs.map(|run| Quantiles::of(&run.times)).collect::<Vec<_>>())
}

/// What the picker adds: median over the pairs of the differences between a pair's quantiles.
fn added(measured: &Measured) -> Quantiles {
    let differences: Vec<_> = measured
        .pairs
        .iter()
        .map(|pair| Quantiles::of(&pair.picked.times).less(Quantiles::of(&pair.alone.times)))
        .collect();
    Quantiles::medians(&differences)
}

/// How much Envoy alone differs from itself: the largest difference between a run and the next one.
fn spread(alone: &[Run]) -> Quantiles {
    let quantiles: Vec<_> = alone.iter().map(|run| Quantiles::of(&run.times)).collect();
    let widest = |of: fn(Quantiles) -> f64| {
        let steps = quantiles.windows(2).map(|pair| of(pair[1].less(pair[0])).abs());
        steps.fold(0.0, f64::max)
    };
    Quantiles {
        p50: widest(|one| one.p50),
        p99: widest(|one| one.p99),
    }
}

/// CPU time of one request in milliseconds, what the process uses anyway (cores) subtracted.
fn per_request<'a>(runs: impl Iterator<Item = &'a Run>, cpu: fn(&Run) -> Duration, idle: f64) -> f64 {
    let (mut used, mut requests) = (0.0, 0);
    for run in runs {
        used += cpu(run).as_secs_f64() - idle * run.lasted.as_secs_f64();
        requests += run.times.len();
    }
    used.max(0.0) * 1e3 / requests.max(1) as f64
}

fn picked(measured: &Measured) -> impl Iterator<Item = &Run> {
    measured.pairs.iter().map(|pair| &pair.picked)
}

fn value(name: &str, unit: &str, value: f64) -> Figure {
    Figure::value(name, unit, vec![value])
}

/// All figures.
pub fn figures(rates: &[Rate], standing: &Standing, args: &Args) -> Vec<Figure> {
    let mut figures = Vec::new();
    for rate in rates {
        let per_second = rate.per_second;
        let name = |mode: Mode, what: &str| format!("gateway/{}/{per_second}/{what}", mode.name());
        figures.push(first_byte(rate.alone.iter()).figure(name(Mode::Alone, "first_byte")));
        figures.push(spread(&rate.alone).figure(name(Mode::Alone, "spread")));
        let envoy = per_request(rate.alone.iter(), |run| run.envoy, 0.0);
        figures.push(value(&name(Mode::Alone, "envoy_cpu"), "ms", envoy));
        for (mode, measured) in Mode::PICKED.into_iter().zip(&rate.modes) {
            figures.push(first_byte(picked(measured)).figure(name(mode, "first_byte")));
            figures.push(added(measured).figure(name(mode, "added_first_byte")));
            let picker = per_request(picked(measured), |run| run.picker, standing.idle);
            figures.push(value(&name(mode, "picker_cpu"), "ms", picker));
            let envoy = per_request(picked(measured), |run| run.envoy, 0.0);
            figures.push(value(&name(mode, "envoy_cpu"), "ms", envoy));
        }
    }
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let (engines, most) = (args.engines, args.engines.max(args.idle_engines));
    figures.extend([
        value("gateway/memory", "MB", megabytes(standing.after)),
        value("gateway/memory_filled", "MB", megabytes(standing.full)),
        value("gateway/memory_empty", "MB", megabytes(standing.empty)),
        value(&format!("gateway/idle_cpu_{most}"), "cores", standing.idle_most),
        value(&format!("gateway/idle_cpu_{engines}"), "cores", standing.idle),
    ]);
    figures
}

/// The same for a person.
pub fn table(rates: &[Rate], standing: &Standing, args: &Args) -> Vec<String> {
    let mut lines = vec![format!(
        "{:>5}  {:<5}  {:>18}  {:>18}  {:>10}  {:>9}  {:>6}  {:>7}",
        "req/s",
        "way",
        "first byte p50/p99",
        "added p50/p99 ms",
        "picker CPU",
        "Envoy CPU",
        "cached",
        "engines"
    )];
    for rate in rates {
        let alone = first_byte(rate.alone.iter());
        let spread = spread(&rate.alone);
        let envoy = per_request(rate.alone.iter(), |run| run.envoy, 0.0);
        lines.push(format!(
            "{:>5}  {:<5}  {:>8.2} / {:>7.2}  {:>8.2} / {:>7.2}  {:>10}  {:>6.2} ms",
            rate.per_second, "alone", alone.p50, alone.p99, spread.p50, spread.p99, "(spread)", envoy
        ));
        for (mode, measured) in Mode::PICKED.into_iter().zip(&rate.modes) {
            let (first, added) = (first_byte(picked(measured)), added(measured));
            let picker = per_request(picked(measured), |run| run.picker, standing.idle);
            let envoy = per_request(picked(measured), |run| run.envoy, 0.0);
            let cached = 100.0 * measured.cached as f64 / measured.prompt.max(1) as f64;
            let mut line = format!(
                "{:>5}  {:<5}  {:>8.2} / {:>7.2}  {:>+8.2} / {:>+7.2}  {:>7.2} ms  {:>6.2} ms  {:>4.0} %  {:>3} of {}",
                rate.per_second,
                mode.name(),
                first.p50,
                first.p99,
                added.p50,
                added.p99,
                picker,
                envoy,
                cached,
                measured.engines,
                args.engines
            );
            for (words, added, spread) in [
                ("  p50 not resolvable here", added.p50, spread.p50),
                ("  p99 not resolvable here", added.p99, spread.p99),
            ] {
                if added.abs() <= spread {
                    line.push_str(words);
                }
            }
            lines.push(line);
        }
    }
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    lines.push(format!(
        "memory of the picker: {:.0} MB with {} endpoints, {:.0} MB with full caches, {:.0} MB after all ({} pairs held)",
        megabytes(standing.empty),
        args.engines,
        megabytes(standing.full),
        megabytes(standing.after),
        standing.pairs
    ));
    lines.push(format!(
        "idle picker: {:.4} cores with {} endpoints, {:.4} with {}",
        standing.idle_most,
        args.engines.max(args.idle_engines),
        standing.idle,
        args.engines
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::measure::Pair;

    /// A hundred and one answers, one in each millisecond from `from` on.
    fn run(from: u64, picker: u64) -> Run {
        Run {
            times: (from..=from + 100)
                .map(|milliseconds| milliseconds * 1_000_000)
                .collect(),
            lasted: Duration::from_secs(1),
            envoy: Duration::from_millis(101),
            picker: Duration::from_millis(picker),
        }
    }

    #[test]
    fn what_is_added_is_the_median_pair_and_the_spread_the_widest_step() {
        let pair = |alone, picked| Pair {
            alone: run(alone, 0),
            picked: run(picked, 202),
        };
        let measured = Measured {
            pairs: vec![pair(0, 3), pair(10, 12), pair(0, 90)],
            ..Measured::default()
        };
        assert_eq!(added(&measured), Quantiles { p50: 3.0, p99: 3.0 });
        let alone: Vec<Run> = measured.pairs.iter().map(|pair| pair.alone.clone()).collect();
        assert_eq!(spread(&alone), Quantiles { p50: 10.0, p99: 10.0 });
        assert_eq!(first_byte(alone.iter()), Quantiles { p50: 50.0, p99: 99.0 });
    }

    #[test]
    fn idle_time_is_no_requests() {
        let runs = [run(0, 202), run(0, 202)];
        assert_eq!(per_request(runs.iter(), |run| run.picker, 0.0), 2.0);
        assert!((per_request(runs.iter(), |run| run.picker, 0.101) - 1.0).abs() < 1e-9);
        assert_eq!(per_request(runs.iter(), |run| run.envoy, 0.0), 1.0);
    }
}
