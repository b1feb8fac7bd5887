//! An OpenAI client that can stream, stop in the middle, and send what no well-behaved client sends.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Context, bail};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use tokio::time::timeout;

/// How long an answer, or one more chunk of it, may take before the test fails.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long a connection may take: a machine that is gone refuses none.
const CONNECT: Duration = Duration::from_secs(10);

type Body = BoxBody<Bytes, std::convert::Infallible>;

/// Talks to one address.
#[derive(Clone, Debug)]
pub struct Client {
    to: SocketAddr,
    http: HyperClient<HttpConnector, Body>,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// Response headers.
    pub headers: HeaderMap,
    /// The body, to its end.
    pub body: Bytes,
}

impl Client {
    /// A client with a connection pool of its own.
    pub fn new(to: SocketAddr) -> Self {
        Self::with(to, None)
    }

    /// A client whose own address is this one, which must be one of the machine's.
    pub fn from_address(to: SocketAddr, own: IpAddr) -> Self {
        Self::with(to, Some(own))
    }

    fn with(to: SocketAddr, own: Option<IpAddr>) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_local_address(own);
        connector.set_connect_timeout(Some(CONNECT));
        Self {
            to,
            http: HyperClient::builder(TokioExecutor::new()).build(connector),
        }
    }

    /// Where it sends to.
    pub fn to(&self) -> SocketAddr {
        self.to
    }

    /// `GET path`.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.exchange("GET", path, &[], Bytes::new()).await
    }

    /// `POST path` with a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.exchange("POST", path, &[], body.to_string().into()).await
    }

    /// Any method, extra headers and bytes; waits for the whole answer.
    pub async fn exchange(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> anyhow::Result<Answer> {
        self.finish(
            self.request(method, path, headers)
                .body(Full::new(body).boxed())?,
        )
        .await
    }

    /// A body of several frames, trailers among them.
    pub async fn exchange_body<B>(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: B,
    ) -> anyhow::Result<Answer>
    where
        B: hyper::body::Body<Data = Bytes, Error = std::convert::Infallible> + Send + Sync + 'static,
    {
        self.finish(self.request(method, path, headers).body(body.boxed())?)
            .await
    }

    /// `POST path`, returning as soon as the response headers are there.
    pub async fn stream(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> anyhow::Result<SseStream> {
        let request = self
            .request("POST", path, headers)
            .body(Full::new(body.to_string().into()).boxed())?;
        let response = self.head(request).await?;
        let (parts, body) = response.into_parts();
        Ok(SseStream {
            status: parts.status,
            headers: parts.headers,
            body,
            buffer: BytesMut::new(),
            done: false,
        })
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> http::request::Builder {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.to));
        if !headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
            && method == "POST"
        {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request
    }

    async fn head(&self, request: Request<Body>) -> anyhow::Result<Response<Incoming>> {
        let what = format!("{} {}", request.method(), request.uri());
        let sent = timeout(PATIENCE, self.http.request(request)).await;
        sent.with_context(|| format!("{what}: no answer within {PATIENCE:?}"))?
            .with_context(|| what.clone())
    }

    async fn finish(&self, request: Request<Body>) -> anyhow::Result<Answer> {
        let (parts, body) = self.head(request).await?.into_parts();
        let body = timeout(PATIENCE, body.collect())
            .await
            .context("the answer's body did not end")??;
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body: body.to_bytes(),
        })
    }
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {:?}", self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// `usage.prompt_tokens_details.cached_tokens`, 0 when the answer has none.
    pub fn cached_tokens(&self) -> anyhow::Result<u64> {
        Ok(self.json()?["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap_or(0))
    }
}

/// A streamed answer. Dropping it before its end is a client that leaves.
#[derive(Debug)]
pub struct SseStream {
    /// HTTP status.
    pub status: StatusCode,
    /// Response headers.
    pub headers: HeaderMap,
    body: Incoming,
    buffer: BytesMut,
    done: bool,
}

impl SseStream {
    /// The next `data:` as JSON; `None` after `[DONE]`. A connection that ends before `[DONE]` is an error.
    pub async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            if let Some(data) = self.take_event() {
                if data == "[DONE]" {
                    self.done = true;
                    return Ok(None);
                }
                return Ok(Some(
                    serde_json::from_str(&data).with_context(|| format!("bad event {data:?}"))?,
                ));
            }
            if self.done {
                return Ok(None);
            }
            let frame = timeout(PATIENCE, self.body.frame())
                .await
                .context("no further chunk")?;
            match frame {
                Some(frame) => {
                    if let Ok(data) = frame.context("the stream was cut")?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                None => bail!("the stream ended before [DONE], left over: {:?}", self.buffer),
            }
        }
    }

    /// Reads to `[DONE]`: how many events carried output, and the last `usage` seen.
    pub async fn finish(mut self) -> anyhow::Result<(usize, Option<Value>)> {
        let (mut chunks, mut usage) = (0, None);
        while let Some(event) = self.next().await? {
            chunks += usize::from(carries_output(&event));
            if event["usage"].is_object() {
                usage = Some(event["usage"].clone());
            }
        }
        Ok((chunks, usage))
    }

    fn take_event(&mut self) -> Option<String> {
        loop {
            let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
            let block = self.buffer.split_to(end + 2);
            let text = String::from_utf8_lossy(&block[..end]);
            let data: Vec<_> = text
                .lines()
                .filter_map(|line| line.strip_prefix("data:"))
                .collect();
            if !data.is_empty() {
                return Some(data.join("\n").trim_start().to_owned());
            }
        }
    }
}

fn carries_output(event: &Value) -> bool {
    let choice = &event["choices"][0];
    let text = choice["text"]
        .as_str()
        .or_else(|| choice["delta"]["content"].as_str());
    text.is_some_and(|text| !text.is_empty())
}

/// A chat request with one user message, its answer exactly `max_tokens` long.
pub fn chat(model: &str, content: &str, max_tokens: u32, stream: bool) -> Value {
    let mut body = json!({
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "ignore_eos": true,
        "stream": stream,
    });
    if stream {
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

/// A completion of a text prompt.
pub fn completion(model: &str, prompt: &str, max_tokens: u32, stream: bool) -> Value {
    completion_of(model, &json!(prompt), max_tokens, stream)
}

/// A completion of token ids.
pub fn token_completion(model: &str, prompt: &[u32], max_tokens: u32, stream: bool) -> Value {
    completion_of(model, &json!(prompt), max_tokens, stream)
}

fn completion_of(model: &str, prompt: &Value, max_tokens: u32, stream: bool) -> Value {
    let mut body = json!({
        "model": model,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "ignore_eos": true,
        "stream": stream,
    });
    if stream {
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}
