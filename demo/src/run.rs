//! One policy after the other on a stage of its own, then the report.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Instant,
};

use anyhow::{Context, bail, ensure};
use lmetric_testkit::{Plug, Stage, StageOptions, Tool};
use tokio::process::Command;

use crate::{
    options::Options,
    overhead::{self, Overhead},
};

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
    let overhead = idle_overhead(options).await?;
    let mut runs = Vec::new();
    for policy in &options.policies {
        runs.push(replay(options, policy).await?);
    }
    report(options, &runs).await?;
    say(&summary(options, overhead, begun));
    Ok(())
}

async fn stage(options: &Options, policy: &str) -> anyhow::Result<Stage> {
    let mut wanted = StageOptions::new(Plug::Light).fleet(options.engines, options.speed);
    wanted.engines.profile.clone_from(&options.profile);
    wanted.engines.model.clone_from(&options.profile);
    policy.clone_into(&mut wanted.picker.policy);
    wanted.picker.plaintext = true;
    Stage::start(wanted).await
}

async fn idle_overhead(options: &Options) -> anyhow::Result<Overhead> {
    say("measuring what the way through Envoy and the picker adds, on an idle fleet");
    let stage = stage(options, "lmetric").await?;
    overhead::measure(&stage, &options.profile, options.speed).await
}

async fn replay(options: &Options, policy: &str) -> anyhow::Result<PathBuf> {
    let stage = stage(options, policy).await?;
    say(&format!(
        "{policy}: {} engines behind http://{}; ask why with: lmetric explain --admin http://{}",
        options.engines,
        stage.client().to(),
        stage.picker.admin_address(),
    ));
    let out = options.out.join(format!("{policy}.json"));
    let mut command = Command::new(Tool::Cli.path()?);
    command
        .arg("replay")
        .arg("--trace")
        .arg(&options.trace)
        .args(["--url", &format!("http://{}", stage.client().to())])
        .args(["--model", &options.profile, "--prompt", "tokens"])
        .args(["--rate-scale", &options.rate_scale.to_string()])
        .args(["--window", &format!("0:{}", options.seconds)])
        .args(["--jitter", "3s", "--jitter-seed", &options.seed.to_string()])
        .args(["--speed", &options.speed.to_string()])
        .args(["--label", policy])
        .arg("--out")
        .arg(&out);
    run(command, "lmetric replay").await?;
    Ok(out)
}

async fn report(options: &Options, runs: &[PathBuf]) -> anyhow::Result<()> {
    let mut command = Command::new(Tool::Cli.path()?);
    command
        .arg("report")
        .arg("--table")
        .arg("--json")
        .arg(options.out.join("report.json"))
        .arg(options.out.join("report.html"))
        .args(runs);
    run(command, "lmetric report").await
}

async fn run(mut command: Command, name: &str) -> anyhow::Result<()> {
    let mut child = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let status = child.wait().await?;
    if !status.success() {
        bail!("{name} failed ({status})");
    }
    Ok(())
}

fn summary(options: &Options, overhead: Overhead, begun: Instant) -> String {
    format!(
        "overhead on an idle fleet, model time: TTFT {:.0} ms where the model alone takes {:.0} ms ({:+.1} %)\n\
         seed {}, {:.0} s at speed {}; page: {}",
        overhead.measured.as_secs_f64() * 1e3,
        overhead.model.as_secs_f64() * 1e3,
        overhead.share() * 100.0,
        options.seed,
        begun.elapsed().as_secs_f64(),
        options.speed,
        absolute(&options.out.join("report.html")).display(),
    )
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

#[expect(clippy::print_stdout, reason = "the demo's output is for the terminal")]
fn say(text: &str) {
    println!("{text}");
}
