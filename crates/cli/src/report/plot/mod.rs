//! A cumulative distribution as inline SVG: log time axis, labels on the curves.

mod axis;
mod label;
mod lines;

use std::fmt::Write as _;

pub(crate) use self::{
    axis::tick_label,
    lines::{Line, Plane, lines},
};

use self::{axis::Axis, label::place};
use super::page::escape;
use crate::{stats::quantile, units::time_ms};

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 42.0;
const RIGHT: f64 = 448.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 292.0;
/// Points drawn of each curve.
const POINTS: usize = 240;

/// One run's distribution.
#[derive(Clone, Debug)]
pub(super) struct Curve<'a> {
    pub(super) label: &'a str,
    /// Which of the page's colours.
    pub(super) colour: usize,
    /// Sorted, in milliseconds, above 0.
    pub(super) sorted: Vec<f64>,
}

impl<'a> Curve<'a> {
    pub(super) fn new(label: &'a str, colour: usize, figures: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.filter(|ms| *ms > 0.0).collect();
        sorted.sort_by(f64::total_cmp);
        Self {
            label,
            colour,
            sorted,
        }
    }
}

fn y(share: f64) -> f64 {
    BOTTOM - share * (BOTTOM - TOP)
}

/// The plot. `what` is read by screen readers and shown in hover titles.
pub(super) fn cdf(what: &str, curves: &[Curve<'_>]) -> String {
    let axis = Axis::over(curves);
    let mut svg = format!(
        "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape(&format!("Cumulative distribution of {what}: {}", spoken(curves)))
    );
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let y = y(share);
        let class = if share == 0.0 { "axis" } else { "grid" };
        let _ = write!(
            svg,
            "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}{}</text>",
            LEFT - 7.0,
            y + 4.0,
            share * 100.0,
            if share == 1.0 { " %" } else { "" }
        );
    }
    for (ms, labelled) in axis.ticks() {
        let x = axis.x(ms);
        if labelled {
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 19.0,
                tick_label(ms)
            );
        }
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{BOTTOM}\" y2=\"{:.1}\"/>",
            BOTTOM + if labelled { 5.0 } else { 3.0 }
        );
    }
    let lines: Vec<Vec<(f64, f64)>> = curves.iter().map(|curve| points(axis, curve)).collect();
    // The first curve is the one that the page is about: it is drawn last, over the others.
    for (curve, line) in curves.iter().zip(&lines).rev() {
        draw(&mut svg, what, axis, curve, line);
    }
    let mut taken = Vec::new();
    for (index, curve) in curves
        .iter()
        .enumerate()
        .filter(|(_, curve)| !curve.sorted.is_empty())
    {
        let (x, y, anchor) = place(curve.label, index, &lines, &mut taken);
        let _ = write!(
            svg,
            "<text class=\"name c{}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            curve.colour,
            escape(curve.label)
        );
    }
    svg.push_str("</svg>");
    svg
}

fn spoken(curves: &[Curve<'_>]) -> String {
    let median =
        |curve: &Curve<'_>| format!("{} median {}", curve.label, time_ms(quantile(&curve.sorted, 0.5)));
    curves
        .iter()
        .filter(|curve| !curve.sorted.is_empty())
        .map(median)
        .collect::<Vec<_>>()
        .join(", ")
}

fn points(axis: Axis, curve: &Curve<'_>) -> Vec<(f64, f64)> {
    let n = curve.sorted.len();
    let mut line: Vec<(f64, f64)> = (0..n.min(POINTS))
        .map(|i| {
            let rank = if n <= POINTS {
                i
            } else {
                i * (n - 1) / (POINTS - 1)
            };
            (axis.x(curve.sorted[rank]), y((rank + 1) as f64 / n as f64))
        })
        .collect();
    if let (Some(first), Some(last)) = (line.first().copied(), line.last().copied()) {
        line.insert(0, (first.0, y(0.0)));
        line.push((RIGHT, last.1));
    }
    line
}

fn draw(svg: &mut String, what: &str, axis: Axis, curve: &Curve<'_>, line: &[(f64, f64)]) {
    if line.is_empty() {
        return;
    }
    let mut path = String::new();
    for (i, (x, y)) in line.iter().enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" });
    }
    let label = escape(curve.label);
    let at = |q: f64| quantile(&curve.sorted, q);
    let _ = write!(
        svg,
        "<g class=\"c{}\"><title>{label} · {what}: median {}, 90 % {}, 99 % {}</title><path class=\"reach\" d=\"{path}\"/><path class=\"line\" d=\"{path}\"/>",
        curve.colour,
        time_ms(at(0.5)),
        time_ms(at(0.9)),
        time_ms(at(0.99)),
    );
    for q in [0.5, 0.9, 0.99] {
        let _ = write!(
            svg,
            "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.4\"><title>{label} · {} % of requests within {}</title></circle>",
            axis.x(at(q)),
            y(q),
            q * 100.0,
            time_ms(at(q))
        );
    }
    svg.push_str("</g>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_rises_from_nothing_to_all() {
        let curve = Curve::new("a", 0, (1..=1_000).map(f64::from));
        let line = points(Axis::over(std::slice::from_ref(&curve)), &curve);
        assert!(line.len() <= POINTS + 2);
        assert_eq!((line[0].1, line[line.len() - 1]), (BOTTOM, (RIGHT, TOP)));
        assert!(
            line.windows(2)
                .all(|ends| ends[0].0 <= ends[1].0 && ends[0].1 >= ends[1].1)
        );
    }

    #[test]
    fn nothing_measured_draws_an_empty_plot() {
        let svg = cdf("TTFT", &[Curve::new("a", 0, std::iter::empty())]);
        assert!(
            svg.starts_with("<svg")
                && svg.ends_with("</svg>")
                && !svg.contains("NaN")
                && !svg.contains("inf")
        );
    }
}
