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
use tokio::net::TcpStream;

/// Idle connections are closed before vLLM's server would (uvicorn: after 5 s): a request that meets that close half-way
/// fails, and an idle engine is read every 5 s.
const IDLE: Duration = Duration::from_secs(4);
/// For a connection to be made. The machine's kernel makes it, however busy the engine is; one that was lost on its way is
/// asked for again after a second.
const CONNECT: Duration = Duration::from_millis(1_200);

/// Why an engine's answer could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// Nobody listens there.
    #[error("connection refused")]
    Refused,
    /// No connection can be made: the machine, or the way to it, is gone.
    #[error("cannot be reached")]
    Unreachable,
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
            Self::Unreachable => "unreachable",
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

    /// Whether the engine's machine takes a new connection. One that is busy does; a connection that was made before its
    /// machine went tells nothing.
    pub async fn is_reachable(&self, engine: SocketAddr) -> bool {
        let connecting = tokio::time::timeout(CONNECT, TcpStream::connect(engine));
        matches!(connecting.await, Ok(Ok(_)))
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
        match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => return FetchError::Refused,
            Some(
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::TimedOut,
            ) => return FetchError::Unreachable,
            _ => {}
        }
        last = error.to_string();
        cause = error.source();
    }
    FetchError::Transport(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_refuses_is_told_from_a_machine_that_is_gone() {
        let kinds = [
            (io::ErrorKind::ConnectionRefused, "refused"),
            (io::ErrorKind::HostUnreachable, "unreachable"),
            (io::ErrorKind::NetworkUnreachable, "unreachable"),
            (io::ErrorKind::TimedOut, "unreachable"),
            (io::ErrorKind::ConnectionReset, "transport"),
        ];
        for (kind, expected) in kinds {
            assert_eq!(classify(&io::Error::from(kind)).reason(), expected);
        }
    }

    #[tokio::test]
    async fn a_program_that_does_not_answer_is_reachable_while_its_machine_is_there() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap();
        let client = EngineClient::default();
        let short = Duration::from_millis(50);
        let answer = client.get_body(address, "/metrics", 1_000, short).await;
        assert_eq!(answer, Err(FetchError::Timeout(short)));
        assert!(client.is_reachable(address).await);
        drop(silent);
        assert!(!client.is_reachable(address).await);
    }
}
