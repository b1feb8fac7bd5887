//! The ext-proc server: connections, limits, and the way it ends.

mod accept;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::{StreamExt as _, stream};
use lmetric_proto::ext_proc::{
    ProcessingRequest, ProcessingResponse,
    external_processor_server::{ExternalProcessor, ExternalProcessorServer},
};
use parking_lot::Mutex;
use tokio::{
    net::TcpListener,
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming, transport};
use tracing::{info, warn};

use crate::{
    guard::Place,
    health::Health,
    stream::{Driver, Limits, Stats},
    tls::ServerTls,
};

/// Replies that wait for the connection; more than one, so that a body goes back without a stall for each piece.
const REPLIES: usize = 4;
/// A message may be larger than the largest body by this much: headers, and a body that still gets its 413.
const MESSAGE_SLACK: usize = 16 << 20;
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
const KEEPALIVE_EVERY: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// A gateway that loses many clients at once resets as many streams; that is no attack.
const PENDING_RESETS: usize = 16_384;
/// For streams to end once they have been told to.
const ENDING: Duration = Duration::from_secs(2);

/// How the server ends after it was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Health says NOT_SERVING, and requests are still taken: gateways learn from health checks, a second or more apart.
    pub linger: Duration,
    /// From the start to the end of the last stream; what is still open then is ended with OK.
    pub limit: Duration,
}

/// Bounds of a server that may be changed while it serves. Clones are the same server's.
#[derive(Clone, Debug)]
pub struct LiveLimits {
    body_bytes: Arc<AtomicUsize>,
    most_body_bytes: usize,
    drain: Arc<Mutex<Option<Duration>>>,
}

impl LiveLimits {
    /// From now on: for streams that begin, and for the drain that is to come. False where bodies of this size need a
    /// restart, because messages of theirs are larger than the server reads.
    pub fn set(&self, body_bytes: usize, drain: Duration) -> bool {
        self.body_bytes
            .store(body_bytes.min(self.most_body_bytes), Relaxed);
        *self.drain.lock() = Some(drain);
        body_bytes <= self.most_body_bytes
    }

    /// Largest request body now.
    pub fn body_bytes(&self) -> usize {
        self.body_bytes.load(Relaxed)
    }

    /// How long a drain may take, where that was changed.
    pub fn drain(&self) -> Option<Duration> {
        *self.drain.lock()
    }
}

/// An ext-proc server that is not serving yet.
pub struct ExtProcServer<P> {
    driver: Arc<Driver<P>>,
    health: Health,
    tls: Option<ServerTls>,
    /// Where TLS is served, if not on the listener itself.
    secure: Option<TcpListener>,
    limits: Limits,
    live: LiveLimits,
    ending: CancellationToken,
}

impl<P: Place> ExtProcServer<P> {
    /// A server that places with `place`. `health` is told when it drains.
    pub fn new(place: Arc<P>, limits: Limits, tls: Option<ServerTls>, health: Health) -> Self {
        let ending = CancellationToken::new();
        let driver = Arc::new(Driver::new(place, limits, ending.clone()));
        let live = LiveLimits {
            body_bytes: driver.body_bytes(),
            // half of the slack is left for the message that is one too large
            most_body_bytes: limits.body_bytes.saturating_add(MESSAGE_SLACK / 2),
            drain: Arc::default(),
        };
        Self {
            driver,
            health,
            tls,
            secure: None,
            limits,
            live,
            ending,
        }
    }

    /// The same with TLS on this listener, and plaintext on the one that is served.
    #[must_use]
    pub fn with_tls_on(mut self, secure: TcpListener) -> Self {
        self.secure = Some(secure);
        self
    }

    /// The same, doing what the Inference Extension's conformance suite asks of a picker.
    #[must_use]
    pub fn for_conformance(mut self) -> Self {
        if let Some(driver) = Arc::get_mut(&mut self.driver) {
            driver.obey_conformance();
        }
        self
    }

    /// Counters of its streams.
    pub fn stats(&self) -> Arc<Stats> {
        self.driver.stats()
    }

    /// Bounds that may be changed while it serves.
    pub fn live_limits(&self) -> LiveLimits {
        self.live.clone()
    }

    /// Serves until `stop` is cancelled and everything has ended, within `drain.limit` and two seconds.
    ///
    /// The order at the end: NOT_SERVING; after `linger` no new connections, and the ones there are told to go away;
    /// streams that are open go on; at the limit they are ended with OK, which lets their responses complete.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: CancellationToken,
        mut drain: Drain,
    ) -> Result<(), transport::Error> {
        let Self {
            driver,
            health,
            tls,
            secure,
            limits,
            live,
            ending,
        } = self;
        let going_away = CancellationToken::new();
        // certificates are watched and connections accepted for as long as this future lives
        let _accepting = going_away.clone().drop_guard();
        let acceptor = tls.as_ref().map(ServerTls::acceptor);
        let (plain, secured) = match secure {
            None => (accept::connections(listener, acceptor, going_away.clone()), None),
            Some(secure) => (
                accept::connections(listener, None, going_away.clone()),
                Some(accept::connections(secure, acceptor, going_away.clone())),
            ),
        };
        let connections = stream::select(plain, stream::iter(secured).flatten());
        if let Some(tls) = tls {
            tokio::spawn(tls.watch(going_away.clone()));
        }
        let stats = driver.stats();
        let service = ExternalProcessorServer::new(Service { driver })
            .max_decoding_message_size(limits.body_bytes.saturating_add(MESSAGE_SLACK))
            .max_encoding_message_size(usize::MAX);
        let serving = transport::Server::builder()
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keepalive_interval(Some(KEEPALIVE_EVERY))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS))
            .add_service(service)
            .add_service(health.service())
            .serve_with_incoming_shutdown(connections, going_away.clone().cancelled_owned());
        tokio::pin!(serving);
        tokio::select! {
            ended = &mut serving => return ended,
            () = stop.cancelled() => {}
        }
        health.set_ready(false).await;
        drain.limit = live.drain().unwrap_or(drain.limit);
        let linger = drain.linger.min(drain.limit);
        info!(open = stats.open(), ?linger, limit = ?drain.limit, "draining");
        tokio::select! {
            ended = &mut serving => return ended,
            () = sleep(linger) => going_away.cancel(),
        }
        if let Ok(ended) = timeout(drain.limit.saturating_sub(linger), &mut serving).await {
            return ended;
        }
        warn!(open = stats.open(), "drain limit reached, ending what is left");
        ending.cancel();
        timeout(ENDING, serving).await.unwrap_or(Ok(()))
    }
}

struct Service<P> {
    driver: Arc<Driver<P>>,
}

#[tonic::async_trait]
impl<P: Place> ExternalProcessor for Service<P> {
    type ProcessStream = ReceiverStream<Result<ProcessingResponse, Status>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let (replies, answers) = mpsc::channel(REPLIES);
        let driver = self.driver.clone();
        tokio::spawn(async move { driver.run(request.into_inner(), replies).await });
        Ok(Response::new(ReceiverStream::new(answers)))
    }
}
