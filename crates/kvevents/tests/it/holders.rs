//! After each capture the index holds what a plain recount says.

use std::collections::BTreeSet;

use lmetric_kvevents::{Outcome, Source, SourceState};
use lmetric_prefix::{BlockSize, Chain};

use crate::{
    captures::{self, Line},
    plain::{self, Applied, ID, Plain},
};

const REPORT: &str = "report-mode-full-on-cached-prefix";

/// The chain of the request that asked for a report: its reused blocks and its own.
fn report_chain(lines: &[&Line]) -> Option<Chain> {
    let line = lines.iter().find(|line| line.step == REPORT)?;
    let tokens: Vec<u32> = line
        .events()
        .iter()
        .flat_map(|event| {
            let tokens = event.get("token_ids").unwrap_or(&event[3]);
            serde_json::from_value::<Vec<u32>>(tokens.clone()).unwrap()
        })
        .collect();
    let size = BlockSize::new(16).unwrap();
    Some(Chain::new(plain::root(None, None, 16), size, &tokens))
}

fn check(name: &str) {
    let lines = captures::live(name);
    let endpoints: BTreeSet<&str> = lines.iter().map(|line| line.endpoint.as_str()).collect();
    for endpoint in endpoints {
        let lines: Vec<&Line> = lines.iter().filter(|line| line.endpoint == endpoint).collect();
        let mut source = Source::new(plain::config(false));
        let mut applied = Applied::new();
        let mut recount = Plain::default();
        let report = report_chain(&lines);
        let generation = source.connected(&mut Outcome::default());
        for (at, line) in lines.iter().enumerate() {
            if line.step == REPORT && at > 0 && lines[at - 1].step != REPORT {
                source.expect_report(report.as_ref().unwrap().keys.clone());
            }
            plain::live(&mut source, generation, &mut applied, line.seq, line.payload());
            for event in line.events() {
                recount.apply(event, line.step == REPORT);
            }
            assert_eq!(
                applied.held,
                recount.held(),
                "{name} {endpoint} after seq {}",
                line.seq
            );
            assert!(applied.gapless, "{name} {endpoint}: vLLM evicts tail first");
        }
        assert!(!applied.held.is_empty());
        assert_eq!(applied.index.held_by(ID), applied.held.len());
        let stats = source.stats();
        assert_eq!(
            (stats.malformed, stats.orphans, stats.gaps, stats.refused),
            (0, 0, 0, 0)
        );
        let whole = lines[0].seq == 0;
        assert_eq!(
            source.state(),
            if whole {
                SourceState::Live
            } else {
                SourceState::Partial
            }
        );
    }
}

#[test]
fn after_every_captured_message_the_holders_equal_a_plain_recount() {
    for name in captures::all_live() {
        check(&name);
    }
}

#[test]
fn references_of_a_report_that_nobody_expected_are_counted() {
    let lines = captures::live("events/main-b16-sha256");
    let lines: Vec<&Line> = lines.iter().collect();
    let from = lines.iter().position(|line| line.step == REPORT).unwrap();
    let upto = lines.iter().rposition(|line| line.step == REPORT).unwrap() + 1;
    let stored = |expected: bool| {
        let mut source = Source::new(plain::config(false));
        let mut applied = Applied::new();
        let generation = source.connected(&mut Outcome::default());
        for (at, line) in lines[..upto].iter().enumerate() {
            if expected && at == from {
                source.expect_report(report_chain(&lines).unwrap().keys);
            }
            plain::live(&mut source, generation, &mut applied, line.seq, line.payload());
        }
        source.stats().stored
    };
    assert_eq!(stored(false) - stored(true), 2);
}
