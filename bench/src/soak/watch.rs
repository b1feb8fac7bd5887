//! A line now and then, and what the lines say together.

use std::{fmt, time::Duration};

use anyhow::{bail, ensure};

use super::world::{Left, World};
use crate::{
    results::{Figure, at, median},
    usage,
};

/// Lines of a whole run: one a minute when it lasts half an hour.
pub const LINES: usize = 30;
/// The line that all later ones are compared with: minute 10 of 30.
const BASE: usize = LINES / 3 - 1;
/// How much memory may differ from that of the base line.
const MEMORY_SLACK: f64 = 0.05;
/// How much the number of blocks may: where it differs, memory may too.
const BLOCKS_SLACK: f64 = 0.05;
/// How much slower the median pick, and the hundredth, may be in the last third than in the one before.
const SLOWER: [(&str, f64); 2] = [("p50", 1.25), ("p99", 2.0)];

/// How it stands.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Since the beginning.
    pub at: Duration,
    /// Resident memory of this process, bytes.
    pub memory: u64,
    /// Bytes of the index.
    pub index: usize,
    /// (endpoint, block) pairs.
    pub pairs: usize,
    /// Picks since the line before, microseconds: median, 99th percentile.
    pub pick: [f64; 2],
    /// Requests open.
    pub open: usize,
}

impl Line {
    /// Now; `picks` are times since the line before in nanoseconds.
    pub fn now(at_time: Duration, mut picks: Vec<u64>, world: &World) -> anyhow::Result<Self> {
        picks.sort_unstable();
        Ok(Self {
            at: at_time,
            memory: usage::memory(std::process::id())?,
            index: world.index_bytes(),
            pairs: world.held(),
            pick: [0.5, 0.99].map(|quantile| at(&picks, quantile)),
            open: world.open(),
        })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            memory,
            index,
            pairs,
            pick: [p50, p99],
            open,
        } = self;
        write!(
            f,
            "{:6.2} min  resident {:7.1} MB  index {:6.1} MB, {pairs:>8} pairs  pick p50 {p50:6.1} p99 {p99:6.1} us  {open:>5} open",
            at.as_secs_f64() / 60.0,
            *memory as f64 / 1e6,
            *index as f64 / 1e6,
        )
    }
}

/// An error that says all that did not stay as it was.
pub fn judge(lines: &[Line], left: &Left) -> anyhow::Result<()> {
    let mut reasons = Vec::new();
    ensure!(lines.len() == LINES, "{} lines are too few to judge", lines.len());
    let base = lines[BASE];
    let [memory, pairs]: [fn(&Line) -> f64; 2] = [|line| line.memory as f64, |line| line.pairs as f64];
    for (what, slack, of) in [
        ("memory", MEMORY_SLACK, memory),
        ("blocks held", BLOCKS_SLACK, pairs),
    ] {
        let off = |line: &&Line| (of(line) / of(&base) - 1.0).abs();
        let worst = lines[BASE..]
            .iter()
            .max_by(|one, other| off(one).total_cmp(&off(other)));
        if let Some(worst) = worst
            && off(&worst) > slack
        {
            reasons.push(format!(
                "{what}: {:.1} % off at {:.2} min what it was at {:.2} min, more than {:.0} %",
                off(&worst) * 100.0,
                worst.at.as_secs_f64() / 60.0,
                base.at.as_secs_f64() / 60.0,
                slack * 100.0
            ));
        }
    }
    for (number, (what, slack)) in SLOWER.into_iter().enumerate() {
        let of = |lines: &[Line]| median(lines.iter().map(|line| line.pick[number]).collect());
        let (before, after) = (of(&lines[LINES / 3..2 * LINES / 3]), of(&lines[2 * LINES / 3..]));
        if after > before * slack {
            reasons.push(format!(
                "pick {what}: {before:.1} us in the second third, {after:.1} us in the last, more than {slack} times"
            ));
        }
    }
    if left.open > 0 {
        reasons.push(format!(
            "{} reservations are open after the last release",
            left.open
        ));
    }
    for view in &left.loaded {
        reasons.push(format!(
            "endpoint {}: Q {}, BS {}, {} blocks awaited after the last release",
            view.address, view.q, view.bs, view.optimistic_blocks
        ));
    }
    if reasons.is_empty() {
        eprintln!("flat: memory, blocks, latency; Q and BS 0 on every endpoint");
        return Ok(());
    }
    bail!("not flat\n{}", reasons.join("\n"))
}

/// What the last third came to.
pub fn figures(lines: &[Line]) -> Vec<Figure> {
    let last = &lines[2 * LINES / 3..];
    let middle = |of: fn(&Line) -> f64| median(last.iter().map(of).collect());
    vec![
        Figure {
            name: "soak/pick".to_owned(),
            unit: "us".to_owned(),
            p50: Some(middle(|line| line.pick[0])),
            p99: Some(middle(|line| line.pick[1])),
            value: None,
        },
        Figure::value("soak/memory", "MB", vec![middle(|line| line.memory as f64 / 1e6)]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(change: impl Fn(usize, &mut Line)) -> Vec<Line> {
        let line = |number: usize| {
            let mut line = Line {
                at: Duration::from_secs(60 * (number as u64 + 1)),
                memory: 100_000_000,
                index: 1,
                pairs: 1_000,
                pick: [10.0, 30.0],
                open: 5,
            };
            change(number, &mut line);
            line
        };
        (0..LINES).map(line).collect()
    }

    fn nothing() -> Left {
        Left {
            open: 0,
            loaded: Vec::new(),
        }
    }

    fn reason(change: impl Fn(usize, &mut Line)) -> String {
        judge(&lines(change), &nothing()).unwrap_err().to_string()
    }

    #[test]
    fn what_happens_before_the_base_line_does_not_count() {
        assert!(
            judge(
                &lines(|number, line| if number < BASE {
                    line.memory = 1;
                }),
                &nothing()
            )
            .is_ok()
        );
    }

    #[test]
    fn growth_after_the_base_line_is_named() {
        let grows = |number: usize, line: &mut Line| line.memory += number as u64 * 500_000;
        assert!(reason(grows).contains("memory: 9."), "{}", reason(grows));
        assert!(reason(|number, line| line.pairs += number * 10).contains("blocks held"));
    }

    #[test]
    fn picks_that_become_slower_are_named() {
        assert!(reason(|number, line| line.pick[0] += number as f64).contains("pick p50"));
        assert!(reason(|number, line| line.pick[1] += 10.0 * (number * number) as f64).contains("pick p99"));
        let noise = |number: usize, line: &mut Line| {
            line.pick[1] += if number.is_multiple_of(7) { 900.0 } else { 0.0 }
        };
        assert!(
            judge(&lines(noise), &nothing()).is_ok(),
            "single bad minutes are noise"
        );
    }

    #[test]
    fn what_is_left_is_named() {
        let left = Left { open: 2, ..nothing() };
        let error = judge(&lines(|_, _| ()), &left).unwrap_err().to_string();
        assert!(error.contains("2 reservations"));
    }
}
