//! Lines over a linear or logarithmic plane as inline SVG, named at their right ends.

use std::fmt::Write as _;

use super::{BOTTOM, HEIGHT, LEFT, TOP, WIDTH};
use crate::report::page::escape;

/// Where lines end; names stand to the right of it.
const END: f64 = 344.0;
/// Room beside the plot for long ticks, and more of it for long names.
const MARGIN: f64 = 14.0;
/// Least distance of two names, in the plot's own units.
const APART: f64 = 15.0;
/// Labelled ticks of an axis, about.
const TICKS: f64 = 5.0;

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) label: &'a str,
    /// Which of the page's colours; none: one of the field, thin and without a name.
    pub(crate) colour: Option<usize>,
    /// In order of x.
    pub(crate) points: Vec<(f64, f64)>,
    /// A second edge: the area between is filled, and the line itself is not drawn.
    pub(crate) lower: Option<Vec<f64>>,
    /// Whether its points are marked.
    pub(crate) dots: bool,
}

/// What a plane shows.
#[derive(Clone, Debug)]
pub(crate) struct Plane<'a> {
    /// Read by screen readers.
    pub(crate) what: &'a str,
    /// Under the x axis.
    pub(crate) x_name: &'a str,
    /// Whether y is logarithmic.
    pub(crate) log: bool,
    /// How a y is written.
    pub(crate) write: fn(f64) -> String,
    /// How a y is written at the axis.
    pub(crate) tick: fn(f64) -> String,
    pub(crate) lines: Vec<Line<'a>>,
    /// Moments to mark on the x axis: where, how a reader is told, whether it is a strong one.
    pub(crate) marks: Vec<(f64, String, bool)>,
}

struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    fn over(values: impl Iterator<Item = f64>, log: bool, from_zero: bool) -> Self {
        let usable = |value: &f64| value.is_finite() && (!log || *value > 0.0);
        let (mut low, mut high) = values
            .filter(usable)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        if low > high {
            (low, high) = (1.0, 2.0);
        }
        if from_zero && !log {
            low = low.min(0.0);
        }
        if log {
            (low, high) = (low * 0.9, high * 1.1);
        } else if high - low < 1e-12 {
            high = low + 1.0;
        }
        Self { low, high, log }
    }

    /// 0 at the low end, 1 at the high one.
    fn along(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let steps: [&[f64]; 3] = [&[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
            let ticks = steps.map(|steps| -> Vec<f64> {
                decades
                    .clone()
                    .flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)))
                    .filter(|tick| (self.low..=self.high).contains(tick))
                    .collect()
            });
            return ticks
                .into_iter()
                .find(|ticks| ticks.len() <= 7)
                .unwrap_or_default();
        }
        let rough = (self.high - self.low) / TICKS;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|step| step * power)
            .into_iter()
            .find(|step| *step >= rough);
        let step = step.unwrap_or(power * 10.0);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|tick| tick as f64 * step).collect()
    }
}

/// The plot.
pub(crate) fn lines(plane: &Plane<'_>) -> String {
    let all = || plane.lines.iter().flat_map(|line| line.points.iter().copied());
    let lower = plane
        .lines
        .iter()
        .filter_map(|line| line.lower.as_ref())
        .flatten()
        .copied();
    let xs = Scale::over(all().map(|(x, _)| x), false, false);
    let ys = Scale::over(all().map(|(_, y)| y).chain(lower), plane.log, true);
    let x = |value: f64| LEFT + xs.along(value) * (END - LEFT);
    let y = |value: f64| BOTTOM - ys.along(value) * (BOTTOM - TOP);
    let mut svg = format!(
        "<svg class=\"plot\" viewBox=\"{:.0} 0 {:.0} {:.0}\" role=\"img\" aria-label=\"{}\">",
        -MARGIN,
        WIDTH + 2.5 * MARGIN,
        HEIGHT + 18.0,
        escape(plane.what)
    );
    for tick in ys.ticks() {
        let at = y(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{END}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 7.0,
            at + 4.0,
            escape(&(plane.tick)(tick))
        );
    }
    let _ = write!(
        svg,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{END}\" y1=\"{BOTTOM}\" y2=\"{BOTTOM}\"/>"
    );
    for tick in xs.ticks() {
        let at = x(tick);
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{BOTTOM}\" y2=\"{:.1}\"/><text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 5.0,
            BOTTOM + 19.0,
            short(tick)
        );
    }
    let _ = write!(
        svg,
        "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(LEFT, END),
        BOTTOM + 37.0,
        escape(plane.x_name)
    );
    for (at, told, strong) in &plane.marks {
        let at = x(*at);
        let _ = write!(
            svg,
            "<line class=\"mark{}\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{BOTTOM}\"><title>{}</title></line>",
            if *strong { " strong" } else { "" },
            escape(told)
        );
    }
    // the field first, the first line over all others
    let order = plane.lines.iter().rev().filter(|line| line.colour.is_none());
    for line in order.chain(plane.lines.iter().rev().filter(|line| line.colour.is_some())) {
        draw(&mut svg, plane, line, &x, &y);
    }
    for (line, at) in names(&plane.lines, &y) {
        let _ = write!(
            svg,
            "<text class=\"name c{}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            line.colour.unwrap_or(0),
            END + 7.0,
            at + 4.5,
            escape(line.label)
        );
    }
    svg.push_str("</svg>");
    svg
}

