//! One policy after the other on a stage of its own, then the report.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use lmetric_testkit::{Plug, Stage, StageOptions, Tool};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::options::Options;

/// Requests that measure the overhead, one at a time.
const IDLE_REQUESTS: &str = "24";
/// For a picker that was told to stop.
const GOODBYE: Duration = Duration::from_secs(10);

/// Runs everything that `options` ask for.
pub(crate) async fn demo(options: &Options) -> anyhow::Result<()> {
    for tool in [Tool::Envoy, Tool::Picker, Tool::VllmSim, Tool::Cli] {
        tool.path()?;
    }
    ensure!(
        options.trace.is_file(),
        "{} is not there; run from the repository's root, or name a trace with --trace",
        options.trace.display()
    );
    std::fs::create_dir_all(&options.out).with_context(|| {
        format!(
            "cannot create {}; choose another folder with --out",
            options.out.display()
        )
    })?;
    let begun = Instant::now();
    let mut runs = Vec::new();
    for policy in &options.policies {
        runs.push(replay(options, policy).await?);
    }
    runs.push(idle(options).await?);
    let [page, figures] = ["report.html", "report.json"].map(|name| options.out.join(name));
    report(&page, &figures, &runs).await?;
    say(&format!(
        "seed {}, {:.0} s at speed {}; {}",
        options.seed,
        begun.elapsed().as_secs_f64(),
        options.speed,
        std::path::absolute(&page).unwrap_or(page).display(),
    ));
    no_errors(&figures)
}

async fn stage(options: &Options, policy: &str, record: bool) -> anyhow::Result<Stage> {
    let plug = if options.record { Plug::Full } else { Plug::Light };
    let mut wanted = StageOptions::new(plug).fleet(options.engines, options.speed);
    wanted.engines.profile.clone_from(&options.profile);
    wanted.engines.model.clone_from(&options.profile);
    policy.clone_into(&mut wanted.picker.policy);
    wanted.picker.plaintext = true;
    if record {
        let file = std::path::absolute(recording(options, policy))?;
        wanted.picker.more = json!({"record": {"to": "File", "file": file}});
    }
    Stage::start(wanted).await
}

fn recording(options: &Options, policy: &str) -> PathBuf {
    options.out.join(format!("{policy}.recording.jsonl"))
}

async fn replay(options: &Options, policy: &str) -> anyhow::Result<PathBuf> {
    let mut stage = stage(options, policy, options.record).await?;
    say(&format!(
        "{policy}: {} engines behind http://{}; the fleet, live, and why requests go where they go: http://{}/",
        options.engines,
        stage.client().to(),
        stage.picker.admin_address(),
    ));
    let out = options.out.join(format!("{policy}.json"));
    let mut command = replay_command(options, &stage, policy, &out)?;
    command
        .args(["--rate-scale", &options.rate_scale.to_string()])
        .args(["--window", &format!("0:{}", options.seconds)])
        .args(["--jitter", "3s", "--jitter-seed", &options.seed.to_string()])
        // the table shows errors; a replay that stopped at them would show nothing
        .args(["--max-errors", "1000000"]);
    run(command, "lmetric replay").await?;
    if options.record {
        // what is left is written at its end
        stage.picker.stop(GOODBYE).await?;
        say(&format!("recorded: {}", recording(options, policy).display()));
    }
    Ok(out)
}

async fn idle(options: &Options) -> anyhow::Result<PathBuf> {
    let stage = stage(options, "lmetric", false).await?;
    say("idle: one request at a time, against the engine model's own time to first token");
    let out = options.out.join("idle.json");
    let mut command = replay_command(options, &stage, "idle", &out)?;
    command.args(["--idle", IDLE_REQUESTS, "--profile", &options.profile]);
    run(command, "lmetric replay --idle").await?;
    Ok(out)
}

fn replay_command(options: &Options, stage: &Stage, label: &str, out: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(Tool::Cli.path()?);
    command
        .args([
            "replay",
            "--prompt",
            "tokens",
            "--label",
            label,
            "--model",
            &options.profile,
        ])
        .args(["--url", &format!("http://{}", stage.client().to())])
        .args(["--speed", &options.speed.to_string()])
        .arg("--trace")
        .arg(&options.trace)
        .arg("--out")
        .arg(out);
    Ok(command)
}

async fn report(page: &Path, figures: &Path, runs: &[PathBuf]) -> anyhow::Result<()> {
    let mut command = Command::new(Tool::Cli.path()?);
    command
        .args(["report", "--table", "--json"])
        .arg(figures)
        .arg(page)
        .args(runs);
    run(command, "lmetric report").await
}

async fn run(mut command: Command, name: &str) -> anyhow::Result<()> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let status = child.wait().await?;
    if !status.success() {
        bail!("{name} failed ({status})");
    }
    Ok(())
}

fn no_errors(figures: &Path) -> anyhow::Result<()> {
    let figures: Value = serde_json::from_slice(&std::fs::read(figures)?)?;
    let policies = figures["policies"]
        .as_object()
        .context("the report names no policies")?;
    for (policy, figures) in policies {
        let errors = figures["errors"]
            .as_u64()
            .context("the report counts no errors")?;
        ensure!(
            errors == 0,
            "{errors} requests failed under {policy}; the run's file says how"
        );
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the demo's output is for the terminal")]
fn say(text: &str) {
    println!("{text}");
}
