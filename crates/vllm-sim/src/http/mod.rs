//! vLLM's HTTP interface, as far as clients and routers use it.

mod body;
mod chat;
mod completions;
mod error;
mod generate;
mod generation;
mod info;
mod messages;
mod params;
mod responses;
mod shape;
mod stream;
mod tokenize;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use lmetric_tokenize::ChatRequest;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use crate::driver::Command;
use crate::fault::{Fault, FaultAt};
use crate::faults::Faults;
use crate::metrics;
use crate::site::Site;

pub(crate) use body::{Answer, SimBody};
pub(crate) use error::ApiError;

use body::{answer, empty_answer, json_answer};
use generation::Generation;
use params::{Api, Fields, Params};
use shape::Envelope;
use stream::{Events, TokenStream};

/// Largest request body.
const BODY: usize = 256 << 20;

/// Answers one request to an engine.
pub(crate) async fn respond(site: Arc<Site>, faults: Faults, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    if path.starts_with("/sim/") {
        return sim(&site, &faults, &path, request).await;
    }
    match site.fault() {
        Fault::Hang | Fault::Crash => std::future::pending().await,
        Fault::Status(status) if !is_probe(&path) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
            let text = format!("told to answer {status}");
            let error = json!({"error": {"message": text, "type": "Service Unavailable", "param": null, "code": status.as_u16()}});
            return json_answer(status, &error);
        }
        Fault::Die if path == "/health" => return empty_answer(StatusCode::SERVICE_UNAVAILABLE),
        Fault::Die if !is_probe(&path) => return ApiError::engine_dead().answer(),
        _ => {}
    }
    let request_id = Envelope::new("", request.headers()).request_id;
    let mut answer = route(&site, &path, request).await;
    if let Ok(id) = HeaderValue::from_str(&request_id) {
        answer.headers_mut().insert("x-request-id", id);
    }
    answer
}

fn is_probe(path: &str) -> bool {
    matches!(
        path,
        "/health" | "/ping" | "/metrics" | "/version" | "/load" | "/v1/models" | "/kv_event_sources"
    )
}

const POSTED: [&str; 13] = [
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/responses",
    "/inference/v1/generate",
    "/tokenize",
    "/v1/completions/render",
    "/v1/chat/completions/render",
    "/v1/messages/render",
    "/v1/responses/render",
    "/v1/messages/count_tokens",
    "/reset_prefix_cache",
    "/v1/load_lora_adapter",
];

async fn route(site: &Arc<Site>, path: &str, request: Request<Incoming>) -> Answer {
    let method = request.method().clone();
    let settings = site.settings();
    let shown = match path {
        "/health" | "/ping" => return empty_answer(StatusCode::OK),
        "/metrics" => {
            let page = Bytes::from(metrics::page(site));
            return answer(StatusCode::OK, Some(metrics::CONTENT_TYPE), SimBody::Full(page));
        }
        "/version" => Some(json!({"version": "0.32.0"})),
        "/load" => Some(json!({"server_load": site.open.load(std::sync::atomic::Ordering::Relaxed)})),
        "/v1/models" => Some(info::models(settings)),
        "/kv_event_sources" if !site.sources.is_empty() => Some(info::event_sources(site)),
        "/is_sleeping" => Some(json!({"is_sleeping": false})),
        "/is_paused" => Some(json!({"is_paused": false})),
        _ => None,
    };
    if let Some(shown) = shown {
        if method != Method::GET && method != Method::HEAD {
            return not_allowed("GET");
        }
        return json_answer(StatusCode::OK, &shown);
    }
    if !POSTED.contains(&path) {
        return json_answer(StatusCode::NOT_FOUND, &json!({"detail": "Not Found"}));
    }
    if method != Method::POST {
        return not_allowed("POST");
    }
    if path == "/reset_prefix_cache" {
        let preempt = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("reset_running_requests=true"));
        return reset_prefix_cache(site, preempt).await;
    }
    let (parts, body) = request.into_parts();
    let Ok(body) = Limited::new(body, BODY).collect().await else {
        return ApiError::bad(format!("the body is cut or larger than {BODY} bytes"), None).answer();
    };
    let arrived = site.driver().clock().now();
    let body = body.to_bytes();
    match post(site, path, &parts.headers, &body, arrived).await {
        Ok(answer) => answer,
        Err(error) => error.answer(),
    }
}

fn not_allowed(allowed: &'static str) -> Answer {
    let mut answer = json_answer(
        StatusCode::METHOD_NOT_ALLOWED,
        &json!({"detail": "Method Not Allowed"}),
    );
    answer
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(allowed));
    answer
}

async fn reset_prefix_cache(site: &Site, preempt: bool) -> Answer {
    let mut success = true;
    for lane in site.lanes.clone() {
        let (done, wait) = oneshot::channel();
        site.driver()
            .send(Command::ResetPrefixCache { lane, preempt, done });
        success &= wait.await.unwrap_or(false);
    }
    json_answer(StatusCode::OK, &json!({"success": success}))
}

