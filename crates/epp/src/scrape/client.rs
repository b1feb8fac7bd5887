//! The HTTP client for engines: keep-alive, bounded in time and size, with errors that tell a refused
//! connection from the rest.

use std::{io, net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

/// Idle connections are closed before vLLM's server would (uvicorn: after 5 s): a request that meets that close half-way
/// fails, and an idle engine is read every 5 s.
const IDLE: Duration = Duration::from_secs(4);

/// Why an engine's answer could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// Nobody listens there.
    #[error("connection refused")]
    Refused,
    /// No whole answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// An answer, but not 200.
    #[error("status {0}")]
    Status(u16),
    /// The body is larger than it may be.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// The connection failed otherwise.
    #[error("{0}")]
    Transport(String),
}

impl FetchError {
    /// Stable name for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Timeout(_) => "timeout",
            Self::Status(_) => "status",
            Self::TooLarge(_) => "too_large",
            Self::Transport(_) => "transport",
        }
    }
}

/// Clones share the connections.
#[derive(Clone, Debug)]
pub struct EngineClient(Client<HttpConnector, Full<Bytes>>);

impl Default for EngineClient {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(2)
            .build(connector);
        Self(client)
    }
}

impl EngineClient {
    /// GETs `path` and gives the body to `piece` as it arrives.
    pub async fn get(
        &self,
        engine: SocketAddr,
        path: &str,
        limit: usize,
        timeout: Duration,
        piece: impl FnMut(&[u8]),
    ) -> Result<(), FetchError> {
        let request = Request::builder()
            .method(Method::GET)
            .uri(uri(engine, path)?)
            .body(Full::default())
            .map_err(transport)?;
        self.exchange(request, limit, timeout, piece).await
    }

    /// GETs a small JSON body.
    pub async fn get_body(
        &self,
        engine: SocketAddr,
        path: &str,
        limit: usize,
        timeout: Duration,
    ) -> Result<Vec<u8>, FetchError> {
        let mut body = Vec::new();
        self.get(engine, path, limit, timeout, |piece| {
            body.extend_from_slice(piece);
        })
        .await?;
        Ok(body)
    }

    /// POSTs JSON and collects the answer.
    pub async fn post_json(
        &self,
        engine: SocketAddr,
        path: &str,
        json: Bytes,
        limit: usize,
        timeout: Duration,
    ) -> Result<Vec<u8>, FetchError> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(uri(engine, path)?)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(json))
            .map_err(transport)?;
        let mut body = Vec::new();
        self.exchange(request, limit, timeout, |piece| body.extend_from_slice(piece))
            .await?;
        Ok(body)
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        limit: usize,
        timeout: Duration,
        mut piece: impl FnMut(&[u8]),
    ) -> Result<(), FetchError> {
        let exchange = async {
            let response = self.0.request(request).await.map_err(|error| classify(&error))?;
            let status = response.status().as_u16();
            let mut body = response.into_body();
            let mut size = 0;
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(transport)?;
                let Some(data) = frame.data_ref() else { continue };
                size += data.len();
                if size > limit {
                    return Err(FetchError::TooLarge(limit));
                }
                if status == 200 {
                    piece(data);
                }
            }
            if status == 200 {
                Ok(())
            } else {
                Err(FetchError::Status(status))
            }
        };
        tokio::time::timeout(timeout, exchange)
            .await
            .unwrap_or(Err(FetchError::Timeout(timeout)))
    }
}

fn uri(engine: SocketAddr, path: &str) -> Result<Uri, FetchError> {
    format!("http://{engine}{path}").parse().map_err(transport)
}

fn transport(error: impl std::fmt::Display) -> FetchError {
    FetchError::Transport(error.to_string())
}

fn classify(error: &(dyn std::error::Error + 'static)) -> FetchError {
    let mut cause = Some(error);
    let mut last = error.to_string();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            return FetchError::Refused;
        }
        last = error.to_string();
        cause = error.source();
    }
    FetchError::Transport(last)
}
