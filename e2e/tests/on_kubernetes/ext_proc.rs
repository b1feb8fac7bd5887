//! Asks a picker as a gateway does: ext-proc over TLS whose certificate is not verified.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use hyper_util::rt::TokioIo;
use lmetric_proto::core::{HeaderMap, HeaderValue};
use lmetric_proto::ext_proc::external_processor_client::ExternalProcessorClient;
use lmetric_proto::ext_proc::{
    HttpBody, HttpHeaders, ProcessingRequest, ProcessingResponse, processing_request::Request,
    processing_response::Response,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

/// No pick takes this long.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the picker writes its choice into.
const DESTINATION: &str = "x-gateway-destination-endpoint";

/// What a picker said to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Send it there.
    To(SocketAddr),
    /// Answer with this status.
    Status(i32),
}

/// One request that a gateway is busy with; dropping it ends it.
pub(crate) struct Exchange {
    pub(crate) said: Said,
    _sender: mpsc::Sender<ProcessingRequest>,
    _replies: Streaming<ProcessingResponse>,
}

/// A connection to a picker.
pub(crate) struct Gateway(Channel);

impl Gateway {
    pub(crate) fn new(picker: SocketAddr) -> anyhow::Result<Self> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Unverified))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        let endpoint = Endpoint::try_from(format!("http://{picker}"))?;
        let channel = endpoint.connect_with_connector_lazy(tower::service_fn(move |_| {
            let connector = connector.clone();
            async move {
                let stream = TcpStream::connect(picker).await?;
                let name = ServerName::from(picker.ip());
                Ok::<_, std::io::Error>(TokioIo::new(connector.connect(name, stream).await?))
            }
        }));
        Ok(Self(channel))
    }

    /// A chat, up to the picker's choice.
    pub(crate) async fn chat(&self, body: &Value) -> anyhow::Result<Exchange> {
        let (sender, messages) = mpsc::channel(4);
        let headers = [
            (":method", "POST"),
            (":path", "/v1/chat/completions"),
            ("content-type", "application/json"),
        ];
        let headers = headers.map(|(key, value)| HeaderValue {
            key: key.to_owned(),
            value: String::new(),
            raw_value: Bytes::from_static(value.as_bytes()),
        });
        for request in [
            Request::RequestHeaders(HttpHeaders {
                headers: Some(HeaderMap {
                    headers: headers.into(),
                }),
                end_of_stream: false,
            }),
            Request::RequestBody(HttpBody {
                body: body.to_string().into(),
                end_of_stream: true,
            }),
        ] {
            let message = ProcessingRequest {
                request: Some(request),
                ..ProcessingRequest::default()
            };
            sender.send(message).await?;
        }
        let mut client = ExternalProcessorClient::new(self.0.clone());
        let process = client.process(ReceiverStream::new(messages));
        let mut replies = timeout(PATIENCE, process)
            .await
            .context("no stream")??
            .into_inner();
        loop {
            let reply = timeout(PATIENCE, replies.message())
                .await
                .context("no reply")??
                .context("the stream ended without a choice")?;
            if let Some(said) = said(&reply)? {
                return Ok(Exchange {
                    said,
                    _sender: sender,
                    _replies: replies,
                });
            }
        }
    }
}

fn said(reply: &ProcessingResponse) -> anyhow::Result<Option<Said>> {
    let common = match &reply.response {
        Some(Response::RequestHeaders(headers)) => headers.response.as_ref(),
        Some(Response::RequestBody(body)) => body.response.as_ref(),
        Some(Response::ImmediateResponse(answer)) => {
            return Ok(answer.status.as_ref().map(|status| Said::Status(status.code)));
        }
        other => bail!("not asked for: {other:?}"),
    };
    let set = common
        .and_then(|common| common.header_mutation.as_ref())
        .map_or(&[][..], |mutation| &mutation.set_headers[..]);
    let destination = set
        .iter()
        .filter_map(|option| option.header.as_ref())
        .find(|header| header.key == DESTINATION);
    destination
        .map(|header| Ok(Said::To(std::str::from_utf8(&header.raw_value)?.parse()?)))
        .transpose()
}

/// Gateways do not verify the picker's certificate.
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