fn draw(
    svg: &mut String,
    plane: &Plane<'_>,
    line: &Line<'_>,
    x: &impl Fn(f64) -> f64,
    y: &impl Fn(f64) -> f64,
) {
    let class = line
        .colour
        .map_or_else(|| "rest".to_owned(), |colour| format!("c{colour}"));
    let label = escape(line.label);
    let mut path = String::new();
    for (i, (at, value)) in line.points.iter().enumerate() {
        let _ = write!(
            path,
            "{}{:.1} {:.1}",
            if i == 0 { "M" } else { "L" },
            x(*at),
            y(*value)
        );
    }
    let _ = write!(svg, "<g class=\"{class}\"><title>{label}</title>");
    match &line.lower {
        Some(lower) => {
            for ((at, _), value) in line.points.iter().zip(lower).rev() {
                let _ = write!(path, "L{:.1} {:.1}", x(*at), y(*value));
            }
            let _ = write!(svg, "<path class=\"band\" d=\"{path}Z\"/>");
        }
        None => {
            let _ = write!(
                svg,
                "<path class=\"reach\" d=\"{path}\"/><path class=\"line\" d=\"{path}\"/>"
            );
        }
    }
    if line.dots {
        for (at, value) in &line.points {
            let _ = write!(
                svg,
                "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"><title>{label}, {}: {}</title></circle>",
                x(*at),
                y(*value),
                short(*at),
                escape(&(plane.write)(*value))
            );
        }
    }
    svg.push_str("</g>");
}

/// Named lines with the heights of their names, pushed apart from the top down.
fn names<'a, 'b>(lines: &'a [Line<'b>], y: &impl Fn(f64) -> f64) -> Vec<(&'a Line<'b>, f64)> {
    let mut named: Vec<(&Line<'_>, f64)> = lines
        .iter()
        .filter(|line| line.colour.is_some() && !line.label.is_empty())
        .filter_map(|line| Some((line, y(line.points.last()?.1))))
        .collect();
    named.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    let mut above = TOP - APART;
    for (_, at) in &mut named {
        *at = at.max(above + APART);
        above = *at;
    }
    let mut below = BOTTOM + APART;
    for (_, at) in named.iter_mut().rev() {
        *at = at.min(below - APART);
        below = *at;
    }
    named
}

fn short(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    rounded.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(label: &str, colour: Option<usize>, points: Vec<(f64, f64)>) -> Line<'_> {
        Line {
            label,
            colour,
            points,
            lower: None,
            dots: true,
        }
    }

    #[test]
    fn names_never_overlap_and_the_field_has_none() {
        let lines = [
            line("a", Some(0), vec![(0.0, 5.0)]),
            line("b", Some(1), vec![(0.0, 5.0)]),
            line("c", Some(2), vec![(0.0, 5.1)]),
            line("d", None, vec![(0.0, 5.0)]),
        ];
        let placed = names(&lines, &|value| BOTTOM - value);
        assert_eq!(placed.len(), 3);
        assert!(placed.windows(2).all(|two| two[1].1 - two[0].1 >= APART - 1e-9));
        assert!(placed.iter().all(|(_, at)| (TOP..=BOTTOM).contains(at)));
    }

    #[test]
    fn nothing_measured_draws_an_empty_plot() {
        for points in [vec![], vec![(1.0, 0.0)], vec![(1.0, f64::NAN)]] {
            for log in [false, true] {
                let svg = super::lines(&Plane {
                    what: "w",
                    x_name: "x",
                    log,
                    write: |value| value.to_string(),
                    tick: |value| value.to_string(),
                    lines: vec![line("a", Some(0), points.clone())],
                    marks: vec![],
                });
                assert!(svg.ends_with("</svg>") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn ticks_are_round_numbers_within_the_axis() {
        let scale = Scale::over([0.0, 0.97].into_iter(), false, true);
        let tenths: Vec<i64> = scale
            .ticks()
            .iter()
            .map(|tick| (tick * 10.0).round() as i64)
            .collect();
        assert_eq!(tenths, [0, 2, 4, 6, 8]);
        let scale = Scale::over([3.0, 800.0].into_iter(), true, true);
        assert_eq!(scale.ticks(), [5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]);
    }
}
