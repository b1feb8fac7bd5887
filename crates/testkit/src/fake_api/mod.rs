//! An API server in memory behind a real `kube::Client`: what it holds, what it was asked, and what it refuses.
//!
//! It knows get, list, watch, create, replace, merge patch, server-side apply and delete, resource versions, generations and the status
//! subresource. It checks no schema, sets no default, runs no controller and collects no garbage: tests of those need the real one.

mod place;
mod store;
mod watch;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Collected, Full, combinators::UnsyncBoxBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower_test::mock::{self, Handle};

use place::Place;
use store::{Store, Wrong};

/// Body of an answer.
type Answer = UnsyncBoxBody<Bytes, Infallible>;

/// One request as the server got it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// HTTP method.
    pub method: Method,
    /// Path without query.
    pub path: String,
    /// Query, undecoded.
    pub query: String,
    /// JSON body, null if none.
    pub body: Value,
}

/// Requests that are answered with an error.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// HTTP method.
    pub method: Method,
    /// Text that the path must contain.
    pub path: String,
    /// HTTP status.
    pub code: u16,
    /// Reason of the `Status` object, such as `Forbidden`.
    pub reason: String,
    /// What is wrong.
    pub message: String,
    /// How many requests; more are let through.
    pub times: usize,
}

#[derive(Default)]
struct State {
    store: Store,
    calls: Vec<Call>,
    refusals: Vec<Refusal>,
    installed: BTreeMap<String, Value>,
}

/// The server. Dropping it makes every further request fail.
pub struct FakeApi {
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl std::fmt::Debug for FakeApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeApi").finish_non_exhaustive()
    }
}

impl Drop for FakeApi {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeApi {
    /// A client and the empty server behind it. Needs a tokio runtime.
    pub fn start() -> (kube::Client, Self) {
        let (service, handle) = mock::pair::<Request<Body>, Response<Answer>>();
        let state = Arc::new(Mutex::new(State::default()));
        let task = tokio::spawn(serve(handle, Arc::clone(&state)));
        (kube::Client::new(service, "default"), Self { state, task })
    }

    /// Stores an object as if somebody else had written it; `path` as of [`crate::cluster::path`].
    pub fn put(&self, path: &str, object: Value) -> Value {
        let place = Place::read(path).expect("a path such as /api/v1/namespaces/a/pods/b");
        self.state.lock().store.put(&place, object)
    }

    /// Changes a stored object as somebody else might.
    pub fn edit(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.object(path).expect("an object at the path");
        change(&mut object);
        self.put(path, object);
    }

    /// What is stored.
    pub fn object(&self, path: &str) -> Option<Value> {
        self.state.lock().store.get(path).cloned()
    }

    /// Paths of everything that is stored, sorted.
    pub fn paths(&self) -> Vec<String> {
        self.state.lock().store.paths()
    }

    /// Removes an object.
    pub fn remove(&self, path: &str) {
        let place = Place::read(path).expect("a path such as /api/v1/namespaces/a/pods/b");
        let _ = self.state.lock().store.delete(&place);
    }

    /// Removes an object without a word to those who watch, and tells them that what they know is too old (410 Gone).
    pub fn remove_and_expire(&self, path: &str) {
        let place = Place::read(path).expect("a path such as /api/v1/namespaces/a/pods/b");
        self.state.lock().store.remove_and_expire(&place);
    }

