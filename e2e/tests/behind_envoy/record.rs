//! From traffic to a verdict: what the picker records while a trace is replayed gives, in `lmetric simulate`, what the replay
//! measured.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, ensure};
use lmetric_testkit::{Plug, Stage, StageOptions, Tool};
use serde_json::{Value, json};
use tokio::process::Command;

const ENGINES: u8 = 20;
const MODEL: &str = "qwen2-7b";
/// So slow that what lies between client and engine, a few milliseconds of real time, is little in model time.
const SPEED: f64 = 4.0;

/// Conversations whose histories grow turn by turn.
struct Conversations {
    talks: u64,
    turns: u64,
    /// Between two requests.
    gap_ms: u64,
    /// Between two turns, besides.
    pause_ms: u64,
    /// Blocks of 16 tokens of the first turn's prompt, at least.
    first: u64,
    /// Blocks that each turn adds, at least.
    grow: u64,
}

impl Conversations {
    /// One request after the other, every prompt of another length.
    fn trace(&self) -> String {
        let mut trace = String::new();
        for number in 0..self.talks * self.turns {
            let (turn, talk) = (number / self.talks, number % self.talks);
            let blocks = self.first + turn * self.grow + number;
            let id = |block: u64| match block {
                0..20 => block,
                _ => (talk + 1) * 100_000 + block,
            };
            let ids: Vec<String> = (0..blocks).map(|block| id(block).to_string()).collect();
            writeln!(
                trace,
                r#"{{"timestamp":{},"input_length":{},"output_length":{},"hash_ids":[{}]}}"#,
                number * self.gap_ms + turn * self.pause_ms,
                blocks * 16,
                20 + number * 29 % 70,
                ids.join(",")
            )
            .unwrap();
        }
        trace
    }
}

const SHORT: Conversations = Conversations {
    talks: 23,
    turns: 4,
    gap_ms: 150,
    pause_ms: 0,
    first: 60,
    grow: 70,
};
/// So long that a history which is not found weighs more than anything else, and that what lies between client and engine weighs
/// little; in no multiple of the engines' number. Before the second turn all is quiet, so that which engine is the nearest
/// does not hang on milliseconds.
const LONG: Conversations = Conversations {
    talks: 23,
    turns: 2,
    gap_ms: 400,
    pause_ms: 5_000,
    first: 2_200,
    grow: 250,
};

/// Replays `trace` under `policy` and gives the run, and the recording if one was asked for.
async fn replay(plug: Plug, policy: &str, trace: &Path, records: bool) -> anyhow::Result<(Value, String)> {
    let mut options = StageOptions::new(plug).fleet(ENGINES, SPEED);
    MODEL.clone_into(&mut options.engines.profile);
    MODEL.clone_into(&mut options.engines.model);
    policy.clone_into(&mut options.picker.policy);
    if records {
        options.picker.more = json!({"record": {"to": "File", "file": "recording.jsonl"}});
    }
    let mut stage = Stage::start(options).await?;
    let out = stage.folder().join("run.json");
    let command = [
        "replay",
        "--prompt=tokens",
        &format!("--model={MODEL}"),
        &format!("--url=http://{}", stage.client().to()),
        &format!("--speed={SPEED}"),
        "--block-size=16",
        &format!("--trace={}", trace.display()),
        &format!("--out={}", out.display()),
    ]
    .map(str::to_owned);
    lmetric(&command).await?;
    if records {
        let written = stage.admin().metric("lmetric_record_requests_total", "").await?;
        ensure!(written > 0.0, "lines are written while the picker runs");
    }
    stage.picker.stop(Duration::from_secs(10)).await?;
    let run = serde_json::from_slice(&std::fs::read(&out)?)?;
    let recording = if records {
        std::fs::read_to_string(stage.folder().join("recording.jsonl"))?
    } else {
        String::new()
    };
    Ok((run, recording))
}

