//! The picker downloads the tokenizer from the model's site, here a mirror that wants a token, and from then on predicts
//! what engines have cached.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use lmetric_testkit::{Admin, Mirror, chat, poll};
use serde_json::json;

use crate::support::{MODEL, on_stage, selector};

/// The control plane's address, which pods reach.
const HERE: [u8; 4] = [172, 30, 0, 1];
/// The same files as in the simulated engine's image.
const FILES: &str = "crates/tokenize/testdata/tiny-qwen2";
const SOON: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e-core"]
async fn a_tokenizer_from_a_mirror_predicts_what_is_cached() -> anyhow::Result<()> {
    on_stage("tokenizer", 1, async |stage| {
        let files = stage.cluster.root().join(FILES);
        let mirror = Mirror::hub(SocketAddr::from((HERE, 0)), &files, Some("sesame")).await?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub"}, "stringData": {"token": "sesame"}});
        stage.cluster.create(&stage.path("v1", "secrets", ""), &secret).await?;
        let mut pool = stage.pool("mirrored", 1);
        let model = &mut pool["spec"]["model"];
        model["endpoint"] = mirror.url().into();
        model["revision"] = "v1".into();
        model["secretRef"] = json!({"name": "hub", "key": "token"});
        stage.serve(&pool).await?;

        let pickers = selector("mirrored", "picker");
        let pickers = stage.cluster.ready_pods(&stage.namespace, &pickers, 1, SOON).await?;
        let admin = Admin::new(stage.cluster.pod(&pickers[0], 9090)?.to());
        let loaded = async || {
            let page = admin.json("/debug/models").await?;
            ensure!(page[MODEL]["state"] == "loaded", "{page}");
            anyhow::Ok(())
        };
        poll("the tokenizer to be loaded", SOON, Duration::from_millis(200), loaded).await?;
        let asked = mirror.asked();
        ensure!(
            asked.iter().any(|asked| asked.path == "/Qwen/Qwen2-7B-Instruct/resolve/v1/tokenizer.json"),
            "{asked:?}"
        );
        admin.ready_endpoints(1, SOON).await?;

        let envoy = stage.envoy("mirrored").await?;
        let prefix = "What is known of key-value caches in serving large language models? ".repeat(12);
        for (question, held) in [("Say it in one word.", false), ("Say it in two words.", true)] {
            let answer = envoy
                .post("/v1/chat/completions", &chat(MODEL, &format!("{prefix}{question}"), 4, false))
                .await?;
            ensure!(answer.status.is_success(), "{} {}", answer.status, answer.text());
            let decision = admin.decisions(1).await?.into_iter().next().context("no decision")?;
            let predicted = decision["candidates"][0][1]["hit"].as_u64().context("no prediction")?;
            let cached = answer.cached_tokens()?;
            ensure!(
                (predicted > 0) == held && predicted == cached,
                "{predicted} tokens were predicted and {cached} cached: {decision}"
            );
            // the prompt's blocks are on their way to the picker
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let rung = admin.metric("lmetric_token_requests_total", "rung=\"tokenizer\"").await?;
        ensure!(rung >= 2.0, "{rung} requests had their tokens from the tokenizer");
        Ok(())
    })
    .await
}
