//! What a run measures: every request, and the fleet's state once a second.

use lmetric_engine::Finished;
use lmetric_scheduler::HotspotNote;
use serde::{Deserialize, Serialize};

use super::workload::Workload;
use crate::{
    run_file::{Record, Records},
    stats::{Stats, quantile, rounded},
};

/// Points of a distribution that are kept: the quantiles 0 %, 1 %, … 100 %.
const POINTS: usize = 100;
/// Most points of a time line.
const MOST_MOMENTS: usize = 240;
/// Most alarms and filters that are kept with their class.
const MOST_NOTES: usize = 256;

/// One engine at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// BS.
    pub batch: u32,
    /// Prompt tokens computed since the run began.
    pub prefilled: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Told {
    arrived: u64,
    line: u32,
    machine: u16,
    predicted: u32,
    prompt: u32,
    cached: u32,
    output: u32,
    first: u64,
    end: u64,
    forecast: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Moment {
    at: u64,
    least: u32,
    most: u32,
    mean: f64,
    /// Coefficient of variation of the prompt tokens computed in this second over engines.
    prefill_spread: f64,
    alarms: u64,
    filters: u64,
}

/// An alarm or a filter of the detector.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    /// Seconds since the run began.
    pub at_s: f64,
    /// Length of the class's prefix, tokens.
    pub depth_tokens: u32,
    /// False: an alarm. True: the action is in force.
    pub in_force: bool,
    /// |M|.
    pub holders: u32,
    /// |M̄|.
    pub others: u32,
    /// Arrivals of the class in the last minute.
    pub arrivals: u32,
    /// All arrivals in the last minute.
    pub all_arrivals: u32,
}

/// The figures of one run; times in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Requests measured: those that arrived after the warm-up.
    pub requests: u64,
    /// Their arrivals per second.
    pub rate: f64,
    /// To the first token.
    pub ttft_ms: Stats,
    /// Between tokens.
    pub tpot_ms: Stats,
    /// To the last token.
    pub e2e_ms: Stats,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Of these, found in an engine's cache.
    pub cached_tokens: u64,
    /// Generated tokens.
    pub output_tokens: u64,
    /// Cached share.
    pub hit_ratio: f64,
    /// Mean over requests of |predicted − real hit| ÷ prompt.
    pub hit_error: f64,
    /// Mean of max BS − min BS over engines, once a second.
    pub spread_bs: f64,
    /// Mean over seconds of the coefficient of variation of prompt tokens computed.
    pub spread_prefill: f64,
    /// Requests thrown out of a batch for want of cache.
    pub preemptions: u64,
    /// Alarms of the detector.
    pub alarms: u64,
    /// Filters put in force.
    pub filters: u64,
    /// Mean TTFT of each quarter of the arrivals.
    pub quarters_ms: [f64; 4],
}

/// The fleet over time; each list has one value for each step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Seconds per step.
    pub step_s: f64,
    /// Least BS over engines, averaged over the step.
    pub least: Vec<f64>,
    /// Mean BS.
    pub mean: Vec<f64>,
    /// Most BS.
    pub most: Vec<f64>,
    /// Alarms raised in the step.
    pub alarms: Vec<u64>,
    /// Filters put in force in the step.
    pub filters: Vec<u64>,
}

/// Everything that a run is reported by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Figures.
    pub figures: Figures,
    /// TTFT at 0 %, 1 %, … 100 % of requests.
    pub ttft_cdf_ms: Vec<f64>,
    /// TPOT likewise.
    pub tpot_cdf_ms: Vec<f64>,
    /// The fleet over time.
    pub timeline: Timeline,
    /// Alarms and filters, the first ones.
    pub alarms: Vec<Alarm>,
    /// |forecast ÷ real TTFT − 1| at 0 %, 1 %, … where the policy forecasts; else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forecast_error_cdf: Vec<f64>,
}

/// Collects as a run goes.
#[derive(Debug)]
pub struct Measured {
    told: Vec<Told>,
    moments: Vec<Moment>,
    prefilled: Vec<u64>,
    alarms: Vec<Alarm>,
    preemptions: u64,
    totals: (u64, u64),
    done: u64,
}

impl Measured {
    /// Nothing yet, of a fleet of `machines`.
    pub fn new(machines: usize, workload: &Workload<'_>) -> Self {
        let told = workload.jobs.iter().map(|job| {
            let request = workload.request(job);
            Told {
                arrived: job.at,
                line: request.line,
                prompt: request.input_tokens,
                ..Told::default()
            }
        });
        Self {
            told: told.collect(),
            moments: Vec::new(),
            prefilled: vec![0; machines],
            alarms: Vec::new(),
            preemptions: 0,
            totals: (0, 0),
            done: 0,
        }
    }

