//! Open-loop load: requests leave on schedule whatever became of those before, and a latency counts from the moment that a request was
//! due, so that a gateway that falls behind is not spared.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{task::JoinSet, time::timeout};

use super::{
    board::{Board, HEADER, Plan},
    timer::Timer,
};
use crate::workload::Numbers;

/// Answers take 40 ms.
const PATIENCE: Duration = Duration::from_secs(10);
/// More requests in flight than this are no load but a jam.
const MOST_IN_FLIGHT: usize = 1_500;
const PATH: &str = "/v1/chat/completions";
const END: &[u8] = b"data: [DONE]\n\n";

/// Clients of one gateway; connections are kept.
#[derive(Clone, Debug)]
pub struct Clients {
    to: SocketAddr,
    http: Client<HttpConnector, Full<Bytes>>,
}

/// A plan with its times and bodies.
#[derive(Clone, Debug)]
pub struct Load {
    /// What is asked.
    pub plan: Arc<Plan>,
    /// When, from the start on.
    pub due: Arc<[Duration]>,
    bodies: Arc<[Bytes]>,
}

impl Load {
    /// The plan's requests at a mean of `rate` in a second, at random times (a Poisson process): all at the same ones for one seed.
    pub fn new(plan: Plan, rate: f64, seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let mut at = 0.0;
        let mut next = || {
            let uniform = ((numbers.draw() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
            at -= uniform.ln() / rate;
            Duration::from_secs_f64(at)
        };
        Self {
            due: plan.turns.iter().map(|_| next()).collect(),
            bodies: plan.turns.iter().map(super::chats::Turn::body).collect(),
            plan: Arc::new(plan),
        }
    }

    /// The same requests at the same times, which engines forget at once.
    #[must_use]
    pub fn forgotten(&self) -> Self {
        Self {
            plan: Arc::new(Plan {
                turns: self.plan.turns.clone(),
                remembers: false,
            }),
            ..self.clone()
        }
    }
}

impl Clients {
    /// Clients of the gateway at `to`.
    pub fn new(to: SocketAddr) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self {
            to,
            http: Client::builder(TokioExecutor::new()).build(connector),
        }
    }

    /// Sends it; the time to the first byte of each answer, in nanoseconds. A request that fails is an error.
    pub async fn send(&self, load: &Load, board: &Board, timer: &Timer) -> anyhow::Result<Vec<u64>> {
        board.put(Arc::clone(&load.plan));
        let started = Instant::now();
        let mut flight = JoinSet::new();
        let mut times = Vec::with_capacity(load.due.len());
        for (number, (due, body)) in load.due.iter().zip(load.bodies.iter()).enumerate() {
            let due = started + *due;
            timer.until(due).await;
            flight.spawn(self.clone().ask(number, body.clone(), due));
            while let Some(ended) = flight.try_join_next() {
                times.push(ended??);
            }
            if flight.len() > MOST_IN_FLIGHT {
                bail!(
                    "{} requests are in flight through {}: this machine cannot carry so many in a second; give lower --rates",
                    flight.len(),
                    self.to
                );
            }
        }
        while let Some(ended) = flight.join_next().await {
            times.push(ended??);
        }
        Ok(times)
    }

    async fn ask(self, number: usize, body: Bytes, due: Instant) -> anyhow::Result<u64> {
        let what = || format!("request {number} through {}", self.to);
        timeout(PATIENCE, self.exchange(number, body, due))
            .await
            .with_context(|| format!("{}: no answer within {PATIENCE:?}", what()))?
            .with_context(what)
    }

    async fn exchange(&self, number: usize, body: Bytes, due: Instant) -> anyhow::Result<u64> {
        let request = Request::post(format!("http://{}{PATH}", self.to))
            .header(header::CONTENT_TYPE, "application/json")
            .header(HEADER, number)
            .body(Full::new(body))?;
        let response = self.http.request(request).await?;
        let status = response.status();
        let mut body = response.into_body();
        let mut first = None;
        let mut last = Bytes::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            if data.is_empty() {
                continue;
            }
            first.get_or_insert_with(|| due.elapsed().as_nanos() as u64);
            last = data;
        }
        ensure!(
            status.is_success(),
            "answered {status}: {}",
            String::from_utf8_lossy(&last)
        );
        ensure!(last.ends_with(END), "the answer has no end");
        first.context("the answer is empty")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_the_same_times_at_about_the_rate_asked_for() {
        let times = |seed| {
            let mut numbers = Numbers(9);
            let plan = Plan {
                turns: (0..2_000)
                    .map(|_| super::super::chats::testing::turn(&mut numbers))
                    .collect(),
                remembers: true,
            };
            Load::new(plan, 100.0, seed).due
        };
        let due = times(1);
        assert_eq!(due, times(1));
        assert_ne!(due, times(2));
        assert!(due.is_sorted());
        let lasts = due[due.len() - 1].as_secs_f64();
        assert!((18.0..22.0).contains(&lasts), "{lasts}");
    }
}
