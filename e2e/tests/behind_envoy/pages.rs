//! The live page and the report, in a headless Chromium, while real traffic passes.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use lmetric_testkit::{Browser, Look, Plug, Stage, StageOptions, Tab, Tool};
use tokio::process::{Child, Command};

use crate::support::repository;

const SOON: Duration = Duration::from_secs(15);
/// Model seconds per real second; the machine may be busy.
const SPEED: f64 = 4.0;
const LOOKS: [(&str, Look); 4] = [
    ("desktop-light", Look::desktop(false)),
    ("desktop-dark", Look::desktop(true)),
    ("phone-light", Look::phone(false)),
    ("phone-dark", Look::phone(true)),
];
/// Pictures end after so many pixels of the page.
const MOST_HEIGHT: [(bool, u32); 2] = [(false, 1_400), (true, 1_700)];

/// A browser, unless this machine has none and may lack one.
fn browser(folder: &Path) -> Option<Browser> {
    match Browser::path() {
        Ok(path) => Some(Browser::start(&path, folder).unwrap()),
        Err(missing) => {
            let must = std::env::var("CI").is_ok_and(|ci| !ci.is_empty() && ci != "0" && ci != "false");
            assert!(!must, "{missing}");
            eprintln!("SKIPPED: {missing}");
            None
        }
    }
}

/// Where the gateway shows bodies, there are times to show.
async fn fleet(plug: Plug, engines: u8, speed: f64) -> Stage {
    let mut options = StageOptions::new(plug).fleet(engines, speed);
    options.picker.plaintext = true;
    Stage::start(options).await.unwrap()
}

async fn live_tab(browser: &Browser, stage: &Stage) -> Tab {
    let tab = browser.tab().await.unwrap();
    tab.look(Look::desktop(false)).await.unwrap();
    let page = format!("http://{}/", stage.picker.admin_address());
    tab.open(&page).await.unwrap();
    tab.wait_for("byId('link').dataset.state === 'live'", SOON)
        .await
        .unwrap();
    tab
}

/// Replays the beginning of the chat trace, as `make demo` does.
fn replay(stage: &Stage, speed: f64, seconds: u32, rate: f64) -> (Child, PathBuf) {
    let file = stage.folder().join("run.json");
    let mut command = Command::new(Tool::Cli.path().unwrap());
    command
        .args([
            "replay",
            "--prompt",
            "tokens",
            "--label",
            "lmetric",
            "--model",
            stage.model(),
        ])
        .args(["--url", &format!("http://{}", stage.client().to())])
        .args(["--speed", &speed.to_string(), "--rate-scale", &rate.to_string()])
        .args([
            "--window",
            &format!("0:{seconds}"),
            "--jitter",
            "3s",
            "--max-errors",
            "0",
        ])
        .arg("--trace")
        .arg(trace())
        .arg("--out")
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    (command.spawn().unwrap(), file)
}

fn trace() -> PathBuf {
    repository().join("data/mooncake-conversation-10min.jsonl")
}

/// Simulates policies on the trace's `window`, and writes the page of the study into `folder`.
async fn study(folder: &Path, engines: &str, policies: &str, window: &str) -> PathBuf {
    let [study, page] = ["study.json", "study.html"].map(|name| folder.join(name));
    let trace = trace();
    let [to, html, from] = [&study, &page, &trace].map(|path| path.to_str().unwrap());
    let fleet = [
        "--trace",
        from,
        "--engines",
        engines,
        "--model",
        "qwen2-7b",
        "--rate-scale",
        "2",
    ];
    let runs = [
        "--policies",
        policies,
        "--window",
        window,
        "--jitter",
        "3s",
        "--out",
        to,
    ];
    cli(&[&["simulate"][..], &fleet, &runs].concat()).await;
    cli(&["report", html, to]).await;
    page
}

