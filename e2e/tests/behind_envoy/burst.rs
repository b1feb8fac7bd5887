//! Many requests with one prefix at once.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use futures::future::join_all;
use lmetric_testkit::{Answer, EnvoyConfig, Plug, Stage, StageOptions, eventually, token_completion};
use tokio::time::Instant;

use crate::support::{post_as, predicted, tokens, winner};

const PROMPT: u64 = 8_192;
const COPIES: usize = 64;
/// What is left of a prompt whose every block is held: at least one token of it is computed, so its last block is.
const TAIL: u64 = 16;

fn fleet(overlay: bool, speed: f64) -> StageOptions {
    let mut options = StageOptions::new(Plug::Light).fleet(16, speed);
    options.picker.overlay = overlay;
    options
}

struct Burst {
    /// Picks by endpoint.
    picks: BTreeMap<SocketAddr, usize>,
    /// Uncached tokens that the picker charged.
    charged: u64,
    /// Tokens really computed, all engines.
    prefilled: u64,
    /// From the first request sent to the last decision.
    took: Duration,
}

async fn burst(overlay: bool) -> Burst {
    let stage = Stage::start(fleet(overlay, 1.0)).await.unwrap();
    let prompt = tokens(1, PROMPT as usize);
    let body = token_completion(stage.model(), &prompt, 1, false);
    let begun = Instant::now();
    let sent = join_all((0..COPIES).map(|n| {
        let (stage, body) = (&stage, &body);
        async move {
            post_as(stage, &format!("copy-{n}"), "/v1/completions", body)
                .await
                .unwrap()
        }
    }));
    let all_picked = async {
        let read = || async { Ok(stage.admin().decisions(COPIES).await?.len()) };
        eventually("64 picks", Duration::from_secs(20), read, |picks| {
            *picks == COPIES
        })
        .await
        .unwrap();
        begun.elapsed()
    };
    let (answers, took): (Vec<Answer>, Duration) = tokio::join!(sent, all_picked);
    for answer in &answers {
        assert!(answer.status.is_success(), "{}", answer.text());
    }
    let (mut picks, mut charged) = (BTreeMap::new(), 0);
    for n in 0..COPIES {
        let id = format!("copy-{n}");
        *picks.entry(winner(&stage, &id).await.unwrap()).or_default() += 1;
        charged += PROMPT - predicted(&stage, &id).await.unwrap();
    }
    let prefilled = stage
        .engines
        .states()
        .await
        .unwrap()
        .iter()
        .map(|state| state.prefilled_tokens)
        .sum();
    Burst {
        picks,
        charged,
        prefilled,
        took,
    }
}

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn copies_of_one_cold_prompt_spread_evenly_and_are_computed_once_on_each_engine() {
    for overlay in [true, false] {
        let burst = burst(overlay).await;
        let bound = 16 * PROMPT + COPIES as u64 * TAIL;
        let most = burst.picks.values().max().unwrap();
        println!(
            "overlay {}: {COPIES} copies of {PROMPT} tokens picked in {:?} on {} engines, at most {most} each; charged {}, prefilled {} tokens (bound {bound})",
            if overlay { "on" } else { "off" },
            burst.took,
            burst.picks.len(),
            burst.charged,
            burst.prefilled,
        );
        if overlay {
            assert_eq!(burst.picks.values().copied().collect::<Vec<_>>(), [4; 16]);
            assert!(burst.charged <= bound && burst.prefilled <= bound);
        }
    }
}

/// A busy engine costs a factor of its batch: with 12 of 16 holding 20 requests each, 64 copies (16 on each of the rest) stay on the rest.
#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn a_burst_avoids_engines_with_full_batches() {
    const BUSY: u8 = 12;
    let stage = Stage::start_with(fleet(true, 0.1), EnvoyConfig::subset_from_header)
        .await
        .unwrap();
    let mut held = Vec::new();
    for n in 0..BUSY {
        let address = stage.engines.address(n).to_string();
        for copy in 0..20 {
            let body = token_completion(
                stage.model(),
                &tokens(u64::from(n) * 100 + copy, 20),
                10_000,
                false,
            );
            let (client, address) = (stage.client(), address.clone());
            held.push(tokio::spawn(async move {
                let headers = [("x-subset", address.as_str())];
                client
                    .exchange("POST", "/v1/completions", &headers, body.to_string().into())
                    .await
            }));
        }
    }
    let busy = u64::from(BUSY) * 20;
    let admin = stage.admin();
    let limit = Duration::from_secs(20);
    admin
        .load_becomes("the engines to be busy", limit, |q, bs| q == 0 && bs == busy)
        .await
        .unwrap();

    let body = token_completion(stage.model(), &tokens(1, PROMPT as usize), 1, false);
    for n in 0..COPIES {
        let (client, body) = (stage.client(), body.to_string());
        held.push(tokio::spawn(async move {
            let id = format!("copy-{n}");
            client
                .exchange("POST", "/v1/completions", &[("x-request-id", &id)], body.into())
                .await
        }));
    }
    admin
        .load_becomes("64 picks", limit, |_, bs| bs == busy + COPIES as u64)
        .await
        .unwrap();
    let idle: Vec<_> = (BUSY..16).map(|n| stage.engines.address(n)).collect();
    for n in 0..COPIES {
        assert!(idle.contains(&winner(&stage, &format!("copy-{n}")).await.unwrap()));
    }
    for request in held {
        request.abort();
    }
}

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn different_prompts_behind_one_system_prompt_use_the_whole_fleet() {
    let stage = Stage::start(fleet(true, 2.0)).await.unwrap();
    let system = tokens(1, 2_048);
    let sent = (0..200_u64).map(|n| {
        let prompt = [system.clone(), tokens(100 + n, 500)].concat();
        let body = token_completion(stage.model(), &prompt, 20, false);
        let stage = &stage;
        async move {
            let id = format!("different-{n}");
            let answer = post_as(stage, &id, "/v1/completions", &body).await.unwrap();
            assert!(answer.status.is_success(), "{}", answer.text());
            winner(stage, &id).await.unwrap()
        }
    });
    let mut picks: BTreeMap<SocketAddr, usize> = BTreeMap::new();
    for winner in join_all(sent).await {
        *picks.entry(winner).or_default() += 1;
    }
    println!(
        "200 prompts behind one system prompt: {:?}",
        picks.values().collect::<Vec<_>>()
    );
    assert_eq!(picks.len(), 16);
    assert!(picks.values().all(|count| (4..=30).contains(count)), "{picks:?}");
}
