//! The hotspot detector on hand-built streams.

use lmetric_scheduler::{EndpointId, HotspotAction, Pick, Prompt, SchedulerConfig, Time};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use crate::bench::{Bench, ask, at, text};

/// Endpoint 0 of four holds a prefix of 1,024 tokens; requests that share it end at once.
struct Stream {
    bench: Bench,
    prefix: Vec<u32>,
    number: u32,
    now: f64,
}

impl Stream {
    fn new(action: HotspotAction) -> Self {
        let config = SchedulerConfig {
            hotspot: action,
            ..SchedulerConfig::default()
        };
        let mut bench = Bench::new(4, 16, config);
        let prefix = text(1, 1_024);
        let prompt = bench.prompt(&prefix);
        bench.index_only(0, &prompt, 0, 64);
        // the window is full a minute after the first arrival
        let short = bench.prompt(&text(2, 8));
        let first = bench.pick(&short, at(0.0));
        bench.end(first.reservation, at(0.0));
        Self {
            bench,
            prefix,
            number: 100,
            now: 61.0,
        }
    }

    fn place(&mut self, prompt: &Prompt) -> Pick {
        self.now += 0.01;
        let now = at(self.now);
        let pick = self.bench.pick(prompt, now);
        self.bench.end(pick.reservation, now);
        pick
    }

    /// One request of the class.
    fn of_class(&mut self) -> EndpointId {
        self.number += 1;
        let tokens = [self.prefix.clone(), text(self.number, 16)].concat();
        let prompt = self.bench.prompt(&tokens);
        self.place(&prompt).endpoint
    }

    fn others(&mut self, count: u32) {
        for _ in 0..count {
            self.number += 1;
            let prompt = self.bench.prompt(&text(self.number, 600));
            self.place(&prompt);
        }
    }

    fn holder(&self) -> EndpointId {
        self.bench.ids[0]
    }

    fn alarms_and_filters(&self) -> (u64, u64) {
        let counters = self.bench.scheduler.counters();
        (counters.alarms, counters.filters)
    }

    /// Arrivals until the alarm: 64 in the window, and 64 · 3 > (n − 64) · 1.
    fn alarm(&mut self) {
        for _ in 0..63 {
            assert_eq!(self.of_class(), self.holder());
        }
        assert_eq!(self.alarms_and_filters(), (0, 0));
        self.of_class();
        assert_eq!(self.alarms_and_filters(), (1, 0));
    }
}

#[test]
fn it_alarms_filters_after_twice_m_consecutive_requests_and_lifts() {
    let mut stream = Stream::new(HotspotAction::Filter);
    stream.alarm();
    assert_eq!(stream.of_class(), stream.holder(), "the first of 2|M|");
    assert_ne!(
        stream.of_class(),
        stream.holder(),
        "the second one puts the filter in force"
    );
    assert_eq!(stream.alarms_and_filters(), (1, 1));
    let now = stream.bench.scheduler.hotspots();
    assert_eq!(now.len(), 1, "{now:?}");
    assert_eq!(
        (now[0].in_force, now[0].depth_tokens, now[0].arrivals),
        (true, 1_024, 66)
    );
    let decision = &stream.bench.scheduler.decisions(1)[0];
    assert!(decision.filtered_class.is_some());
    let filtered: Vec<u16> = decision
        .candidates
        .iter()
        .filter(|(_, view)| view.filtered)
        .map(|(_, view)| view.slot)
        .collect();
    assert_eq!(filtered, [stream.holder().slot.0]);
    for _ in 0..20 {
        assert_ne!(stream.of_class(), stream.holder());
    }
    let notes = stream.bench.scheduler.take_hotspot_notes();
    let kinds: Vec<bool> = notes.iter().map(|note| note.in_force).collect();
    assert_eq!(kinds, [false, true]);
    assert_eq!(
        (
            notes[0].depth_tokens,
            notes[0].holders,
            notes[0].others,
            notes[0].arrivals
        ),
        (1_024, 1, 3, 64)
    );

    // 86 of the class: phase 1 holds until more than 258 others came
    stream.others(257);
    assert_ne!(stream.of_class(), stream.holder(), "87 · 3 > 257");
    stream.others(10);
    assert_eq!(stream.of_class(), stream.holder(), "88 · 3 ≤ 267: lifted");
    assert_eq!(stream.bench.scheduler.hotspots(), []);
    assert_eq!(stream.alarms_and_filters(), (1, 1));
}

