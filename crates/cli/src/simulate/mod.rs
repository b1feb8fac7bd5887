//! `lmetric simulate`: policies against each other on a trace, in virtual time.

mod args;
mod capacity;
mod fleet;
mod measure;
mod plan;
mod pool;
mod study;
mod sweep;
#[cfg(test)]
mod tests;
mod workload;
mod world;

pub use args::{Hotspot, Policies, SimulateArgs};
pub use capacity::search as search_capacity;
pub use fleet::{FleetError, FleetRequest, FleetSpec, Part};
pub use measure::{Alarm, Figures, Measured, Outcome, Sample, Timeline};
pub use plan::{Bench, Planned};
pub use pool::each;
pub use study::{Capacity, Cell, SCHEMA, Settings, Share, Study};
pub use sweep::{Sweep, SweepError};
pub use workload::{Job, Prompts, Workload};
pub use world::{Run, Wiring, run as run_world};

use std::process::ExitCode;

use anyhow::bail;
use lmetric_scheduler::PolicyKind;
use tokio_util::sync::CancellationToken;

use crate::{
    run_file::{self, RunFile, RunInfo, Summary, write_whole},
    stats::rounded,
    trace::Trace,
};

/// Exit status of an interrupted study, as a shell gives it for Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Makes every run that `args` ask for and writes the study.
pub fn run(args: &SimulateArgs, stop: &CancellationToken) -> anyhow::Result<ExitCode> {
    let trace = Trace::open(&args.trace, args.format, args.block_size)?;
    if let Some(recorded) = &trace.recorded
        && recorded.estimated > 0
    {
        eprintln!(
            "{}: lengths of {} of {} answers are estimates, half a block off at most as a rule",
            args.trace.display(),
            recorded.estimated,
            trace.requests.len()
        );
    }
    let fleet = FleetSpec::new(&FleetRequest {
        engines: args.engines,
        gpu: &args.gpu,
        gpu_file: args.gpu_file.as_deref(),
        model: &args.model,
        model_file: args.model_file.as_deref(),
        utilization: args.utilization,
        max_num_batched_tokens: args.max_num_batched_tokens,
        max_num_seqs: args.max_num_seqs,
    })?;
    let bench = Bench {
        trace: &trace,
        fleet: &fleet,
        window: args.window,
        jitter: args.jitter,
        longest: args.max_model_len,
        wiring: Wiring {
            event_delay: args.event_delay,
            scrape_delay: args.scrape_delay,
            bodies: args.bodies,
        },
        overlay: !args.no_overlay,
    };
    let first_seed = args.seeds.first().copied().unwrap_or(1);
    let plain = bench.arrivals(1.0, first_seed);
    if plain.jobs.is_empty() {
        bail!(
            "{}: no request is left between {} s and {} s; choose another --window or raise --max-model-len",
            args.trace.display(),
            args.window.start,
            args.window.end
        );
    }
    for job in &plain.jobs {
        let request = plain.request(job);
        fleet.check(request.line, request.input_tokens, request.output_tokens)?;
    }
    let threads = args.threads;
    let capacity = match (args.fraction.is_empty(), args.capacity) {
        (true, _) => None,
        (false, Some(rate_scale)) => Some((rate_scale, Vec::new())),
        (false, None) => measure_capacity(&bench, args, first_seed, stop)?,
    };
    if capacity.is_none() && !args.fraction.is_empty() {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let scale = capacity.as_ref().map(|(scale, _)| *scale);
    let plan = plan(args, scale);
    // a value of a sweep may be the policy as it stands: the same run is made once
    let mut runs: Vec<&Planned> = Vec::new();
    let mut places = Vec::with_capacity(plan.len());
    for planned in &plan {
        let known = runs.iter().position(|run| run.is_same_run(planned));
        places.push(known.unwrap_or(runs.len()));
        if known.is_none() {
            runs.push(planned);
        }
    }
    let about = |planned: &&Planned| bench.workload(planned).jobs.len() as u64;
    let total = runs.iter().map(about).sum();
    let outcomes = each(&runs, threads, "simulate", total, stop, |planned, progress| {
        let measured = bench.run(planned, progress)?;
        let Some(measured) = measured else { return Ok(None) };
        if let Some(folder) = &args.runs {
            let file = run_file(&trace, &bench, args, planned, &measured);
            file.write(&folder.join(format!("{}.json", file_name(&file.run.label))))?;
        }
        Ok(Some(measured.outcome(args.warm_up.as_secs_f64())))
    })?;
    let interrupted = outcomes.iter().any(Option::is_none);
    let cells = plan.into_iter().zip(places).filter_map(|(planned, place)| {
        let outcome = outcomes.get(place).cloned().flatten();
        Some(Cell {
            label: planned.policy.to_string(),
            policy: planned.policy,
            sweep: planned.sweep,
            share: planned.share,
            rate_scale: planned.rate_scale,
            fraction: planned.fraction,
            seed: planned.seed,
            outcome: outcome?,
        })
    });
    let left_out = trace
        .requests
        .iter()
        .filter(|request| args.window.contains(request.at))
        .count();
    let study = Study {
        schema: SCHEMA.to_owned(),
        settings: Settings {
            trace: args
                .trace
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            trace_hash: format!("{:016x}", trace.hash),
            format: trace.format.to_string(),
            block_size: trace.block_size,
            left_out: (left_out - plain.jobs.len()) as u64,
            max_model_len: args.max_model_len,
            fleet: fleet.clone(),
            window_start_s: args.window.start,
            window_end_s: args.window.end.is_finite().then_some(args.window.end),
            jitter_s: args.jitter.as_secs_f64(),
            warm_up_s: args.warm_up.as_secs_f64(),
            event_delay_ms: args.event_delay.as_secs_f64() * 1e3,
            scrape_delay_ms: args.scrape_delay.as_secs_f64() * 1e3,
            bodies: args.bodies,
            overlay: !args.no_overlay,
            hotspot: match args.hotspot {
                Hotspot::Filter => "filter",
                Hotspot::LoadOnly => "load-only",
                Hotspot::Off => "off",
            }
            .to_owned(),
            tool: env!("CARGO_PKG_VERSION").to_owned(),
        },
        capacity: capacity.map(|(rate_scale, by_policy)| Capacity {
            rate_scale,
            rate: rounded(plain.jobs.len() as f64 / plain.span().max(1e-9) * rate_scale),
            by_policy,
        }),
        cells: cells.collect(),
        interrupted,
    };
    study.write(&args.out)?;
    if let Some(path) = &args.csv {
        write_whole(path, study.csv().as_bytes())?;
    }
    Ok(if interrupted {
        ExitCode::from(INTERRUPTED)
    } else {
        ExitCode::SUCCESS
    })
}

/// The largest capacity, and those of the policies that led to it.
type Found = (f64, Vec<(String, f64)>);

/// The largest capacity and those of the policies that led to it; `None` when interrupted.
fn measure_capacity(
    bench: &Bench<'_>,
    args: &SimulateArgs,
    seed: u64,
    stop: &CancellationToken,
) -> anyhow::Result<Option<Found>> {
    let found = search_capacity(bench, &args.policies.0, seed, args.threads, stop)?;
    Ok(found.map(|(largest, found)| {
        let named = |(policy, scale): (PolicyKind, f64)| (policy.to_string(), rounded(scale));
        (rounded(largest), found.into_iter().map(named).collect())
    }))
}

fn plan(args: &SimulateArgs, capacity: Option<f64>) -> Vec<Planned> {
    let rates: Vec<(f64, Option<f64>)> = match capacity {
        Some(capacity) => args
            .fraction
            .iter()
            .map(|fraction| (rounded(capacity * fraction), Some(*fraction)))
            .collect(),
        None if args.rate_scale.is_empty() => vec![(1.0, None)],
        None => args.rate_scale.iter().map(|scale| (*scale, None)).collect(),
    };
    let plain = args.policies.0.iter().map(|policy| (*policy, None));
    let swept = args.sweep.iter().flat_map(|sweep| {
        let one = |(value, policy): &(String, PolicyKind)| {
            (*policy, Some((sweep.parameter.clone(), value.clone())))
        };
        sweep.policies.iter().map(one)
    });
    let mut plan = Vec::new();
    for (policy, sweep) in plain.chain(swept) {
        for (rate_scale, fraction) in &rates {
            for seed in &args.seeds {
                let shares = match args.canary {
                    None => vec![(policy, Share::Whole)],
                    Some(canary) => vec![(canary, Share::Canary), (policy, Share::Rest)],
                };
                for (policy, share) in shares {
                    let planned = Planned {
                        policy,
                        sweep: sweep.clone(),
                        share,
                        rate_scale: *rate_scale,
                        fraction: *fraction,
                        seed: *seed,
                        hotspot: args.hotspot.into(),
                    };
                    // the canary is the same beside every policy
                    if !plan.contains(&planned) {
                        plan.push(planned);
                    }
                }
            }
        }
    }
    plan
}

fn file_name(label: &str) -> String {
    let plain = |character: char| {
        if character.is_ascii_alphanumeric() || "-.=".contains(character) {
            character
        } else {
            '_'
        }
    };
    label.chars().map(plain).collect()
}

/// A run as `replay` would have written it.
fn run_file(
    trace: &Trace,
    bench: &Bench<'_>,
    args: &SimulateArgs,
    planned: &Planned,
    measured: &Measured,
) -> RunFile {
    let Figures {
        requests,
        ttft_ms,
        tpot_ms,
        e2e_ms,
        prompt_tokens,
        cached_tokens,
        output_tokens,
        hit_ratio,
        ..
    } = measured.outcome(0.0).figures;
    let model = bench
        .fleet
        .parts
        .first()
        .map_or("", |part| &part.engine.model.name);
    RunFile {
        schema: run_file::SCHEMA.to_owned(),
        run: RunInfo {
            label: format!("{}@{}-{}", planned.policy, planned.rate_scale, planned.seed),
            trace: args.trace.display().to_string(),
            trace_hash: format!("{:016x}", trace.hash),
            format: trace.format.to_string(),
            block_size: trace.block_size,
            window_start_s: bench.window.start,
            window_end_s: bench.window.end.is_finite().then_some(bench.window.end),
            rate_scale: planned.rate_scale,
            jitter_s: bench.jitter.as_secs_f64(),
            jitter_seed: planned.seed,
            speed: 1.0,
            prompt: "simulated".to_owned(),
            salt: String::new(),
            url: String::new(),
            model: model.to_owned(),
            started_unix_s: 0,
            wall_s: 0.0,
            planned: requests,
            unfinished: 0,
            idle: false,
            interrupted: false,
            tool: env!("CARGO_PKG_VERSION").to_owned(),
        },
        summary: Summary {
            requests,
            ttft_ms,
            tpot_ms,
            e2e_ms,
            prompt_tokens,
            cached_tokens,
            output_tokens,
            hit_ratio,
            ..Summary::default()
        },
        records: measured.records(),
    }
}
