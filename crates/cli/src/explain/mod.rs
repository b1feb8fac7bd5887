//! `lmetric explain`: why the picker chose what it chose.

mod decision;
mod shadow;

pub use decision::Decisions;
pub use shadow::ShadowPage;

use std::{io::Write, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt as _, Full, Limited};
use lmetric_scheduler::{Decision, reason};

use crate::{
    client::{BaseUrl, Trust, error_message, http_client},
    units::{grouped, short_count, time_ms},
};

/// Bytes of an answer that are read: 1,000 decisions of 64 candidates fit.
const MOST_BYTES: usize = 64 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Ask a running picker about one of its last 1,000 picks: every candidate's hit, Q, BS and score, who won and why; or with
/// --shadow, what its shadow policy would have done with all requests.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// The picker's admin address
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9090")]
    pub admin: BaseUrl,
    /// Compare the live policy with the shadow that the picker's configuration names
    #[arg(long, conflicts_with = "request_id")]
    pub shadow: bool,
    /// Request id, as in x-request-id [default: the latest pick]
    pub request_id: Option<String>,
    /// Print the picker's own JSON
    #[arg(long)]
    pub json: bool,
}

/// Fetches the decision, or the shadow's figures, and prints it to `out`.
pub async fn run(args: &ExplainArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    if args.shadow {
        shadow(args, out).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let query = match &args.request_id {
        Some(id) => format!("id={}&n=1", encoded(id)),
        None => "n=1".to_owned(),
    };
    let body = fetch(args, &format!("/debug/decisions?{query}")).await?;
    let answer: Decisions = serde_json::from_slice(&body).with_context(|| {
        format!(
            "{} answered something else than decisions; give the admin address of lmetric-epp with --admin",
            args.admin
        )
    })?;
    let Some(decision) = answer.decisions.first() else {
        match &args.request_id {
            Some(id) => bail!(
                "no decision for request {id:?} at {}; the picker keeps its last 1,000, so ask sooner, or leave the id out for the latest",
                args.admin
            ),
            None => bail!(
                "the picker at {} has made no decision yet; send a request through the gateway first",
                args.admin
            ),
        }
    };
    if args.json {
        as_it_is(&body, out)?;
    } else {
        let age = answer
            .now
            .map(|now| Duration::from_nanos(now.saturating_sub(decision.at)));
        print(decision, age, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn shadow(args: &ExplainArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let body = fetch(args, "/debug/shadow").await?;
    let page: ShadowPage = serde_json::from_slice(&body).with_context(|| {
        format!(
            "{} answered something else than a shadow's figures; give the admin address of an lmetric-epp of this version with --admin",
            args.admin
        )
    })?;
    let Some(shadow) = page.shadow else {
        bail!(
            "the picker at {} has no shadow policy; write one into its configuration, like shadow: {{name: bailian, lambda: 0.55}}",
            args.admin
        );
    };
    if args.json {
        as_it_is(&body, out)?;
    } else {
        shadow::Shown(&shadow).print(out)?;
    }
    Ok(())
}

fn as_it_is(body: &[u8], out: &mut impl Write) -> std::io::Result<()> {
    out.write_all(body)?;
    if body.ends_with(b"\n") {
        Ok(())
    } else {
        writeln!(out)
    }
}

async fn fetch(args: &ExplainArgs, path: &str) -> anyhow::Result<Bytes> {
    let uri = args.admin.join(path)?;
    let asking = async {
        let mut request = http::Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = uri;
        let answer = http_client(&args.admin, &Trust::System)?.request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MOST_BYTES)
            .collect()
            .await
            .map_err(anyhow::Error::from_boxed)?;
        anyhow::Ok((status, body.to_bytes()))
    };
    let (status, body) = tokio::time::timeout(TIMEOUT, asking)
        .await
        .map_err(anyhow::Error::from)
        .and_then(|answer| answer)
        .with_context(|| {
            format!(
                "no answer from {}; is lmetric-epp running there, and is --admin its admin port?",
                args.admin
            )
        })?;
    // A picker that says 404 for an unknown id says the same as one that sends an empty list.
    if status == http::StatusCode::NOT_FOUND && args.request_id.is_some() && body.starts_with(b"{") {
        return Ok(Bytes::from_static(b"{\"decisions\":[]}"));
    }
    if !status.is_success() {
        bail!(
            "{} answered {status}: {}; give the admin address of lmetric-epp with --admin",
            args.admin,
            error_message(&body)
        );
    }
    Ok(body)
}

/// Percent-encoding of a query value (RFC 3986: everything but unreserved characters).
fn encoded(text: &str) -> String {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| {
            if unreserved(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

fn print(decision: &Decision, age: Option<Duration>, out: &mut impl Write) -> std::io::Result<()> {
    let weight = if decision.weight > 1 {
        format!(", {} engine requests", decision.weight)
    } else {
        String::new()
    };
    let age = age
        .map(|age| format!(" · {} ago", time_ms(age.as_secs_f64() * 1e3)))
        .unwrap_or_default();
    writeln!(
        out,
        "request {} · model {} · policy {} · {} prompt tokens{weight}{age}\n",
        decision.request_id,
        decision.model,
        decision.policy,
        grouped(u64::from(decision.tokens))
    )?;
    let width = decision
        .candidates
        .iter()
        .map(|(address, _)| address.len())
        .max()
        .unwrap_or(0)
        .max(9);
    writeln!(
        out,
        "  {:width$}  {:>9} {:>5} {:>9} {:>5} {:>9} {:>10}",
        "candidate", "hit", "", "Q", "BS", "P-token", "score"
    )?;
    let mut marked = false;
    for (address, candidate) in &decision.candidates {
        let wins = !marked && *address == decision.winner;
        marked |= wins;
        let share = 100.0 * f64::from(candidate.hit) / f64::from(decision.tokens.max(1));
        let score = short_count(candidate.score);
        let note = match (wins, candidate.filtered) {
            (true, _) => "  ← won",
            (false, true) => "  filtered (hotspot)",
            (false, false) => "",
        };
        writeln!(
            out,
            "{} {address:width$}  {:>9} {share:>3.0} % {:>9} {:>5} {:>9} {score:>10}{note}",
            if wins { "▸" } else { " " },
            grouped(u64::from(candidate.hit)),
            grouped(u64::from(candidate.q)),
            candidate.bs,
            grouped(decision.p_tokens(candidate)),
        )?;
    }
    let unseen = decision
        .candidate_count
        .saturating_sub(decision.candidates.len() as u32);
    if unseen > 0 {
        writeln!(out, "  … and {unseen} more with higher scores")?;
    }
    let rank = decision
        .rank
        .map(|rank| format!(" rank {rank}"))
        .unwrap_or_default();
    writeln!(out, "\n{}{rank} {}.", decision.winner, reason(decision))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_prints_every_candidate_and_the_reason() {
        let body = r#"{"decisions":[{"request_id":"lmetric-7","model":"qwen2-7b","at":12,"policy":"lmetric","tokens":4000,"weight":1,
            "winner":"127.0.1.2:8000","rank":1,"ties":1,"candidate_count":70,"filtered_class":null,"candidates":[
            ["127.0.1.2:8000",{"slot":1,"hit":800,"q":0,"bs":3,"score":12800.0,"filtered":false}],
            ["127.0.1.10:8000",{"slot":2,"hit":3200,"q":21000,"bs":9,"score":null,"filtered":true}]]}]}"#;
        let decisions: Decisions = serde_json::from_str(body).unwrap();
        let mut out = Vec::new();
        print(
            &decisions.decisions[0],
            Some(Duration::from_millis(3_200)),
            &mut out,
        )
        .unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "request lmetric-7 · model qwen2-7b · policy lmetric · 4,000 prompt tokens · 3.20 s ago"
        );
        assert_eq!(
            lines[3],
            "▸ 127.0.1.2:8000         800  20 %         0     3     3,200      12.8k  ← won"
        );
        assert_eq!(
            lines[4],
            "  127.0.1.10:8000      3,200  80 %    21,000     9    21,800          ∞  filtered (hotspot)"
        );
        assert_eq!(lines[5], "  … and 68 more with higher scores");
        assert!(
            lines[7].starts_with("127.0.1.2:8000 rank 1 won because its product 3.2k × 4 = 12.8k"),
            "{text}"
        );
    }

    #[test]
    fn ids_are_encoded() {
        assert_eq!(encoded("a-1 &é"), "a-1%20%26%C3%A9");
    }
}
