//! The program itself: its output, its exit codes, its signals.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::{get, open, post, until};

struct Sim {
    child: Child,
    address: SocketAddr,
}

impl Sim {
    fn start(flags: &str) -> Self {
        let mut child = command(flags).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(ready["ready"], true);
        let address = ready["engines"][0]["http"]
            .as_str()
            .unwrap()
            .strip_prefix("http://")
            .unwrap();
        Self {
            child,
            address: address.parse().unwrap(),
        }
    }

    fn terminate(&self) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), Signal::TERM).unwrap();
    }

    async fn exit_code(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < Duration::from_secs(10), "it does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(flags: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vllm-sim"));
    command
        .args(["--first-address", "127.0.0.1"])
        .args(flags.split_whitespace());
    for port in ["--port", "--kv-port", "--replay-port"] {
        if !flags.split_whitespace().any(|flag| flag == port) {
            command.args([port, "0"]);
        }
    }
    command
}

fn refused(flags: &str) -> String {
    let Output { status, stderr, .. } = command(flags).output().unwrap();
    assert_eq!(status.code(), Some(2), "{flags}");
    String::from_utf8(stderr).unwrap()
}

#[test]
fn a_bad_flag_is_one_line_that_names_it_and_exit_2() {
    for (flags, named) in [
        ("--profile gpt-5", "--profile"),
        ("--speed 0", "--speed"),
        ("--gpu-memory-utilization 1.5", "--gpu-memory-utilization"),
        (
            "--max-model-len 131072 --num-gpu-blocks-override 28",
            "--max-model-len",
        ),
        (
            "--profile qwen3-30b-a3b --gpu-memory-utilization 0.5",
            "--max-model-len",
        ),
        ("--tokenizer /no/such/folder", "/no/such/folder"),
        ("--fault engine=9,kind=refuse", "--fault"),
        (
            "--kv-port 6000 --replay-port 6001 --data-parallel-size 2",
            "--replay-port",
        ),
    ] {
        let said = refused(flags);
        assert!(said.contains(named), "{flags}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
}

#[test]
fn a_port_that_is_taken_is_named_with_its_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for flag in ["--port", "--kv-port", "--replay-port"] {
        let said = refused(&format!("{flag} {port}"));
        let address = format!("127.0.0.1:{port}");
        assert!(
            said.contains(flag) && said.contains(&address) && said.contains("another port"),
            "{said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_code_is_told_at_run_time() {
    let mut sim = Sim::start("--speed 1");
    let answer = post(
        sim.address,
        "/sim/fault",
        &json!({"kind": "exit-code", "code": 137, "after": "50ms"}),
    )
    .await;
    assert_eq!(answer.status, 200);
    assert_eq!(sim.exit_code().await, Some(137));
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_waits_for_open_requests_as_long_as_it_may() {
    let mut sim = Sim::start("--speed 20 --shutdown-timeout 5s");
    let body = json!({"prompt": [1, 2, 3], "max_tokens": 1000, "stream": true});
    let (mut stream, mut bytes) = open(sim.address, "/v1/completions", &body).await;
    sim.terminate();
    tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut bytes)
        .await
        .unwrap();
    let reply = crate::support::Reply::parse(&bytes);
    assert_eq!(reply.events().len(), 1000);
    assert!(reply.complete);
    assert_eq!(sim.exit_code().await, Some(0));

    let mut sim = Sim::start("--speed 1");
    let (_stream, _) = open(sim.address, "/v1/completions", &body).await;
    let began = Instant::now();
    sim.terminate();
    assert_eq!(sim.exit_code().await, Some(0));
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "nothing to wait for: {:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_grows_to_its_limit_and_comes_back() {
    let sim = Sim::start("--speed 1");
    let resident = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", sim.child.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap()
            .to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    };
    let before = resident();
    post(
        sim.address,
        "/sim/fault",
        &json!({"kind": "grow-memory", "rate": "400M", "limit": "60M"}),
    )
    .await;
    until("it has grown", || async { resident() > before + (58 << 20) }).await;
    assert!(resident() < before + (80 << 20));
    assert_eq!(get(sim.address, "/health").await.status, 200);
}