    /// Installs an optional API, such as `monitoring.coreos.com/v1` with `PodMonitor`, or removes it when it has no kinds.
    pub fn install(&self, version: &str, kinds: &[&str]) {
        let resources: Vec<_> = kinds
            .iter()
            .map(|kind| {
                let singular = kind.to_lowercase();
                json!({
                    "name": format!("{singular}s"), "singularName": singular, "kind": kind, "namespaced": true,
                    "verbs": ["create", "delete", "get", "list", "patch", "watch"],
                })
            })
            .collect();
        let installed = &mut self.state.lock().installed;
        if resources.is_empty() {
            installed.remove(&format!("/apis/{version}"));
        } else {
            let list = json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources,
            });
            installed.insert(format!("/apis/{version}"), list);
        }
    }

    /// Every request so far.
    pub fn calls(&self) -> Vec<Call> {
        self.state.lock().calls.clone()
    }

    /// Every request so far that was no read, and forgets all.
    pub fn take_writes(&self) -> Vec<Call> {
        let calls = std::mem::take(&mut self.state.lock().calls);
        calls
            .into_iter()
            .filter(|call| call.method != Method::GET)
            .collect()
    }

    /// Refuses requests from now on.
    pub fn refuse(&self, refusal: Refusal) {
        self.state.lock().refusals.push(refusal);
    }
}

async fn serve(mut handle: Handle<Request<Body>, Response<Answer>>, state: Arc<Mutex<State>>) {
    while let Some((request, reply)) = handle.next_request().await {
        let (parts, body) = request.into_parts();
        // bodies are in memory: no other request waits for this one
        let bytes = body.collect().await.map(Collected::to_bytes);
        let call = Call {
            method: parts.method,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            body: bytes
                .ok()
                .and_then(|bytes| serde_json::from_slice(&bytes).ok())
                .unwrap_or_default(),
        };
        let content_type = parts
            .headers
            .get("content-type")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        reply.send_response(answer(&mut state.lock(), call, &content_type));
    }
}

fn answer(state: &mut State, call: Call, content_type: &str) -> Response<Answer> {
    let refusal = state.refusals.iter_mut().find(|refusal| {
        refusal.times > 0 && refusal.method == call.method && call.path.contains(&refusal.path)
    });
    let result = match refusal {
        Some(refusal) => {
            refusal.times -= 1;
            Err(Wrong::new(refusal.code, &refusal.reason, &refusal.message))
        }
        None => match state.installed.get(&call.path) {
            Some(list) if call.method == Method::GET => Ok(respond(200, list)),
            _ => handle(&mut state.store, &call, content_type),
        },
    };
    state.calls.push(call);
    match result {
        Ok(response) => response,
        Err(wrong) => respond(wrong.code, &wrong.status()),
    }
}

fn handle(store: &mut Store, call: &Call, content_type: &str) -> Result<Response<Answer>, Wrong> {
    let asked = |name: &str| {
        call.query
            .split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    };
    let place = Place::read(&call.path).ok_or_else(|| Wrong::not_found(&call.path))?;
    if call.method == Method::GET && place.name.is_empty() {
        return Ok(if asked("watch") == Some("true") || asked("watch") == Some("1") {
            let from = asked("resourceVersion")
                .and_then(|version| version.parse().ok())
                .unwrap_or(0);
            let snapshot = asked("sendInitialEvents") == Some("true");
            Response::new(watch::body(store.watch(&place, from, snapshot)))
        } else {
            respond(
                200,
                &store.list(&place, asked("labelSelector").unwrap_or_default()),
            )
        });
    }
    let object = match call.method {
        Method::GET => store
            .get(&place.path())
            .cloned()
            .ok_or_else(|| Wrong::not_found(&call.path))?,
        Method::POST => store.create(&place, call.body.clone())?,
        Method::PUT => store.replace(&place, call.body.clone())?,
        Method::PATCH if content_type.contains("apply-patch") => store.apply(
            &place,
            call.body.clone(),
            asked("fieldManager").unwrap_or_default(),
        )?,
        Method::PATCH => store.merge(&place, &call.body)?,
        Method::DELETE => store.delete(&place)?,
        _ => return Err(Wrong::new(405, "MethodNotAllowed", "not known to this server")),
    };
    Ok(respond(
        if call.method == Method::POST { 201 } else { 200 },
        &object,
    ))
}

fn respond(code: u16, body: &Value) -> Response<Answer> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

impl Wrong {
    fn status(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        })
    }
}

#[cfg(test)]
mod tests;
