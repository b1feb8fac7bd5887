//! `lmetric report` on run files: the page needs nothing else, and says what the JSON says.

use std::{collections::BTreeMap, path::Path};

use clap::Parser as _;
use lmetric_cli::{
    client::FailureKind,
    report::{self, PolicyFigures, ReportArgs, ReportFile},
    run_file::{IdleOverhead, Record, Records, RunFile, RunInfo, SCHEMA, Summary},
    stats::{Stats, rounded},
};

#[derive(clap::Parser)]
struct Harness {
    #[command(flatten)]
    args: ReportArgs,
}

/// A run of 200 requests whose times grow by `scale`; one in `fail_every` fails.
fn run_file(label: &str, scale: f64, fail_every: Option<u32>) -> RunFile {
    let rows: Vec<Record> = (1..=200)
        .map(|line| {
            let failed = fail_every.is_some_and(|every| line % every == 0);
            let along = f64::from(line) * 1.37;
            Record {
                line,
                arrival_ms: f64::from(line) * 50.0,
                late_ms: 0.2,
                ttft_ms: Some(rounded(scale * (40.0 + along * along / 3.0))),
                tpot_ms: Some(rounded(scale.sqrt() * (9.0 + along / 30.0))),
                e2e_ms: scale * 9_000.0,
                prompt_tokens: 1_000,
                cached_tokens: (400.0 / scale) as u64,
                output_tokens: 90,
                status: Some(if failed { 503 } else { 200 }),
                error: failed.then_some(FailureKind::Status),
            }
        })
        .collect();
    let good = || rows.iter().filter(|row| row.error.is_none());
    let errors = rows.len() as u64 - good().count() as u64;
    let summary = Summary {
        requests: 200,
        errors,
        errors_by_kind: if errors > 0 {
            BTreeMap::from([("status_503".to_owned(), errors)])
        } else {
            BTreeMap::new()
        },
        error_examples: BTreeMap::from([("status_503".to_owned(), "503: <none> ready".to_owned())]),
        ttft_ms: Stats::of(good().filter_map(|row| row.ttft_ms)),
        tpot_ms: Stats::of(good().filter_map(|row| row.tpot_ms)),
        e2e_ms: Stats::of(good().map(|row| row.e2e_ms)),
        late_ms: Stats::of(good().map(|row| row.late_ms)),
        prompt_tokens: good().map(|row| row.prompt_tokens).sum(),
        cached_tokens: good().map(|row| row.cached_tokens).sum(),
        output_tokens: good().map(|row| row.output_tokens).sum(),
        hit_ratio: 0.4 / scale,
        peak_in_flight: 12,
        idle: None,
    };
    let run = RunInfo {
        label: label.to_owned(),
        trace: "t.jsonl".to_owned(),
        trace_hash: "00000000000000ab".to_owned(),
        format: "mooncake".to_owned(),
        block_size: 512,
        window_start_s: 0.0,
        window_end_s: Some(600.0),
        rate_scale: 2.0,
        jitter_s: 3.0,
        jitter_seed: 1,
        speed: 4.0,
        prompt: "tokens".to_owned(),
        salt: label.to_owned(),
        url: "http://127.0.0.1:8081".to_owned(),
        model: "qwen2-7b".to_owned(),
        started_unix_s: 1,
        wall_s: 75.0,
        planned: 200,
        unfinished: 0,
        idle: false,
        interrupted: false,
        tool: "lmetric test".to_owned(),
    };
    RunFile {
        schema: SCHEMA.to_owned(),
        run,
        summary,
        records: Records::new(rows),
    }
}

fn write(folder: &Path, files: &[RunFile]) -> Vec<String> {
    let path = |i: usize| folder.join(format!("{i}.json"));
    files
        .iter()
        .enumerate()
        .for_each(|(i, file)| file.write(&path(i)).unwrap());
    (0..files.len()).map(|i| path(i).display().to_string()).collect()
}

struct Reported {
    html: String,
    json: ReportFile,
    table: String,
}

