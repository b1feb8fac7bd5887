//! A fleet of two engines in the scheduler's own ledger.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use lmetric_epp::{
    clock::Clock,
    guard::{Doubt, Place, Placement},
    refusal::Refusal,
    request::ParsedRequest,
};
use lmetric_prefix::SharedIndex;
use lmetric_scheduler::{EndpointSpec, PickRequest, Prompt, Scheduler, SchedulerConfig};
use rand::{SeedableRng, rngs::SmallRng};
use tokio::time::sleep;

/// Engines that nobody reads.
struct Believed;

impl Doubt for Believed {
    fn doubt(&self, _address: SocketAddr) {}
}

pub(super) struct Ledger {
    scheduler: Arc<Scheduler>,
    clock: Clock,
    delay: Duration,
}

impl Ledger {
    /// Each pick takes `delay`.
    pub(super) fn new(delay: Duration) -> Arc<Self> {
        let config = SchedulerConfig {
            decisions: 8,
            ..SchedulerConfig::default()
        };
        let scheduler = Arc::new(Scheduler::new(config, Arc::new(SharedIndex::default())));
        for address in [[10, 0, 0, 1], [10, 0, 0, 2]] {
            let spec = EndpointSpec {
                address: (address, 8000).into(),
                rank: None,
                group: Arc::from("m"),
                block_size: None,
            };
            let id = scheduler.add(spec).expect("a slot");
            scheduler.set_ready(id, true);
        }
        Arc::new(Self {
            scheduler,
            clock: Clock::start(),
            delay,
        })
    }

    /// Q = BS = 0, and as many releases as picks.
    pub(super) fn check_empty(&self) {
        for endpoint in self.scheduler.endpoints(self.clock.now()) {
            assert_eq!(
                (endpoint.q, endpoint.bs),
                (0, 0),
                "{} keeps load",
                endpoint.address
            );
        }
        let counters = self.scheduler.counters();
        assert_eq!(counters.picks, counters.released.iter().sum::<u64>());
        assert!(counters.picks <= 1, "placed {} times", counters.picks);
    }
}

impl Place for Ledger {
    async fn place(&self, request: Arc<ParsedRequest>) -> Result<Placement, Refusal> {
        sleep(self.delay).await;
        let prompts: Vec<_> = request
            .prompts
            .iter()
            .map(|_| Prompt {
                tokens: request.body.len() as u32,
                chains: Vec::new(),
            })
            .collect();
        let asked = PickRequest {
            request_id: &request.request_id,
            model: request.model.as_deref().unwrap_or_default(),
            prompts: &prompts,
            weight: request.weight(),
            estimated: false,
            subset: request.subset.as_ref(),
            lora: None,
            session: request.session,
        };
        let pick = self
            .scheduler
            .pick(&asked, self.clock.now(), &mut SmallRng::seed_from_u64(1))?;
        Ok(Placement::reserved(
            pick,
            self.scheduler.clone(),
            self.clock,
            Arc::new(Believed),
            None,
            None,
        ))
    }
}
