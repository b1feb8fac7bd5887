//! The tools that a person holds, against a running stage.

use std::{
    net::{IpAddr, SocketAddr, TcpStream},
    process::Command,
    time::Duration,
};

use lmetric_testkit::{Plug, Process, Signal, Stage, Tool, token_completion, wait_until};

use crate::support::{post_as, quick, tokens, winner};

#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn explain_names_the_winner_of_a_request() {
    let stage = Stage::start(quick(Plug::Light)).await.unwrap();
    let body = token_completion(stage.model(), &tokens(1, 64), 2, false);
    post_as(&stage, "why-there", "/v1/completions", &body)
        .await
        .unwrap();
    let admin = format!("http://{}", stage.picker.admin_address());
    let output = Command::new(Tool::Cli.path().unwrap())
        .args(["explain", "--admin", &admin, "why-there"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let winner = winner(&stage, "why-there").await.unwrap().to_string();
    assert!(text.contains(&winner) && text.contains("why-there"), "{text}");
    for address in stage.engines.addresses() {
        assert!(
            text.contains(&address.to_string()),
            "every candidate is shown: {text}"
        );
    }
}

/// Only the demo gets the signal, as from `kill`: its children must not outlive it all the same.
#[tokio::test]
#[ignore = "needs the built programs and Envoy: make e2e"]
async fn an_interrupted_demo_leaves_nothing_running() {
    let folder = tempfile::tempdir().unwrap();
    let repository = crate::support::repository();
    let trace = repository.join("data/mooncake-conversation-10min.jsonl");
    let program = Tool::Demo.path().unwrap();
    let args = [
        "--engines",
        "4",
        "--policies",
        "lmetric",
        "--out",
        "out",
        "--trace",
        &trace.to_string_lossy(),
    ];
    let mut demo = Process::start("demo", &program, args, folder.path()).unwrap();
    let gateway: SocketAddr = wait_until("the replay to begin", Duration::from_mins(1), || {
        let output = demo.output();
        async move {
            let address = output
                .split("http://")
                .nth(1)
                .and_then(|rest| rest.split(';').next());
            address.and_then(|address| address.parse().ok()).ok_or(output)
        }
    })
    .await
    .unwrap();
    let IpAddr::V4(ip) = gateway.ip() else {
        panic!("{gateway}")
    };
    let [a, b, c, _] = ip.octets();
    let engine = SocketAddr::from(([a, b, c, 4], gateway.port() - 8_081 + 8_000));
    let picker = SocketAddr::from(([a, b, c, 251], gateway.port() - 8_081 + 9_002));
    let listeners = [gateway, picker, engine];
    for address in &listeners {
        TcpStream::connect(address).unwrap();
    }
    demo.signal(Signal::INT);
    let status = demo.wait(Duration::from_secs(10)).await.unwrap();
    assert_eq!(status.code(), Some(130));
    for address in &listeners {
        assert!(TcpStream::connect(address).is_err(), "{address} still listens");
    }
    assert!(demo.output().contains("interrupted"), "{}", demo.output());
}
