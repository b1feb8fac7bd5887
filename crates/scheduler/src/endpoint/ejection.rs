//! An engine that refuses or fails at once would look idle and draw everything: it is taken out for a while.
//!
//! Three failures in a row, or two failed scrapes and a refused connection ⇒ out for 1 s, doubling to 30 s, then one trial
//! request at a time; success clears. A scrape that has no answer, and after it a connection that cannot be made, are two:
//! the machine is gone. While no connection can be made, no request is spent on a trial.

use std::time::Duration;

use crate::{Time, config::Pace, ledger::ReservationId};

const FAILURES: u32 = 3;
const FAILED_SCRAPES: u32 = 2;
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// What is known of an endpoint's failures.
#[derive(Debug, Default)]
pub(crate) struct Ejection {
    failures: u32,
    failed_scrapes: u32,
    refused: bool,
    /// Ejections since the last success.
    level: u32,
    out: Option<Out>,
}

#[derive(Debug)]
struct Out {
    since: Time,
    until: Time,
    trial: Option<ReservationId>,
}

impl Ejection {
    /// Whether requests stay away now.
    pub(crate) fn stands_out(&self, now: Time) -> bool {
        self.out
            .as_ref()
            .is_some_and(|out| now < out.until || out.trial.is_some() || self.unreachable())
    }

    /// When its time is over, if it is out.
    pub(crate) fn until(&self) -> Option<Time> {
        self.out.as_ref().map(|out| out.until)
    }

    /// It was picked; if it is out, that request may be its trial.
    pub(crate) fn picked(&mut self, id: ReservationId, now: Time) {
        if !self.stands_out(now)
            && let Some(out) = &mut self.out
        {
            out.trial = Some(id);
        }
    }

    /// A request that was picked at `picked` was answered.
    pub(crate) fn success(&mut self, picked: Time) {
        match &self.out {
            // it began before the trouble and says nothing about now
            Some(out) if picked < out.since => {}
            _ => {
                self.out = None;
                self.failures = 0;
                self.level = 0;
                self.refused = false;
            }
        }
    }

    /// A request failed. True when that takes the endpoint out (again).
    pub(crate) fn failure(&mut self, id: ReservationId, unreachable: bool, now: Time, pace: Pace) -> bool {
        self.refused |= unreachable;
        if let Some(out) = &self.out {
            let counts = out.trial == Some(id);
            if counts {
                self.eject(now, pace);
            }
            return counts;
        }
        self.failures += 1;
        let eject = self.failures >= FAILURES || self.unreachable();
        if eject {
            self.eject(now, pace);
        }
        eject
    }

    /// The request ended in a way that says nothing about the engine.
    pub(crate) fn undecided(&mut self, id: ReservationId) {
        if let Some(out) = &mut self.out
            && out.trial == Some(id)
        {
            out.trial = None;
        }
    }

    pub(crate) fn scraped(&mut self, now: Time) {
        if self.unreachable()
            && let Some(out) = &mut self.out
        {
            out.until = out.until.min(now);
        }
        self.failed_scrapes = 0;
        self.refused = false;
    }

    /// True when the missed scrape takes the endpoint out.
    pub(crate) fn scrape_failed(&mut self, refused: bool, now: Time, pace: Pace) -> bool {
        self.failed_scrapes = self.failed_scrapes.saturating_add(1);
        // one that is out and accepts connections again may have its trial, whatever is wrong with its page
        self.refused = refused || (self.refused && self.out.is_none());
        let eject = self.unreachable() && self.out.is_none();
        if eject {
            self.eject(now, pace);
        }
        eject
    }

    /// Neither an answer nor, after that, a connection. True when that takes the endpoint out.
    pub(crate) fn lost(&mut self, now: Time, pace: Pace) -> bool {
        self.failed_scrapes = self.failed_scrapes.saturating_add(1);
        self.scrape_failed(true, now, pace)
    }

    fn unreachable(&self) -> bool {
        self.failed_scrapes >= FAILED_SCRAPES && self.refused
    }

