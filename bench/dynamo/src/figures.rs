//! Figures of these programs: the same names, units and quantiles as lmetric's.

use std::{fs, path::PathBuf};

use anyhow::Context;
use clap::Args;
use serde::Serialize;

/// What every program here takes.
#[derive(Args, Clone, Debug)]
pub struct Asked {
    /// Only figures whose name holds this text
    #[arg(long, default_value = "")]
    pub only: String,
    /// Runs of each; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub runs: u64,
    /// Where the figures go, as JSON
    #[arg(long)]
    pub out: Option<PathBuf>,
}

impl Asked {
    /// Whether one of these figures is asked for.
    pub fn wants(&self, names: &[&str]) -> bool {
        names.iter().any(|name| name.contains(&self.only))
    }
}

/// One figure. Times have quantiles, rates and sizes a value.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Such as `pick/8k/64`.
    pub name: String,
    /// `us`, `blocks/s`, `picks/s`, `bytes`.
    pub unit: &'static str,
    /// Median over runs of each run's median.
    pub p50: Option<f64>,
    /// Median over runs of each run's 99th percentile.
    pub p99: Option<f64>,
    /// Median over runs.
    pub value: Option<f64>,
}

impl Figure {
    /// From the times of each run, in nanoseconds.
    pub fn times(name: &str, runs: Vec<Vec<u64>>) -> Self {
        let (mut halves, mut tails) = (Vec::new(), Vec::new());
        for mut times in runs {
            times.sort_unstable();
            halves.push(at(&times, 0.5));
            tails.push(at(&times, 0.99));
        }
        eprintln!("{name}: p50 of each run {halves:.1?}, p99 {tails:.1?}");
        Self {
            name: name.to_owned(),
            unit: "us",
            p50: Some(median(halves)),
            p99: Some(median(tails)),
            value: None,
        }
    }

    /// From one value of each run.
    pub fn value(name: &str, unit: &'static str, runs: Vec<f64>) -> Self {
        Self {
            name: name.to_owned(),
            unit,
            p50: None,
            p99: None,
            value: Some(median(runs)),
        }
    }
}

/// Nearest rank, in microseconds.
fn at(sorted: &[u64], quantile: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (last as f64 * quantile).round() as usize;
    sorted.get(place).map_or(f64::NAN, |nanos| *nanos as f64 / 1e3)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What a program has measured.
#[derive(Debug, Default)]
pub struct Told(Vec<Figure>);

impl Told {
    /// Shows a figure and keeps it.
    pub fn add(&mut self, figure: Figure) {
        let Figure {
            name,
            unit,
            p50,
            p99,
            value,
        } = &figure;
        let said = match (p50, p99, value) {
            (Some(p50), Some(p99), _) => format!("p50 {p50:>10.2} {unit}   p99 {p99:>10.2} {unit}"),
            (_, _, Some(value)) => format!("    {value:>10.2} {unit}"),
            _ => "nothing was measured".to_owned(),
        };
        eprintln!("{name:<36} {said}");
        self.0.push(figure);
    }

    /// Writes them where it was asked.
    pub fn write(&self, asked: &Asked) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.0.is_empty(),
            "no figure's name holds `{}`: leave --only out to see all names",
            asked.only
        );
        let Some(path) = &asked.out else {
            return Ok(());
        };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
        }
        fs::write(path, serde_json::to_vec_pretty(&self.0)?)
            .with_context(|| format!("{}: cannot be written", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_medians_of_the_runs_quantiles() {
        let run = |from: u64| (from..from + 101).map(|micros| micros * 1_000).collect();
        let figure = Figure::times("x", vec![run(0), run(100), run(1_000)]);
        assert_eq!((figure.p50, figure.p99), (Some(150.0), Some(199.0)));
    }
}
