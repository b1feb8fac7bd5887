//! What breaks in a cluster: a program is killed or stopped, a node goes down, an engine misbehaves.

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Cluster, PodState, path};

impl Cluster {
    /// Sends a signal to every process of a container, from outside its pod: SIGKILL is a crash, SIGSTOP a hang.
    pub async fn signal(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        signal: Signal,
    ) -> anyhow::Result<()> {
        for pid in self.processes(namespace, pod, container).await? {
            kill_process(pid, signal)?;
        }
        Ok(())
    }

    /// The most memory, bytes, that the processes of a container have held at a time (`VmHWM`).
    pub async fn peak_memory(&self, namespace: &str, pod: &str, container: &str) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for pid in self.processes(namespace, pod, container).await? {
            let file = format!("/proc/{}/status", pid.as_raw_nonzero());
            let status = std::fs::read_to_string(&file).with_context(|| file.clone())?;
            let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kilobytes: u64 = peak
                .and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse().ok())
                .with_context(|| format!("{file} tells no VmHWM"))?;
            bytes += kilobytes * 1024;
        }
        Ok(bytes)
    }

    async fn processes(&self, namespace: &str, pod: &str, container: &str) -> anyhow::Result<Vec<Pid>> {
        let object = self.get(&path("v1", "pods", namespace, pod)).await?;
        let statuses = object["status"]["containerStatuses"].as_array();
        let id = statuses
            .into_iter()
            .flatten()
            .find(|status| status["name"] == container)
            .and_then(|status| status["containerID"].as_str())
            .and_then(|id| id.rsplit_once('/'))
            .with_context(|| format!("{namespace}/{pod} runs no container {container}"))?
            .1;
        let pids = processes_of(id)?;
        ensure!(
            !pids.is_empty(),
            "{namespace}/{pod}: container {container} has no process"
        );
        Ok(pids)
    }

    /// Ends everything on a node at once, as a power cut does; its disk stays. The control plane's way to ClusterIPs leads through node1.
    pub fn crash_node(&self, node: &str) -> anyhow::Result<()> {
        let file = self.state.join(node).join("unshare.pid");
        let pid = std::fs::read_to_string(&file)?.trim().parse::<i32>()?;
        kill_process(Pid::from_raw(pid).context("no process id")?, Signal::KILL)?;
        Ok(())
    }

    /// Makes a simulated engine misbehave: `{"kind": "hang", "for": "10s"}`; `{"kind": "none"}` ends it.
    pub async fn engine_fault(&self, pod: &PodState, port: u16, fault: &Value) -> anyhow::Result<()> {
        let answer = self.pod(pod, port)?.post("/sim/fault", fault).await?;
        ensure!(
            answer.status.is_success(),
            "fault {fault}: {} {}",
            answer.status,
            answer.text()
        );
        Ok(())
    }
}

/// Processes in the control group of a container; this process sees all of the cluster's.
fn processes_of(container: &str) -> anyhow::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // a process may end while the folder is read
        let groups = std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        if groups.contains(container) {
            pids.extend(Pid::from_raw(pid));
        }
    }
    Ok(pids)
}
