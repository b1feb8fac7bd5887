//! Talking HTTP to a gateway or an engine: one pooled client, one streamed exchange, its parsing.

mod chunk;
mod endpoint;
mod exchange;
mod sse;
mod tls;

pub use chunk::{Chunk, Usage, error_message};
pub use endpoint::{BaseUrl, UrlError};
pub use exchange::{Exchange, Failure, FailureKind, exchange};
pub use sse::{EventTooLong, SseParser};
pub use tls::{TlsError, Trust};

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

/// A client that keeps every idle connection: a replay has as many as it has requests in flight.
pub type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle connections are closed before common servers' keep-alive (vLLM's uvicorn: 5 s) closes them under us.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// An HTTP/1.1 client without a limit of connections. Certificates are read when `url` is https only.
pub fn http_client(url: &BaseUrl, trust: &Trust) -> Result<HttpClient, TlsError> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.enforce_http(false);
    let connector = tls::wrap(connector, url.is_https(), trust)?;
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(usize::MAX)
        .build(connector))
}
