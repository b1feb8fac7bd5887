use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::watch, task::JoinHandle, time::Instant};

use super::*;

/// A Lease in memory, seen through one candidate's network.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Option<Lease>>>);

struct Network {
    shared: Shared,
    cut: AtomicBool,
    delay: AtomicU64,
}

#[derive(Clone)]
struct View(Arc<Network>);

impl View {
    fn new(shared: &Shared) -> Self {
        Self(Arc::new(Network {
            shared: shared.clone(),
            cut: AtomicBool::new(false),
            delay: AtomicU64::new(10),
        }))
    }

    async fn cross(&self) {
        sleep(Duration::from_millis(self.0.delay.load(Ordering::Relaxed))).await;
        if self.0.cut.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

fn version(lease: &Lease) -> u64 {
    lease
        .metadata
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

impl Leases for View {
    async fn get(&self) -> Result<Option<Lease>, LeaseError> {
        self.cross().await;
        Ok(self.0.shared.0.lock().clone())
    }

    async fn create(&self, mut lease: Lease) -> Result<Lease, LeaseError> {
        self.cross().await;
        let mut stored = self.0.shared.0.lock();
        if stored.is_some() {
            return Err(LeaseError::Conflict);
        }
        lease.metadata.resource_version = Some("1".to_owned());
        *stored = Some(lease.clone());
        Ok(lease)
    }

    async fn replace(&self, mut lease: Lease) -> Result<Lease, LeaseError> {
        self.cross().await;
        let mut stored = self.0.shared.0.lock();
        match stored.as_ref() {
            Some(current) if version(current) == version(&lease) => {}
            _ => return Err(LeaseError::Conflict),
        }
        lease.metadata.resource_version = Some((version(&lease) + 1).to_string());
        *stored = Some(lease.clone());
        Ok(lease)
    }
}

struct Candidate {
    view: View,
    state: watch::Receiver<Leadership>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Candidate {
    fn start(name: &str, shared: &Shared) -> Self {
        let view = View::new(shared);
        let (sender, state) = watch::channel(Leadership::Waiting);
        let stop = CancellationToken::new();
        let election = Election::new(view.clone(), name.to_owned(), Timing::default());
        let task = tokio::spawn(election.run(stop.clone(), sender));
        Self {
            view,
            state,
            stop,
            task,
        }
    }

    fn leads(&self) -> bool {
        *self.state.borrow() == Leadership::Leading
    }

    async fn becomes(&mut self, wanted: Leadership, within: Duration) -> Duration {
        let began = Instant::now();
        tokio::time::timeout(within, self.state.wait_for(|state| *state == wanted))
            .await
            .unwrap_or_else(|_| panic!("not {wanted:?} within {within:?}"))
            .expect("the candidate lives");
        began.elapsed()
    }
}

const SOON: Duration = Duration::from_secs(3);

#[tokio::test(start_paused = true)]
async fn of_two_candidates_one_leads_and_keeps_it() {
    let shared = Shared::default();
    let (one, two) = (Candidate::start("one", &shared), Candidate::start("two", &shared));
    sleep(SOON).await;
    assert!(one.leads() ^ two.leads());
    let first = one.leads();
    for _ in 0..120 {
        sleep(Duration::from_secs(1)).await;
        assert_eq!((one.leads(), two.leads()), (first, !first));
    }
}

#[tokio::test(start_paused = true)]
async fn a_partitioned_leader_has_stopped_before_the_next_one_starts() {
    let shared = Shared::default();
    let mut one = Candidate::start("one", &shared);
    one.becomes(Leadership::Leading, SOON).await;
    let mut two = Candidate::start("two", &shared);
    sleep(Duration::from_secs(30)).await;
    one.view.0.cut.store(true, Ordering::Relaxed);
    one.becomes(Leadership::Lost, Duration::from_secs(11)).await;
    let gap = two.becomes(Leadership::Leading, Duration::from_secs(12)).await;
    assert!(gap >= Duration::from_secs(2), "taken over {gap:?} after the loss");
    assert!(one.task.await.is_ok(), "the loser ends");
}

#[tokio::test(start_paused = true)]
async fn a_clean_stop_hands_over_at_once() {
    let shared = Shared::default();
    let mut one = Candidate::start("one", &shared);
    one.becomes(Leadership::Leading, SOON).await;
    let mut two = Candidate::start("two", &shared);
    sleep(Duration::from_secs(5)).await;
    one.stop.cancel();
    one.task.await.expect("ends");
    let spec = shared
        .0
        .lock()
        .clone()
        .and_then(|lease| lease.spec)
        .expect("a lease");
    assert_eq!(spec.holder_identity.as_deref(), Some(""));
    two.becomes(Leadership::Leading, SOON).await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_wall_clock_of_the_holder_does_not_matter() {
    let shared = Shared::default();
    let view = View::new(&shared);
    let holder = Election::new(view.clone(), "skewed".to_owned(), Timing::default());
    let long_ago = MicroTime("2001-01-01T00:00:00Z".parse().expect("a time"));
    let mut lease = holder.claim(Lease::default());
    lease.spec.get_or_insert_default().renew_time = Some(long_ago);
    view.create(lease).await.expect("creates");
    let mut two = Candidate::start("two", &shared);
    sleep(Duration::from_secs(13)).await;
    assert!(!two.leads(), "an old renewTime alone is no reason to take over");
    let rest = two.becomes(Leadership::Leading, Duration::from_secs(6)).await;
    assert!(rest >= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_leader_survives_a_slow_api_and_a_foreign_edit() {
    let shared = Shared::default();
    let mut one = Candidate::start("one", &shared);
    one.becomes(Leadership::Leading, SOON).await;
    one.view.0.delay.store(3_000, Ordering::Relaxed);
    sleep(Duration::from_mins(1)).await;
    assert!(one.leads(), "answers after 3 s are in time");
    one.view.0.delay.store(10, Ordering::Relaxed);
    {
        let mut stored = shared.0.lock();
        let lease = stored.as_mut().expect("a lease");
        lease.metadata.annotations = Some([("edited".to_owned(), "by hand".to_owned())].into());
        lease.metadata.resource_version = Some("1000".to_owned());
    }
    sleep(Duration::from_secs(20)).await;
    assert!(one.leads(), "a conflict with oneself still the holder is no loss");
    one.view.0.delay.store(11_000, Ordering::Relaxed);
    one.becomes(Leadership::Lost, Duration::from_secs(14)).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_taken_stops_at_its_next_try() {
    let shared = Shared::default();
    let mut one = Candidate::start("one", &shared);
    one.becomes(Leadership::Leading, SOON).await;
    {
        let mut stored = shared.0.lock();
        let lease = stored.as_mut().expect("a lease");
        lease.spec.get_or_insert_default().holder_identity = Some("thief".to_owned());
        lease.metadata.resource_version = Some("1000".to_owned());
    }
    one.becomes(Leadership::Lost, SOON).await;
}
