//! gRPC health, under the five names that gateways and probes ask for.

use std::io;

use futures::Stream;
use lmetric_proto::ext_proc::external_processor_server::SERVICE_NAME as EXT_PROC;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Server, server::Connected};
use tonic_health::{
    ServingStatus,
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

/// Serves as long as the process lives: a probe on it must not restart a picker that waits for engines or drains.
const LIVENESS: &str = "liveness";
/// Serve while requests can be placed.
const READINESS: [&str; 4] = ["", "readiness", EXT_PROC, "inference-extension"];

/// What health checks are told. Clones share it.
#[derive(Clone, Debug)]
pub struct Health {
    reporter: HealthReporter,
}

impl Health {
    /// Alive and not ready.
    pub async fn new() -> Self {
        let health = Self {
            reporter: HealthReporter::new(),
        };
        health
            .reporter
            .set_service_status(LIVENESS, ServingStatus::Serving)
            .await;
        health.set_ready(false).await;
        health
    }

    /// Whether requests can be placed. Watchers are told of a change.
    pub async fn set_ready(&self, ready: bool) {
        let status = if ready {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        for name in READINESS {
            self.reporter.set_service_status(name, status).await;
        }
    }

    /// The gRPC service; an unknown name is NOT_FOUND, as the protocol wants it.
    pub fn service(&self) -> HealthServer<HealthService> {
        HealthServer::new(HealthService::from_health_reporter(self.reporter.clone()))
    }

    /// Serves health alone on these connections until `token` is cancelled.
    pub async fn serve<I, C>(
        &self,
        connections: I,
        token: CancellationToken,
    ) -> Result<(), tonic::transport::Error>
    where
        I: Stream<Item = io::Result<C>>,
        C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    {
        Server::builder()
            .add_service(self.service())
            .serve_with_incoming_shutdown(connections, token.cancelled_owned())
            .await
    }
}