    fn eject(&mut self, now: Time, pace: Pace) {
        let span = FIRST.saturating_mul(1 << self.level.min(5)).min(LONGEST);
        self.level += 1;
        self.failures = 0;
        self.out = Some(Out {
            since: now,
            until: now.after(pace.real(span)),
            trial: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SchedulerConfig;

    fn pace() -> Pace {
        SchedulerConfig::default().pace()
    }

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    #[test]
    fn three_failures_in_a_row_and_not_two() {
        let mut ejection = Ejection::default();
        assert!(!ejection.failure(ReservationId(1), false, at(0.0), pace()));
        assert!(!ejection.failure(ReservationId(2), false, at(0.0), pace()));
        ejection.success(at(0.0));
        assert!(!ejection.failure(ReservationId(3), false, at(0.1), pace()));
        assert!(!ejection.failure(ReservationId(4), false, at(0.1), pace()));
        assert!(ejection.failure(ReservationId(5), false, at(0.1), pace()));
        assert!(ejection.stands_out(at(1.0)));
        assert!(!ejection.stands_out(at(1.2)));
    }

    #[test]
    fn one_trial_at_a_time_and_each_failed_one_doubles_the_wait() {
        let mut ejection = Ejection::default();
        for id in 0..3 {
            ejection.failure(ReservationId(id), false, at(0.0), pace());
        }
        let mut now = 1.0;
        for (trial, wait) in [
            (10, 2.0),
            (11, 4.0),
            (12, 8.0),
            (13, 16.0),
            (14, 30.0),
            (15, 30.0),
        ] {
            ejection.picked(ReservationId(trial), at(now));
            assert!(ejection.stands_out(at(now)), "the trial is under way");
            assert!(
                !ejection.failure(ReservationId(99), false, at(now), pace()),
                "not the trial"
            );
            assert!(ejection.failure(ReservationId(trial), false, at(now), pace()));
            assert!(ejection.stands_out(at(now + wait - 0.01)));
            now += wait;
            assert!(!ejection.stands_out(at(now)));
        }
        ejection.picked(ReservationId(20), at(now));
        ejection.undecided(ReservationId(20));
        assert!(
            !ejection.stands_out(at(now)),
            "an aborted trial frees the place for another"
        );
        ejection.picked(ReservationId(21), at(now));
        ejection.success(at(now));
        assert_eq!(ejection.until(), None);
    }

    #[test]
    fn an_old_stream_that_ends_well_does_not_clear() {
        let mut ejection = Ejection::default();
        for id in 0..3 {
            ejection.failure(ReservationId(id), false, at(5.0), pace());
        }
        ejection.success(at(1.0));
        assert!(ejection.stands_out(at(5.5)));
    }

    #[test]
    fn two_failed_scrapes_need_a_refused_connection() {
        let mut ejection = Ejection::default();
        for second in 0..5 {
            assert!(!ejection.scrape_failed(false, at(f64::from(second)), pace()));
        }
        assert!(ejection.scrape_failed(true, at(6.0), pace()));
        assert!(
            ejection.stands_out(at(100.0)),
            "no trial while scrapes are refused"
        );
        ejection.scraped(at(101.0));
        assert!(!ejection.stands_out(at(101.0)));
        ejection.picked(ReservationId(1), at(101.0));
        assert!(ejection.stands_out(at(101.0)));
    }

    #[test]
    fn an_engine_whose_machine_is_gone_is_out_at_once_and_gets_no_trial_until_it_answers() {
        let mut ejection = Ejection::default();
        assert!(ejection.lost(at(0.0), pace()));
        for second in [1.0, 3.0, 7.0, 40.0] {
            assert!(!ejection.lost(at(second), pace()), "it is out already");
            assert!(ejection.stands_out(at(second)));
        }
        ejection.scraped(at(41.0));
        assert!(!ejection.stands_out(at(41.0)));
    }

    #[test]
    fn an_engine_whose_scrapes_fail_without_being_refused_gets_its_trial() {
        let mut ejection = Ejection::default();
        ejection.scrape_failed(true, at(0.0), pace());
        assert!(ejection.scrape_failed(true, at(1.0), pace()));
        assert!(ejection.stands_out(at(9.0)));
        ejection.scrape_failed(false, at(10.0), pace());
        assert!(!ejection.stands_out(at(10.0)));
    }
}
