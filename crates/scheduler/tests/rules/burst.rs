//! What a burst of equal or similar prompts does to an idle fleet.

use std::collections::HashMap;

use lmetric_prefix::SourceId;
use lmetric_scheduler::SchedulerConfig;

use crate::bench::{Bench, at, text};

const LENGTH: usize = 8_192;

/// 64 identical cold prompts within 50 ms; returns picks per endpoint and all tokens charged.
fn burst(bench: &mut Bench) -> (HashMap<SourceId, u32>, u64) {
    let prompt = bench.prompt(&text(1, LENGTH));
    let mut picks = HashMap::new();
    let mut charged = 0;
    for number in 0..64 {
        let pick = bench.pick(&prompt, at(f64::from(number) * 0.000_7));
        *picks.entry(pick.endpoint.slot).or_insert(0) += 1;
        charged += pick.charged_tokens;
    }
    (picks, charged)
}

#[test]
fn sixty_four_cold_copies_on_sixteen_idle_endpoints_go_four_to_each_and_are_charged_once_each() {
    let mut bench = Bench::plain(16, 16);
    let (picks, charged) = burst(&mut bench);
    println!("overlay on: {charged} tokens charged for 64 × {LENGTH} on 16 endpoints");
    assert_eq!(picks.len(), 16);
    assert!(picks.values().all(|count| *count == 4), "{picks:?}");
    let tail = 16; // the last block is computed in any case
    assert!(charged <= 16 * LENGTH as u64 + 64 * tail, "{charged}");

    let config = SchedulerConfig {
        overlay: false,
        ..SchedulerConfig::default()
    };
    let mut bench = Bench::new(16, 16, config);
    let (picks, charged) = burst(&mut bench);
    println!("overlay off: {charged} tokens charged");
    assert!(picks.values().all(|count| *count == 4), "{picks:?}");
    assert_eq!(charged, 64 * LENGTH as u64);
}

/// 12 of 16 endpoints decode `busy` requests each.
fn half_busy(busy: u32) -> Bench {
    let mut bench = Bench::plain(16, 16);
    let short = bench.prompt(&text(9, 8));
    for number in 0..12 {
        for _ in 0..busy {
            let pick = bench.pick_on(number, &short, at(0.0));
            bench.scheduler.first_output(pick.reservation, at(0.0));
        }
    }
    bench
}

fn on_the_idle_four(bench: &Bench, picks: &HashMap<SourceId, u32>) -> u32 {
    bench.ids[12..].iter().filter_map(|id| picks.get(&id.slot)).sum()
}

#[test]
fn where_twelve_of_sixteen_are_busy_copies_land_on_the_other_four() {
    // LMetric's own limit: k copies on an idle endpoint cost (8192 + 16k) × (k + 1), a busy one 8192 × (BS + 1)
    let mut bench = half_busy(16);
    let (picks, charged) = burst(&mut bench);
    assert_eq!(on_the_idle_four(&bench, &picks), 64, "{picks:?}");
    assert!(charged <= 4 * LENGTH as u64 + 64 * 16, "{charged}");

    let mut bench = half_busy(8);
    let (picks, _) = burst(&mut bench);
    let idle = on_the_idle_four(&bench, &picks);
    println!("12 of 16 with BS 8: {idle} of 64 on the other four");
    assert!(idle >= 32, "{picks:?}");
}

#[test]
fn different_prompts_behind_one_system_prompt_use_the_whole_fleet() {
    let mut bench = Bench::plain(16, 16);
    let system = text(1, 2_048);
    let mut picks: HashMap<SourceId, u32> = HashMap::new();
    for number in 0..200 {
        let prompt = bench.prompt(&[system.clone(), text(100 + number, 1_000)].concat());
        let pick = bench.pick(&prompt, at(f64::from(number) * 0.005));
        *picks.entry(pick.endpoint.slot).or_insert(0) += 1;
    }
    assert_eq!(picks.len(), 16, "{picks:?}");
    assert!(picks.values().all(|count| (9..=16).contains(count)), "{picks:?}");
}
