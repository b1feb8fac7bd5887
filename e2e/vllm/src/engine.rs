//! One real vLLM engine on loopback, started and stopped by the Python scripts.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

/// The name that the engines serve their model under.
pub(crate) const MODEL: &str = "tiny-qwen2";

/// A running engine; dropping it stops it.
#[derive(Debug)]
pub(crate) struct Engine {
    address: SocketAddr,
    events: u16,
    state: PathBuf,
    python: PathBuf,
    stop: PathBuf,
}

impl Engine {
    /// Starts engine `number` and waits until it is healthy.
    pub(crate) async fn start(number: u16, venv: &Path, files: &Path, folder: &Path) -> anyhow::Result<Self> {
        let (port, events) = (8_100 + number, 5_600 + number);
        let python = venv.join("bin/python");
        ensure!(
            python.exists(),
            "{} does not exist; run `make e2e-vllm`, which installs vLLM there",
            python.display()
        );
        let files = files
            .canonicalize()
            .with_context(|| format!("{}", files.display()))?;
        let [state, log] = ["json", "log"].map(|kind| folder.join(format!("vllm-{number}.{kind}")));
        let output = tokio::process::Command::new(&python)
            .arg(files.join("python/start_vllm.py"))
            .args(["--port", &port.to_string(), "--kv-port", &events.to_string()])
            .args([
                "--block-size",
                "32",
                "--model",
                MODEL,
                "--served-model-name",
                MODEL,
            ])
            .arg("--model-root")
            .arg(files.join("model"))
            .arg("--state")
            .arg(&state)
            .arg("--log")
            .arg(&log)
            .args(["--", "--enable-lora", "--max-loras", "2", "--max-lora-rank", "8"])
            .args(["--lora-modules", "lora-a=lora-a", "lora-b=lora-b"])
            .args(["--enable-auto-tool-choice", "--tool-call-parser", "hermes"])
            .env("OMP_NUM_THREADS", "1")
            .stdin(Stdio::null())
            .output()
            .await?;
        let engine = Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            events,
            state,
            stop: files.join("python/stop_vllm.py"),
            python,
        };
        ensure!(
            output.status.success(),
            "vLLM {number} did not start: {}\n{}",
            String::from_utf8_lossy(&output.stderr),
            tail(&log)
        );
        Ok(engine)
    }

    /// Where it serves.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its entry of an endpoints file.
    pub(crate) fn entry(&self) -> Value {
        json!({
            "address": self.address.to_string(),
            "model": MODEL,
            "events": format!("tcp://127.0.0.1:{}", self.events),
            "replay": format!("tcp://127.0.0.1:{}", self.events + 100),
        })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let stopped = std::process::Command::new(&self.python)
            .arg(&self.stop)
            .arg(&self.state)
            .stdout(Stdio::null())
            .status();
        if !stopped.is_ok_and(|status| status.success()) {
            eprintln!("e2e-vllm: the engine at {} may still run", self.address);
        }
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().rev().take(30).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
