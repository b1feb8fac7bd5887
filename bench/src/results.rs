//! Figures: kept as a flat list in JSON, shown as a table, compared with those of another run.

use std::{fs, path::Path};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

/// One figure. Times have quantiles, rates and sizes a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Such as `pick/8k/64`.
    pub name: String,
    /// `us`, `1/s`, `bytes`.
    pub unit: String,
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
        Self {
            name: name.to_owned(),
            unit: "us".to_owned(),
            p50: Some(median(halves)),
            p99: Some(median(tails)),
            value: None,
        }
    }

    /// From one value of each run.
    pub fn value(name: &str, unit: &str, runs: Vec<f64>) -> Self {
        Self {
            name: name.to_owned(),
            unit: unit.to_owned(),
            p50: None,
            p99: None,
            value: Some(median(runs)),
        }
    }

    /// The figure that a comparison looks at.
    fn main(&self) -> Option<f64> {
        self.p50.or(self.value)
    }

    fn more_is_better(&self) -> bool {
        self.unit.ends_with("/s")
    }
}

/// Nearest rank, in microseconds.
pub(crate) fn at(sorted: &[u64], quantile: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let place = (last as f64 * quantile).round() as usize;
    sorted.get(place).map_or(f64::NAN, |nanos| *nanos as f64 / 1e3)
}

/// The value in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Reads what an earlier run wrote.
pub fn read(path: &Path) -> anyhow::Result<Vec<Figure>> {
    let text = fs::read(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{}: is no list of figures", path.display()))
}

/// Writes these figures; others that the file has stay.
pub fn merge(path: &Path, figures: &[Figure]) -> anyhow::Result<()> {
    let mut all = if path.exists() { read(path)? } else { Vec::new() };
    for figure in figures {
        match all.iter_mut().find(|other| other.name == figure.name) {
            Some(other) => *other = figure.clone(),
            None => all.push(figure.clone()),
        }
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
    }
    let text = serde_json::to_vec_pretty(&all)?;
    fs::write(path, text).with_context(|| format!("{}: cannot be written", path.display()))
}

/// Whether figures can go there: to be known before hours of measuring.
pub fn check(path: &Path) -> anyhow::Result<()> {
    merge(path, &[])
}

/// A line for a terminal.
pub fn line(figure: &Figure) -> String {
    let Figure {
        name,
        unit,
        p50,
        p99,
        value,
    } = figure;
    match (p50, p99, value) {
        (Some(p50), Some(p99), _) => format!("{name:<36} p50 {p50:>10.2} {unit}   p99 {p99:>10.2} {unit}"),
        (_, _, Some(value)) => format!("{name:<36}     {value:>10.2} {unit}"),
        _ => format!("{name:<36} nothing was measured"),
    }
}

/// Compares with a stored run; an error when a figure is worse by more than `slack` (0.2 = a fifth).
pub fn compare(now: &[Figure], before: &[Figure], slack: f64) -> anyhow::Result<Vec<String>> {
    let (mut lines, mut worse) = (Vec::new(), Vec::new());
    for figure in now {
        let Some(old) = before.iter().find(|old| old.name == figure.name) else {
            lines.push(format!("{:<36} is new", figure.name));
            continue;
        };
        let (Some(is), Some(was)) = (figure.main(), old.main()) else {
            continue;
        };
        let ratio = is / was;
        lines.push(format!(
            "{:<36} {was:>10.2} -> {is:>10.2} {}  ({ratio:.2} x)",
            figure.name, figure.unit
        ));
        let loss = if figure.more_is_better() {
            1.0 / ratio
        } else {
            ratio
        };
        if loss.is_nan() || loss > 1.0 + slack {
            worse.push(figure.name.clone());
        }
    }
    for line in &lines {
        eprintln!("{line}");
    }
    if worse.is_empty() {
        return Ok(lines);
    }
    bail!(
        "worse than the stored run by more than {:.0} %: {}",
        slack * 100.0,
        worse.join(", ")
    )
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

    #[test]
    fn a_file_that_is_no_list_of_figures_is_refused_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.json");
        fs::write(&file, "{}").unwrap();
        let error = check(&file).unwrap_err().to_string();
        assert_eq!(error, format!("{}: is no list of figures", file.display()));
        assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
        assert!(check(folder.path()).is_err(), "a folder");
        assert!(check(&folder.path().join("new/results.json")).is_ok());
    }

    #[test]
    fn a_rate_that_falls_and_a_time_that_grows_are_worse() {
        let rate = |value| Figure::value("rate", "1/s", vec![value]);
        let time = |value| Figure::value("time", "us", vec![value]);
        assert!(compare(&[rate(79.0)], &[rate(100.0)], 0.2).is_err());
        assert!(compare(&[rate(300.0)], &[rate(100.0)], 0.2).is_ok());
        assert!(compare(&[time(121.0)], &[time(100.0)], 0.2).is_err());
        assert!(compare(&[time(10.0)], &[time(100.0)], 0.2).is_ok());
        assert!(compare(&[time(f64::NAN)], &[time(100.0)], 0.2).is_err());
    }
}
