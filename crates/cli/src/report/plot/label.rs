//! Where a curve's name goes.

use super::{LEFT, RIGHT, TOP, y};

/// Size of a label's letters, in the plot's own units.
const LETTER: (f64, f64) = (8.6, 14.0);

#[derive(Clone, Copy)]
pub(super) struct Rect {
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
pub(super) fn place(
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
    use super::{
        super::{Axis, Curve, points},
        *,
    };

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
}
