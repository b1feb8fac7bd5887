//! kubectl and helm, as a person runs them.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::Cluster;

/// The longest that a command may take.
const PATIENCE: Duration = Duration::from_mins(3);

/// What a command said.
#[derive(Clone, Debug)]
pub struct Output {
    /// It ended with 0.
    pub ok: bool,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Cluster {
    /// `kubectl ARGS`; an error unless it ends with 0.
    pub async fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        self.must("kubectl", args, "").await
    }

    /// `kubectl apply -f -` with further arguments.
    pub async fn apply(&self, yaml: &str, args: &[&str]) -> anyhow::Result<String> {
        self.must("kubectl", &[&["apply", "-f", "-"], args].concat(), yaml)
            .await
    }

    /// `helm ARGS`; an error unless it ends with 0.
    pub async fn helm(&self, args: &[&str]) -> anyhow::Result<String> {
        self.must("helm", args, "").await
    }

    /// Any program, whatever it ends with, in the repository's root.
    pub async fn command(&self, program: &str, args: &[&str], input: &str) -> anyhow::Result<Output> {
        let what = || format!("{program} {}", args.join(" "));
        let mut child = Command::new(program)
            .args(args)
            .current_dir(&self.root)
            .env("KUBECONFIG", self.state.join("admin.kubeconfig"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(what)?;
        let mut stdin = child.stdin.take().context("no standard input")?;
        let feed = async move {
            // a program that does not read its input may close it
            let _ = stdin.write_all(input.as_bytes()).await;
        };
        let run = async { tokio::join!(feed, child.wait_with_output()).1 };
        let done = tokio::time::timeout(PATIENCE, run)
            .await
            .with_context(|| format!("{}: still running after {PATIENCE:?}", what()))??;
        Ok(Output {
            ok: done.status.success(),
            out: String::from_utf8_lossy(&done.stdout).into_owned(),
            err: String::from_utf8_lossy(&done.stderr).into_owned(),
        })
    }

    async fn must(&self, program: &str, args: &[&str], input: &str) -> anyhow::Result<String> {
        let Output { ok, out, err } = self.command(program, args, input).await?;
        if !ok {
            bail!("{program} {}: {err}{out}", args.join(" "));
        }
        Ok(out)
    }
}
