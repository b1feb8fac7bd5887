//! Memory of pickers and operators stays bounded.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

/// Anonymous memory of one process at most: what a picker of a few engines or an operator of two pools needs is a tenth of it.
const LIMIT: u64 = 128 << 20;
/// Programs that are watched, by the name of their binary.
const PROGRAMS: [&str; 2] = ["lmetric-epp", "lmetric-operator"];

/// What was seen of one program, over all its processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Memory {
    /// Bytes of the largest process at the first look.
    pub(crate) first: u64,
    /// Bytes of the largest process at the last look.
    pub(crate) last: u64,
    /// Most bytes of any process at any look.
    pub(crate) most: u64,
}

/// Memory by program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memories(pub(crate) BTreeMap<&'static str, Memory>);

impl Memories {
    /// Looks at every process; tells which is over the limit.
    pub(crate) fn look(&mut self) -> Vec<String> {
        let mut over = Vec::new();
        for (program, bytes) in processes() {
            let memory = self.0.entry(program).or_insert(Memory {
                first: bytes,
                ..Memory::default()
            });
            memory.last = bytes;
            if bytes > LIMIT && memory.most <= LIMIT {
                over.push(format!("{program} uses {} MiB", bytes >> 20));
            }
            memory.most = memory.most.max(bytes);
        }
        over
    }
}

/// The largest process of each program.
fn processes() -> BTreeMap<&'static str, u64> {
    let mut largest = BTreeMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let Some(program) = program(&entry.path()) else {
            continue;
        };
        let bytes = anonymous(&entry.path()).unwrap_or_default();
        let most: &mut u64 = largest.entry(program).or_default();
        *most = bytes.max(*most);
    }
    largest
}

fn program(process: &Path) -> Option<&'static str> {
    let line = std::fs::read(process.join("cmdline")).ok()?;
    let path = String::from_utf8_lossy(line.split(|byte| *byte == 0).next()?).into_owned();
    let name = Path::new(&path).file_name()?.to_str()?.to_owned();
    PROGRAMS.into_iter().find(|program| *program == name)
}

fn anonymous(process: &Path) -> Option<u64> {
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_tells_its_anonymous_memory() {
        let held = vec![1_u8; 8 << 20];
        let bytes = anonymous(Path::new("/proc/self")).unwrap();
        assert!(bytes > held.len() as u64, "{bytes}");
        assert_eq!(program(Path::new("/proc/self")), None);
    }
}
