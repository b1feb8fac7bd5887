//! What a process has used, as the kernel counts it.

use std::{fs, time::Duration};

use anyhow::Context;

/// USER_HZ, which is part of Linux's interface and 100 wherever this runs.
const TICK: Duration = Duration::from_millis(10);

/// User and system time of all its threads, in steps of 10 ms.
pub fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("{path}: cannot be read"))?;
    let ticks = ticks(&stat).with_context(|| format!("{path}: has no times: {stat:?}"))?;
    Ok(TICK * u32::try_from(ticks).unwrap_or(u32::MAX))
}

/// Fields 14 and 15; the second one, a name in brackets, may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

/// Resident memory in bytes.
pub fn memory(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("{path}: cannot be read"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    Ok(kilobytes.with_context(|| format!("{path}: has no VmRSS"))? * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_moves_no_field() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 120 34 0 0 20 0 4 0 99 1 1";
        assert_eq!(ticks(stat), Some(154));
    }

    #[test]
    fn this_process_uses_memory_and_time() {
        let own = std::process::id();
        assert!(memory(own).unwrap() > 100_000);
        let before = cpu(own).unwrap();
        let started = std::time::Instant::now();
        let mut sum = 0_u64;
        while cpu(own).unwrap() == before {
            assert!(started.elapsed() < Duration::from_secs(20), "{sum}");
            sum = (0..1_000_000).fold(sum, |sum, n| sum.wrapping_mul(31).wrapping_add(n));
        }
    }
}
