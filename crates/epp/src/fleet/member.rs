//! One endpoint that takes part: its slot, its source, and what its engine said last.

use std::sync::Arc;

use lmetric_prefix::{BlockKey, BlockSize};
use lmetric_scheduler::EndpointId;
use parking_lot::RwLock;
use tokio::time::Instant;

use super::source::Source;
use crate::{
    discovery::{Endpoint, PodRegistry},
    scrape::{EngineMetrics, Target},
};

/// One endpoint.
pub struct Member {
    /// Slot and generation.
    pub id: EndpointId,
    /// Tokenizer group.
    pub group: Arc<str>,
    /// Its address's state.
    pub target: Arc<Target>,
    endpoint: RwLock<Endpoint>,
    source: RwLock<SourceSlot>,
    engine: RwLock<EngineMetrics>,
    pods: Arc<PodRegistry>,
}

/// A member's source.
enum SourceSlot {
    /// None yet; the engine is asked whether it has one.
    Unknown,
    /// It publishes nothing.
    Absent,
    /// Running.
    Running(Box<dyn Source>),
    /// The member is gone; none may start.
    Closed,
}

impl Member {
    /// A member without a source.
    pub fn new(
        id: EndpointId,
        group: Arc<str>,
        target: Arc<Target>,
        endpoint: Endpoint,
        pods: Arc<PodRegistry>,
    ) -> Self {
        Self {
            id,
            group,
            target,
            endpoint: RwLock::new(endpoint),
            source: RwLock::new(SourceSlot::Unknown),
            engine: RwLock::default(),
            pods,
        }
    }

    /// As it was discovered last.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.read().clone()
    }

    /// Its rank.
    pub fn rank(&self) -> Option<u16> {
        self.endpoint.read().rank
    }

    pub(super) fn set_endpoint(&self, endpoint: Endpoint) -> Endpoint {
        std::mem::replace(&mut *self.endpoint.write(), endpoint)
    }

    /// What its engine said last.
    pub fn engine(&self) -> EngineMetrics {
        self.engine.read().clone()
    }

    pub(super) fn set_engine(&self, metrics: EngineMetrics) {
        *self.engine.write() = metrics;
    }

    /// It may get requests: discovered, neither terminating nor being drained, answering, awake. Kubernetes has asked a
    /// ready pod itself: it answers as long as we have not tried, so that a rollout may end the last old pod at once.
    pub fn is_ready(&self, now: Instant) -> bool {
        let (may, vouched) = {
            let endpoint = self.endpoint.read();
            (
                endpoint.ready && !endpoint.terminating && !self.pods.is_drained(&endpoint),
                endpoint.pod.is_some(),
            )
        };
        let answers = self.target.is_up(now) || (vouched && !self.target.was_tried());
        may && answers && self.engine.read().awake != Some(false)
    }

    /// Its pod asked to be left alone.
    pub fn is_drained(&self) -> bool {
        self.pods.is_drained(&self.endpoint.read())
    }

    /// It is an endpoint of the pod with this UID.
    pub fn is_of_pod(&self, uid: &str) -> bool {
        self.endpoint.read().pod.as_deref() == Some(uid)
    }

    /// Calls `ask` with its source, if one is running.
    pub fn with_source<T>(&self, ask: impl FnOnce(&dyn Source) -> T) -> Option<T> {
        match &*self.source.read() {
            SourceSlot::Running(source) => Some(ask(&**source)),
            SourceSlot::Unknown | SourceSlot::Absent | SourceSlot::Closed => None,
        }
    }

    /// Nobody knows yet whether it has a source.
    pub fn wants_source(&self) -> bool {
        matches!(*self.source.read(), SourceSlot::Unknown)
    }

    /// Starts a source unless one is running or the member is gone.
    pub(super) fn attach(&self, start: impl FnOnce() -> Box<dyn Source>) -> bool {
        let mut slot = self.source.write();
        match *slot {
            SourceSlot::Unknown | SourceSlot::Absent => {
                *slot = SourceSlot::Running(start());
                true
            }
            SourceSlot::Running(_) | SourceSlot::Closed => false,
        }
    }

    /// It has no source.
    pub(super) fn attach_none(&self) {
        let mut slot = self.source.write();
        if matches!(*slot, SourceSlot::Unknown) {
            *slot = SourceSlot::Absent;
        }
    }

    /// The engine is a new process: ask it again.
    pub(super) fn forget_absence(&self) {
        let mut slot = self.source.write();
        if matches!(*slot, SourceSlot::Absent) {
            *slot = SourceSlot::Unknown;
        }
    }

    /// Takes the source away for good.
    pub(super) fn close(&self) -> Option<Box<dyn Source>> {
        match std::mem::replace(&mut *self.source.write(), SourceSlot::Closed) {
            SourceSlot::Running(source) => Some(source),
            SourceSlot::Unknown | SourceSlot::Absent | SourceSlot::Closed => None,
        }
    }

    /// Tokens per block: events know best, then the discovery, then the engine's metrics.
    pub fn block_size(&self) -> Option<BlockSize> {
        self.with_source(Source::block_size)
            .flatten()
            .or_else(|| self.endpoint.read().block_size)
            .or_else(|| self.engine.read().block_size.and_then(BlockSize::new))
    }

    /// A request with these keys asked the engine to announce blocks again.
    pub fn expect_report(&self, keys: &[BlockKey]) {
        self.with_source(|source| source.expect_report(keys.to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use lmetric_prefix::SourceId;

    use super::*;

    fn member(pod: Option<&str>) -> Member {
        let address = "10.0.0.1:8000".parse().expect("an address");
        let endpoint = Endpoint {
            address,
            rank: None,
            model: "m".to_owned(),
            events: None,
            replay: None,
            block_size: None,
            incarnation: String::new(),
            terminating: false,
            ready: true,
            pod: pod.map(Into::into),
        };
        let id = EndpointId {
            slot: SourceId(0),
            generation: 0,
        };
        Member::new(
            id,
            "m".into(),
            Arc::new(Target::new(address)),
            endpoint,
            Arc::default(),
        )
    }

    #[test]
    fn a_pod_that_is_ready_need_not_have_answered_us_yet_and_any_other_engine_must() {
        let now = Instant::now();
        let (pod, listed) = (member(Some("u")), member(None));
        assert!(pod.is_ready(now));
        assert!(!listed.is_ready(now));
        for one in [&pod, &listed] {
            one.target.failed(now, true, "refused".to_owned());
            assert!(!one.is_ready(now));
            one.target.answered();
            assert!(one.is_ready(now));
        }
    }
}
