//! Pairs of runs at one rate: the same requests at the same times, first without the picker, then with it.

use std::{sync::atomic::Ordering, time::Duration};

use super::{
    Args,
    board::Plan,
    chats::{Maker, Talk},
    load::Load,
    rig::{Mode, Rig, Run},
};

/// From one turn of a chat to its next.
const THINKING: f64 = 1.0;
/// A run that nobody counts, for each mode: connections, caches, the picker's own caches.
const WARM: f64 = 2.0;

/// Without and with the picker.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Envoy alone.
    pub alone: Run,
    /// The same load through the picker.
    pub picked: Run,
}

/// Both modes at one rate.
#[derive(Clone, Debug)]
pub struct Rate {
    /// Requests per second.
    pub per_second: f64,
    /// By mode, as in [`Mode::PICKED`].
    pub modes: [Measured; 2],
    /// The runs of Envoy alone, in order, of both modes.
    pub alone: Vec<Run>,
}

/// One mode at one rate.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// In order.
    pub pairs: Vec<Pair>,
    /// Prompt tokens.
    pub prompt: u64,
    /// Of these, tokens that the engines had cached.
    pub cached: u64,
    /// Engines that served at least one request.
    pub engines: usize,
}

/// Measures one rate.
pub async fn rate(rig: &mut Rig, maker: &mut Maker, per_second: f64, args: &Args) -> anyhow::Result<Rate> {
    eprintln!("{per_second} requests/s: {} pairs for each mode", args.pairs);
    let chats = (per_second * THINKING).ceil() as usize;
    let mut talks = [Talk::new(chats, maker)?, Talk::new(chats, maker)?];
    for (mode, talk) in Mode::PICKED.into_iter().zip(&mut talks) {
        let load = load(talk, maker, per_second, WARM, 0)?;
        rig.run(Mode::Alone, &load.forgotten()).await?;
        rig.run(mode, &load).await?;
    }
    let mut rate = Rate {
        per_second,
        modes: Default::default(),
        alone: Vec::new(),
    };
    for pair in 0..args.pairs as u64 {
        for (number, mode) in Mode::PICKED.into_iter().enumerate() {
            // made before the clock runs
            let seed = 2 * pair + number as u64 + 1;
            let load = load(&mut talks[number], maker, per_second, args.seconds, seed)?;
            let alone = rig.run(Mode::Alone, &load.forgotten()).await?;
            let before = served(rig);
            let picked = rig.run(mode, &load).await?;
            let after = served(rig);
            let measured = &mut rate.modes[number];
            for (before, after) in before.iter().zip(&after) {
                measured.prompt += after[1] - before[1];
                measured.cached += after[2] - before[2];
            }
            let busy = before
                .iter()
                .zip(&after)
                .filter(|(before, after)| before[0] < after[0]);
            measured.engines = measured.engines.max(busy.count());
            rate.alone.push(alone.clone());
            measured.pairs.push(Pair { alone, picked });
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(rate)
}

fn load(talk: &mut Talk, maker: &mut Maker, rate: f64, seconds: f64, seed: u64) -> anyhow::Result<Load> {
    let count = (rate * seconds).ceil().max(1.0) as usize;
    let plan = Plan {
        turns: talk.next(count, maker)?,
        remembers: true,
    };
    Ok(Load::new(plan, rate, seed))
}

/// Requests, prompt tokens and cached tokens of each engine so far.
fn served(rig: &Rig) -> Vec<[u64; 3]> {
    let counts = rig.engines.all.iter().map(|engine| {
        let served = &engine.served;
        [&served.requests, &served.prompt, &served.cached].map(|count| count.load(Ordering::Relaxed))
    });
    counts.collect()
}
