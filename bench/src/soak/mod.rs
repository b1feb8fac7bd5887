//! The picker's inside for half an hour, at constant size and with nothing else constant: endpoints come and go, engines restart, prompts
//! repeat and die out, requests begin, end, fail and are given up. What it needs at the end is what it needed after a third of the time.
//!
//! Time of scheduler and sources is virtual, a step for each request, and no faster than real time; picks are timed by the machine's
//! clock.

pub mod agenda;
pub mod prompts;
pub mod seat;
pub mod watch;
pub mod world;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::ensure;
use clap::Parser;

use self::{
    watch::{LINES, Line},
    world::World,
};
use crate::results::Figure;

/// Requests between two looks at how full the caches are, and the growth from one look to the next that is none.
const FILLING: usize = 10_000;
const FULL: f64 = 1.01;
/// How many times as long as it took to fill them the caches are churned before anything counts.
const CHURNED: usize = 3;

/// Churn at constant size: memory and latency must stay what they are.
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// How long, in minutes of virtual time, once the caches are full
    #[arg(long, default_value_t = 30.0)]
    pub minutes: f64,
    /// Requests per second
    #[arg(long, default_value_t = 1_000.0)]
    pub rate: f64,
    /// Endpoints at any time
    #[arg(long, default_value_t = 64)]
    pub endpoints: u16,
    /// Blocks of each endpoint's cache
    #[arg(long, default_value_t = 20_000)]
    pub blocks: usize,
    /// Chats that go on at any time
    #[arg(long, default_value_t = 600)]
    pub chats: usize,
    /// Decides everything that happens
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where the figures go; others that are there stay
    #[arg(long, default_value = "target/bench/results.json")]
    pub out: PathBuf,
}

impl Args {
    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            (0.1..=10_000.0).contains(&self.minutes),
            "--minutes: give 0.1 to 10,000"
        );
        ensure!(
            (1.0..=100_000.0).contains(&self.rate),
            "--rate: give 1 to 100,000 requests per second"
        );
        ensure!(
            (2..=1_000).contains(&self.endpoints),
            "--endpoints: give 2 to 1,000"
        );
        ensure!(
            (600..=1_000_000).contains(&self.blocks),
            "--blocks: give 600 to 1,000,000"
        );
        ensure!((1..=100_000).contains(&self.chats), "--chats: give 1 to 100,000");
        Ok(())
    }
}

/// Runs to the end; an error says what did not stay.
pub fn run(args: &Args) -> anyhow::Result<Vec<Figure>> {
    args.check()?;
    let mut world = World::new(args);
    let step = Duration::from_secs_f64(1.0 / args.rate);
    fill(&mut world, step)?;
    eprintln!("full: {} pairs after {}", world.held(), world.told());
    let of_line = ((args.minutes * 60.0 * args.rate / LINES as f64) as usize).max(1);
    let started = Instant::now();
    let mut lines: Vec<Line> = Vec::with_capacity(LINES);
    let mut due = Duration::ZERO;
    for _ in 0..LINES {
        let mut picks = Vec::with_capacity(of_line);
        for _ in 0..of_line {
            picks.push(world.step(step)?.as_nanos() as u64);
            due += step;
            if let Some(ahead) = due.checked_sub(started.elapsed())
                && ahead > Duration::from_millis(2)
            {
                std::thread::sleep(ahead);
            }
        }
        let line = Line::now(due, picks, &world)?;
        eprintln!("{line}");
        lines.push(line);
    }
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    eprintln!("{}; in {minutes:.1} real minutes", world.told());
    let left = world.end();
    watch::judge(&lines, &left)?;
    Ok(watch::figures(&lines))
}

/// As fast as it goes: until the caches hold no more, and then until most blocks have been replaced, as tables grow once under churn.
fn fill(world: &mut World, step: Duration) -> anyhow::Result<()> {
    let (mut held, mut looks) = (0, 0);
    loop {
        for _ in 0..FILLING {
            world.step(step)?;
        }
        looks += 1;
        let before = std::mem::replace(&mut held, world.held());
        if held as f64 <= before as f64 * FULL {
            break;
        }
    }
    for _ in 0..CHURNED * looks * FILLING {
        world.step(step)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_world_ends_with_nothing_open() {
        let args = Args::parse_from(["soak", "--endpoints", "4", "--blocks", "5000", "--chats", "20"]);
        let mut world = World::new(&args);
        for _ in 0..18_000 {
            world.step(Duration::from_millis(2)).unwrap();
        }
        let told = world.told();
        assert!(
            told.left >= 3 && told.restarted >= 2 && told.failed > 100 && told.ejections > 0,
            "{told}"
        );
        let most = 4 * 5_000;
        let held = world.held();
        assert!((most / 2..=most).contains(&held), "{held} pairs");
        assert!(world.open() > 0);
        assert!(world.end().is_nothing());
    }
}
