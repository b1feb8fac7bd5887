//! Waiting for behaviour, with a limit and the last thing seen.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, sleep};

/// What was waited for did not happen.
#[derive(Debug, thiserror::Error)]
#[error("waited {limit:?} for {what}; last seen: {last}")]
pub struct TimedOut {
    what: String,
    limit: Duration,
    last: String,
}

/// Polls `probe` every 20 ms until it answers `Ok`; an `Err` is what was seen instead.
pub async fn wait_until<T, E, F>(what: &str, limit: Duration, probe: impl FnMut() -> F) -> Result<T, TimedOut>
where
    E: std::fmt::Display,
    F: Future<Output = Result<T, E>>,
{
    poll(what, limit, Duration::from_millis(20), probe).await
}

/// [`wait_until`] with a pause of `every` between two probes.
pub async fn poll<T, E, F>(
    what: &str,
    limit: Duration,
    every: Duration,
    mut probe: impl FnMut() -> F,
) -> Result<T, TimedOut>
where
    E: std::fmt::Display,
    F: Future<Output = Result<T, E>>,
{
    let deadline = Instant::now() + limit;
    loop {
        let last = match tokio::time::timeout_at(deadline + Duration::from_secs(1), probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => format!("{seen:#}"),
            Err(_) => "the probe itself hung".to_owned(),
        };
        if Instant::now() >= deadline {
            return Err(TimedOut {
                what: what.to_owned(),
                limit,
                last,
            });
        }
        sleep(every).await;
    }
}

/// [`wait_until`] for a condition on a value: `read` it until `holds`.
pub async fn eventually<T, F>(
    what: &str,
    limit: Duration,
    mut read: impl FnMut() -> F,
    holds: impl Fn(&T) -> bool,
) -> anyhow::Result<T>
where
    T: std::fmt::Debug,
    F: Future<Output = anyhow::Result<T>>,
{
    let value = wait_until(what, limit, || {
        let reading = read();
        let holds = &holds;
        async move {
            let value = reading.await?;
            if holds(&value) {
                Ok(value)
            } else {
                Err(anyhow::anyhow!("{value:?}"))
            }
        }
    });
    Ok(value.await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missed_wait_says_what_was_seen_last() {
        let error = wait_until("the moon", Duration::from_millis(50), || async {
            Err::<(), _>("a cloud")
        })
        .await
        .unwrap_err();
        assert_eq!(error.to_string(), "waited 50ms for the moon; last seen: a cloud");
    }

    #[tokio::test]
    async fn a_hanging_probe_is_cut() {
        let error = wait_until("it", Duration::ZERO, std::future::pending::<Result<(), String>>).await;
        assert!(error.unwrap_err().to_string().contains("hung"));
    }
}
