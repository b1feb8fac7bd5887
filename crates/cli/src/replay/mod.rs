//! `lmetric replay`: a trace against a live endpoint, open loop.

mod args;
mod conclude;
mod idle;
mod open_loop;
mod pace;
mod progress;
mod prompt;
mod tally;
mod watch;

pub use args::ReplayArgs;
pub use prompt::{PromptKind, PromptMaker};

use std::{
    process::ExitCode,
    sync::{Arc, atomic::Ordering},
    time::{Instant, SystemTime},
};

use anyhow::bail;
use http::HeaderMap;
use tokio_util::sync::CancellationToken;

use self::{
    conclude::conclude,
    idle::IdleEngine,
    open_loop::{Gauges, OpenLoop, Target},
    progress::Progress,
    tally::Tally,
    watch::Watch,
};
use crate::{
    client::{Trust, http_client},
    run_file::{RunFile, RunInfo, SCHEMA},
    stats::rounded,
    trace::{Pacing, Trace, schedule},
};

/// Exit status of an interrupted replay, as a shell gives it for Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Runs a replay to its end, or until `stop` is cancelled, and writes its file.
pub async fn run(args: ReplayArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let trace = Arc::new(Trace::open(&args.trace, args.format, args.block_size)?);
    let pacing = Pacing {
        window: args.window,
        rate_scale: args.rate_scale,
        jitter: args.jitter,
        seed: args.jitter_seed,
        speed: args.speed,
    };
    let mut arrivals = schedule(&trace.requests, pacing);
    let engine = match args.idle {
        None => None,
        Some(most) => {
            arrivals.truncate(most);
            Some(IdleEngine::new(&args.profile, args.max_num_batched_tokens)?)
        }
    };
    if arrivals.is_empty() {
        let last = trace
            .requests
            .iter()
            .map(|request| request.at)
            .fold(0.0, f64::max);
        bail!(
            "{}: no request between {} s and {} s; the trace ends at {last:.0} s, choose another --window",
            args.trace.display(),
            args.window.start,
            args.window.end
        );
    }
    let target = Arc::new(target(&args)?);
    let maker = PromptMaker::new(
        args.prompt,
        args.model.clone(),
        &args.salt,
        trace.block_size,
        args.vocab,
        !args.respect_eos,
    );
    raise_open_files(args.max_in_flight as u64);

    let planned = arrivals.len() as u64;
    let (started, began) = (SystemTime::now(), Instant::now());
    let gauges = Arc::new(Gauges::default());
    let mut watch = Watch {
        tally: Tally::new(args.speed),
        progress: Progress::new(&args.label, planned),
        gauges: gauges.clone(),
    };
    if engine.is_some() {
        watch
            .one_at_a_time(&trace, &arrivals, &maker, &target, &stop)
            .await;
    } else {
        let open_loop = OpenLoop {
            trace: trace.clone(),
            arrivals,
            maker,
            target,
            look_ahead: args.look_ahead,
            max_in_flight: args.max_in_flight,
        };
        watch.open_loop(open_loop, &stop).await?;
    }
    let Watch {
        tally,
        progress,
        gauges,
    } = watch;
    progress.close();

    let done = tally.done();
    let interrupted = done < planned;
    let (mut summary, records) = tally.finish(gauges.peak.load(Ordering::Relaxed));
    if let Some(engine) = engine {
        summary.idle = engine.compare(&records.rows);
        if summary.idle.is_none() {
            eprintln!(
                "{}: no answer told its prompt tokens, so there is nothing to compare with the model",
                args.label
            );
        }
    }
    let run = RunInfo {
        label: args.label.clone(),
        trace: args
            .trace
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        trace_hash: format!("{:016x}", trace.hash),
        format: trace.format.to_string(),
        block_size: trace.block_size,
        window_start_s: args.window.start,
        window_end_s: args.window.end.is_finite().then_some(args.window.end),
        rate_scale: args.rate_scale,
        jitter_s: args.jitter.as_secs_f64(),
        jitter_seed: args.jitter_seed,
        speed: args.speed,
        prompt: match args.prompt {
            PromptKind::Tokens => "tokens",
            PromptKind::Text => "text",
        }
        .to_owned(),
        salt: args.salt.clone(),
        url: args.url.to_string(),
        model: args.model.clone(),
        started_unix_s: started
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        wall_s: rounded(began.elapsed().as_secs_f64()),
        planned,
        unfinished: planned - done,
        idle: args.idle.is_some(),
        interrupted,
        tool: concat!("lmetric ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    let file = RunFile {
        schema: SCHEMA.to_owned(),
        run,
        summary,
        records,
    };
    file.write(&args.out)?;
    conclude(&file);
    Ok(match (interrupted, file.summary.errors > args.max_errors) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, true) => ExitCode::from(1),
        (false, false) => ExitCode::SUCCESS,
    })
}

fn target(args: &ReplayArgs) -> anyhow::Result<Target> {
    let mut headers = HeaderMap::new();
    for (name, value) in &args.header {
        headers.append(name.clone(), value.clone());
    }
    let label: String = args
        .label
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .collect();
    Ok(Target {
        client: http_client(&args.url, &args.ca.clone().map_or(Trust::System, Trust::File))?,
        uri: args.url.join(args.prompt.path())?,
        headers,
        id_prefix: format!("{label}-"),
        timeout: args.timeout,
    })
}

/// Each request in flight is an open socket: ask for as many as the system lets us have.
fn raise_open_files(most: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(most + 64, |maximum| maximum.min(most + 64));
    if limit.current.is_some_and(|current| current < wanted) {
        // Without it, requests that find no socket are counted as connect errors that say so.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(wanted),
                maximum: limit.maximum,
            },
        );
    }
}
