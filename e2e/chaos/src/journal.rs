//! What happened so far: faults, verdicts on requests, violations. Shared by all tasks of a run.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

use crate::clock::{At, Clock};
use crate::cost::Happened;
use crate::explain::explain;
use crate::invariants::memory::{Memories, Memory};
use crate::invariants::{Rule, Violation};
use crate::load::Book;
use crate::record::Record;

/// Time after a request's end until it is judged: by then its fault is written down and its pickers were asked for its engine.
const JUDGED_AFTER: Duration = Duration::from_secs(3);
/// Failures that are kept in full.
const KEPT: usize = 2_000;

/// A failed request and the fault that explains it, as its place among the faults.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failed {
    pub(crate) record: Record,
    pub(crate) fault: Option<usize>,
}

/// Everything that a report needs.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Facts {
    pub(crate) faults: Vec<Happened>,
    pub(crate) served: u64,
    pub(crate) failed: u64,
    /// Failures by the kind of fault that explains them.
    pub(crate) explained: BTreeMap<&'static str, u64>,
    pub(crate) failures: Vec<Failed>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) memory: BTreeMap<&'static str, Memory>,
    /// Longest time from the end of a fault until the fleet was whole.
    pub(crate) slowest_recovery: Duration,
}

/// The journal.
#[derive(Debug)]
pub(crate) struct Journal {
    clock: Clock,
    book: Book,
    facts: Mutex<Facts>,
    memories: Mutex<Memories>,
}

impl Journal {
    pub(crate) fn new(clock: Clock, book: Book) -> Self {
        Self {
            clock,
            book,
            facts: Mutex::default(),
            memories: Mutex::default(),
        }
    }

    /// Writes a fault down; its place.
    pub(crate) fn fault(&self, happened: Happened) -> usize {
        let mut facts = self.facts.lock();
        say(&format!(
            "{:>9}  {} — {}",
            happened.at.to_string(),
            happened.fault,
            happened.victim
        ));
        facts.faults.push(happened);
        facts.faults.len() - 1
    }

    /// A fault was undone.
    pub(crate) fn undone(&self, fault: usize) {
        let now = self.clock.now();
        if let Some(fault) = self.facts.lock().faults.get_mut(fault) {
            fault.undone = Some(now);
        }
    }

    /// The fleet is whole: every fault so far is over.
    pub(crate) fn settled(&self, after: Duration) {
        let now = self.clock.now();
        let mut facts = self.facts.lock();
        facts.slowest_recovery = facts.slowest_recovery.max(after);
        for fault in facts
            .faults
            .iter_mut()
            .rev()
            .take_while(|fault| fault.settled.is_none())
        {
            fault.settled = Some(now);
        }
    }

    /// Faults from a place on.
    pub(crate) fn faults_from(&self, place: usize) -> Vec<Happened> {
        self.facts.lock().faults.get(place..).unwrap_or_default().to_vec()
    }

    /// How many faults there were.
    pub(crate) fn faults(&self) -> usize {
        self.facts.lock().faults.len()
    }

    /// Writes a violation down and says so.
    pub(crate) fn violation(&self, rule: Rule, text: String) {
        self.tell(Violation {
            at: self.clock.now(),
            rule,
            text,
        });
    }

    /// The same for one that has its time already.
    pub(crate) fn tell(&self, violation: Violation) {
        say(&format!(
            "{:>9}  VIOLATION {:?}: {}",
            violation.at.to_string(),
            violation.rule,
            violation.text
        ));
        self.facts.lock().violations.push(violation);
    }

    /// Judges the requests that have ended; all of them if `all`.
    pub(crate) fn judge(&self, all: bool) {
        let now = self.clock.now();
        let until = if all {
            At(u64::MAX)
        } else {
            At(now.0.saturating_sub(JUDGED_AFTER.as_millis() as u64))
        };
        for record in self.book.take(until) {
            self.judge_one(record, now);
        }
    }

    fn judge_one(&self, record: Record, now: At) {
        let mut facts = self.facts.lock();
        let Some(failure) = &record.failure else {
            facts.served += 1;
            return;
        };
        facts.failed += 1;
        let fault = explain(&record, &facts.faults, now);
        let text = format!(
            "{} began {} ended {} engine {}: {:?}, {failure}",
            record.id,
            record.began,
            record.ended,
            record
                .engine
                .map_or("unknown".to_owned(), |engine| engine.to_string()),
            failure.phase,
        );
        if let Some(kind) = fault.map(|place| facts.faults[place].fault.kind()) {
            *facts.explained.entry(kind).or_default() += 1;
        }
        if facts.failures.len() < KEPT {
            facts.failures.push(Failed { record, fault });
        }
        drop(facts);
        if fault.is_none() {
            self.violation(Rule::Unexplained, text);
        }
    }

    /// Looks at the memory of all programs.
    pub(crate) fn weigh(&self) {
        let over = self.memories.lock().look();
        for text in over {
            self.violation(Rule::Memory, text);
        }
    }

    /// One line about where the run is.
    pub(crate) fn progress(&self) -> String {
        let (begun, under_way) = self.book.counts();
        let memories = self.memories.lock().0.clone();
        let memory: Vec<_> = memories
            .iter()
            .map(|(program, memory)| format!("{program} {} MiB", memory.last >> 20))
            .collect();
        let facts = self.facts.lock();
        format!(
            "{:>9}  {begun} requests, {under_way} under way, {} failed, {} faults, {} violations; {}",
            self.clock.now().to_string(),
            facts.failed,
            facts.faults.len(),
            facts.violations.len(),
            memory.join(", "),
        )
    }

    /// A copy of everything.
    pub(crate) fn facts(&self) -> Facts {
        let mut facts = self.facts.lock().clone();
        facts.memory = self.memories.lock().0.clone();
        facts
    }
}

/// Says a line to whoever watches the run, if anybody still does.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
