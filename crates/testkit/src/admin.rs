//! What a running picker says about itself on its admin port.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::{client::Client, wait::eventually};

/// A client of the picker's admin port.
#[derive(Clone, Debug)]
pub struct Admin {
    client: Client,
}

/// One line of `/debug/endpoints`.
#[derive(Clone, Debug)]
pub struct EndpointState {
    /// `ip:port`.
    pub address: SocketAddr,
    /// Q, own reservations.
    pub q: u64,
    /// BS, own reservations.
    pub bs: u64,
    /// BS that came past this picker.
    pub foreign_bs: u64,
    /// Blocks held in the index.
    pub blocks: u64,
    /// Ready to take requests.
    pub ready: bool,
    /// Taken out after failures.
    pub ejected: bool,
    /// State of its event source, as the picker words it.
    pub source: String,
}

impl Admin {
    /// Talks to the admin port at `to`.
    pub fn new(to: SocketAddr) -> Self {
        Self {
            client: Client::new(to),
        }
    }

    /// Any path of it.
    pub async fn json(&self, path: &str) -> anyhow::Result<Value> {
        let answer = self.client.get(path).await?;
        ensure!(
            answer.status.is_success(),
            "{path}: {} {}",
            answer.status,
            answer.text()
        );
        answer.json()
    }

    /// Whether `/readyz` says yes.
    pub async fn ready(&self) -> anyhow::Result<bool> {
        Ok(self.client.get("/readyz").await?.status.is_success())
    }

    /// `/debug/endpoints`, by address.
    pub async fn endpoints(&self) -> anyhow::Result<BTreeMap<SocketAddr, EndpointState>> {
        let answer = self.json("/debug/endpoints").await?;
        let list = answer["endpoints"]
            .as_array()
            .with_context(|| format!("no endpoints in {answer}"))?;
        list.iter()
            .map(|one| endpoint(one).map(|state| (state.address, state)))
            .collect()
    }

    /// `(ΣQ, ΣBS)` of own reservations.
    pub async fn load(&self) -> anyhow::Result<(u64, u64)> {
        let endpoints = self.endpoints().await?;
        Ok(endpoints
            .values()
            .fold((0, 0), |(q, bs), one| (q + one.q, bs + one.bs)))
    }

    /// Waits until `holds` is true of [`Admin::load`].
    pub async fn load_becomes(
        &self,
        what: &str,
        limit: Duration,
        holds: impl Fn(u64, u64) -> bool,
    ) -> anyhow::Result<()> {
        eventually(what, limit, || self.load(), |(q, bs)| holds(*q, *bs)).await?;
        Ok(())
    }

    /// Waits until Q and BS are zero everywhere.
    pub async fn idle(&self, limit: Duration) -> anyhow::Result<()> {
        self.load_becomes("Q and BS to be 0", limit, |q, bs| q == 0 && bs == 0)
            .await
    }

    /// Waits until `count` endpoints are ready.
    pub async fn ready_endpoints(&self, count: usize, limit: Duration) -> anyhow::Result<()> {
        let read = || async { Ok(self.endpoints().await?.values().filter(|one| one.ready).count()) };
        eventually(&format!("{count} ready endpoints"), limit, read, |ready| {
            *ready == count
        })
        .await?;
        Ok(())
    }

    /// The newest `n` decisions, newest first.
    pub async fn decisions(&self, n: usize) -> anyhow::Result<Vec<Value>> {
        let answer = self.json(&format!("/debug/decisions?n={n}")).await?;
        answer["decisions"]
            .as_array()
            .cloned()
            .with_context(|| format!("no decisions in {answer}"))
    }

    /// The sum of a metric over its label sets, 0 when it has none; `labels` is text that each counted line must contain.
    pub async fn metric(&self, name: &str, labels: &str) -> anyhow::Result<f64> {
        let page = self.client.get("/metrics").await?.text();
        Ok(sum_of(&page, name, labels))
    }
}

fn endpoint(one: &Value) -> anyhow::Result<EndpointState> {
    let number = |name: &str| one[name].as_u64().with_context(|| format!("no {name} in {one}"));
    Ok(EndpointState {
        address: one["address"].as_str().context("no address")?.parse()?,
        q: number("q")?,
        bs: number("bs")?,
        foreign_bs: number("foreign_bs")?,
        blocks: number("blocks")?,
        ready: one["ready"]
            .as_bool()
            .with_context(|| format!("no ready in {one}"))?,
        ejected: !one["ejected_until"].is_null(),
        source: one["source"]["state"]
            .as_str()
            .or(one["source"].as_str())
            .unwrap_or_default()
            .to_owned(),
    })
}

fn sum_of(page: &str, name: &str, labels: &str) -> f64 {
    let lines = page
        .lines()
        .filter(|line| !line.starts_with('#') && line.contains(labels));
    let values = lines.filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        if !rest.starts_with(['{', ' ']) {
            return None;
        }
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    });
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_by_whole_name_and_label() {
        let page = "# HELP a x\na{to=\"1\"} 2\na{to=\"2\"} 3\nab 9\na_total 4\n";
        assert_eq!(sum_of(page, "a", ""), 5.0);
        assert_eq!(sum_of(page, "a", "to=\"2\""), 3.0);
        assert_eq!(sum_of(page, "a_total", ""), 4.0);
        assert_eq!(sum_of(page, "none", ""), 0.0);
    }
}
