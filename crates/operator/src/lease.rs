//! One of several operators leads: it holds a Lease and renews it, the others wait.
//!
//! Nobody's wall clock is trusted. A candidate remembers when *it* last saw the Lease change, and takes over when that is
//! longer ago than the holder's duration. Every write carries the resourceVersion that was read, so of two
//! candidates one gets a conflict. A leader that could not renew for [`Timing::renew`] stops leading while its
//! Lease still has [`Timing::duration`] − renew to live, so two never lead at once.

mod api;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use rand::Rng;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

pub use api::{LeaseError, Leases, NamedLease};

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A Lease that did not change for so long may be taken over.
    pub duration: Duration,
    /// A leader that could not renew for so long leads no more.
    pub renew: Duration,
    /// Between two tries, with jitter.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// Whether this process leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Somebody else does, or nobody yet.
    Waiting,
    /// It does.
    Leading,
    /// It did and could not keep it: stop writing at once.
    Lost,
}

/// A candidate.
#[derive(Debug)]
pub struct Election<L> {
    leases: L,
    identity: String,
    timing: Timing,
}

/// What a candidate knows of the Lease, and since when by its own clock.
#[derive(Debug)]
struct Observed {
    mark: (Option<String>, Option<MicroTime>, Option<i32>),
    since: Instant,
}

impl<L: Leases> Election<L> {
    /// A candidate that calls itself `identity`, which no other process ever does.
    pub fn new(leases: L, identity: String, timing: Timing) -> Self {
        Self {
            leases,
            identity,
            timing,
        }
    }

    /// Waits, leads, and returns when leadership is lost or `stop` is cancelled. A leader that is stopped empties the
    /// Lease, so that a follower takes over at once: stop everything that writes before.
    pub async fn run(self, stop: CancellationToken, state: watch::Sender<Leadership>) {
        let won = tokio::select! {
            () = stop.cancelled() => return,
            won = self.acquire() => won,
        };
        state.send_replace(Leadership::Leading);
        tracing::info!(identity = self.identity, "leads");
        let (lease, kept) = self.keep(won, &stop).await;
        if kept {
            self.release(lease).await;
        } else {
            state.send_replace(Leadership::Lost);
        }
    }

    /// Tries until the Lease is held; the Lease, and when the request that won it began.
    async fn acquire(&self) -> (Lease, Instant) {
        let mut observed: Option<Observed> = None;
        loop {
            let began = Instant::now();
            match timeout_at(began + self.timing.renew, self.attempt(&mut observed)).await {
                Ok(Ok(Some(lease))) => return (lease, began),
                Ok(Ok(None)) => {}
                Ok(Err(LeaseError::Conflict)) => tracing::debug!("another candidate was faster"),
                Ok(Err(error)) => tracing::warn!(%error, "cannot read or write the lease"),
                Err(_) => tracing::warn!("the API server did not answer about the lease in time"),
            }
            sleep(jittered(self.timing.retry)).await;
        }
    }

    async fn attempt(&self, observed: &mut Option<Observed>) -> Result<Option<Lease>, LeaseError> {
        let Some(lease) = self.leases.get().await? else {
            return self.leases.create(self.claim(Lease::default())).await.map(Some);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let free = spec.holder_identity.as_deref().unwrap_or_default().is_empty();
        let mark = (spec.holder_identity, spec.renew_time, spec.lease_transitions);
        let since = match observed {
            Some(seen) if seen.mark == mark => seen.since,
            _ => {
                let since = Instant::now();
                *observed = Some(Observed { mark, since });
                since
            }
        };
        let theirs = Duration::from_secs(spec.lease_duration_seconds.unwrap_or(0).max(0) as u64);
        let expired = since.elapsed() >= theirs.max(self.timing.duration);
        if !free && !expired {
            return Ok(None);
        }
        self.leases.replace(self.claim(lease)).await.map(Some)
    }

    /// Renews until `stop` (true) or until the Lease is lost (false).
    async fn keep(&self, won: (Lease, Instant), stop: &CancellationToken) -> (Lease, bool) {
        let (mut lease, mut renewed) = won;
        loop {
            let deadline = renewed + self.timing.renew;
            let next = (Instant::now() + jittered(self.timing.retry)).min(deadline);
            tokio::select! {
                () = stop.cancelled() => return (lease, true),
                () = sleep_until(next) => {}
            }
            let began = Instant::now();
            match timeout_at(deadline, self.renew(&lease)).await {
                Ok(Ok(Some(held))) => {
                    lease = held;
                    renewed = began;
                }
                Ok(Ok(None)) => {
                    tracing::error!("another operator holds the lease");
                    return (lease, false);
                }
                Ok(Err(error)) => tracing::warn!(%error, "cannot renew the lease"),
                Err(_) => {}
            }
            if Instant::now() >= renewed + self.timing.renew {
                tracing::error!("the lease could not be renewed for {:?}", self.timing.renew);
                return (lease, false);
            }
        }
    }

    /// The renewed Lease; `None` when somebody else holds it.
    async fn renew(&self, lease: &Lease) -> Result<Option<Lease>, LeaseError> {
        match self.leases.replace(self.renewed(lease.clone())).await {
            Ok(lease) => return Ok(Some(lease)),
            Err(LeaseError::Conflict) => {}
            Err(error) => return Err(error),
        }
        // somebody touched it, or an answer of ours was lost on its way
        let Some(current) = self.leases.get().await? else {
            return Ok(None);
        };
        let holder = current
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.as_deref());
        if holder != Some(&self.identity) {
            return Ok(None);
        }
        self.leases.replace(self.renewed(current)).await.map(Some)
    }

    async fn release(&self, lease: Lease) {
        let mut spec = lease.spec.clone().unwrap_or_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        let empty = Lease {
            spec: Some(spec),
            ..lease
        };
        let limit = Instant::now() + self.timing.retry;
        match timeout_at(limit, self.leases.replace(empty)).await {
            Ok(Ok(_)) => tracing::info!("left the lease to the next"),
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot leave the lease; the next leader has to wait for it");
            }
            Err(_) => tracing::warn!("cannot leave the lease in time; the next leader has to wait for it"),
        }
    }

    fn claim(&self, mut lease: Lease) -> Lease {
        let now = MicroTime(Timestamp::now());
        let before = lease.spec.take().unwrap_or_default();
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.timing.duration.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(
                before
                    .lease_transitions
                    .map_or(0, |count| count.saturating_add(1)),
            ),
            ..before
        });
        lease
    }

    fn renewed(&self, mut lease: Lease) -> Lease {
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(self.identity.clone());
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        lease
    }
}

fn jittered(time: Duration) -> Duration {
    time.mul_f64(rand::rng().random_range(0.9..=1.1))
}
