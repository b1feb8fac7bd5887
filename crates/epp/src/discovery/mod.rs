//! Where the set of endpoints comes from. One source of truth writes whole sets to a watch channel; the fleet
//! reconciles against the latest one, so nothing is lost when sets come faster than they are applied.

mod file;
pub mod kubernetes;
mod registry;

use std::{net::SocketAddr, sync::Arc};

use lmetric_api::EndpointEntry;
use lmetric_prefix::BlockSize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use file::FileDiscovery;
pub use kubernetes::KubernetesDiscovery;
pub use registry::{DrainRefusal, KnownPod, PodRegistry};

/// One address that serves requests, as discovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where the proxy sends requests.
    pub address: SocketAddr,
    /// Rank, when several share the address.
    pub rank: Option<u16>,
    /// Model that it serves.
    pub model: String,
    /// PUB endpoint of its KV events, when it was told.
    pub events: Option<String>,
    /// ROUTER endpoint for replay, when it was told.
    pub replay: Option<String>,
    /// Tokens per block, when it was told.
    pub block_size: Option<BlockSize>,
    /// Changes when the engine's container restarted.
    pub incarnation: String,
    /// It takes no new requests, and never will again.
    pub terminating: bool,
    /// Whoever supervises it says that it may take requests; true where nobody does.
    pub ready: bool,
    /// UID of its pod, on Kubernetes.
    pub pod: Option<Arc<str>>,
}

/// All endpoints of the pool. `None` in the channel: none was read yet.
pub type EndpointSet = Arc<[Endpoint]>;

/// Someone who knows the endpoints.
pub trait Discovery: Send + 'static {
    /// Sends sets whenever they change, until `token` is cancelled.
    fn run(
        self,
        sets: watch::Sender<Option<EndpointSet>>,
        token: CancellationToken,
    ) -> impl Future<Output = ()> + Send;
}

impl From<EndpointEntry> for Endpoint {
    fn from(entry: EndpointEntry) -> Self {
        let EndpointEntry {
            address,
            model,
            events,
            replay,
            rank,
            block_size,
            incarnation,
            terminating,
        } = entry;
        Self {
            address,
            rank,
            model,
            events,
            replay,
            block_size: block_size.and_then(BlockSize::new),
            incarnation,
            terminating,
            ready: true,
            pod: None,
        }
    }
}

/// Whichever the configuration names.
#[derive(Debug)]
pub enum AnyDiscovery {
    /// A file that lists endpoints.
    File(FileDiscovery),
    /// Pods.
    Kubernetes(Box<KubernetesDiscovery>),
}

impl Discovery for AnyDiscovery {
    async fn run(self, sets: watch::Sender<Option<EndpointSet>>, token: CancellationToken) {
        match self {
            Self::File(file) => file.run(sets, token).await,
            Self::Kubernetes(pods) => pods.run(sets, token).await,
        }
    }
}
