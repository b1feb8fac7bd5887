//! What a person sees while a replay runs: a bar on a terminal, else a line every five seconds.

use std::{
    io::IsTerminal as _,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::units::time_ms;

/// How often the bar moves.
pub(super) const TICK: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Figures of the moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) sent: u64,
    pub(super) in_flight: u64,
    pub(super) done: u64,
    pub(super) errors: u64,
    pub(super) mean_ttft_ms: f64,
}

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            sent: _,
            in_flight,
            done,
            errors,
            mean_ttft_ms,
        } = *self;
        write!(f, "{in_flight} in flight, {errors} errors")?;
        if done > errors {
            write!(f, ", TTFT {}", time_ms(mean_ttft_ms))
        } else {
            Ok(())
        }
    }
}

pub(super) enum Progress {
    Bar(ProgressBar),
    Lines {
        label: String,
        planned: u64,
        began: Instant,
        said: Instant,
    },
}

impl Progress {
    pub(super) fn new(label: &str, planned: u64) -> Self {
        let style = ProgressStyle::with_template(
            "{prefix:>12.bold} {bar:32.cyan/238} {pos}/{len} {elapsed:>4} · {msg}",
        );
        match style {
            Ok(style) if std::io::stderr().is_terminal() => {
                let bar = ProgressBar::with_draw_target(Some(planned), ProgressDrawTarget::stderr_with_hz(5));
                bar.set_style(style.progress_chars("━━─"));
                bar.set_prefix(label.to_owned());
                Self::Bar(bar)
            }
            _ => {
                let now = Instant::now();
                Self::Lines {
                    label: label.to_owned(),
                    planned,
                    began: now,
                    said: now,
                }
            }
        }
    }

    pub(super) fn show(&mut self, moment: Moment) {
        match self {
            Self::Bar(bar) => {
                bar.set_position(moment.done);
                bar.set_message(moment.to_string());
            }
            Self::Lines {
                label,
                planned,
                began,
                said,
            } => {
                if said.elapsed() >= LINE_EVERY {
                    *said = Instant::now();
                    let seconds = began.elapsed().as_secs();
                    eprintln!(
                        "{label}: {seconds} s, {} of {planned} sent, {} done, {moment}",
                        moment.sent, moment.done
                    );
                }
            }
        }
    }

    /// A line that stays.
    pub(super) fn say(&self, line: &str) {
        match self {
            Self::Bar(bar) => bar.suspend(|| eprintln!("{line}")),
            Self::Lines { label, .. } => eprintln!("{label}: {line}"),
        }
    }

    pub(super) fn close(self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
