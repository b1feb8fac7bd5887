//! The comparison on a terminal.

use std::io::{self, Write};

use super::compare::Comparison;
use crate::{stats::Stats, units::grouped};

/// A unit that suits a column of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Milliseconds,
    Seconds,
}

impl Unit {
    /// Seconds where the largest mean is one at least.
    pub(super) fn of(stats: impl Iterator<Item = Stats>) -> Self {
        if stats.map(|stats| stats.mean).fold(0.0, f64::max) >= 1_000.0 {
            Self::Seconds
        } else {
            Self::Milliseconds
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
        }
    }

    pub(super) fn show(self, ms: f64) -> String {
        match self {
            Self::Milliseconds => format!("{ms:.1}"),
            Self::Seconds => format!("{:.2}", ms / 1e3),
        }
    }
}

/// Writes the table: a row for each policy, the best mean of each kind with a star.
pub(super) fn print(comparison: &Comparison, out: &mut impl Write) -> io::Result<()> {
    let ttft = Unit::of(comparison.figures.iter().map(|figures| figures.ttft_ms));
    let tpot = Unit::of(comparison.figures.iter().map(|figures| figures.tpot_ms));
    let base = comparison.baseline.map(|index| comparison.label(index));
    let mut rows = vec![[
        "policy".to_owned(),
        "requests".to_owned(),
        "errors".to_owned(),
        format!("TTFT {}", ttft.name()),
        "p50".to_owned(),
        "p99".to_owned(),
        format!("TPOT {}", tpot.name()),
        "p50".to_owned(),
        "p99".to_owned(),
        "hit".to_owned(),
        base.map_or_else(String::new, |base| format!("TTFT ÷ {base}")),
        base.map_or_else(String::new, |base| format!("TPOT ÷ {base}")),
    ]];
    let best_ttft = comparison.best(|figures| figures.ttft_ms.mean);
    let best_tpot = comparison.best(|figures| figures.tpot_ms.mean);
    for (index, figures) in comparison.figures.iter().enumerate() {
        let star = |best: Option<usize>, text: String| {
            if best == Some(index) {
                format!("*{text}")
            } else {
                text
            }
        };
        let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        rows.push([
            comparison.label(index).to_owned(),
            grouped(figures.requests),
            grouped(figures.errors),
            star(best_ttft, ttft.show(figures.ttft_ms.mean)),
            ttft.show(figures.ttft_ms.p50),
            ttft.show(figures.ttft_ms.p99),
            star(best_tpot, tpot.show(figures.tpot_ms.mean)),
            tpot.show(figures.tpot_ms.p50),
            tpot.show(figures.tpot_ms.p99),
            format!("{:.1} %", figures.hit_ratio * 100.0),
            ratio(figures.ttft_ratio),
            ratio(figures.tpot_ratio),
        ]);
    }
    let mut widths = [0; 12];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for (number, row) in rows.iter().enumerate() {
        let mut cells = row.iter().zip(widths).filter(|(_, width)| *width > 0);
        if let Some((policy, width)) = cells.next() {
            write!(out, "{policy:width$}")?;
        }
        for (cell, width) in cells {
            write!(out, "  {cell:>width$}")?;
        }
        writeln!(out)?;
        if number == 0 {
            let shown = widths.iter().filter(|width| **width > 0);
            writeln!(
                out,
                "{}",
                "─".repeat(shown.map(|width| width + 2).sum::<usize>() - 2)
            )?;
        }
    }
    writeln!(
        out,
        "times in model time, mean then quantiles; * lowest mean; hit: prompt tokens from prefix caches"
    )?;
    if let Some(idle) = comparison.idle {
        writeln!(
            out,
            "overhead in model time (idle fleet's TTFT minus the model's): {:+.1} % ({:.1} against {:.1} ms, {} requests)",
            idle.overhead * 100.0,
            idle.measured_ttft_ms,
            idle.model_ttft_ms,
            idle.requests
        )?;
    }
    for warning in &comparison.warnings {
        writeln!(out, "note: {warning}")?;
    }
    Ok(())
}
