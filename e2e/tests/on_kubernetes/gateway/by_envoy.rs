//! Through a real Envoy Gateway.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use lmetric_testkit::{Admin, Client, Signal, chat};
use tokio::task::JoinSet;

use super::{ENVOY, SOON, client, make_gateway, pool, route_says};
use crate::load::{Load, Record, all_served, stream};
use crate::support::{MODEL, Stage, on_stage, selector};

const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Tokens of a stream of 20 s at the pool's speed: longer than Envoy's own limit of 15 s for an answer.
const LONG: u32 = 340;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_chat_through_envoy_gateway_lands_on_the_picked_engine() -> anyhow::Result<()> {
    on_stage("envoy-gateway", 2, async |stage| {
        let gateway = serve(stage, 1).await?;
        let engines = Engines::of(stage).await?;
        for number in 0..6 {
            let body = chat(MODEL, &format!("question {number}"), 4, false);
            engines
                .exchange(&gateway, &format!("plain-{number}"), &[], body.to_string().into())
                .await?;
        }
        // each of the two is named by a client; the picker spreads cold prompts over both by chance
        let mut others = 0;
        for (number, named) in engines.addresses.iter().cycle().take(16).enumerate() {
            let body = chat(MODEL, &format!("a wish {number}"), 4, false);
            let headers = [(DESTINATION, named.as_str())];
            let served = engines
                .exchange(
                    &gateway,
                    &format!("wish-{number}"),
                    &headers,
                    body.to_string().into(),
                )
                .await?;
            others += usize::from(served != *named);
        }
        ensure!(others > 0, "clients had their way 16 times out of 16");
        let mut large = chat(MODEL, "a large body", 4, false);
        large["padding"] = "x".repeat(10_000_000).into();
        engines
            .exchange(&gateway, "large", &[], large.to_string().into())
            .await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the cluster: make e2e"]
async fn a_picker_that_is_killed_under_streams_cuts_none_and_a_rollout_of_pickers_fails_nothing()
-> anyhow::Result<()> {
    on_stage("envoy-gateway-picker", 2, async |stage| {
        let gateway = serve(stage, 2).await?;
        let streams = long_streams(&gateway);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let load = Load::start(gateway.clone(), Duration::from_millis(100), 2);
        let pickers = stage
            .cluster
            .pods(&stage.namespace, &selector("p", "picker"))
            .await?;
        for picker in &pickers {
            let namespace = &stage.namespace;
            stage
                .cluster
                .signal(namespace, &picker.name, "picker", Signal::KILL)
                .await?;
        }
        ended_well(streams)
            .await
            .context("streams over a picker's death")?;
        let records = load.finish().await?;
        let odd = records
            .iter()
            .find(|record| record.error.is_some() && !record.refused);
        ensure!(odd.is_none(), "neither served nor refused: {odd:?}");
        let last = records.last().context("no request")?;
        ensure!(last.error.is_none(), "not served with pickers back: {last:?}");

        let load = Load::start(gateway.clone(), Duration::from_millis(100), 2);
        let streams = long_streams(&gateway);
        let deployment = "deployment/p-picker";
        let namespace = stage.namespace.as_str();
        for args in [
            &["rollout", "restart", deployment, "-n", namespace][..],
            &["rollout", "status", deployment, "-n", namespace, "--timeout=100s"],
        ] {
            stage.cluster.kubectl(args).await?;
        }
        ended_well(streams)
            .await
            .context("streams over a rollout of pickers")?;
        all_served(&load.finish().await?).context("requests during a rollout of pickers")
    })
    .await
}

/// A Gateway without and with the policy that its owner has to apply, and a pool with two engines behind it.
async fn serve(stage: &Stage, pickers: u32) -> anyhow::Result<Client> {
    make_gateway(stage, "envoy").await?;
    let mut pool = pool(stage, 2);
    pool["spec"]["picker"]["replicas"] = pickers.into();
    stage.cluster.create(&stage.pool_path(""), &pool).await?;
    let message = route_says(stage, "False", "GatewayPolicyMissing", SOON).await?;
    let yaml = message.find("apiVersion:").context("no YAML in the message")?;
    let policies = stage.path(ENVOY, "clienttrafficpolicies", "");
    ensure!(
        stage.cluster.list(&policies, "").await?.is_empty(),
        "the operator made a policy itself"
    );
    // as it stands, by whoever owns the Gateway
    stage.cluster.apply(&message[yaml..], &[]).await?;
    route_says(stage, "True", "Accepted", SOON).await?;
    stage.ready("p", 2).await?;
    let gateway = client(stage).await?;
    until_all_is_told(&gateway).await?;
    Ok(gateway)
}

/// Policies take some seconds to reach Envoy, after they are accepted.
async fn until_all_is_told(gateway: &Client) -> anyhow::Result<()> {
    let mut large = chat(MODEL, "is it there?", 1, false);
    large["padding"] = "x".repeat(100_000).into();
    let served = lmetric_testkit::poll(
        "a chat of 100 kB to be served",
        SOON,
        Duration::from_millis(300),
        || async {
            let answer = gateway.post("/v1/chat/completions", &large).await?;
            ensure!(answer.status.is_success(), "{} {}", answer.status, answer.text());
            anyhow::Ok(())
        },
    );
    served.await?;
    Ok(())
}

/// The engines, by what each says that it served, and the picker.
struct Engines {
    addresses: Vec<String>,
    picker: Admin,
}

impl Engines {
    async fn of(stage: &Stage) -> anyhow::Result<Self> {
        let cluster = &stage.cluster;
        let engines = cluster.pods(&stage.namespace, &selector("p", "engine")).await?;
        let addresses = engines
            .iter()
            .map(|pod| anyhow::Ok(cluster.pod(pod, 8_000)?.to().to_string()));
        let pickers = cluster.pods(&stage.namespace, &selector("p", "picker")).await?;
        let picker = pickers.first().context("no picker")?;
        Ok(Self {
            addresses: addresses.collect::<Result<_, _>>()?,
            picker: Admin::new(cluster.pod(picker, 9_090)?.to()),
        })
    }

    /// Requests that each engine has answered.
    async fn served(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut served = BTreeMap::new();
        for address in &self.addresses {
            let engine = Admin::new(address.parse()?);
            let count = engine.metric("vllm:request_success_total", "").await?;
            served.insert(address.clone(), count as u64);
        }
        Ok(served)
    }

    /// Sends a request, and finds that the engine which answered it is the one that the picker chose for it.
    async fn exchange(
        &self,
        gateway: &Client,
        id: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> anyhow::Result<String> {
        let before = self.served().await?;
        let mut all = vec![("content-type", "application/json")];
        all.extend(headers);
        let answer = gateway
            .exchange("POST", "/v1/chat/completions", &all, body)
            .await?;
        ensure!(
            answer.status.is_success(),
            "{id}: {} {}",
            answer.status,
            answer.text()
        );
        let after = self.served().await?;
        let served: Vec<_> = after
            .iter()
            .filter(|(address, count)| before[*address] < **count)
            .collect();
        let [(served, _)] = served[..] else {
            anyhow::bail!("{id}: not one engine served it: {before:?} {after:?}");
        };
        // the Gateway gives requests ids of its own; nobody else sends any now
        let decisions = self.picker.decisions(1).await?;
        let winner = decisions.first().with_context(|| format!("{id}: no decision"))?["winner"].as_str();
        ensure!(
            winner == Some(served),
            "{id}: picked {winner:?}, served by {served}"
        );
        Ok(served.clone())
    }
}

fn long_streams(gateway: &Client) -> JoinSet<Record> {
    let mut streams = JoinSet::new();
    for number in 0..8 {
        let gateway = gateway.clone();
        streams.spawn(async move { stream(&gateway, format!("long-{number}"), LONG).await });
    }
    streams
}

async fn ended_well(mut streams: JoinSet<Record>) -> anyhow::Result<()> {
    let mut records = Vec::new();
    while let Some(record) = streams.join_next().await {
        records.push(record?);
    }
    all_served(&records)
}
