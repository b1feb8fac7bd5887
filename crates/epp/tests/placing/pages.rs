//! The admin pages, over HTTP.

use std::net::SocketAddr;

use lmetric_epp::{
    admin::{Pages, router},
    guard::Place,
    metrics::Export,
    scrape::EngineClient,
};
use lmetric_telemetry::{Admin, Logs, Readiness};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    engine::{Behaviour, Engine},
    stage::{SCRAPE, Stage, completion, endpoint},
};

async fn get(address: SocketAddr, path: &str) -> String {
    let body = EngineClient::default()
        .get_body(address, path, 1 << 20, SCRAPE.timeout)
        .await
        .expect(path);
    String::from_utf8(body).expect("text")
}

#[tokio::test]
async fn endpoints_decisions_and_metrics_tell_what_is() {
    let engine = Engine::start(Behaviour::default()).await;
    let mut stage = Stage::new();
    stage.reconciler.apply(&[endpoint(engine.address)]);
    stage.ready(1).await;
    let mut registry = std::mem::take(&mut stage.registry);
    registry.register_collector(Box::new(Export {
        scheduler: stage.scheduler.clone(),
        index: stage.index.clone(),
        fleet: stage.fleet.clone(),
        clock: stage.clock,
    }));
    let pages = Pages {
        scheduler: stage.scheduler.clone(),
        fleet: stage.fleet.clone(),
        ladder: stage.ladder.clone(),
        clock: stage.clock,
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let admin = Admin::new(
        listener,
        registry,
        Readiness::default(),
        Logs::detached("info").expect("a filter"),
        router(pages),
    );
    let address = admin.address().expect("an address");
    let token = CancellationToken::new();
    let server = tokio::spawn(admin.serve(token.clone()));

    let mut open = Vec::new();
    for at in 0..3_u32 {
        let request = completion(&format!("r{at}"), 0..100);
        open.push(stage.picker.place(request.into()).await.expect("placed"));
    }
    let page: Value = serde_json::from_str(&get(address, "/debug/endpoints").await).expect("JSON");
    let first = &page["endpoints"][0];
    assert_eq!(first["address"], engine.address.to_string());
    assert_eq!(first["bs"], 3);
    assert_eq!(first["source"]["state"], "live");
    assert_eq!(first["tokens"]["rung"], "engine");
    assert_eq!(first["block_size"], 16);

    let page: Value = serde_json::from_str(&get(address, "/debug/decisions?n=2").await).expect("JSON");
    let ids: Vec<&str> = page["decisions"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|decision| decision["request_id"].as_str())
        .collect();
    assert_eq!(ids, ["r2", "r1"], "newest first");
    let page: Value = serde_json::from_str(&get(address, "/debug/decisions?id=r0").await).expect("JSON");
    assert_eq!(page["decisions"].as_array().map(Vec::len), Some(1));
    assert_eq!(page["decisions"][0]["winner"], engine.address.to_string());

    let page = get(address, "/metrics").await;
    let label = format!("{{endpoint=\"{}\",rank=\"\"", engine.address);
    for line in [
        "lmetric_picks_total 3".to_owned(),
        "lmetric_open_requests 3".to_owned(),
        format!("lmetric_endpoint_requests{label}}} 3"),
        format!("lmetric_source_state{label},state=\"live\"}} 1"),
        "lmetric_pick_duration_seconds_count 3".to_owned(),
        "lmetric_token_requests_total{rung=\"request\"} 3".to_owned(),
    ] {
        assert!(page.contains(&line), "{line} is not in\n{page}");
    }
    drop(open);
    token.cancel();
    server.await.expect("joins").expect("serves");
}