#[test]
fn a_failing_comparison_resets_the_count() {
    let mut stream = Stream::new(HotspotAction::Filter);
    stream.alarm();
    assert_eq!(stream.of_class(), stream.holder());
    let short = stream.bench.prompt(&text(3, 8));
    // 16 new tokens × (BS + 1) on the holder against 1,040 × 1 elsewhere
    let crowd: Vec<Pick> = (0..80)
        .map(|_| {
            let pick = stream.bench.pick_on(0, &short, at(stream.now));
            stream
                .bench
                .scheduler
                .first_output(pick.reservation, at(stream.now));
            pick
        })
        .collect();
    assert_ne!(
        stream.of_class(),
        stream.holder(),
        "outside is better: nothing to filter"
    );
    for pick in crowd {
        stream.bench.end(pick.reservation, at(stream.now));
    }
    assert_eq!(stream.of_class(), stream.holder());
    assert_eq!(stream.alarms_and_filters().1, 0, "the count began anew");
    assert_ne!(stream.of_class(), stream.holder());
    assert_eq!(stream.alarms_and_filters().1, 1);
}

#[test]
fn the_window_must_have_been_full_once() {
    let mut stream = Stream::new(HotspotAction::Filter);
    stream.now = 1.0;
    for _ in 0..500 {
        assert_eq!(stream.of_class(), stream.holder());
    }
    assert_eq!(stream.alarms_and_filters(), (0, 0));
}

#[test]
fn where_everybody_holds_the_prefix_nothing_is_filtered() {
    let mut stream = Stream::new(HotspotAction::Filter);
    let prompt = stream.bench.prompt(&stream.prefix.clone());
    for number in 1..4 {
        stream.bench.index_only(number, &prompt, 0, 64);
    }
    for _ in 0..500 {
        stream.of_class();
    }
    assert_eq!(stream.alarms_and_filters(), (0, 0));
}

#[test]
fn the_filter_never_empties_the_candidates() {
    let mut stream = Stream::new(HotspotAction::Filter);
    stream.alarm();
    stream.of_class();
    stream.of_class();
    let holder = stream.bench.views(at(stream.now))[0].address;
    stream.number += 1;
    let tokens = [stream.prefix.clone(), text(stream.number, 16)].concat();
    let prompts = [stream.bench.prompt(&tokens)];
    let subset = lmetric_scheduler::Subset(vec![(holder.ip(), None)]);
    let request = lmetric_scheduler::PickRequest {
        subset: Some(&subset),
        ..ask(&prompts)
    };
    assert_eq!(
        stream.bench.try_pick(&request, at(stream.now)).unwrap().address,
        holder
    );
}

#[test]
fn the_other_action_places_the_class_by_load_only() {
    let mut stream = Stream::new(HotspotAction::LoadOnly);
    stream.alarm();
    stream.of_class();
    let placed: Vec<EndpointId> = (0..200).map(|_| stream.of_class()).collect();
    assert_eq!(stream.alarms_and_filters(), (1, 1));
    for id in stream.bench.ids.clone() {
        let count = placed.iter().filter(|placed| **placed == id).count();
        // 200 / 4, standard deviation 6
        assert!((25..=75).contains(&count), "{count}");
    }
}

#[test]
fn without_alarms_picks_do_not_depend_on_the_detector() {
    let run = |action| {
        let config = SchedulerConfig {
            hotspot: action,
            ..SchedulerConfig::default()
        };
        let mut bench = Bench::new(8, 16, config);
        let mut rng = SmallRng::seed_from_u64(5);
        let mut open = Vec::new();
        let mut placed = Vec::new();
        for number in 0..3_000_u32 {
            let now = Time(u64::from(number) * 50_000_000);
            let conversation = rng.random_range(0..60);
            let turns = rng.random_range(1..6_usize);
            let prompt = bench.prompt(&[text(1, 512), text(10 + conversation, turns * 400)].concat());
            let pick = bench.pick(&prompt, now);
            let endpoint = bench.ids.iter().position(|id| *id == pick.endpoint).unwrap();
            bench.store(endpoint, &prompt, 0, prompt.chains[0].1.keys.len(), now);
            placed.push(endpoint);
            open.push(pick.reservation);
            if open.len() > 40 {
                let ended = open.swap_remove(rng.random_range(0..open.len()));
                bench.end(ended, now);
            }
        }
        (placed, bench.scheduler.counters().alarms)
    };
    let (on, alarms) = run(HotspotAction::Filter);
    let (off, _) = run(HotspotAction::Off);
    assert_eq!(alarms, 0);
    assert_eq!(on, off);
}