fn report(files: &[RunFile]) -> anyhow::Result<Reported> {
    let folder = tempfile::tempdir()?;
    let runs = write(folder.path(), files);
    let (page, json) = (
        folder.path().join("deep/report.html"),
        folder.path().join("report.json"),
    );
    let fixed = [
        "report",
        page.to_str().unwrap(),
        "--json",
        json.to_str().unwrap(),
        "--table",
    ];
    let args = Harness::parse_from(fixed.into_iter().map(str::to_owned).chain(runs)).args;
    let mut table = Vec::new();
    report::run(&args, &mut table)?;
    Ok(Reported {
        html: std::fs::read_to_string(page)?,
        json: serde_json::from_slice(&std::fs::read(json)?)?,
        table: String::from_utf8(table)?,
    })
}

fn three() -> Vec<RunFile> {
    vec![
        run_file("round-robin", 4.0, None),
        run_file("vllm", 2.0, Some(50)),
        run_file("lmetric", 1.0, None),
    ]
}

#[test]
fn the_page_fetches_nothing_and_runs_nothing() {
    let html = report(&three()).unwrap().html.to_lowercase();
    for reference in [
        "src=",
        "href=",
        "url(",
        "@import",
        "@font-face",
        "<script",
        "<link",
        "<iframe",
        "<img",
        "srcset",
        "onload=",
    ] {
        assert!(!html.contains(reference), "{reference}");
    }
    assert_eq!(
        html.matches("http://").count(),
        1,
        "the endpoint's address, as text"
    );
    assert!(!html.contains("https://") && !html.contains("nan") && !html.contains(">inf"));
}

