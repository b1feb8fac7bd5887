//! Pools that something changed for.

use std::{collections::HashSet, sync::Arc};

use futures::{Stream, stream};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::PoolRef;

/// Pools to work on. Clones are the same. Memory is bounded by the number of pools, however long nobody drains it.
#[derive(Clone, Debug, Default)]
pub struct Wakes(Arc<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    pools: Mutex<HashSet<PoolRef>>,
    news: Notify,
}

impl Wakes {
    /// Something about the pool changed.
    pub fn wake(&self, pool: PoolRef) {
        self.0.pools.lock().insert(pool);
        self.0.news.notify_one();
    }

    /// The same for all that it is about.
    pub fn wake_all(&self, pools: impl IntoIterator<Item = PoolRef>) {
        for pool in pools {
            self.wake(pool);
        }
    }

    /// The pools, each once for all changes since it was handed out last. For one reader.
    pub fn stream(&self) -> impl Stream<Item = PoolRef> + Send + use<> {
        stream::unfold(self.clone(), |wakes| async move {
            loop {
                if let Some(pool) = wakes.next() {
                    return Some((pool, wakes));
                }
                wakes.0.news.notified().await;
            }
        })
    }

    fn next(&self) -> Option<PoolRef> {
        let mut pools = self.0.pools.lock();
        let pool = pools.iter().next().cloned()?;
        pools.take(&pool)
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, time::Duration};

    use futures::StreamExt as _;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_changes_before_anybody_looks_wake_a_pool_once() {
        let wakes = Wakes::default();
        for _ in 0..100 {
            wakes.wake(PoolRef::new("a").within("n"));
            wakes.wake(PoolRef::new("b").within("n"));
        }
        let mut pools = pin!(wakes.stream());
        let mut seen = vec![
            pools.next().await.expect("endless").name,
            pools.next().await.expect("endless").name,
        ];
        seen.sort();
        assert_eq!(seen, ["a", "b"]);
        assert!(
            timeout(Duration::from_secs(1), pools.next()).await.is_err(),
            "nothing is left"
        );
        wakes.wake(PoolRef::new("a").within("n"));
        assert_eq!(pools.next().await.expect("endless").name, "a");
    }
}
