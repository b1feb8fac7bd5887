//! Engines that announce their end: over the admin server's routes, on a fleet of pods.

use std::net::{IpAddr, SocketAddr};

use axum::{
    body::{Body, to_bytes},
    extract::ConnectInfo,
    http::{Method, Request},
};
use lmetric_epp::{
    admin::drain_router,
    discovery::{Endpoint, KnownPod},
    guard::Place,
    refusal::RefusalKind,
    scrape::EngineClient,
};
use lmetric_telemetry::{Admin, Logs, Readiness};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{
    engine::{Behaviour, Engine},
    stage::{SCRAPE, Stage, completion, endpoint},
};

/// Where the engines of these tests are, so where their pods are.
const POD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn of_pod(address: SocketAddr, uid: &str, incarnation: &str) -> Endpoint {
    Endpoint {
        pod: Some(uid.into()),
        incarnation: incarnation.to_owned(),
        ..endpoint(address)
    }
}

fn known(uid: &str, incarnation: &str) -> KnownPod {
    KnownPod {
        uid: uid.into(),
        ips: vec![POD],
        incarnation: incarnation.to_owned(),
    }
}

async fn ask(stage: &Stage, method: Method, uid: &str, peer: IpAddr) -> (u16, Value) {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("/drain/{uid}"))
        .body(Body::empty())
        .expect("a request");
    request
        .extensions_mut()
        .insert(ConnectInfo(SocketAddr::new(peer, 40_000)));
    let response = drain_router(stage.fleet.clone())
        .oneshot(request)
        .await
        .expect("an answer");
    let status = response.status().as_u16();
    let body = to_bytes(response.into_body(), 1 << 16).await.expect("a body");
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

fn ready(stage: &Stage) -> usize {
    let views = stage.scheduler.endpoints(stage.clock.now());
    views.iter().filter(|view| view.ready).count()
}

#[tokio::test]
async fn a_drain_takes_all_of_the_pods_endpoints_out_before_it_answers() {
    let engines = [
        Engine::start(Behaviour::default()).await,
        Engine::start(Behaviour::default()).await,
        Engine::start(Behaviour::default()).await,
    ];
    let mut stage = Stage::new();
    stage.pods.replace(vec![known("a", "1"), known("b", "1")]);
    let set = [
        of_pod(engines[0].address, "a", "1"),
        of_pod(engines[1].address, "a", "1"),
        of_pod(engines[2].address, "b", "1"),
    ];
    stage.reconciler.apply(&set);
    stage.ready(3).await;
    // copies of one prompt go to one endpoint each first: all three have one
    let mut placements = Vec::new();
    for at in 0..3 {
        let request = completion(&format!("r{at}"), 0..64);
        placements.push(stage.picker.place(request.into()).await.expect("placed"));
    }
    assert_eq!(
        ask(&stage, Method::GET, "a", POD).await,
        (200, json!({"inFlight": 2}))
    );
    assert_eq!(ready(&stage), 3, "looking changes nothing");
    assert_eq!(
        ask(&stage, Method::POST, "a", POD).await,
        (200, json!({"inFlight": 2}))
    );
    assert_eq!(ready(&stage), 1);
    // scrapes and sets that come later do not bring it back
    stage.reconciler.apply(&set);
    let scrapes = engines[0].scrapes();
    crate::stage::wait_for("another scrape", || engines[0].scrapes() > scrapes + 1).await;
    assert_eq!(ready(&stage), 1);
    drop(placements);
    assert_eq!(
        ask(&stage, Method::GET, "a", POD).await,
        (200, json!({"inFlight": 0}))
    );
    assert_eq!(
        ask(&stage, Method::POST, "b", POD).await,
        (200, json!({"inFlight": 0}))
    );
    let refused = stage.picker.place(completion("r", 0..64).into()).await;
    assert_eq!(
        refused.err().map(|refusal| refusal.kind),
        Some(RefusalKind::NoEndpoint)
    );
}

#[tokio::test]
async fn only_the_pod_itself_may_drain_it() {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    stage.pods.replace(vec![known("a", "1")]);
    stage.reconciler.apply(&[of_pod(engine.address, "a", "1")]);
    stage.ready(1).await;
    let stranger = IpAddr::from([10, 0, 0, 9]);
    for method in [Method::POST, Method::GET] {
        assert_eq!(ask(&stage, method.clone(), "a", stranger).await.0, 403);
        assert_eq!(ask(&stage, method, "nobody", POD).await.0, 404);
    }
    assert_eq!(ready(&stage), 1);
}

#[tokio::test]
async fn a_drain_ends_with_the_container_that_asked_for_it() {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    stage.pods.replace(vec![known("a", "1")]);
    stage.reconciler.apply(&[of_pod(engine.address, "a", "1")]);
    stage.ready(1).await;
    assert_eq!(ask(&stage, Method::POST, "a", POD).await.0, 200);
    stage.ready(0).await;
    stage.pods.replace(vec![known("a", "2")]);
    stage.reconciler.apply(&[of_pod(engine.address, "a", "2")]);
    stage.ready(1).await;
}

#[tokio::test]
async fn a_drain_that_comes_before_the_endpoint_counts_for_it() {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    stage.pods.replace(vec![known("a", "1")]);
    assert_eq!(
        ask(&stage, Method::POST, "a", POD).await,
        (200, json!({"inFlight": 0}))
    );
    stage.reconciler.apply(&[of_pod(engine.address, "a", "1")]);
    crate::stage::wait_for("a scrape", || engine.scrapes() > 1).await;
    assert_eq!(ready(&stage), 0);
}

#[tokio::test]
async fn the_admin_server_knows_who_asks() {
    let stage = Stage::new();
    stage.pods.replace(vec![known("a", "1")]);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let admin = Admin::new(
        listener,
        lmetric_telemetry::registry(),
        Readiness::default(),
        Logs::detached("info").expect("a filter"),
        drain_router(stage.fleet.clone()),
    );
    let address = admin.address().expect("an address");
    let token = CancellationToken::new();
    let server = tokio::spawn(admin.serve(token.clone()));
    let body = EngineClient::default()
        .get_body(address, "/drain/a", 1 << 10, SCRAPE.timeout)
        .await
        .expect("from the pod's own address");
    assert_eq!(body, br#"{"inFlight":0}"#);
    token.cancel();
    server.await.expect("joins").expect("serves");
}
