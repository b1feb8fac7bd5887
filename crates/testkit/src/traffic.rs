//! One streamed chat from its start to its end, and what was wrong with it.

use http::StatusCode;
use hyper_util::client::legacy::Error as HyperError;
use serde::Serialize;
use tokio::time::error::Elapsed;

use crate::client::{Client, chat};

/// How far a request came that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// There was no connection.
    Unconnected,
    /// The connection ended before an answer began.
    Unanswered,
    /// An answer with this status, which is no success.
    Status(u16),
    /// The answer began and ended too early.
    Cut,
    /// Nothing came for a minute.
    Silent,
    /// The answer is complete and not what was asked for.
    Wrong,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// How far it came.
    pub phase: Phase,
    /// Why, for a person.
    pub why: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

impl Phase {
    /// What `error` means before (`begun` false) or after the head of an answer.
    fn of(error: &anyhow::Error, begun: bool) -> Self {
        if error.chain().any(<dyn std::error::Error>::is::<Elapsed>) {
            return Self::Silent;
        }
        let hyper = error.chain().find_map(|cause| cause.downcast_ref::<HyperError>());
        match (begun, hyper) {
            (true, _) => Self::Cut,
            (false, Some(error)) if error.is_connect() => Self::Unconnected,
            (false, _) => Self::Unanswered,
        }
    }
}

/// One chat of exactly `tokens` tokens; an error unless it brings every one of them.
pub async fn complete_stream(
    client: &Client,
    id: &str,
    model: &str,
    prompt: &str,
    tokens: u32,
) -> Result<(), Failure> {
    let failure = |phase: Phase, why: String| Failure { phase, why };
    let body = chat(model, prompt, tokens, true);
    let stream = client
        .stream("/v1/chat/completions", &[("x-request-id", id)], &body)
        .await
        .map_err(|error| failure(Phase::of(&error, false), format!("{error:#}")))?;
    if !stream.status.is_success() {
        let status: StatusCode = stream.status;
        return Err(failure(
            Phase::Status(status.as_u16()),
            format!("answered {status}"),
        ));
    }
    let (_, usage) = stream
        .finish()
        .await
        .map_err(|error| failure(Phase::of(&error, true), format!("{error:#}")))?;
    let got = usage.map_or(0, |usage| usage["completion_tokens"].as_u64().unwrap_or(0));
    if got != u64::from(tokens) {
        return Err(failure(Phase::Wrong, format!("{got} of {tokens} tokens")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that reads one request, writes `answer` and closes the connection.
    async fn server(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 4_096];
            assert_ne!(socket.read(&mut buffer).await.unwrap(), 0);
            socket.write_all(answer).await.unwrap();
        });
        address
    }

    async fn phase(to: SocketAddr) -> Phase {
        let done = complete_stream(&Client::new(to), "1", "m", "hello", 2).await;
        done.unwrap_err().phase
    }

    #[tokio::test]
    async fn a_failure_says_how_far_the_request_came() {
        let nobody = {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.local_addr().unwrap()
        };
        assert_eq!(phase(nobody).await, Phase::Unconnected);
        assert_eq!(phase(server(b"").await).await, Phase::Unanswered);
        let busy = server(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(phase(busy.await).await, Phase::Status(503));
        let cut = server(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        assert_eq!(phase(cut.await).await, Phase::Cut);
        let short = server(b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\ndata: [DONE]\n\n");
        assert_eq!(phase(short.await).await, Phase::Wrong);
    }
}
