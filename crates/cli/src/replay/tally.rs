//! From finished requests to the run's records and summary, in model time.

use std::{collections::BTreeMap, time::Duration};

use super::open_loop::Finished;
use crate::{
    client::{Failure, FailureKind},
    run_file::{Record, Records, Summary},
    stats::{Stats, rounded},
};

/// Counts as requests finish.
#[derive(Debug)]
pub(super) struct Tally {
    speed: f64,
    records: Vec<Record>,
    errors: u64,
    errors_by_kind: BTreeMap<String, u64>,
    error_examples: BTreeMap<String, String>,
    ttft_sum_ms: f64,
}

impl Tally {
    pub(super) fn new(speed: f64) -> Self {
        Self {
            speed,
            records: Vec::new(),
            errors: 0,
            errors_by_kind: BTreeMap::new(),
            error_examples: BTreeMap::new(),
            ttft_sum_ms: 0.0,
        }
    }

    /// Takes one request; its failure is returned the first time that this kind is seen.
    pub(super) fn take(&mut self, finished: Finished) -> Option<String> {
        let Finished {
            line,
            planned,
            late,
            exchange,
        } = finished;
        let model = |time: Duration| rounded(time.as_secs_f64() * 1e3 * self.speed);
        let usage = exchange.usage.unwrap_or_default();
        let record = Record {
            line,
            arrival_ms: model(planned),
            late_ms: model(late),
            ttft_ms: exchange.first.map(model),
            tpot_ms: exchange.time_per_output_token().map(model),
            e2e_ms: model(exchange.end),
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.cached_tokens.unwrap_or(0),
            output_tokens: exchange.output_tokens(),
            status: exchange.status,
            error: exchange.failure.as_ref().map(|failure| failure.kind),
        };
        self.records.push(record);
        let Some(Failure { kind, message }) = exchange.failure else {
            self.ttft_sum_ms += record.ttft_ms.unwrap_or(0.0);
            return None;
        };
        self.errors += 1;
        let name = match (kind, exchange.status) {
            (FailureKind::Status, Some(status)) => format!("status_{status}"),
            _ => kind.name().to_owned(),
        };
        let count = self.errors_by_kind.entry(name.clone()).or_default();
        *count += 1;
        (*count == 1).then(|| {
            let text = format!("request {line}: {message}");
            self.error_examples.insert(name, message);
            text
        })
    }

    pub(super) fn done(&self) -> u64 {
        self.records.len() as u64
    }

    pub(super) const fn errors(&self) -> u64 {
        self.errors
    }

    /// Mean TTFT so far, model milliseconds.
    pub(super) fn mean_ttft_ms(&self) -> f64 {
        let good = self.done() - self.errors;
        if good == 0 {
            0.0
        } else {
            self.ttft_sum_ms / good as f64
        }
    }

    pub(super) fn finish(self, peak_in_flight: u64) -> (Summary, Records) {
        let Self {
            speed: _,
            records,
            errors,
            errors_by_kind,
            error_examples,
            ttft_sum_ms: _,
        } = self;
        let good = || records.iter().filter(|record| record.error.is_none());
        let total = |count: fn(&Record) -> u64| good().map(count).sum::<u64>();
        let prompt_tokens = total(|record| record.prompt_tokens);
        let cached_tokens = total(|record| record.cached_tokens);
        let summary = Summary {
            requests: records.len() as u64,
            errors,
            errors_by_kind,
            error_examples,
            ttft_ms: Stats::of(good().filter_map(|record| record.ttft_ms)),
            tpot_ms: Stats::of(good().filter_map(|record| record.tpot_ms)),
            e2e_ms: Stats::of(good().map(|record| record.e2e_ms)),
            late_ms: Stats::of(
                records
                    .iter()
                    .filter(|record| record.error != Some(FailureKind::InFlightLimit))
                    .map(|record| record.late_ms),
            ),
            prompt_tokens,
            cached_tokens,
            output_tokens: total(|record| record.output_tokens),
            hit_ratio: if prompt_tokens == 0 {
                0.0
            } else {
                cached_tokens as f64 / prompt_tokens as f64
            },
            peak_in_flight,
            idle: None,
        };
        (summary, Records::new(records))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Exchange, Usage};

    fn finished(line: u32, exchange: Exchange) -> Finished {
        Finished {
            line,
            planned: Duration::from_millis(10),
            late: Duration::from_micros(500),
            exchange,
        }
    }

    #[test]
    fn times_are_model_time_and_failures_stay_out_of_them() {
        let mut tally = Tally::new(4.0);
        let good = Exchange {
            status: Some(200),
            first: Some(Duration::from_millis(100)),
            last: Some(Duration::from_millis(150)),
            output_chunks: 9,
            end: Duration::from_millis(160),
            usage: Some(Usage {
                prompt_tokens: 60,
                cached_tokens: Some(45),
                output_tokens: 11,
            }),
            failure: None,
        };
        let failure = Failure {
            kind: FailureKind::Status,
            message: "503: no endpoint".to_owned(),
        };
        let bad = Exchange {
            status: Some(503),
            failure: Some(failure),
            ..Exchange::default()
        };
        assert_eq!(tally.take(finished(2, good)), None);
        assert_eq!(
            tally.take(finished(1, bad.clone())).as_deref(),
            Some("request 1: 503: no endpoint")
        );
        assert_eq!(tally.take(finished(3, bad)), None, "told once");
        assert_eq!(
            (tally.done(), tally.errors(), tally.mean_ttft_ms()),
            (3, 2, 400.0)
        );
        let (summary, records) = tally.finish(2);
        assert_eq!((summary.requests, summary.errors), (3, 2));
        assert_eq!(
            summary.errors_by_kind,
            BTreeMap::from([("status_503".to_owned(), 2)])
        );
        assert_eq!((summary.ttft_ms.mean, summary.ttft_ms.count), (400.0, 1));
        assert_eq!(
            (summary.tpot_ms.mean, summary.e2e_ms.mean, summary.late_ms.p99),
            (20.0, 640.0, 2.0)
        );
        assert_eq!(
            (summary.prompt_tokens, summary.cached_tokens, summary.hit_ratio),
            (60, 45, 0.75)
        );
        assert_eq!(records.rows.iter().map(|r| r.line).collect::<Vec<_>>(), [1, 2, 3]);
    }
}
