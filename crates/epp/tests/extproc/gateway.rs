//! A gateway, as far as ext-proc goes, and a picker whose picks are counted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use lmetric_api::Tls;
use lmetric_epp::{
    guard::{Place, Placement, Reservation},
    health::Health,
    refusal::Refusal,
    request::ParsedRequest,
    server::{Drain, ExtProcServer},
    stream::{Limits, Stats},
    tls::ServerTls,
};
use lmetric_prefix::SourceId;
use lmetric_proto::ext_proc::{ProcessingRequest, ProcessingResponse};
use lmetric_scheduler::{EndpointId, Outcome, Pick, ReservationId};
use lmetric_testkit::ext_proc;
pub(crate) use lmetric_testkit::ext_proc::{
    message::{duplex, last, light, request_body, request_headers, response_body, response_headers},
    reply::{self, header, removed},
};
use parking_lot::Mutex;
use tokio::{
    net::TcpListener,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

pub(crate) const BODY_LIMIT: usize = 32 << 20;
/// Nothing in these tests takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Picks one endpoint for everything and counts what becomes of it.
#[derive(Default)]
pub(crate) struct Picks {
    delay: Duration,
    patience: Option<Duration>,
    rank: Option<u16>,
    picked: AtomicUsize,
    pub(crate) outputs: Arc<AtomicUsize>,
    released: Arc<Mutex<Vec<Outcome>>>,
}

struct Counted {
    outputs: Arc<AtomicUsize>,
    released: Arc<Mutex<Vec<Outcome>>>,
}

impl Reservation for Counted {
    fn status(&self, _: u16) {}
    fn first_output(&self) {
        self.outputs.fetch_add(1, SeqCst);
    }
    fn served_by(&self, _: std::net::SocketAddr) {}
    fn cached_tokens(&self, _: u64) {}
    fn release(&self, outcome: Outcome) {
        self.released.lock().push(outcome);
    }
}

impl Place for Picks {
    async fn place(&self, _: Arc<ParsedRequest>) -> Result<Placement, Refusal> {
        sleep(self.delay).await;
        let number = self.picked.fetch_add(1, SeqCst) as u64;
        let pick = Pick {
            reservation: ReservationId(number),
            endpoint: EndpointId {
                slot: SourceId(0),
                generation: 0,
            },
            address: "10.0.0.1:8000".parse().expect("an address"),
            rank: self.rank,
            hit_tokens: 0,
            charged_tokens: 0,
        };
        let counted = Counted {
            outputs: self.outputs.clone(),
            released: self.released.clone(),
        };
        Ok(Placement::new(pick, Box::new(counted)))
    }
}

impl Picks {
    /// Picks that take a while.
    pub(crate) fn slow(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// Picks that never come, and a server that waits for them this long.
    pub(crate) fn hanging(patience: Duration) -> Self {
        Self {
            patience: Some(patience),
            ..Self::slow(3 * PATIENCE)
        }
    }

    /// An endpoint with this rank.
    pub(crate) fn ranked(rank: Option<u16>) -> Self {
        Self {
            rank,
            ..Self::default()
        }
    }

    /// Reservations now.
    pub(crate) fn open(&self) -> usize {
        self.picked.load(SeqCst) - self.released.lock().len()
    }

    /// How the requests ended, once all have.
    pub(crate) async fn released(&self) -> Vec<Outcome> {
        for _ in 0..PATIENCE.as_millis() {
            if self.open() == 0 {
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        self.released.lock().clone()
    }
}

pub(crate) struct Gateway {
    pub(crate) channel: Channel,
    /// Over TLS, where that has a port of its own.
    pub(crate) secure_channel: Option<Channel>,
    pub(crate) health_channel: Channel,
    pub(crate) picks: Arc<Picks>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) health: Health,
    pub(crate) stop: CancellationToken,
    serving: Option<JoinHandle<()>>,
}

impl Gateway {
    pub(crate) async fn start(tls: &Tls, picks: Picks) -> Self {
        let drain = Drain {
            linger: Duration::from_millis(300),
            limit: Duration::from_millis(900),
        };
        Self::start_with(tls, picks, drain).await
    }

    pub(crate) async fn start_with(tls: &Tls, picks: Picks, drain: Drain) -> Self {
        Self::launch(tls, picks, drain, false).await
    }

    /// Plaintext on one port and TLS on another.
    pub(crate) async fn start_on_both(picks: Picks, drain: Drain) -> Self {
        Self::launch(&Tls::SelfSigned, picks, drain, true).await
    }

    async fn launch(tls: &Tls, picks: Picks, drain: Drain, both: bool) -> Self {
        let picks = Arc::new(picks);
        let health = Health::new().await;
        let limits = Limits {
            body_bytes: BODY_LIMIT,
            placing: picks.patience.unwrap_or(PATIENCE),
        };
        let server_tls = ServerTls::new(tls).expect("a certificate");
        let is_tls = server_tls.is_some() && !both;
        let mut server = ExtProcServer::new(picks.clone(), limits, server_tls, health.clone());
        let mut secure_channel = None;
        if both {
            let secure = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            secure_channel = Some(connect(secure.local_addr().expect("an address").port(), true));
            server = server.with_tls_on(secure);
        }
        let stats = server.stats();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let stop = CancellationToken::new();
        let serving = server.serve(listener, stop.clone(), drain);
        let serving = tokio::spawn(async move { serving.await.expect("serving goes well") });
        let health_listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let health_port = health_listener.local_addr().expect("an address").port();
        let (checked, token) = (health.clone(), stop.clone());
        tokio::spawn(async move {
            checked
                .serve(TcpListenerStream::new(health_listener), token)
                .await
        });
        Self {
            channel: connect(port, is_tls),
            secure_channel,
            health_channel: connect(health_port, false),
            picks,
            stats,
            health,
            stop,
            serving: Some(serving),
        }
    }

    /// One HTTP exchange.
    pub(crate) async fn exchange(&self) -> Exchange {
        Self::exchange_on(&self.channel).await
    }

    /// One on this channel.
    pub(crate) async fn exchange_on(channel: &Channel) -> Exchange {
        Exchange(ext_proc::Exchange::open(channel).await.expect("a stream"))
    }

    pub(crate) async fn wait_for(&self, condition: impl Fn(&Self) -> bool) {
        let waiting = async {
            while !condition(self) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, waiting).await.expect("it happens in time");
    }

    pub(crate) async fn wait_until_not_ready(&self) {
        let serving = tonic_health::ServingStatus::Serving as i32;
        while health(self.channel.clone(), "").await == Ok(serving) {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits for the server's end.
    pub(crate) async fn ended(&mut self) {
        let serving = self.serving.take().expect("waited for once");
        timeout(PATIENCE, serving)
            .await
            .expect("it ends")
            .expect("it ends well");
    }
}

/// [`ext_proc::Exchange`] whose faults end the test.
pub(crate) struct Exchange(ext_proc::Exchange);

impl Exchange {
    pub(crate) async fn send(&mut self, message: ProcessingRequest) {
        self.0.send(message).await.expect("the stream is open");
    }

    pub(crate) async fn receive(&mut self) -> ProcessingResponse {
        self.0.receive().await.expect("a reply")
    }

    pub(crate) fn half_close(&mut self) {
        self.0.half_close();
    }

    /// How the stream ends, nothing more being sent on it.
    pub(crate) async fn end(&mut self) -> Code {
        self.0.end().await.expect("the end")
    }
}

fn connect(port: u16, is_tls: bool) -> Channel {
    ext_proc::channel(([127, 0, 0, 1], port).into(), is_tls).expect("an address")
}

pub(crate) async fn health(channel: Channel, service: &str) -> Result<i32, Code> {
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let reply = HealthClient::new(channel).check(request).await;
    reply
        .map(|reply| reply.into_inner().status)
        .map_err(|status| status.code())
}

/// A piece of a body on its way back, and whether it is the last.
pub(crate) fn piece(reply: &ProcessingResponse) -> (Bytes, bool) {
    reply::piece(reply).unwrap_or_else(|| panic!("a piece of a body: {reply:?}"))
}

/// Status of an answer of the picker's own.
pub(crate) fn status(reply: &ProcessingResponse) -> i32 {
    reply::status(reply).unwrap_or_else(|| panic!("an answer: {reply:?}"))
}
