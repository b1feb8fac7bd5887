//! GET over http and https: redirects, bounds, and no token for another host than the one it is for.

use std::{error::Error, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};

/// For a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// For the head of an answer, and between two pieces of its body.
const SILENCE: Duration = Duration::from_secs(30);
/// Idle connections: a tokenizer's files come one right after the other.
const IDLE: Duration = Duration::from_secs(10);
/// A site sends large files' readers to its own storage.
const REDIRECTS: usize = 5;
/// Longest text of a site's that is repeated in a message.
const CODE: usize = 64;

/// Why a file could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GetError {
    /// An answer, but not 200; with what the site calls it.
    #[error("status {0}")]
    Status(u16, Option<String>),
    /// Nothing was heard for so long.
    #[error("no answer within {0:?}")]
    Silence(Duration),
    /// The whole took so long.
    #[error("not finished within {0:?}")]
    Slow(Duration),
    /// The body is larger than it may be.
    #[error("larger than {0} bytes")]
    TooLarge(usize),
    /// Not an address.
    #[error("{0:?} is no address")]
    Address(String),
    /// A redirect that is not followed.
    #[error("redirect to {0:?}, which is not followed")]
    Redirect(String),
    /// The connection failed.
    #[error("{0}")]
    Transport(String),
}

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its bytes.
    pub body: Vec<u8>,
    /// Commit that it is of, where the site says so.
    pub commit: Option<String>,
}

/// Clones share the connections.
#[derive(Clone, Debug)]
pub struct HubClient(Client<HttpsConnector<HttpConnector>, Empty<Bytes>>);

impl Default for HubClient {
    fn default() -> Self {
        let mut plain = HttpConnector::new();
        plain.enforce_http(false);
        plain.set_nodelay(true);
        plain.set_connect_timeout(Some(CONNECT));
        let config = || {
            ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("ring knows the default versions")
        };
        let config = config()
            .with_native_roots()
            .unwrap_or_else(|error| {
                tracing::debug!(%error, "no certificate authorities: https sites will not be believed");
                config().with_root_certificates(RootCertStore::empty())
            })
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(plain);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(1)
            .build(connector);
        Self(client)
    }
}

impl HubClient {
    /// GETs `url`, at most `limit` bytes.
    pub async fn get(&self, url: &str, token: Option<&str>, limit: usize) -> Result<Answer, GetError> {
        let mut to: Uri = url.parse().map_err(|_| GetError::Address(url.to_owned()))?;
        if to.host().is_none() || to.scheme().is_none() {
            return Err(GetError::Address(url.to_owned()));
        }
        let first = to.clone();
        let mut commit = None;
        for _ in 0..=REDIRECTS {
            let is_home = to.authority() == first.authority() && to.scheme() == first.scheme();
            let response = self.ask(&to, token.filter(|_| is_home)).await?;
            commit = commit.or_else(|| text(response.headers(), "x-repo-commit"));
            if response.status().is_redirection()
                && let Some(location) = response.headers().get(header::LOCATION)
            {
                to = redirected(&to, location)?;
                continue;
            }
            let body = whole(response, limit).await?;
            return Ok(Answer { body, commit });
        }
        Err(GetError::Redirect(to.to_string()))
    }

    async fn ask(&self, to: &Uri, token: Option<&str>) -> Result<Response<hyper::body::Incoming>, GetError> {
        let mut request = Request::builder().method(Method::GET).uri(to.clone()).header(
            header::USER_AGENT,
            concat!("lmetric-epp/", env!("CARGO_PKG_VERSION")),
        );
        if let Some(token) = token {
            request = request
                .header(header::AUTHORIZATION, format!("Bearer {token}"))
                // ModelScope's own client shows it this way
                .header(header::COOKIE, format!("m_session_id={token}"));
        }
        let request = request.body(Empty::new()).map_err(|_| {
            GetError::Transport("the access token is no text that a header can hold".to_owned())
        })?;
        tokio::time::timeout(SILENCE, self.0.request(request))
            .await
            .map_err(|_| GetError::Silence(SILENCE))?
            .map_err(|error| GetError::Transport(innermost(&error)))
    }
}

async fn whole(response: Response<hyper::body::Incoming>, limit: usize) -> Result<Vec<u8>, GetError> {
    if response.status() != StatusCode::OK {
        let code = text(response.headers(), "x-error-code");
        return Err(GetError::Status(response.status().as_u16(), code));
    }
    let mut frames = response.into_body();
    let mut body = Vec::new();
    loop {
        let frame = tokio::time::timeout(SILENCE, frames.frame())
            .await
            .map_err(|_| GetError::Silence(SILENCE))?;
        let Some(frame) = frame else { return Ok(body) };
        let frame = frame.map_err(|error| GetError::Transport(innermost(&error)))?;
        if let Some(data) = frame.data_ref() {
            if body.len() + data.len() > limit {
                return Err(GetError::TooLarge(limit));
            }
            body.extend_from_slice(data);
        }
    }
}

/// Where a redirect leads: an address, or a path of the same host. Never from https to http.
fn redirected(from: &Uri, location: &header::HeaderValue) -> Result<Uri, GetError> {
    let refused = || GetError::Redirect(String::from_utf8_lossy(location.as_bytes()).into_owned());
    let text = location.to_str().map_err(|_| refused())?;
    let to = if text.starts_with('/') && !text.starts_with("//") {
        let scheme = from.scheme_str().unwrap_or("https");
        let authority = from
            .authority()
            .map(http::uri::Authority::as_str)
            .unwrap_or_default();
        format!("{scheme}://{authority}{text}")
    } else {
        text.to_owned()
    };
    let to: Uri = to.parse().map_err(|_| refused())?;
    match (from.scheme_str(), to.scheme_str()) {
        (_, Some("https")) | (Some("http"), Some("http")) if to.host().is_some() => Ok(to),
        _ => Err(refused()),
    }
}

/// A short plain word out of a header.
fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    (!text.is_empty() && text.len() <= CODE && text.chars().all(is_plain)).then(|| text.to_owned())
}

/// The cause at the bottom says what happened; those above say where.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let tls = last.downcast_ref::<rustls::Error>().is_some()
        || last
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .is_some_and(<dyn Error + Send + Sync>::is::<rustls::Error>);
    let hint = if tls {
        " (its certificate must be signed by an authority that the picker's image knows)"
    } else {
        ""
    };
    format!("{last}{hint}").replace(char::is_control, " ")
}
