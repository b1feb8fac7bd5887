//! A gateway's side of ext-proc: connections to a picker, exchanges, and what is said in them.

pub mod message;
pub mod reply;
mod tls;

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, bail};
use hyper_util::rt::TokioIo;
use lmetric_proto::ext_proc::{
    ProcessingRequest, ProcessingResponse, external_processor_client::ExternalProcessorClient,
    processing_response::Response,
};
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Streaming,
    transport::{Channel, Endpoint},
};

/// Nothing takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest reply that is taken: pickers send bodies back in small pieces.
const LONGEST: usize = 1 << 20;
/// What the picker writes its choice into.
const DESTINATION: &str = "x-gateway-destination-endpoint";

/// A connection to a picker, made when it is first used; over TLS its certificate is not verified, as with real gateways.
pub fn channel(picker: SocketAddr, tls: bool) -> anyhow::Result<Channel> {
    let connector = TlsConnector::from(tls::config()?);
    let endpoint = Endpoint::try_from(format!("http://{picker}"))?;
    Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_| {
        let connector = connector.clone();
        async move {
            let stream = TcpStream::connect(picker).await?;
            stream.set_nodelay(true)?;
            let io: Box<dyn Io> = if tls {
                let stream = connector.connect(ServerName::from(picker.ip()), stream).await?;
                if stream.get_ref().1.alpn_protocol() != Some(&b"h2"[..]) {
                    return Err(std::io::Error::other("the picker does not agree on HTTP/2"));
                }
                Box::new(stream)
            } else {
                Box::new(stream)
            };
            Ok::<_, std::io::Error>(TokioIo::new(io))
        }
    })))
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// One HTTP exchange that a gateway is busy with; dropping it ends it.
#[derive(Debug)]
pub struct Exchange {
    sender: Option<mpsc::Sender<ProcessingRequest>>,
    replies: Streaming<ProcessingResponse>,
}

impl Exchange {
    /// Opens its stream.
    pub async fn open(channel: &Channel) -> anyhow::Result<Self> {
        let (sender, messages) = mpsc::channel(4);
        let mut client = ExternalProcessorClient::new(channel.clone()).max_decoding_message_size(LONGEST);
        let process = client.process(ReceiverStream::new(messages));
        let replies = timeout(PATIENCE, process).await.context("no stream in time")??;
        Ok(Self {
            sender: Some(sender),
            replies: replies.into_inner(),
        })
    }

    /// A chat up to the picker's choice. A picker answers before its whole body only to refuse it.
    pub async fn chat(channel: &Channel, body: &Value) -> anyhow::Result<(Self, Choice)> {
        let mut exchange = Self::open(channel).await?;
        let json = [("content-type", "application/json")];
        exchange.send(message::request_headers(&json, false)).await?;
        exchange
            .send(message::request_body(body.to_string(), true))
            .await?;
        loop {
            let reply = exchange.receive().await?;
            if let Some(Response::ImmediateResponse(answer)) = &reply.response {
                let status = answer.status.context("an answer without a status")?;
                return Ok((exchange, Choice::Answer(status.code)));
            }
            if let Some(endpoint) = reply::header(&reply, DESTINATION) {
                return Ok((exchange, Choice::Endpoint(endpoint.parse()?)));
            }
        }
    }

    /// Sends a message.
    pub async fn send(&mut self, message: ProcessingRequest) -> anyhow::Result<()> {
        let sender = self.sender.as_ref().context("this side of the stream is over")?;
        sender.send(message).await.context("the stream is over")
    }

    /// The next reply.
    pub async fn receive(&mut self) -> anyhow::Result<ProcessingResponse> {
        let reply = timeout(PATIENCE, self.replies.message()).await;
        reply
            .context("no reply in time")??
            .context("the stream ended without a reply")
    }

    /// Sends no more.
    pub fn half_close(&mut self) {
        self.sender = None;
    }

    /// How the stream ends, no reply being expected any more.
    pub async fn end(&mut self) -> anyhow::Result<Code> {
        match timeout(PATIENCE, self.replies.message())
            .await
            .context("no end in time")?
        {
            Ok(None) => Ok(Code::Ok),
            Ok(Some(reply)) => bail!("one more reply: {reply:?}"),
            Err(status) => Ok(status.code()),
        }
    }
}

/// What a picker makes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It goes there.
    Endpoint(SocketAddr),
    /// The client is answered with this status.
    Answer(i32),
}
