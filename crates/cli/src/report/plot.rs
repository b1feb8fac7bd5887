//! A cumulative distribution as inline SVG: log time axis, labels on the curves.

use std::fmt::Write as _;

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
/// Size of a label's letters, in the plot's own units.
const LETTER: (f64, f64) = (8.6, 14.0);

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

/// A logarithmic axis.
#[derive(Clone, Copy, Debug)]
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// From the 1st percentile of the fastest curve to the last request of the slowest, widened to at least a factor
    /// of four.
    fn over(curves: &[Curve<'_>]) -> Self {
        let ends = |pick: fn(&[f64]) -> f64| {
            curves
                .iter()
                .filter(|curve| !curve.sorted.is_empty())
                .map(move |curve| pick(&curve.sorted))
        };
        let low = ends(|sorted| quantile(sorted, 0.01)).fold(f64::INFINITY, f64::min);
        let high = ends(|sorted| quantile(sorted, 1.0)).fold(0.0, f64::max);
        if !low.is_finite() || high <= 0.0 {
            return Self {
                low: 1.0,
                high: 1_000.0,
            };
        }
        let (low, high) = (low * 0.92, high * 1.05);
        let missing = (4.0 / (high / low)).max(1.0).sqrt();
        Self {
            low: low / missing,
            high: high * missing,
        }
    }

    fn x(self, ms: f64) -> f64 {
        let along = (ms / self.low).ln() / (self.high / self.low).ln();
        LEFT + along.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    /// Ticks at 1, 2 and 5 of each decade; labelled all, or 1 and 3, or 1, so that at most seven are.
    fn ticks(self) -> Vec<(f64, bool)> {
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let at = |steps: &[f64]| -> Vec<f64> {
            decades
                .clone()
                .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)))
                .filter(|ms| (self.low..=self.high).contains(ms))
                .collect()
        };
        let labelled = [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]]
            .into_iter()
            .map(at)
            .find(|ticks| ticks.len() <= 7)
            .unwrap_or_default();
        let mut ticks: Vec<(f64, bool)> = labelled.iter().map(|ms| (*ms, true)).collect();
        ticks.extend(
            at(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
                .into_iter()
                .filter(|ms| !labelled.contains(ms))
                .map(|ms| (ms, false)),
        );
        ticks
    }
}

fn y(share: f64) -> f64 {
    BOTTOM - share * (BOTTOM - TOP)
}

fn tick_label(ms: f64) -> String {
    if ms >= 1_000.0 {
        format!("{} s", ms / 1e3)
    } else {
        format!("{ms} ms")
    }
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

#[derive(Clone, Copy)]
struct Rect {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Rect {
    fn meets(self, other: Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    /// How much of a polyline lies in the box, in segments sampled at their ends and middles.
    fn crossed_by(self, line: &[(f64, f64)]) -> usize {
        let inside = |(x, y): (f64, f64)| self.left < x && x < self.right && self.top < y && y < self.bottom;
        line.windows(2)
            .flat_map(|ends| (0..=8).map(move |step| (ends, f64::from(step) / 8.0)))
            .filter(|(ends, along)| {
                let [(x0, y0), (x1, y1)] = [ends[0], ends[1]];
                inside((x0 + (x1 - x0) * along, y0 + (y1 - y0) * along))
            })
            .count()
    }
}

/// Finds a place beside its own curve where a label covers no curve and no other label: tries heights on both sides
/// and takes the first free one, else the least bad.
fn place(
    label: &str,
    own: usize,
    lines: &[Vec<(f64, f64)>],
    taken: &mut Vec<Rect>,
) -> (f64, f64, &'static str) {
    let width = label.chars().count() as f64 * LETTER.0 + 4.0;
    let heights = [0.62, 0.5, 0.72, 0.38, 0.3, 0.82, 0.22, 0.14, 0.92];
    let sides = if own == 0 {
        ["end", "start"]
    } else {
        ["start", "end"]
    };
    let mut best: Option<(usize, Rect, &'static str)> = None;
    for (share, anchor) in heights
        .into_iter()
        .flat_map(|share| sides.map(|side| (share, side)))
    {
        let middle = y(share);
        let Some(&(x, _)) = lines[own].iter().find(|(_, at)| *at <= middle) else {
            continue;
        };
        let left = if anchor == "start" {
            x + 10.0
        } else {
            x - 10.0 - width
        };
        let rect = Rect {
            left,
            right: left + width,
            top: middle - LETTER.1 / 2.0 - 2.0,
            bottom: middle + LETTER.1 / 2.0 + 2.0,
        };
        let outside = usize::from(rect.left < LEFT + 2.0 || rect.right > RIGHT - 2.0) * 10_000;
        let covered = taken.iter().filter(|other| rect.meets(**other)).count() * 1_000;
        let apart = Rect {
            left: rect.left.min(x + 2.0),
            right: rect.right.max(x - 2.0),
            ..rect
        };
        let crossed = lines.iter().enumerate().map(|(other, line)| {
            // Another curve may not even run between a label and its own.
            if other == own {
                rect.crossed_by(line)
            } else {
                apart.crossed_by(line)
            }
        });
        let cost = outside + covered + crossed.sum::<usize>();
        if best.is_none_or(|(least, _, _)| cost < least) {
            best = Some((cost, rect, anchor));
        }
        if cost == 0 {
            break;
        }
    }
    let (_, rect, anchor) = best.unwrap_or((
        0,
        Rect {
            left: LEFT,
            right: LEFT + width,
            top: TOP,
            bottom: TOP + 17.0,
        },
        "start",
    ));
    taken.push(rect);
    let x = if anchor == "start" {
        rect.left + 2.0
    } else {
        rect.right - 2.0
    };
    (x, f64::midpoint(rect.top, rect.bottom) + 4.4, anchor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_axis_labels_few_ticks_inside_its_range() {
        for (low, high) in [(8.0, 90.0), (40.0, 61_000.0), (0.3, 2.0e6), (100.0, 400.0)] {
            let ticks = Axis { low, high }.ticks();
            let labelled = ticks.iter().filter(|(_, labelled)| *labelled).count();
            assert!((1..=7).contains(&labelled), "{low}..{high}: {labelled}");
            assert!(ticks.iter().all(|(ms, _)| (low..=high).contains(ms)));
        }
        assert_eq!(tick_label(200.0), "200 ms");
        assert_eq!(tick_label(5_000.0), "5 s");
    }

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
    fn labels_keep_off_curves_and_each_other() {
        let curves: Vec<Curve<'_>> = [("lmetric", 100.0), ("vllm", 220.0), ("round-robin", 480.0)]
            .into_iter()
            .enumerate()
            .map(|(colour, (label, scale))| {
                Curve::new(
                    label,
                    colour,
                    (1..500).map(move |i| scale * (1.0 + f64::from(i) / 40.0)),
                )
            })
            .collect();
        let axis = Axis::over(&curves);
        let lines: Vec<_> = curves.iter().map(|curve| points(axis, curve)).collect();
        let mut taken = Vec::new();
        for (index, curve) in curves.iter().enumerate() {
            place(curve.label, index, &lines, &mut taken);
        }
        for (i, rect) in taken.iter().enumerate() {
            assert!(
                lines.iter().all(|line| rect.crossed_by(line) == 0),
                "label {i} covers a curve"
            );
            assert!(
                taken[..i].iter().all(|other| !rect.meets(*other)),
                "label {i} covers a label"
            );
        }
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
