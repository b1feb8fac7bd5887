//! Predictions beside what the engines said, and the table.

use std::collections::BTreeMap;

use crate::conversation::Kind;

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared {
    /// What it looked like.
    pub(crate) kind: Kind,
    /// Hit tokens that the picker predicted for the endpoint it picked.
    pub(crate) predicted: u64,
    /// `cached_tokens` of the answer.
    pub(crate) real: u64,
}

/// Share of `all` for which `holds`.
pub(crate) fn share(all: &[Compared], holds: impl Fn(&Compared) -> bool) -> f64 {
    let count = all.iter().filter(|one| holds(one)).count();
    count as f64 / all.len().max(1) as f64
}

/// Prints one phase's table and returns the share of exact predictions.
#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
pub(crate) fn print(phase: &str, all: &[Compared]) -> f64 {
    let mut kinds: BTreeMap<String, Vec<Compared>> = BTreeMap::new();
    for one in all {
        kinds.entry(format!("{:?}", one.kind)).or_default().push(*one);
    }
    println!("{phase}: {} requests", all.len());
    println!(
        "  {:<18} {:>8} {:>8} {:>16} {:>14}",
        "kind", "requests", "exact", "≥ 64 cached", "cached tokens"
    );
    for (kind, some) in &kinds {
        row(kind, some);
    }
    row("all", all);
    for one in all.iter().filter(|one| one.predicted != one.real) {
        println!(
            "  differs: {:?} predicted {} real {}",
            one.kind, one.predicted, one.real
        );
    }
    share(all, |one| one.predicted == one.real)
}

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
fn row(kind: &str, some: &[Compared]) {
    println!(
        "  {kind:<18} {:>8} {:>7.1}% {:>15.1}% {:>14}",
        some.len(),
        100.0 * share(some, |one| one.predicted == one.real),
        100.0 * share(some, |one| one.real >= 64),
        some.iter().map(|one| one.real).sum::<u64>()
    );
}
