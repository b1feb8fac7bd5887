//! Following a replay while it runs.

use std::sync::{Arc, atomic::Ordering};

use anyhow::Context as _;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{
    idle,
    open_loop::{Finished, Gauges, OpenLoop, Target},
    progress::{self, Moment, Progress},
    prompt::PromptMaker,
    tally::Tally,
};
use crate::trace::{Arrival, Trace};

/// Follows a replay: counts ends, shows progress.
pub(super) struct Watch {
    pub(super) tally: Tally,
    pub(super) progress: Progress,
    pub(super) gauges: Arc<Gauges>,
}

impl Watch {
    pub(super) async fn open_loop(
        &mut self,
        open_loop: OpenLoop,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let mut finished = open_loop
            .start(Handle::current(), self.gauges.clone(), stop.clone())
            .context("cannot start the sending threads; free some memory or processes")?;
        let mut tick = tokio::time::interval(progress::TICK);
        loop {
            tokio::select! {
                end = finished.recv() => match end {
                    Some(end) => self.take(end),
                    None => return Ok(()),
                },
                _ = tick.tick() => self.show(),
            }
        }
    }

    pub(super) async fn one_at_a_time(
        &mut self,
        trace: &Trace,
        arrivals: &[Arrival],
        maker: &PromptMaker,
        target: &Target,
        stop: &CancellationToken,
    ) {
        self.gauges.peak.store(1, Ordering::Relaxed);
        idle::one_at_a_time(trace, arrivals, maker, target, stop, |end| {
            self.gauges.sent.fetch_add(1, Ordering::Relaxed);
            self.take(end);
            self.show();
        })
        .await;
    }

    fn take(&mut self, finished: Finished) {
        if let Some(first_of_its_kind) = self.tally.take(finished) {
            self.progress.say(&first_of_its_kind);
        }
    }

    fn show(&mut self) {
        self.progress.show(Moment {
            sent: self.gauges.sent.load(Ordering::Relaxed),
            in_flight: self.gauges.in_flight.load(Ordering::Relaxed),
            done: self.tally.done(),
            errors: self.tally.errors(),
            mean_ttft_ms: self.tally.mean_ttft_ms(),
        });
    }
}