    /// Requests finished so far.
    pub fn done(&self) -> u64 {
        self.done
    }

    pub(super) fn placed(&mut self, job: u32, machine: u16, predicted: u64) {
        let told = &mut self.told[job as usize];
        told.machine = machine;
        told.predicted = predicted as u32;
    }

    pub(super) fn forecast(&mut self, job: u32, seconds: Option<f64>) {
        self.told[job as usize].forecast = seconds;
    }

    pub(super) fn finished(&mut self, job: u32, first: u64, end: u64, tokens: u64, about: &Finished) {
        let told = &mut self.told[job as usize];
        (told.first, told.end) = (first, end);
        told.output = tokens as u32;
        told.cached = about.cached_tokens;
        self.done += 1;
    }

    pub(super) fn note(&mut self, at: u64, engines: impl Iterator<Item = Sample>, alarms: u64, filters: u64) {
        let (mut least, mut most, mut sum) = (u32::MAX, 0, 0_u64);
        let (mut tokens, mut squares) = (0.0, 0.0);
        let count = self.prefilled.len().max(1) as f64;
        for (before, Sample { batch, prefilled }) in self.prefilled.iter_mut().zip(engines) {
            least = least.min(batch);
            most = most.max(batch);
            sum += u64::from(batch);
            let new = (prefilled - *before) as f64;
            *before = prefilled;
            tokens += new;
            squares += new * new;
        }
        let mean = tokens / count;
        let deviation = (squares / count - mean * mean).max(0.0).sqrt();
        self.moments.push(Moment {
            at,
            least,
            most,
            mean: sum as f64 / count,
            prefill_spread: if mean > 0.0 { deviation / mean } else { 0.0 },
            alarms,
            filters,
        });
    }

    /// A note that came after the last second.
    pub(super) fn hotspot_at_the_end(&mut self, note: HotspotNote) {
        let last = self.told.iter().map(|told| told.end).max();
        self.hotspot(last.unwrap_or(0), note);
    }

    pub(super) fn hotspot(&mut self, at: u64, note: HotspotNote) {
        let HotspotNote {
            class: _,
            depth_tokens,
            in_force,
            holders,
            others,
            arrivals,
            all_arrivals,
        } = note;
        if self.alarms.len() < MOST_NOTES {
            self.alarms.push(Alarm {
                at_s: rounded(at as f64 / 1e9),
                depth_tokens,
                in_force,
                holders,
                others,
                arrivals,
                all_arrivals,
            });
        }
    }

    pub(super) fn close(&mut self, preemptions: u64, alarms: u64, filters: u64) {
        self.preemptions = preemptions;
        self.totals = (alarms, filters);
    }

    /// Figures over what arrived at `from` seconds or later. O(n log n).
    pub fn outcome(&self, from: f64) -> Outcome {
        let from = (from * 1e9) as u64;
        let counted: Vec<&Told> = self.told.iter().filter(|told| told.arrived >= from).collect();
        let last = counted.last().map_or(from, |told| told.arrived);
        let sorted = |figure: &dyn Fn(&Told) -> Option<f64>| {
            let mut figures: Vec<f64> = counted.iter().filter_map(|told| figure(told)).collect();
            figures.sort_by(f64::total_cmp);
            figures
        };
        let ttft = sorted(&|told| Some(told.ttft_ms()));
        let tpot = sorted(&Told::tpot_ms);
        let errors = sorted(&|told| {
            told.forecast
                .map(|seconds| (seconds * 1e3 / told.ttft_ms() - 1.0).abs())
        });
        let sum = |count: fn(&Told) -> u32| counted.iter().map(|told| u64::from(count(told))).sum::<u64>();
        let (prompt_tokens, cached_tokens) = (sum(|told| told.prompt), sum(|told| told.cached));
        let off = counted
            .iter()
            .map(|told| f64::from(told.predicted.abs_diff(told.cached)) / f64::from(told.prompt.max(1)));
        let during: Vec<&Moment> = self
            .moments
            .iter()
            .filter(|moment| (from..=last).contains(&moment.at))
            .collect();
        let seconds = (last - from) as f64 / 1e9;
        let figures = Figures {
            requests: counted.len() as u64,
            rate: rounded(if seconds > 0.0 {
                counted.len() as f64 / seconds
            } else {
                0.0
            }),
            ttft_ms: Stats::of(ttft.iter().copied()),
            tpot_ms: Stats::of(tpot.iter().copied()),
            e2e_ms: Stats::of(counted.iter().map(|told| told.e2e_ms())),
            prompt_tokens,
            cached_tokens,
            output_tokens: sum(|told| told.output),
            hit_ratio: share(cached_tokens as f64, prompt_tokens as f64),
            hit_error: mean(off),
            spread_bs: mean(during.iter().map(|moment| f64::from(moment.most - moment.least))),
            spread_prefill: mean(during.iter().map(|moment| moment.prefill_spread)),
            preemptions: self.preemptions,
            alarms: self.totals.0,
            filters: self.totals.1,
            quarters_ms: std::array::from_fn(|quarter| {
                let (begins, ends) = (counted.len() * quarter / 4, counted.len() * (quarter + 1) / 4);
                mean(counted[begins..ends].iter().map(|told| told.ttft_ms()))
            }),
        };
        Outcome {
            figures,
            ttft_cdf_ms: distribution(&ttft),
            tpot_cdf_ms: distribution(&tpot),
            timeline: self.timeline(),
            alarms: self.alarms.clone(),
            forecast_error_cdf: distribution(&errors).into_iter().map(rounded).collect(),
        }
    }