async fn cli(args: &[&str]) {
    let output = Command::new(Tool::Cli.path().unwrap())
        .args(args)
        .current_dir(repository())
        .output()
        .await
        .unwrap();
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Looks at the page in each way: it must not be wider than its window, and nothing may be wrong.
async fn look_at(tab: &Tab, name: &str, pictures: Option<&Path>) {
    for (way, look) in LOOKS {
        tab.look(look).await.unwrap();
        // the page lays itself out, and the next snapshot comes
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        assert_eq!(tab.overflow().await.unwrap(), 0, "{name} {way} scrolls sideways");
        if let Some(folder) = pictures {
            let most = MOST_HEIGHT
                .iter()
                .find(|(phone, _)| *phone == look.phone)
                .map(|(_, most)| *most);
            let file = folder.join(format!("{name}-{way}.png"));
            tab.picture(&file, most).await.unwrap();
        }
    }
    assert_eq!(tab.take_problems(), [""; 0], "{name}");
}

#[tokio::test]
#[ignore = "needs the built programs, Envoy and Chromium: make e2e-envoy"]
async fn the_live_page_follows_traffic_and_says_when_the_picker_is_gone() {
    let mut stage = fleet(Plug::Full, 4, SPEED).await;
    let Some(browser) = browser(stage.folder()) else {
        return;
    };
    let tab = live_tab(&browser, &stage).await;
    tab.wait_for("byId('table').tBodies[0].rows.length === 4", SOON)
        .await
        .unwrap();
    tab.wait_for("!byId('no-picks').hidden", SOON).await.unwrap();
    let (mut traffic, run) = replay(&stage, SPEED, 32, 1.0);
    for (what, expression) in [
        (
            "a rate",
            "Number(document.querySelector('[data-figure=rate] .big').textContent) > 0",
        ),
        (
            "load",
            "[...document.querySelectorAll('td.bs .text')].some((cell) => Number(cell.textContent) > 0)",
        ),
        (
            "reasons",
            "[...document.querySelectorAll('.because')].some((why) => why.textContent.startsWith('won because'))",
        ),
        (
            "cache use",
            "[...document.querySelectorAll('td.cache .text')].some((cell) => cell.textContent.endsWith('%'))",
        ),
        (
            "a hit rate",
            "document.querySelector('[data-figure=hit] .big').textContent.endsWith('%')",
        ),
        (
            "a TTFT",
            "/[0-9] m?s$/.test(document.querySelector('[data-figure=ttft] .big').dataset.text)",
        ),
        (
            "a TPOT",
            "/[0-9] m?s$/.test(document.querySelector('[data-figure=tpot] .big').dataset.text)",
        ),
        (
            "a line",
            "document.querySelector('[data-figure=bs] .line').getAttribute('d').includes('L')",
        ),
    ] {
        let waited = tab.wait_for(expression, SOON).await;
        waited.unwrap_or_else(|error| panic!("no {what}: {error}"));
    }
    let picks = "last.totals.picks";
    let before = tab.ask(picks).await.unwrap().as_u64().unwrap();
    tab.wait_for(&format!("{picks} > {before}"), SOON).await.unwrap();

    let order = "[...byId('table').tBodies[0].rows].map((row) => row.cells[0].textContent).join()";
    tab.ask("document.querySelector('th[data-key=bs] button').click()")
        .await
        .unwrap();
    let sorted = tab.ask(order).await.unwrap();
    tab.wait_for(&format!("{picks} > {before} + 4"), SOON)
        .await
        .unwrap();
    assert_eq!(
        tab.ask(order).await.unwrap(),
        sorted,
        "rows keep their places while figures change"
    );
    look_at(&tab, "live", None).await;
    assert!(traffic.wait().await.unwrap().success());

    let page = stage.folder().join("report.html");
    cli(&["report", page.to_str().unwrap(), run.to_str().unwrap()]).await;
    let report = browser.tab().await.unwrap();
    report.open(&format!("file://{}", page.display())).await.unwrap();
    look_at(&report, "report", None).await;

    stage.picker.kill();
    tab.wait_for(
        "byId('link').dataset.state === 'gone' && !byId('gone').hidden",
        SOON,
    )
    .await
    .unwrap();
    stage.picker.start_again().await.unwrap();
    tab.wait_for(
        "byId('link').dataset.state === 'live' && byId('gone').hidden",
        SOON,
    )
    .await
    .unwrap();
    // what failed while nobody listened
    tab.take_problems();
    tab.wait_for("last.totals.picks === 0", SOON).await.unwrap();
    assert_eq!(tab.take_problems(), [""; 0], "after the picker's return");
}

#[tokio::test]
#[ignore = "needs the built programs, Envoy and Chromium: make e2e-envoy"]
async fn two_hundred_endpoints_are_seen_at_a_glance() {
    let stage = fleet(Plug::Light, 200, SPEED).await;
    let Some(browser) = browser(stage.folder()) else {
        return;
    };
    let tab = live_tab(&browser, &stage).await;
    tab.wait_for(
        "byId('grid').childElementCount === 200 && !byId('grid').hidden",
        SOON,
    )
    .await
    .unwrap();
    let tall = tab
        .ask("byId('grid').getBoundingClientRect().height")
        .await
        .unwrap();
    assert!(
        tall.as_f64().unwrap() < 1_000.0,
        "a desktop's window shows them all: {tall} pixels"
    );
    let (mut traffic, _) = replay(&stage, SPEED, 12, 4.0);
    tab.wait_for("last.totals.picks > 20", SOON).await.unwrap();
    let pictures = pictures();
    let more = pictures.as_deref().map(|folder| folder.join("more"));
    if let Some(folder) = &more {
        std::fs::create_dir_all(folder).unwrap();
    }
    look_at(&tab, "live-200", more.as_deref()).await;
    tab.ask("byId('as-table').click()").await.unwrap();
    look_at(&tab, "live-200-table", more.as_deref()).await;
    assert!(traffic.wait().await.unwrap().success());
    let unseen = "document.querySelector('[data-figure=ttft] .why').textContent === 'bodies are not seen'";
    tab.wait_for(unseen, SOON).await.unwrap();
}

#[tokio::test]
#[ignore = "needs the built programs, Envoy and Chromium: make e2e-envoy"]
async fn the_page_of_a_simulated_study_is_clean() {
    let folder = tempfile::tempdir().unwrap();
    let Some(browser) = browser(folder.path()) else {
        return;
    };
    let page = study(folder.path(), "4", "lmetric,vllm", "0:60").await;
    let tab = browser.tab().await.unwrap();
    tab.open(&format!("file://{}", page.display())).await.unwrap();
    look_at(&tab, "study", None).await;
}

/// Where pictures are wanted, if they are.
fn pictures() -> Option<PathBuf> {
    std::env::var_os("LMETRIC_SCREENSHOTS").map(PathBuf::from)
}

/// The pictures of the documentation, when `LMETRIC_SCREENSHOTS` names a folder for them: sixteen engines under load, and a study
/// in virtual time, whose figures do not depend on this machine.
#[tokio::test]
#[ignore = "needs the built programs, Envoy and Chromium: make screenshots"]
async fn screenshots() {
    let Some(folder) = pictures() else {
        println!("SKIPPED: no pictures are wanted; make screenshots, or set LMETRIC_SCREENSHOTS to a folder");
        return;
    };
    std::fs::create_dir_all(&folder).unwrap();
    let speed = 2.0;
    let stage = fleet(Plug::Full, 16, speed).await;
    let browser = browser(stage.folder()).expect("pictures need a browser");
    let tab = live_tab(&browser, &stage).await;
    let (traffic, _) = replay(&stage, speed, 600, 2.0);
    tokio::time::sleep(Duration::from_secs(50)).await;
    look_at(&tab, "live", Some(&folder)).await;
    drop(traffic);

    let page = study(stage.folder(), "16", "lmetric,vllm,bailian,round-robin", "0:600").await;
    let tab = browser.tab().await.unwrap();
    tab.open(&format!("file://{}", page.display())).await.unwrap();
    look_at(&tab, "report", Some(&folder)).await;
}
