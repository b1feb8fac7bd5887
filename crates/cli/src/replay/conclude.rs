//! What is said when a replay is over.

use std::time::Duration;

use crate::{
    run_file::RunFile,
    units::{grouped, time_ms},
};

/// Lateness (real time, p99) from which the figures say more about this machine than about the fleet.
const LATE_MS: f64 = 50.0;

/// Says how it went, and what a reader of the figures must know.
pub(super) fn conclude(file: &RunFile) {
    let RunFile {
        schema: _,
        run,
        summary,
        records: _,
    } = file;
    let took = Duration::from_secs_f64(run.wall_s.max(0.0)).as_secs();
    let figures = if summary.ttft_ms.count == 0 {
        String::new()
    } else {
        format!(
            "; TTFT mean {} p99 {}, TPOT mean {}, {:.1} % of {} prompt tokens cached",
            time_ms(summary.ttft_ms.mean),
            time_ms(summary.ttft_ms.p99),
            time_ms(summary.tpot_ms.mean),
            summary.hit_ratio * 100.0,
            grouped(summary.prompt_tokens),
        )
    };
    let (requests, errors) = (grouped(summary.requests), summary.errors);
    eprintln!(
        "{}: {requests} requests in {took} s, {errors} errors{figures}",
        run.label
    );
    for (kind, count) in &summary.errors_by_kind {
        let example = summary.error_examples.get(kind).map_or("", String::as_str);
        eprintln!("{}: {count} × {kind}: {example}", run.label);
    }
    if run.interrupted {
        eprintln!(
            "{}: interrupted; {} requests had not ended",
            run.label, run.unfinished
        );
    }
    if summary.late_ms.p99 / run.speed > LATE_MS {
        eprintln!(
            "{}: this machine sent late (p99 {} in real time): use more --threads, a smaller --rate-scale or --speed",
            run.label,
            time_ms(summary.late_ms.p99 / run.speed)
        );
    }
    if let Some(idle) = summary.idle {
        eprintln!(
            "{}: idle TTFT {} in model time, {} by the model: overhead {:+.1} %",
            run.label,
            time_ms(idle.measured_ttft_ms),
            time_ms(idle.model_ttft_ms),
            idle.overhead * 100.0
        );
    }
}