    /// Mean spread of BS between two moments, in seconds.
    pub fn spread_between(&self, from: f64, to: f64) -> f64 {
        let inside = |moment: &&Moment| (from..to).contains(&(moment.at as f64 / 1e9));
        let spreads = self.moments.iter().filter(inside);
        mean(spreads.map(|moment| f64::from(moment.most - moment.least)))
    }

    fn timeline(&self) -> Timeline {
        let step = self.moments.len().div_ceil(MOST_MOMENTS).max(1);
        let parts = || self.moments.chunks(step);
        let averaged = |figure: fn(&Moment) -> f64| {
            parts()
                .map(|part| rounded(part.iter().map(figure).sum::<f64>() / part.len() as f64))
                .collect()
        };
        let risen = |count: fn(&Moment) -> u64| {
            let mut before = 0;
            parts()
                .filter_map(|part| part.last())
                .map(|moment| count(moment) - std::mem::replace(&mut before, count(moment)))
                .collect()
        };
        Timeline {
            step_s: step as f64,
            least: averaged(|moment| f64::from(moment.least)),
            mean: averaged(|moment| moment.mean),
            most: averaged(|moment| f64::from(moment.most)),
            alarms: risen(|moment| moment.alarms),
            filters: risen(|moment| moment.filters),
        }
    }

    /// Every request, as `lmetric report` reads them.
    pub fn records(&self) -> Records {
        let rows = self.told.iter().map(|told| Record {
            line: told.line,
            arrival_ms: rounded(told.arrived as f64 / 1e6),
            late_ms: 0.0,
            ttft_ms: Some(told.ttft_ms()),
            tpot_ms: told.tpot_ms(),
            e2e_ms: told.e2e_ms(),
            prompt_tokens: u64::from(told.prompt),
            cached_tokens: u64::from(told.cached),
            output_tokens: u64::from(told.output),
            status: Some(200),
            error: None,
        });
        Records::new(rows.collect())
    }

    /// Tokens that the picker predicted to be cached where each request was sent, in order of arrival.
    pub fn predicted_hits(&self) -> impl Iterator<Item = u64> {
        self.told.iter().map(|told| u64::from(told.predicted))
    }

    /// Engine of each request, in order of arrival.
    pub fn placements(&self) -> impl Iterator<Item = u16> {
        self.told.iter().map(|told| told.machine)
    }
}

impl Told {
    fn ttft_ms(&self) -> f64 {
        rounded((self.first - self.arrived) as f64 / 1e6)
    }

    fn tpot_ms(&self) -> Option<f64> {
        let gaps = self.output.checked_sub(1).filter(|gaps| *gaps > 0)?;
        Some(rounded((self.end - self.first) as f64 / 1e6 / f64::from(gaps)))
    }

    fn e2e_ms(&self) -> f64 {
        rounded((self.end - self.arrived) as f64 / 1e6)
    }
}

fn share(part: f64, all: f64) -> f64 {
    if all > 0.0 {
        (part / all * 1e6).round() / 1e6
    } else {
        0.0
    }
}

fn mean(figures: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = figures.fold((0.0, 0_u64), |(sum, count), figure| (sum + figure, count + 1));
    if count == 0 {
        0.0
    } else {
        rounded(sum / count as f64)
    }
}

fn distribution(sorted: &[f64]) -> Vec<f64> {
    if sorted.is_empty() {
        return Vec::new();
    }
    (0..=POINTS)
        .map(|point| quantile(sorted, point as f64 / POINTS as f64))
        .collect()
}