async fn lmetric(args: &[String]) -> anyhow::Result<()> {
    let output = Command::new(Tool::Cli.path()?)
        .args(args)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    ensure!(
        output.status.success(),
        "lmetric {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Mean TTFT and mean TPOT of each policy, simulated with the fleet of [`replay`].
async fn simulate(
    folder: &Path,
    recording: &Path,
    policies: &[&str],
) -> anyhow::Result<BTreeMap<String, [f64; 2]>> {
    let out = folder.join("study.json");
    let command = [
        "simulate".to_owned(),
        format!("--trace={}", recording.display()),
        format!("--engines={ENGINES}"),
        "--gpu=H20".to_owned(),
        format!("--model={MODEL}"),
        "--bodies".to_owned(),
        format!("--policies={}", policies.join(",")),
        format!("--out={}", out.display()),
    ];
    lmetric(&command).await?;
    let study: Value = serde_json::from_slice(&std::fs::read(&out)?)?;
    let cells = study["cells"].as_array().context("a study has cells")?;
    let means = cells.iter().map(|cell| {
        let label = cell["label"].as_str().context("a cell has a label")?;
        Ok((label.to_owned(), means(&cell["outcome"]["figures"])?))
    });
    means.collect()
}

fn means(figures: &Value) -> anyhow::Result<[f64; 2]> {
    let mean = |name: &str| {
        figures[name]["mean"]
            .as_f64()
            .with_context(|| format!("no {name} in {figures}"))
    };
    Ok([mean("ttft_ms")?, mean("tpot_ms")?])
}

/// Policies, the best mean TTFT first.
fn order(means: &BTreeMap<String, [f64; 2]>) -> Vec<&str> {
    let mut names: Vec<&str> = means.keys().map(String::as_str).collect();
    names.sort_by(|one, other| means[*one][0].total_cmp(&means[*other][0]));
    names
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// LMetric finds every history and round robin none, whatever is drawn: both are one figure. Random is only to be the last.
#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn a_recording_simulated_gives_what_the_replay_measured() {
    const POLICIES: [&str; 3] = ["lmetric", "round-robin", "random"];
    let folder = tempfile::tempdir().unwrap();
    let trace = write(folder.path(), "trace.jsonl", &LONG.trace());
    let mut measured = BTreeMap::new();
    let mut recording = String::new();
    for policy in POLICIES {
        let records = policy == "lmetric";
        let (run, recorded) = replay(Plug::Full, policy, &trace, records).await.unwrap();
        assert_eq!(run["summary"]["errors"], 0, "{policy}: {}", run["summary"]);
        measured.insert(policy.to_owned(), means(&run["summary"]).unwrap());
        if records {
            recording = recorded;
        }
    }
    let first: Value = serde_json::from_str(recording.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["block_size"], &first["mode"]),
        (&json!(16), &json!("full"))
    );
    assert_eq!(first["speed"].as_f64(), Some(SPEED));
    assert_eq!(recording.lines().count() as u64, 1 + LONG.talks * LONG.turns);
    assert!(!recording.contains("estimated"));
    let recording = write(folder.path(), "recording.jsonl", &recording);
    let simulated = simulate(folder.path(), &recording, &POLICIES).await.unwrap();
    println!("measured {measured:?}\nsimulated {simulated:?}");
    for policy in ["lmetric", "round-robin"] {
        for (figure, at) in [("TTFT", 0), ("TPOT", 1)] {
            let (real, ours) = (measured[policy][at], simulated[policy][at]);
            let off = ours / real - 1.0;
            assert!(
                off.abs() <= 0.10,
                "{policy}: mean {figure} {ours} ms simulated, {real} ms measured ({off:+.3})"
            );
        }
    }
    assert_eq!(
        order(&simulated),
        order(&measured),
        "simulated {simulated:?}, measured {measured:?}"
    );
}

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn a_light_recording_has_output_lengths_within_a_block() {
    let folder = tempfile::tempdir().unwrap();
    let text = SHORT.trace();
    let trace = write(folder.path(), "trace.jsonl", &text);
    let (run, recording) = replay(Plug::Light, "lmetric", &trace, true).await.unwrap();
    assert_eq!(run["summary"]["errors"], 0, "{}", run["summary"]);
    let parse = |text: &str| -> Vec<Value> {
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let lines = parse(&recording);
    assert_eq!(lines[0]["mode"], "light");
    let number = |line: &Value, name: &str| line[name].as_u64().unwrap();
    let asked: HashMap<u64, u64> = parse(&text)
        .iter()
        .map(|line| (number(line, "input_length"), number(line, "output_length")))
        .collect();
    assert_eq!(
        asked.len() as u64,
        SHORT.talks * SHORT.turns,
        "every length is one request's"
    );
    assert_eq!(lines.len(), 1 + asked.len());
    let close = lines[1..].iter().filter(|line| {
        assert_eq!(line["estimated"], true, "{line}");
        number(line, "output_length").abs_diff(asked[&number(line, "input_length")]) <= 16
    });
    let share = close.count() as f64 / asked.len() as f64;
    assert!(share >= 0.95, "{share} within a block");
    // and a simulation takes it as it is
    let recording = write(folder.path(), "recording.jsonl", &recording);
    let simulated = simulate(folder.path(), &recording, &["lmetric"]).await.unwrap();
    assert!(simulated["lmetric"][0] > 0.0);
}

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn a_shadow_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = StageOptions::new(Plug::Light).fleet(2, 20.0);
    options.picker.policy = "round-robin".to_owned();
    options.picker.more = json!({"shadow": {"name": "bailian", "lambda": 0.55}});
    let stage = Stage::start(options).await.unwrap();
    let trace = write(folder.path(), "trace.jsonl", &SHORT.trace());
    let command = [
        "replay".to_owned(),
        format!("--model={}", stage.model()),
        format!("--url=http://{}", stage.client().to()),
        "--speed=20".to_owned(),
        "--block-size=16".to_owned(),
        format!("--trace={}", trace.display()),
        format!("--out={}", folder.path().join("run.json").display()),
    ];
    lmetric(&command).await.unwrap();
    let page = stage.admin().json("/debug/shadow").await.unwrap();
    let shadow = &page["shadow"];
    assert_eq!(
        (&shadow["picks"], &shadow["live"]["picks"]),
        (&json!(92), &json!(92))
    );
    assert_eq!(shadow["shadow_policy"], "bailian(lambda=0.55)");
    let tokens = |side: &str| shadow[side]["prefill_tokens"].as_u64().unwrap();
    assert!(tokens("shadow") < tokens("live"), "{page}");
    let metric = stage
        .admin()
        .metric("lmetric_shadow_prefill_tokens_total", "side=\"shadow\"")
        .await
        .unwrap();
    assert_eq!(metric as u64, tokens("shadow"));
    let explained = Command::new(Tool::Cli.path().unwrap())
        .args(["explain", "--shadow", "--admin"])
        .arg(format!("http://{}", stage.picker.admin_address()))
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(explained.stdout).unwrap();
    assert!(
        text.starts_with("live round-robin · shadow bailian(lambda=0.55) · 92 requests\n"),
        "{text}{}",
        String::from_utf8_lossy(&explained.stderr)
    );
}