/// Every `data-field`/`data-value` pair of a policy's row.
fn figures_in(html: &str, policy: &str) -> BTreeMap<String, f64> {
    let row = html
        .split_once(&format!("<tr data-policy=\"{policy}\">"))
        .unwrap()
        .1
        .split_once("</tr>")
        .unwrap()
        .0;
    row.split("data-field=\"")
        .skip(1)
        .map(|cell| {
            let (field, rest) = cell.split_once('"').unwrap();
            let value = rest
                .split_once("data-value=\"")
                .unwrap()
                .1
                .split_once('"')
                .unwrap()
                .0;
            (field.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[test]
fn the_pages_figures_are_the_jsons_and_the_runs() {
    let files = three();
    let Reported { html, json, .. } = report(&files).unwrap();
    assert_eq!(
        json.policies.keys().collect::<Vec<_>>(),
        ["round-robin", "vllm", "lmetric"]
    );
    for file in &files {
        let value = &json.policies[&file.run.label];
        let figures: PolicyFigures = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(
            (figures.ttft_ms, figures.tpot_ms),
            (file.summary.ttft_ms, file.summary.tpot_ms)
        );
        assert_eq!(
            (figures.requests, figures.errors),
            (file.summary.requests, file.summary.errors)
        );
        assert_eq!(figures.cached_tokens, file.summary.cached_tokens);
        let shown = figures_in(&html, &file.run.label);
        assert_eq!(shown.len(), 12);
        for (field, shown) in shown {
            let expected = field.split('.').fold(value, |value, key| &value[key]);
            let expected = expected.as_f64().unwrap();
            assert!(
                (expected - shown).abs() <= expected.abs() * 1e-12,
                "{} {field}: {shown}",
                file.run.label
            );
        }
    }
    let ratio = json.policies["lmetric"]["ttft_ratio"].as_f64().unwrap();
    assert!(html.contains(&format!("data-ratio=\"{ratio}\">{ratio:.2}<")));
}

#[test]
fn the_table_has_a_row_for_each_policy_and_ratios_to_the_baseline() {
    let mut files = three();
    let mut idle = run_file("idle", 1.0, None);
    idle.run.idle = true;
    idle.summary.idle = Some(IdleOverhead {
        requests: 8,
        measured_ttft_ms: 1_021.0,
        model_ttft_ms: 1_000.0,
        overhead: 0.021,
    });
    files.push(idle);
    let Reported { table, json, html } = report(&files).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0].starts_with("policy") && lines[0].ends_with("TTFT ÷ vllm  TPOT ÷ vllm"),
        "{table}"
    );
    assert_eq!(lines[2].split_whitespace().next(), Some("round-robin"));
    let lmetric: Vec<&str> = lines[4].split_whitespace().collect();
    assert_eq!(
        (lmetric[0], lmetric[1], lmetric[2], lmetric[3].starts_with('*')),
        ("lmetric", "200", "0", true),
        "{table}"
    );
    assert!(
        table.contains("overhead in model time (idle fleet's TTFT minus the model's): +2.1 %"),
        "{table}"
    );
    assert!(table.contains("note: vllm had 4 errors"), "{table}");
    assert_eq!(
        (json.policies.len(), json.idle.map(|idle| idle.requests)),
        (3, Some(8)),
        "the idle run is no policy"
    );
    assert!(html.contains("data-overhead=\"0.021\""));
}

#[test]
fn runs_that_cannot_be_compared_say_so() {
    let mut files = three();
    files[0].run.jitter_seed = 2;
    files[2].run.interrupted = true;
    files[2].run.unfinished = 5;
    let Reported { html, json, .. } = report(&files).unwrap();
    let warnings = json.warnings.join("\n");
    assert!(
        warnings.contains("round-robin and vllm differ in jitter: U(0, 3 s), seed 2, U(0, 3 s), seed 1"),
        "{warnings}"
    );
    assert!(
        warnings.contains("lmetric was interrupted: 5 of 200"),
        "{warnings}"
    );
    assert!(html.contains("lmetric was interrupted"));
    assert!(
        html.contains("503: &lt;none&gt; ready"),
        "errors are shown with an example, as text"
    );

    let twice = [run_file("a", 1.0, None), run_file("a", 2.0, None)];
    let text = format!("{:#}", report(&twice).err().unwrap());
    assert!(
        text.contains("two runs are labelled \"a\"; replay one of them with another --label"),
        "{text}"
    );
    let mut old = run_file("a", 1.0, None);
    old.schema = "lmetric-run/0".to_owned();
    let text = format!("{:#}", report(&[old]).err().unwrap());
    assert!(
        text.contains("lmetric-run/0") && text.contains("replay again"),
        "{text}"
    );
}

#[test]
fn a_baseline_that_is_not_there_is_an_error_that_names_the_runs() {
    let folder = tempfile::tempdir().unwrap();
    let runs = write(folder.path(), &three());
    let page = folder.path().join("report.html");
    let fixed = ["report", page.to_str().unwrap(), "--baseline", "vlm"];
    let args = Harness::parse_from(fixed.into_iter().map(str::to_owned).chain(runs)).args;
    let text = format!("{:#}", report::run(&args, &mut Vec::new()).unwrap_err());
    assert!(
        text.contains("no run is labelled \"vlm\"") && text.contains("vllm"),
        "{text}"
    );
    assert!(!page.exists());
}

#[test]
fn the_headline_is_what_was_measured_whoever_won() {
    let headline = |files: &[RunFile]| {
        let html = report(files).unwrap().html;
        html.split_once("<h1>")
            .unwrap()
            .1
            .split_once("</h1>")
            .unwrap()
            .0
            .to_owned()
    };
    assert_eq!(
        headline(&[run_file("vllm", 2.0, None), run_file("lmetric", 1.0, None)]),
        "lmetric brings the first token 2.0× sooner than vllm"
    );
    assert_eq!(
        headline(&[run_file("vllm", 1.0, None), run_file("lmetric", 1.5, None)]),
        "vllm brings the first token 1.5× sooner than lmetric"
    );
    assert_eq!(
        headline(&[run_file("vllm", 1.0, None), run_file("lmetric", 1.0, None)]),
        "lmetric and vllm bring the first token equally soon"
    );
    assert_eq!(headline(&[run_file("<a>", 1.0, None)]), "&lt;a&gt; on t.jsonl");
}
