use std::process::Command;

use super::*;
use crate::{build::testing, testing::repository, validated::Listeners};

fn built(changes: Value, tls: bool) -> Value {
    let mut validated = testing::pool(changes);
    validated.way_in.listeners = if tls { Listeners::Tls } else { Listeners::Plaintext };
    serde_yaml::from_str(&yaml(&validated)).unwrap()
}

fn routes(bootstrap: &Value) -> &Value {
    &bootstrap["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]
        ["virtual_hosts"][0]["routes"]
}

#[test]
fn without_a_pick_a_closed_pool_answers_503_and_an_open_one_asks_any_engine() {
    let closed = built(json!({}), false);
    assert_eq!(routes(&closed)[0]["route"]["cluster"], "engines");
    assert_eq!(routes(&closed)[1]["direct_response"]["status"], 503);
    let open = built(
        json!({"routing": {"failureMode": "FailOpen"}, "parallelism": {"data": 2}}),
        false,
    );
    assert_eq!(routes(&open)[1]["route"]["cluster"], "any-engine");
    let endpoints =
        &open["static_resources"]["clusters"][3]["load_assignment"]["endpoints"][0]["lb_endpoints"];
    let address = |at: usize| endpoints[at]["endpoint"]["address"]["socket_address"].clone();
    let host = "qwen-engine.models.svc.cluster.local.";
    assert_eq!(address(0), json!({"address": host, "port_value": 8000}));
    assert_eq!(address(1), json!({"address": host, "port_value": 8001}));
}

#[test]
fn the_body_of_the_503_is_an_error_as_clients_of_openai_know_it() {
    let body: Value = serde_json::from_str(NO_PICK).unwrap();
    assert_eq!(body["error"]["code"], 503);
}

#[test]
fn only_loopback_reaches_the_admin_and_the_status_listener_shows_two_paths() {
    let bootstrap = built(json!({}), false);
    assert_eq!(
        bootstrap["admin"]["address"]["socket_address"]["address"],
        "127.0.0.1"
    );
    let status = &bootstrap["static_resources"]["listeners"][1];
    let paths: Vec<_> = status["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]["virtual_hosts"][0]
        ["routes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|route| route["match"].clone())
        .collect();
    assert_eq!(
        json!(paths),
        json!([{"path": "/ready"}, {"path": "/stats/prometheus"}])
    );
}

#[test]
fn the_picker_is_asked_over_tls_only_where_it_serves_tls() {
    let picker = |tls| built(json!({}), tls)["static_resources"]["clusters"][1].clone();
    assert_eq!(picker(false)["transport_socket"], Value::Null);
    assert_eq!(
        picker(true)["transport_socket"]["name"],
        "envoy.transport_sockets.tls"
    );
}

/// What the shipped configuration says in `part`.
fn shipped(part: impl Fn(&Value) -> Value) -> Value {
    let file = repository().join("envoy/light.yaml");
    let mut yaml: Value = serde_yaml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    part(&mut yaml["static_resources"].take())
}

#[test]
fn engines_and_processing_are_those_of_the_shipped_configuration() {
    let ours = built(json!({}), true)["static_resources"].clone();
    let cluster = |from: &Value, name: &str| {
        let clusters = from["clusters"].as_array().unwrap();
        clusters
            .iter()
            .find(|cluster| cluster["name"] == name)
            .unwrap()
            .clone()
    };
    let filter = |from: &Value| {
        from["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"][0]["typed_config"]
            .clone()
    };
    assert_eq!(
        cluster(&ours, "engines"),
        shipped(|from| cluster(from, "engines"))
    );
    for part in [
        "health_checks",
        "circuit_breakers",
        "transport_socket",
        "typed_extension_protocol_options",
    ] {
        assert_eq!(
            cluster(&ours, "picker")[part],
            shipped(|from| cluster(from, "picker"))[part],
            "{part}"
        );
    }
    for part in ["processing_mode", "failure_mode_allow", "message_timeout"] {
        assert_eq!(filter(&ours)[part], shipped(filter)[part], "{part}");
    }
}

#[test]
fn envoy_itself_accepts_every_form() {
    let envoy =
        std::env::var_os("LMETRIC_ENVOY").map_or_else(|| repository().join(".tools/envoy"), Into::into);
    if !envoy.exists() {
        println!(
            "skipped: no Envoy at {}; `make tools` installs it",
            envoy.display()
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for mode in ["FailClose", "FailOpen"] {
        for tls in [false, true] {
            let mut validated = testing::pool(json!({"routing": {"failureMode": mode}}));
            validated.way_in.listeners = if tls { Listeners::Tls } else { Listeners::Plaintext };
            let file = folder.path().join(format!("{mode}-{tls}.yaml"));
            std::fs::write(&file, yaml(&validated)).unwrap();
            let output = Command::new(&envoy)
                .args(["--mode", "validate", "--log-level", "warning", "-c"])
                .arg(&file)
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{mode} tls={tls}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            let warnings = String::from_utf8_lossy(&output.stderr);
            assert!(!warnings.contains("deprecated"), "{warnings}");
        }
    }
}
