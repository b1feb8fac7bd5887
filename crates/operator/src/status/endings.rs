//! When engines ended: what they held is free only then, and the API server keeps no trace of it.

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::dereference::Facts;

/// Older endings explain nothing any more.
const KEPT: Duration = Duration::from_mins(1);

/// When an engine of each pool was last seen to be ending, by the pool's UID. Lost at a restart, when a wait for
/// accelerators is told some seconds too early at worst.
#[derive(Debug, Default)]
pub struct Endings(Mutex<HashMap<String, Timestamp>>);

impl Endings {
    /// Takes note of the engines that are ending now, and tells the facts about the last that was.
    pub fn note(&self, facts: &mut Facts) {
        let Some(uid) = facts.pool.metadata.uid.as_deref() else {
            return;
        };
        let mut seen = self.0.lock();
        let recent = |at: &Timestamp| facts.now.duration_since(*at).unsigned_abs() < KEPT;
        seen.retain(|_, at| recent(at));
        let mut pods = facts.engine_pods.iter();
        if pods.any(|pod| pod.metadata.deletion_timestamp.is_some()) {
            seen.insert(uid.to_owned(), facts.now);
        }
        facts.last_ending = seen.get(uid).copied();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::testing;

    #[test]
    fn an_ending_is_remembered_for_a_minute() {
        let endings = Endings::default();
        let mut facts = testing::facts(&json!({}));
        endings.note(&mut facts);
        assert_eq!(facts.last_ending, None);
        let mut ending = testing::pod("a", testing::ready_status());
        ending.metadata.deletion_timestamp = Some(testing::time(0));
        facts.engine_pods = vec![Arc::new(ending)];
        endings.note(&mut facts);
        assert_eq!(facts.last_ending, Some(testing::now()));
        facts.engine_pods.clear();
        facts.now = testing::time(-50).0;
        endings.note(&mut facts);
        assert_eq!(facts.last_ending, Some(testing::now()));
        facts.now = testing::time(-61).0;
        endings.note(&mut facts);
        assert_eq!(facts.last_ending, None);
        assert!(endings.0.lock().is_empty());
    }
}
