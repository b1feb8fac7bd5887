//! `lmetric explain` against a picker's admin address.

use std::process::ExitCode;

use clap::Parser as _;
use lmetric_cli::explain::{self, ExplainArgs};

use crate::support::{Answer, Fake};

#[derive(clap::Parser)]
struct Harness {
    #[command(flatten)]
    args: ExplainArgs,
}

async fn explain(fake: &Fake, more: &[&str]) -> anyhow::Result<String> {
    let admin = fake.url();
    let args = Harness::parse_from(["explain", "--admin", &admin].iter().chain(more)).args;
    let mut out = Vec::new();
    let code = explain::run(&args, &mut out).await?;
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS));
    Ok(String::from_utf8(out)?)
}

const DECISION: &str = r#"{"decisions":[{"request_id":"a b","model":"m","at":1,"policy":"lmetric","tokens":4000,"weight":1,
"winner":"127.0.1.1:8000","rank":null,"ties":1,"candidates":[["127.0.1.1:8000",{"slot":0,"hit":0,"q":0,"bs":0,"score":4000.0,"filtered":false}]],
"candidate_count":1,"filtered_class":null,"a_later_field":1}]}"#;

#[tokio::test]
async fn the_latest_decision_or_one_by_id_is_asked_for_and_told() {
    let fake = Fake::start(|_| Answer::Json(DECISION.to_owned())).await;
    let latest = explain(&fake, &[]).await.unwrap();
    assert!(
        latest.contains("127.0.1.1:8000 won because it was the only candidate (4.0k × 1 = 4.0k)"),
        "{latest}"
    );
    explain(&fake, &["a b"]).await.unwrap();
    let paths: Vec<_> = fake.seen().into_iter().map(|seen| seen.path).collect();
    assert_eq!(paths, ["/debug/decisions?n=1", "/debug/decisions?id=a%20b&n=1"]);
    assert_eq!(
        explain(&fake, &["--json"]).await.unwrap(),
        format!("{DECISION}\n")
    );
}

#[tokio::test]
async fn what_cannot_be_explained_is_one_line_with_a_remedy() {
    let answers = [
        (
            Answer::Json("{\"decisions\":[]}".to_owned()),
            "no decision for request \"x\"",
        ),
        (Answer::Status(404), "no decision for request \"x\""),
        (
            Answer::Status(500),
            "answered 500 Internal Server Error: no endpoint is ready; give the admin address",
        ),
        (
            Answer::Json("<html>".to_owned()),
            "give the admin address of lmetric-epp with --admin",
        ),
    ];
    for (answer, expected) in answers {
        let fake = Fake::start(move |_| answer.clone()).await;
        let text = format!("{:#}", explain(&fake, &["x"]).await.unwrap_err());
        assert!(text.contains(expected) && !text.contains('\n'), "{text}");
    }
    let gone = Fake::start(|_| Answer::Hang).await;
    let url = gone.url();
    drop(gone);
    let args = Harness::parse_from(["explain", "--admin", &url]).args;
    let text = format!("{:#}", explain::run(&args, &mut Vec::new()).await.unwrap_err());
    assert!(text.contains("is lmetric-epp running there"), "{text}");
}

#[tokio::test]
async fn a_shadow_is_asked_for_and_its_absence_has_a_remedy() {
    const PAGE: &str = r#"{"shadow":{"live_policy":"lmetric","shadow_policy":"vllm","picks":4,"agreed":3,"prompt_tokens":400,
"live":{"picks":4,"prefill_tokens":100},"shadow":{"picks":4,"prefill_tokens":150},"live_spread":0.0,"shadow_spread":0.5,
"endpoints":[],"a_later_field":1}}"#;
    let fake = Fake::start(|_| Answer::Json(PAGE.to_owned())).await;
    let told = explain(&fake, &["--shadow"]).await.unwrap();
    assert!(
        told.contains("vllm would have sent 25 % of the requests elsewhere than lmetric; it would have had 50 % more prompt tokens"),
        "{told}"
    );
    assert_eq!(fake.seen()[0].path, "/debug/shadow");
    assert_eq!(
        explain(&fake, &["--shadow", "--json"]).await.unwrap(),
        format!("{PAGE}\n")
    );
    for (answer, says) in [
        (
            Answer::Json("{\"shadow\":null}".to_owned()),
            "has no shadow policy; write one into its configuration, like shadow: {name: bailian",
        ),
        (
            Answer::Json("{}x".to_owned()),
            "of an lmetric-epp of this version",
        ),
        (Answer::Status(404), "answered 404"),
    ] {
        let fake = Fake::start(move |_| answer.clone()).await;
        let text = format!("{:#}", explain(&fake, &["--shadow"]).await.unwrap_err());
        assert!(text.contains(says) && !text.contains('\n'), "{text}");
    }
}
