//! The table at the end, and the timeline for whoever studies a violation.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use serde_json::json;

use crate::journal::Facts;
use crate::plan::Plan;

/// Faults by kind, requests, memory, violations.
pub(crate) fn table(plan: &Plan, facts: &Facts) -> String {
    let mut by_kind = BTreeMap::<_, u64>::new();
    for happened in &facts.faults {
        *by_kind.entry(happened.fault.kind()).or_default() += 1;
    }
    let mut table = format!("\n{:<22} {:>6} {:>16}\n", "fault", "times", "failed requests");
    for (kind, times) in by_kind {
        let explained = facts.explained.get(kind).copied().unwrap_or_default();
        let _ = writeln!(table, "{kind:<22} {times:>6} {explained:>16}");
    }
    let explained: u64 = facts.explained.values().sum();
    let _ = writeln!(
        table,
        "\nseed {}, plan {}: {} faults, {} requests, {} failed, {} of them explained; slowest recovery {:.0} s",
        plan.seed,
        plan.hash(),
        facts.faults.len(),
        facts.served + facts.failed,
        facts.failed,
        explained,
        facts.slowest_recovery.as_secs_f64(),
    );
    for (program, memory) in &facts.memory {
        let mib = |bytes: u64| bytes >> 20;
        let _ = writeln!(
            table,
            "{program}: {} MiB at first, {} MiB at last, {} MiB at most",
            mib(memory.first),
            mib(memory.last),
            mib(memory.most)
        );
    }
    let _ = writeln!(table, "violations: {}", facts.violations.len());
    for violation in &facts.violations {
        let _ = writeln!(
            table,
            "  {} {:?}: {}",
            violation.at, violation.rule, violation.text
        );
    }
    table
}

/// Writes plan and facts as JSON.
pub(crate) fn write(file: &Path, plan: &Plan, facts: &Facts) -> anyhow::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let timeline = json!({
        "seed": plan.seed,
        "plan_hash": plan.hash(),
        "plan": plan.steps,
        "facts": facts,
    });
    std::fs::write(file, serde_json::to_vec_pretty(&timeline)?).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::At;
    use crate::invariants::{Rule, Violation};

    #[test]
    fn the_table_tells_every_violation() {
        let plan = Plan::new(1, Duration::from_mins(1));
        let mut facts = Facts::default();
        assert!(table(&plan, &facts).contains("violations: 0\n"));
        facts.violations.push(Violation {
            at: At::second(7),
            rule: Rule::Ledger,
            text: "alpha-picker-1: Q and BS are left".to_owned(),
        });
        let table = table(&plan, &facts);
        assert!(
            table.contains("violations: 1\n  7.0 s Ledger: alpha-picker-1"),
            "{table}"
        );
    }
}