async fn post(
    site: &Arc<Site>,
    path: &str,
    headers: &HeaderMap,
    body: &[u8],
    arrived: Duration,
) -> Result<Answer, ApiError> {
    let json = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        value.to_str().is_ok_and(|value| {
            value
                .trim_start()
                .to_ascii_lowercase()
                .starts_with("application/json")
        })
    });
    if !json && !body.is_empty() {
        return Err(ApiError::media_type());
    }
    let fields = Fields::parse(body)?;
    let settings = site.settings();
    let ok = |value: &Value| json_answer(StatusCode::OK, value);
    let read: chat::Reader = match path {
        "/v1/messages" | "/v1/messages/render" => ChatRequest::from_anthropic,
        "/v1/responses" | "/v1/responses/render" => ChatRequest::from_responses,
        _ => ChatRequest::from_openai,
    };
    match path {
        "/tokenize" => return tokenize::tokenize(body, &fields, settings).map(|value| ok(&value)),
        "/v1/completions/render" => {
            let envelope = Envelope::new("cmpl", headers);
            return tokenize::render_completions(&fields, &envelope, settings).map(|value| ok(&value));
        }
        "/v1/chat/completions/render" | "/v1/messages/render" | "/v1/responses/render" => {
            let envelope = Envelope::new("chatcmpl", headers);
            return tokenize::render_chat(body, &fields, read, &envelope, settings).map(|value| ok(&value));
        }
        "/v1/messages/count_tokens" => {
            return tokenize::count_tokens(body, &fields, settings).map(|value| ok(&value));
        }
        _ => {}
    }
    let (api, prefix) = match path {
        "/v1/completions" => (Api::Completions, "cmpl"),
        "/v1/messages" => (Api::Messages, "chatcmpl"),
        "/v1/responses" => (Api::Responses, "resp"),
        "/inference/v1/generate" => (Api::Generate, "generate-tokens"),
        "/v1/chat/completions" => (Api::Chat, "chatcmpl"),
        _ => {
            return Ok(json_answer(
                StatusCode::NOT_FOUND,
                &json!({"detail": "Not Found"}),
            ));
        }
    };
    let params = Params::read(api, &fields, headers, settings)?;
    let envelope = Envelope::new(prefix, headers);
    let prompts = match api {
        Api::Completions => completions::prompts(&fields, settings)?,
        Api::Generate => vec![generate::prompt(&fields)?],
        Api::Chat | Api::Messages | Api::Responses => {
            vec![chat::prompt(body, &fields, read, settings)?.into()]
        }
    };
    params.check_sequences(prompts.len())?;
    let max_output_tokens = fields.get("max_output_tokens").unwrap_or_default();
    let generation = Generation::start(site, prompts.clone(), &params, arrived)?;
    let choices = generation.choices().len();
    let response_shape = || responses::ResponseShape::new(&envelope, &params, max_output_tokens);
    let orca = site.orca_header(headers);
    let mut answer = if params.stream {
        let events: Box<dyn Events> = match api {
            Api::Completions => Box::new(completions::CompletionEvents::new(
                &envelope, params, settings, choices,
            )),
            Api::Chat => Box::new(chat::ChatEvents::new(&envelope, params, settings, choices)),
            Api::Messages => Box::new(messages::MessageEvents::new(&envelope, &params)),
            Api::Responses => Box::new(responses::ResponseEvents::new(response_shape())),
            Api::Generate => Box::new(generate::GenerateEvents::new(&envelope, &params, settings)),
        };
        let stream = Box::new(TokenStream::new(generation, events));
        answer(
            StatusCode::OK,
            Some("text/event-stream; charset=utf-8"),
            SimBody::Stream(stream),
        )
    } else {
        let stops: Vec<bool> = generation.choices().iter().map(|choice| choice.stops).collect();
        let finish = generation.finish().await?;
        ok(&match api {
            Api::Completions => completions::answer(&envelope, &params, settings, &prompts, &finish, &stops),
            Api::Chat => chat::answer(&envelope, &params, settings, &prompts[0], &finish, &stops),
            Api::Messages => messages::answer(&envelope, &params, settings, &finish, stops[0]),
            Api::Responses => responses::answer(&response_shape(), settings, &finish, stops[0]),
            Api::Generate => generate::answer(&envelope, &params, settings, &finish, &stops),
        })
    };
    if let Some(orca) = orca {
        answer.headers_mut().insert("endpoint-load-metrics", orca);
    }
    Ok(answer)
}

/// What no vLLM has: state and faults.
async fn sim(site: &Arc<Site>, faults: &Faults, path: &str, request: Request<Incoming>) -> Answer {
    match (path, request.method()) {
        ("/sim/state", &Method::GET) => json_answer(StatusCode::OK, &info::state(site)),
        ("/sim/fault", &Method::POST) => {
            let body = Limited::new(request.into_body(), 1 << 16).collect().await;
            let fields = body
                .ok()
                .and_then(|body| serde_json::from_slice::<Map<String, Value>>(&body.to_bytes()).ok());
            let Some(fields) = fields else {
                return ApiError::bad("the body is no JSON object: send {\"kind\": \"refuse\"}", None)
                    .answer();
            };
            match FaultAt::from_json(&fields).and_then(|fault| faults.plan(fault, site.index)) {
                Ok(()) => json_answer(StatusCode::OK, &json!({"success": true})),
                Err(error) => ApiError::bad(error.to_string(), None).answer(),
            }
        }
        _ => json_answer(StatusCode::NOT_FOUND, &json!({"detail": "Not Found"})),
    }
}
