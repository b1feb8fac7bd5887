//! Draining Envoy itself: what the tool asks its admin for exists, and does what the tool believes.

mod support;

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lmetric_drain::{Ended, Pace, envoy::drain, http::ask};
use support::{Server, nobody};

const PATIENCE: Duration = Duration::from_secs(30);

struct Envoy(Child);

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One inbound listener in front of `engine`.
fn configuration(admin: SocketAddr, proxy: SocketAddr, engine: SocketAddr) -> String {
    let address = |of: SocketAddr| {
        format!(
            "{{socket_address: {{address: {}, port_value: {}}}}}",
            of.ip(),
            of.port()
        )
    };
    let (admin, proxy, engine) = (address(admin), address(proxy), address(engine));
    let types = "type.googleapis.com/envoy.extensions.filters";
    format!(
        r#"
admin: {{address: {admin}}}
static_resources:
  listeners:
  - name: openai
    address: {proxy}
    traffic_direction: INBOUND
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {types}.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: openai
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": {types}.http.router.v3.Router}}
          route_config:
            virtual_hosts:
            - {{name: all, domains: ["*"], routes: [{{match: {{prefix: /}}, route: {{cluster: engine, timeout: 0s}}}}]}}
  clusters:
  - name: engine
    load_assignment: {{cluster_name: engine, endpoints: [{{lb_endpoints: [{{endpoint: {{address: {engine}}}}}]}}]}}
"#
    )
}

#[test]
fn a_request_in_progress_ends_before_envoy_does_and_new_ones_are_turned_away() {
    let program =
        std::env::var_os("LMETRIC_ENVOY").map_or_else(|| package().join("../../.tools/envoy"), Into::into);
    if !program.exists() {
        println!("skipped: no Envoy at {}", program.display());
        return;
    }
    let engine = Server::start(|_, _| {
        thread::sleep(Duration::from_secs(3));
        Some((200, "done".to_owned()))
    });
    let (admin, proxy) = (nobody(), nobody());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("envoy.yaml");
    fs::write(&file, configuration(admin, proxy, engine.address)).unwrap();
    let _envoy = Envoy(
        Command::new(program)
            .arg("-c")
            .arg(&file)
            .args([
                "--disable-hot-restart",
                "--concurrency",
                "1",
                "--log-level",
                "error",
            ])
            .args(["--drain-time-s", "1", "--drain-strategy", "immediate"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let started = Instant::now();
    let ready = || ask("GET", admin, "/ready", Duration::from_secs(1)).map_or(0, |answer| answer.status);
    while ready() != 200 {
        assert!(started.elapsed() < PATIENCE, "Envoy does not start");
        thread::sleep(Duration::from_millis(50));
    }

    let request = thread::spawn(move || ask("GET", proxy, "/v1/chat/completions", PATIENCE));
    thread::sleep(Duration::from_millis(500));
    let pace = Pace {
        poll: Duration::from_millis(100),
        linger: Duration::ZERO,
        ..Pace::default()
    };
    let draining = Instant::now();
    let tool = thread::spawn(move || drain(admin, PATIENCE, pace));
    thread::sleep(Duration::from_millis(500));
    assert_eq!(ready(), 503, "the health check fails while it drains");
    assert_eq!(tool.join().unwrap(), Ended::Drained);
    assert!(
        draining.elapsed() >= Duration::from_millis(1_500),
        "{:?}",
        draining.elapsed()
    );
    assert_eq!(request.join().unwrap().unwrap().body, "done");
    assert!(TcpStream::connect(proxy).is_err(), "the port is closed");
}

/// This package's folder. Asked at run time: checkouts that share a target folder may share this program.
fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}
