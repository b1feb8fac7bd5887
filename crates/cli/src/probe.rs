//! `lmetric probe`: whether something answers over HTTP. For tests and probes in images that hold nothing else.

use std::{io::Write, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Args;
use http::{Method, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    client::{BaseUrl, HttpClient, Trust, http_client},
    units,
};

/// Bytes of an answer that are read: the reasons of a process that is not ready.
const MOST_BYTES: usize = 64 << 10;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(500);
/// Most time for one try.
const TRY: Duration = Duration::from_secs(5);

/// Ask an address until it answers 200, and print the answer.
#[derive(Args, Clone, Debug)]
pub struct ProbeArgs {
    /// Address to GET, path included, such as http://lmetric-operator:9090/readyz
    pub url: BaseUrl,
    /// How long to try
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = units::limit)]
    pub timeout: Duration,
}

/// Asks until a 200 or the end of the time; prints the last answer to `out`.
pub async fn run(args: &ProbeArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let ProbeArgs { url, timeout: limit } = args;
    let client = http_client(url, &Trust::System)?;
    let uri = url.join("")?;
    let end = Instant::now() + *limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let last = ask(&client, &uri, left.min(TRY)).await;
        match last {
            Ok(text) => {
                out.write_all(text.as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) if end.saturating_duration_since(Instant::now()) < PAUSE => {
                return Err(error.context(format!("{url} did not answer 200 within {limit:?}")));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn ask(client: &HttpClient, uri: &Uri, limit: Duration) -> anyhow::Result<String> {
    let asking = async {
        let mut request = http::Request::new(Full::new(Bytes::new()));
        *request.method_mut() = Method::GET;
        *request.uri_mut() = uri.clone();
        let answer = client.request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MOST_BYTES)
            .collect()
            .await
            .map_err(anyhow::Error::from_boxed)?;
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        if status != http::StatusCode::OK {
            bail!("it answers {status}: {}", text.trim());
        }
        Ok(text)
    };
    timeout(limit, asking).await.context("no answer")?
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use hyper::{Response, StatusCode, server::conn::http1, service::service_fn};
    use hyper_util::rt::TokioIo;
    use tokio::net::TcpListener;

    use super::*;

    /// A server that answers 503 `late` times and then 200.
    async fn server(late: u32) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(AtomicU32::new(0));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let seen = seen.clone();
                let service = service_fn(move |request: http::Request<_>| {
                    let ready = seen.fetch_add(1, Ordering::Relaxed) >= late;
                    let (status, text) = if ready {
                        (StatusCode::OK, "ok\n".to_owned())
                    } else {
                        (
                            StatusCode::SERVICE_UNAVAILABLE,
                            format!("{}: not yet\n", request.uri()),
                        )
                    };
                    let answer = Response::builder()
                        .status(status)
                        .body(Full::new(Bytes::from(text)));
                    async move { answer }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
            }
        });
        format!("http://{address}/readyz")
    }

    async fn probe(url: &str, timeout: Duration) -> anyhow::Result<String> {
        let args = ProbeArgs {
            url: url.parse().unwrap(),
            timeout,
        };
        let mut said = Vec::new();
        run(&args, &mut said).await?;
        Ok(String::from_utf8(said).unwrap())
    }

    #[tokio::test]
    async fn it_asks_until_the_answer_is_200() {
        let url = server(2).await;
        assert_eq!(probe(&url, Duration::from_secs(10)).await.unwrap(), "ok\n");
    }

    #[tokio::test]
    async fn a_failure_tells_the_last_answer() {
        let url = server(u32::MAX).await;
        let error = probe(&url, Duration::from_millis(700)).await.unwrap_err();
        let said = format!("{error:#}");
        assert!(
            said.contains(&url) && said.contains("503") && said.contains("/readyz: not yet"),
            "{said}"
        );
    }

    #[tokio::test]
    async fn nobody_there_is_a_failure_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        drop(listener);
        let start = Instant::now();
        assert!(probe(&url, Duration::from_millis(600)).await.is_err());
        assert!(start.elapsed() < Duration::from_secs(3));
    }
}
