//! A gateway, as far as ext-proc goes, and a picker whose picks are counted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use hyper_util::rt::TokioIo;
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
use lmetric_proto::{
    core::{HeaderMap, HeaderValue},
    ext_proc::{
        HeaderMutation, HttpBody, HttpHeaders, ProcessingRequest, ProcessingResponse, ProtocolConfiguration,
        body_mutation::Mutation, external_processor_client::ExternalProcessorClient,
        processing_request::Request, processing_response::Response,
    },
    mode::processing_mode::BodySendMode,
};
use lmetric_scheduler::{EndpointId, Outcome, Pick, ReservationId};
use parking_lot::Mutex;
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Streaming,
    transport::{Channel, Endpoint},
};
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
        let (sender, messages) = mpsc::channel(4);
        let mut client = ExternalProcessorClient::new(channel.clone()).max_decoding_message_size(1 << 20);
        let replies = client
            .process(ReceiverStream::new(messages))
            .await
            .expect("a stream")
            .into_inner();
        Exchange {
            sender: Some(sender),
            replies,
        }
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

pub(crate) struct Exchange {
    sender: Option<mpsc::Sender<ProcessingRequest>>,
    replies: Streaming<ProcessingResponse>,
}

impl Exchange {
    pub(crate) async fn send(&mut self, message: ProcessingRequest) {
        let sender = self.sender.as_ref().expect("still open");
        sender.send(message).await.expect("the stream is open");
    }

    pub(crate) async fn receive(&mut self) -> ProcessingResponse {
        let reply = timeout(PATIENCE, self.replies.message())
            .await
            .expect("a reply in time");
        reply.expect("no error").expect("a reply, not the end")
    }

    pub(crate) fn half_close(&mut self) {
        self.sender = None;
    }

    /// How the stream ends, nothing more being sent on it.
    pub(crate) async fn end(&mut self) -> Code {
        match timeout(PATIENCE, self.replies.message())
            .await
            .expect("the end in time")
        {
            Ok(None) => Code::Ok,
            Ok(Some(reply)) => panic!("one more reply: {reply:?}"),
            Err(status) => status.code(),
        }
    }
}

fn connect(port: u16, is_tls: bool) -> Channel {
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unverified))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let endpoint = Endpoint::try_from(format!("http://127.0.0.1:{port}")).expect("an address");
    endpoint.connect_with_connector_lazy(tower::service_fn(move |_| {
        let connector = connector.clone();
        async move {
            let stream = TcpStream::connect(("127.0.0.1", port)).await?;
            stream.set_nodelay(true)?;
            let io: Box<dyn Io> = if is_tls {
                let name = ServerName::try_from("picker").expect("a name");
                let stream = connector.connect(name, stream).await?;
                assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
                Box::new(stream)
            } else {
                Box::new(stream)
            };
            Ok::<_, std::io::Error>(TokioIo::new(io))
        }
    }))
}

trait Io: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Io for T {}

/// Proxies do not verify the picker's certificate.
#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
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

fn message(request: Request) -> ProcessingRequest {
    ProcessingRequest {
        request: Some(request),
        ..ProcessingRequest::default()
    }
}

fn map(headers: &[(&str, &str)]) -> HeaderMap {
    let headers = headers
        .iter()
        .map(|(key, value)| HeaderValue {
            key: (*key).to_owned(),
            value: String::new(),
            raw_value: Bytes::copy_from_slice(value.as_bytes()),
        })
        .collect();
    HeaderMap { headers }
}

pub(crate) fn request_headers(more: &[(&str, &str)], end_of_stream: bool) -> ProcessingRequest {
    let mut headers = vec![(":method", "POST"), (":path", "/v1/chat/completions")];
    headers.extend(more);
    message(Request::RequestHeaders(HttpHeaders {
        headers: Some(map(&headers)),
        end_of_stream,
    }))
}

pub(crate) fn request_body(body: impl Into<Bytes>, end_of_stream: bool) -> ProcessingRequest {
    message(Request::RequestBody(HttpBody {
        body: body.into(),
        end_of_stream,
    }))
}

pub(crate) fn response_headers(status: u16, end_of_stream: bool) -> ProcessingRequest {
    message(Request::ResponseHeaders(HttpHeaders {
        headers: Some(map(&[
            (":status", &status.to_string()),
            ("content-type", "text/event-stream"),
        ])),
        end_of_stream,
    }))
}

pub(crate) fn response_body(body: &'static str) -> ProcessingRequest {
    message(Request::ResponseBody(HttpBody {
        body: body.into(),
        end_of_stream: false,
    }))
}

/// The same message, ending the response.
pub(crate) fn last(mut message: ProcessingRequest) -> ProcessingRequest {
    if let Some(Request::ResponseBody(body)) = &mut message.request {
        body.end_of_stream = true;
    }
    message
}

fn announcing(
    mut message: ProcessingRequest,
    request: BodySendMode,
    response: BodySendMode,
) -> ProcessingRequest {
    message.protocol_config = Some(ProtocolConfiguration {
        request_body_mode: request.into(),
        response_body_mode: response.into(),
        send_body_without_waiting_for_header_response: false,
    });
    message
}

/// Announces FULL_DUPLEX_STREAMED both ways.
pub(crate) fn duplex(message: ProcessingRequest) -> ProcessingRequest {
    announcing(
        message,
        BodySendMode::FullDuplexStreamed,
        BodySendMode::FullDuplexStreamed,
    )
}

/// Announces BUFFERED requests and no response bodies.
pub(crate) fn light(message: ProcessingRequest) -> ProcessingRequest {
    announcing(message, BodySendMode::Buffered, BodySendMode::None)
}

fn mutation(reply: &ProcessingResponse) -> Option<&HeaderMutation> {
    match reply.response.as_ref()? {
        Response::RequestHeaders(headers) => headers.response.as_ref()?.header_mutation.as_ref(),
        Response::RequestBody(body) => body.response.as_ref()?.header_mutation.as_ref(),
        Response::ImmediateResponse(answer) => answer.headers.as_ref(),
        _ => None,
    }
}

/// A header that the reply sets.
pub(crate) fn header(reply: &ProcessingResponse, name: &str) -> Option<String> {
    let headers = mutation(reply)?
        .set_headers
        .iter()
        .filter_map(|option| option.header.as_ref());
    let header = headers.into_iter().find(|header| header.key == name)?;
    String::from_utf8(header.raw_value.to_vec()).ok()
}

/// Headers that the reply removes.
pub(crate) fn removed(reply: &ProcessingResponse) -> Vec<&str> {
    mutation(reply).map_or_else(Vec::new, |mutation| {
        mutation.remove_headers.iter().map(String::as_str).collect()
    })
}

/// A piece of a body on its way back, and whether it is the last.
pub(crate) fn piece(reply: &ProcessingResponse) -> (Bytes, bool) {
    let body = match &reply.response {
        Some(Response::RequestBody(body) | Response::ResponseBody(body)) => body,
        other => panic!("a body reply: {other:?}"),
    };
    let mutation = body
        .response
        .as_ref()
        .and_then(|common| common.body_mutation.as_ref());
    match mutation.and_then(|mutation| mutation.mutation.as_ref()) {
        Some(Mutation::StreamedResponse(piece)) => (piece.body.clone(), piece.end_of_stream),
        other => panic!("a piece of the body: {other:?}"),
    }
}

/// Status of an answer of the picker's own.
pub(crate) fn status(reply: &ProcessingResponse) -> i32 {
    match &reply.response {
        Some(Response::ImmediateResponse(answer)) => answer.status.expect("a status").code,
        other => panic!("an answer: {other:?}"),
    }
}
