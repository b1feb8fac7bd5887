//! Engines that have been at work for a while: the conversations of [`crate::workload`] are in their caches, which are full, and their
//! events have come to the picker.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lmetric_testkit::{Admin, eventually};

use super::engine::Engine;
use crate::{
    payload::{Run, batch},
    workload::{BLOCK, Stored, Workload},
};

/// Events in a message: a step of a busy engine.
const EVENTS: usize = 8;
/// Messages sent before the picker must have caught up.
const AHEAD: usize = 2_000;
const PATIENCE: Duration = Duration::from_mins(1);

/// Publishes the workload's events and waits until the picker holds all of them. Returns how many (endpoint, block) pairs these are.
pub async fn fill(engines: &[Arc<Engine>], admin: &Admin, workload: &Workload) -> anyhow::Result<u64> {
    let mut steps: Vec<Vec<Stored>> = vec![Vec::new(); engines.len()];
    let mut reached: BTreeMap<(u16, usize), usize> = BTreeMap::new();
    let (mut messages, mut pairs) = (0_usize, 0);
    for event in &workload.events {
        let to = reached.entry((event.endpoint, event.conversation)).or_default();
        *to = event.to.max(*to);
        let endpoint = usize::from(event.endpoint);
        let step = &mut steps[endpoint];
        step.push(*event);
        if step.len() == EVENTS {
            pairs += publish(&engines[endpoint], workload, step);
            messages += 1;
            if messages.is_multiple_of(AHEAD) {
                caught_up(admin, pairs).await?;
            }
        }
    }
    for (engine, step) in engines.iter().zip(&mut steps) {
        pairs += publish(engine, workload, step);
    }
    caught_up(admin, pairs).await?;
    for ((endpoint, conversation), to) in reached {
        engines[usize::from(endpoint)].remember(&workload.conversations[conversation], to);
    }
    for engine in engines {
        engine.is_full_now();
    }
    Ok(pairs)
}

/// One step's events as a message; how many blocks.
fn publish(engine: &Engine, workload: &Workload, step: &mut Vec<Stored>) -> u64 {
    let runs: Vec<Run<'_>> = step.iter().map(|event| run(workload, event)).collect();
    if !runs.is_empty() {
        engine.publish(batch(&runs));
    }
    step.drain(..).map(|event| (event.to - event.from) as u64).sum()
}

fn run<'a>(workload: &'a Workload, event: &Stored) -> Run<'a> {
    let conversation = &workload.conversations[event.conversation];
    let before = event.from.checked_sub(1);
    Run {
        parent: before.map(|before| conversation.hashes[before]),
        hashes: &conversation.hashes[event.from..event.to],
        tokens: &conversation.tokens[event.from * BLOCK..event.to * BLOCK],
    }
}

/// Waits until the picker holds what was published.
async fn caught_up(admin: &Admin, pairs: u64) -> anyhow::Result<()> {
    let held = || async {
        let endpoints = admin.endpoints().await?;
        Ok(endpoints.values().map(|endpoint| endpoint.blocks).sum::<u64>())
    };
    let what = format!("the picker to hold {pairs} blocks");
    eventually(&what, PATIENCE, held, |held| *held >= pairs).await?;
    Ok(())
}
