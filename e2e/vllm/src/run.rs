//! The run: two engines, picker, Envoy; 120 requests one after another, then 80 at once in eight conversations.

use std::{path::Path, time::Duration};

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use lmetric_testkit::{Admin, Client, Envoy, Loopback, Picker, PickerOptions, Plug, Stage};
use rand::{SeedableRng, rngs::SmallRng};
use serde_json::Value;

use crate::{
    conversation::Conversation,
    engine::{Engine, MODEL},
    verdict::{Compared, print, share},
};

const IN_TURN: usize = 120;
const AT_ONCE: usize = 80;
const CONVERSATIONS: usize = 8;
const TURNS: usize = 6;

/// Runs it and says whether every target was met.
#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
pub(crate) async fn run(venv: &Path, files: &Path, seed: u64) -> anyhow::Result<bool> {
    let folder = tempfile::Builder::new().prefix("lmetric-vllm-").tempdir()?;
    println!("starting two vLLM engines");
    let engines = [
        Engine::start(1, venv, files, folder.path()).await?,
        Engine::start(2, venv, files, folder.path()).await?,
    ];
    let net = Loopback::lease()?;
    let options = PickerOptions {
        models: vec![(MODEL.to_owned(), files.join("model").join(MODEL).canonicalize()?)],
        ..PickerOptions::default()
    };
    let entries: Vec<Value> = engines.iter().map(Engine::entry).collect();
    let picker = Picker::start(&net, &options, &entries, folder.path()).await?;
    let envoy = Envoy::start(&Stage::envoy_config(&net, Plug::Light, false)?, folder.path()).await?;
    let admin = picker.admin();
    admin
        .ready_endpoints(engines.len(), Duration::from_secs(30))
        .await?;
    let addresses = engines.each_ref().map(Engine::address);
    println!("engines {addresses:?}, Envoy {}", envoy.client().to());

    let mut rng = SmallRng::seed_from_u64(seed);
    let in_turn = one_after_another(&envoy.client(), &admin, &mut rng).await?;
    let at_once = concurrently(&envoy.client(), &admin, &mut rng).await?;
    admin.idle(Duration::from_secs(10)).await?;
    let load = admin.load().await?;

    let exact_in_turn = print("one after another", &in_turn);
    let exact_at_once = print("concurrently", &at_once);
    let warm = share(&in_turn, |one| one.real >= 64);
    println!(
        "one after another: {:.1}% exact (target 100%), {:.1}% with ≥ 64 cached tokens (target 60%)",
        100.0 * exact_in_turn,
        100.0 * warm
    );
    println!("concurrently: {:.1}% exact (target 95%)", 100.0 * exact_at_once);
    println!("at the end: Q {} BS {} (target 0 0)", load.0, load.1);
    Ok(exact_in_turn >= 1.0 && warm >= 0.6 && exact_at_once >= 0.95 && load == (0, 0))
}

async fn one_after_another(
    client: &Client,
    admin: &Admin,
    rng: &mut SmallRng,
) -> anyhow::Result<Vec<Compared>> {
    let mut compared = Vec::with_capacity(IN_TURN);
    let mut conversations: Vec<Conversation> = Vec::new();
    while compared.len() < IN_TURN {
        if compared.len() % (TURNS * CONVERSATIONS) == 0 {
            conversations = (0..CONVERSATIONS)
                .map(|n| Conversation::new(compared.len() + n, rng))
                .collect();
        }
        let at = compared.len() % CONVERSATIONS;
        let id = format!("in-turn-{}", compared.len());
        compared.push(turn(client, admin, &mut conversations[at], &id, rng).await?);
        drained(admin).await?;
    }
    Ok(compared)
}

async fn concurrently(client: &Client, admin: &Admin, rng: &mut SmallRng) -> anyhow::Result<Vec<Compared>> {
    let conversations = (0..CONVERSATIONS).map(|number| {
        let mut rng = SmallRng::from_rng(rng);
        let mut conversation = Conversation::new(number, &mut rng);
        async move {
            let mut compared = Vec::new();
            for turn_number in 0..AT_ONCE / CONVERSATIONS {
                let id = format!("at-once-{number}-{turn_number}");
                compared.push(turn(client, admin, &mut conversation, &id, &mut rng).await?);
            }
            anyhow::Ok(compared)
        }
    });
    Ok(try_join_all(conversations.collect::<Vec<_>>()).await?.concat())
}

async fn turn(
    client: &Client,
    admin: &Admin,
    conversation: &mut Conversation,
    id: &str,
    rng: &mut SmallRng,
) -> anyhow::Result<Compared> {
    let (path, body) = conversation.next(rng);
    let answer = client
        .exchange(
            "POST",
            path,
            &[("x-request-id", id)],
            Bytes::from(body.to_string()),
        )
        .await?;
    ensure!(
        answer.status.is_success(),
        "{path} {id}: {} {}",
        answer.status,
        answer.text()
    );
    let predicted = predicted(admin, id).await?;
    let compared = Compared {
        kind: conversation.kind,
        predicted,
        real: answer.cached_tokens()?,
    };
    conversation.answered(&answer.json()?, rng);
    Ok(compared)
}

async fn predicted(admin: &Admin, id: &str) -> anyhow::Result<u64> {
    let answer = admin.json(&format!("/debug/decisions?id={id}")).await?;
    let decision = &answer["decisions"][0];
    let winner = decision["winner"]
        .as_str()
        .with_context(|| format!("no decision {id}: {answer}"))?;
    let candidates = decision["candidates"].as_array().context("no candidates")?;
    let hit = candidates
        .iter()
        .find(|pair| pair[0].as_str() == Some(winner))
        .map(|pair| &pair[1]["hit"]);
    hit.and_then(Value::as_u64)
        .with_context(|| format!("no hit of {winner} in {decision}"))
}

/// Waits until no event has been applied for 100 ms and nothing is open.
async fn drained(admin: &Admin) -> anyhow::Result<()> {
    admin.idle(Duration::from_secs(10)).await?;
    let mut before = applied(admin).await?;
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = applied(admin).await?;
        if now == before {
            return Ok(());
        }
        before = now;
    }
}

async fn applied(admin: &Admin) -> anyhow::Result<Vec<Value>> {
    let answer = admin.json("/debug/endpoints").await?;
    let endpoints = answer["endpoints"].as_array().context("no endpoints")?;
    Ok(endpoints
        .iter()
        .map(|one| one["source"]["batches"].clone())
        .collect())
}
