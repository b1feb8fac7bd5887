//! A headless Chromium, driven over the DevTools protocol: loads pages, asks them, takes pictures, and remembers what went wrong.
//!
//! The protocol runs over a pair of pipes (`--remote-debugging-pipe`), so no port is opened and no WebSocket is spoken.

mod pipe;
mod tab;

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::Context;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use pipe::Pipe;
pub use tab::{Look, Tab};

/// Names under which distributions install it.
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Gives the browser the pipes at the numbers where it looks for them: it reads 3 and writes 4.
const PIPES: &str = r#"exec 3<&0 4>&1 </dev/null >/dev/null; exec "$0" "$@""#;

const FLAGS: [&str; 16] = [
    "--headless",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--disable-features=Translate,MediaRouter,OptimizationHints",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--mute-audio",
];

/// There is no browser on this machine.
#[derive(Debug, thiserror::Error)]
#[error(
    "no Chromium is installed (looked for {} in PATH); Debian: apt-get install chromium, or set LMETRIC_CHROMIUM to a binary",
    NAMES.join(", ")
)]
pub struct NoBrowser;

/// A running browser. Dropping it kills it.
pub struct Browser {
    pipe: Pipe,
    _child: Child,
    _profile: TempDir,
}

impl Browser {
    /// The binary: `LMETRIC_CHROMIUM`, or what PATH has.
    pub fn path() -> Result<PathBuf, NoBrowser> {
        if let Some(path) = std::env::var_os("LMETRIC_CHROMIUM").filter(|path| !path.is_empty()) {
            return Ok(path.into());
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .flat_map(|folder| NAMES.map(|name| folder.join(name)))
            .find(|path| path.is_file())
            .ok_or(NoBrowser)
    }

    /// Starts the browser at `path`; what it says goes to `folder/chromium.log`.
    pub fn start(path: &Path, folder: &Path) -> anyhow::Result<Self> {
        let profile = tempfile::Builder::new().prefix("lmetric-chromium-").tempdir()?;
        let log = std::fs::File::create(folder.join("chromium.log"))?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", PIPES])
            .arg(path)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()));
        if rustix::process::geteuid().is_root() {
            command.arg("--no-sandbox");
        }
        let mut child = command
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", path.display()))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let pipe = Pipe::new(
            to.context("no pipe to the browser")?,
            from.context("no pipe from the browser")?,
        );
        Ok(Self {
            pipe,
            _child: child,
            _profile: profile,
        })
    }

    /// An empty tab.
    pub async fn tab(&self) -> anyhow::Result<Tab> {
        let made = self
            .pipe
            .call(None, "Target.createTarget", json!({"url": "about:blank"}))
            .await?;
        let attached = self
            .pipe
            .call(
                None,
                "Target.attachToTarget",
                json!({"targetId": made["targetId"], "flatten": true}),
            )
            .await?;
        let session = attached["sessionId"]
            .as_str()
            .with_context(|| format!("no session in {attached}"))?;
        Tab::new(self.pipe.clone(), session.to_owned()).await
    }
}
