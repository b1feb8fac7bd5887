//! Child processes: found, started with their output in a file, signalled, awaited, and killed on drop.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

use crate::wait::wait_until;

/// A program that tests start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The proxy.
    Envoy,
    /// The endpoint picker.
    Picker,
    /// The simulated engines.
    VllmSim,
    /// The command-line tool.
    Cli,
    /// The demo's driver.
    Demo,
}

/// A program is not where it should be.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// Envoy is neither in `LMETRIC_ENVOY` nor in `.tools`.
    #[error(
        "envoy is not installed (looked for .tools/envoy from {from} upwards); run `make tools`, or set LMETRIC_ENVOY to a binary"
    )]
    NoEnvoy {
        /// Where the search began.
        from: PathBuf,
    },
    /// One of our own binaries is not built.
    #[error("{path} is not built; run `make build`, or set LMETRIC_BIN_DIR to the folder that holds it")]
    NotBuilt {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The running executable has no path.
    #[error("cannot tell where this executable is: {0}")]
    NoSelf(#[source] std::io::Error),
}

impl Tool {
    /// The binary: `LMETRIC_ENVOY` or `.tools/envoy` up the tree for Envoy; for ours `LMETRIC_BIN_DIR`, else the folder of this
    /// executable, or the one above when that is cargo's `deps`.
    pub fn path(self) -> Result<PathBuf, ToolError> {
        let name = match self {
            Self::Envoy => return envoy_path(),
            Self::Picker => "lmetric-epp",
            Self::VllmSim => "vllm-sim",
            Self::Cli => "lmetric",
            Self::Demo => "lmetric-demo",
        };
        let folder = match std::env::var_os("LMETRIC_BIN_DIR") {
            Some(folder) => PathBuf::from(folder),
            None => beside_this_executable()?,
        };
        let path = folder.join(name);
        if path.is_file() {
            Ok(path)
        } else {
            Err(ToolError::NotBuilt { path })
        }
    }
}

fn beside_this_executable() -> Result<PathBuf, ToolError> {
    let exe = std::env::current_exe().map_err(ToolError::NoSelf)?;
    let folder = exe.parent().unwrap_or(Path::new("/"));
    let is_deps = folder
        .file_name()
        .is_some_and(|name| name == "deps" || name == "examples");
    Ok(if is_deps {
        folder.parent().unwrap_or(folder)
    } else {
        folder
    }
    .to_path_buf())
}

fn envoy_path() -> Result<PathBuf, ToolError> {
    if let Some(path) = std::env::var_os("LMETRIC_ENVOY") {
        return Ok(PathBuf::from(path));
    }
    let from = package();
    let found = from
        .ancestors()
        .map(|folder| folder.join(".tools/envoy"))
        .find(|path| path.exists());
    found.ok_or(ToolError::NoEnvoy { from })
}

/// A running child. Dropping it kills it; if the thread is panicking, the end of its output is printed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program`, its output (both streams) appended to `folder/name.log`.
    pub fn start<S: AsRef<std::ffi::OsStr>>(
        name: &str,
        program: &Path,
        args: impl IntoIterator<Item = S>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log)?;
        let child = Command::new(program)
            .args(args)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .map_err(|error| anyhow::anyhow!("cannot start {}: {error}", program.display()))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Its name, as given to [`Process::start`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has written so far.
    pub fn output(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Sends a signal; one to a process that has ended is ignored.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for it to end by itself.
    pub async fn wait(&mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        let child = &mut self.child;
        let status = wait_until(&what, limit, || {
            let seen = match child.try_wait() {
                Ok(Some(status)) => Ok(status),
                Ok(None) => Err("still running".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            std::future::ready(seen)
        });
        Ok(status.await?)
    }

    /// SIGKILL, and waits until the kernel has taken it away.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The last `bytes` of its output.
    pub fn tail(&self, bytes: u64) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = File::open(&self.log)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
            let mut tail = Vec::new();
            file.read_to_end(&mut tail)?;
            Ok(String::from_utf8_lossy(&tail).into_owned())
        };
        read().unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let ended = self.ended();
        self.kill();
        if std::thread::panicking() {
            let state = ended.map_or("running".to_owned(), |status| status.to_string());
            eprintln!(
                "--- {} ({state}), end of its output:\n{}",
                self.name,
                self.tail(6_000)
            );
        }
    }
}

/// A package of this checkout: the one that cargo runs, else this one. Checkouts that share a target folder may share this
/// program.
pub(crate) fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(folder: &Path) -> Process {
        Process::start(
            "sleeper",
            Path::new("/bin/sh"),
            ["-c", "echo up; exec sleep 100"],
            folder,
        )
        .unwrap()
    }

    #[tokio::test]
    async fn a_dropped_process_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let process = sleeper(folder.path());
        let stat = format!("/proc/{}", process.id());
        assert!(Path::new(&stat).exists());
        drop(process);
        assert!(!Path::new(&stat).exists());
    }

    #[tokio::test]
    async fn output_and_end_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = sleeper(folder.path());
        wait_until("its output", Duration::from_secs(5), || {
            let output = process.output();
            async move { if output == "up\n" { Ok(()) } else { Err(output) } }
        })
        .await
        .unwrap();
        assert!(process.ended().is_none());
        process.signal(Signal::TERM);
        let status = process.wait(Duration::from_secs(5)).await.unwrap();
        assert!(!status.success());
    }

    #[test]
    fn a_missing_program_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Process::start("x", Path::new("/no/such"), [""; 0], folder.path()).unwrap_err();
        assert!(error.to_string().contains("/no/such"));
    }
}
