//! What breaks in a cluster: a program is killed or stopped, a node goes down, an engine misbehaves.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Cluster, PodState, path};
use crate::wait::poll;

/// Time for a node or the API server to be ready after its start.
const STARTING: Duration = Duration::from_secs(90);
const EVERY: Duration = Duration::from_millis(200);

/// A container, as its runtime names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningContainer(String);

impl RunningContainer {
    /// Sends a signal to each of its processes.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        for pid in self.processes()? {
            kill_process(pid, signal)?;
        }
        Ok(())
    }

    fn processes(&self) -> anyhow::Result<Vec<Pid>> {
        let pids = processes_of(&self.0)?;
        ensure!(!pids.is_empty(), "container {} has no process", self.0);
        Ok(pids)
    }
}

impl Cluster {
    /// Sends a signal to every process of a container, from outside its pod: SIGKILL is a crash, SIGSTOP a hang.
    pub async fn signal(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        signal: Signal,
    ) -> anyhow::Result<()> {
        let container = self.container(namespace, pod, container).await?;
        container
            .signal(signal)
            .with_context(|| format!("{namespace}/{pod}"))
    }

    /// The most memory, bytes, that the processes of a container have held at a time (`VmHWM`).
    pub async fn peak_memory(&self, namespace: &str, pod: &str, container: &str) -> anyhow::Result<u64> {
        let mut bytes = 0;
        let container = self.container(namespace, pod, container).await?;
        for pid in container.processes()? {
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

    /// A container as it runs now, to be signalled later, whatever becomes of the API server.
    pub async fn container(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
    ) -> anyhow::Result<RunningContainer> {
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
        Ok(RunningContainer(id.to_owned()))
    }

    /// Ends everything on a node at once, as a power cut does: nobody gets a last word from it; its disk stays. The control
    /// plane's way to ClusterIPs leads through node1.
    pub fn crash_node(&self, node: &str) -> anyhow::Result<()> {
        // a kernel closes the connections of programs that are killed, and tells their peers
        let cable = format!("veth{}", index(node)?);
        let cut = std::process::Command::new("ip")
            .args(["link", "del", &cable])
            .output()?;
        let words = String::from_utf8_lossy(&cut.stderr);
        ensure!(cut.status.success(), "ip link del {cable}: {words}");
        let file = self.state.join(node).join("unshare.pid");
        let pid = std::fs::read_to_string(&file)?.trim().parse::<i32>()?;
        kill_process(Pid::from_raw(pid).context("no process id")?, Signal::KILL)?;
        Ok(())
    }

    /// Whether a node is there: it was not crashed, or was started again.
    pub fn node_runs(&self, node: &str) -> anyhow::Result<bool> {
        let state = self.state.join(node);
        Ok(!processes("pause", &state.to_string_lossy())?.is_empty())
    }

    /// Whether a node's kubelet is there.
    pub fn kubelet_runs(&self, node: &str) -> anyhow::Result<bool> {
        Ok(!processes("kubelet", &format!("--hostname-override={node}"))?.is_empty())
    }

    /// Starts a crashed node again and waits until Kubernetes calls it ready.
    pub async fn start_node(&self, node: &str) -> anyhow::Result<()> {
        self.node_script(node, &[]).await
    }

    /// Kills a node's kubelet alone: its containers, containerd and kube-proxy run on, and Kubernetes hears no more of them.
    pub fn kill_kubelet(&self, node: &str) -> anyhow::Result<()> {
        let name = format!("--hostname-override={node}");
        for pid in processes("kubelet", &name)? {
            kill_process(pid, Signal::KILL)?;
        }
        Ok(())
    }

    /// Starts a killed kubelet again and waits until Kubernetes calls its node ready.
    pub async fn start_kubelet(&self, node: &str) -> anyhow::Result<()> {
        self.node_script(node, &["kubelet"]).await
    }

    /// Whether Kubernetes calls a node ready, as `status` of its condition: `True`, `False` or `Unknown`.
    pub async fn node_ready(&self, node: &str) -> anyhow::Result<String> {
        Ok(readiness(&self.get(&path("v1", "nodes", "", node)).await?))
    }

    /// Stops the API server: SIGSTOP leaves every connection open and unanswered, SIGKILL closes all and refuses new ones.
    pub fn stop_api_server(&self, signal: Signal) -> anyhow::Result<()> {
        for pid in processes("kube-apiserver", "--secure-port=6443")? {
            kill_process(pid, signal)?;
        }
        Ok(())
    }

    /// Lets a stopped API server go on, or starts a killed one again, and waits until it answers.
    pub async fn start_api_server(&self) -> anyhow::Result<()> {
        let pids = processes("kube-apiserver", "--secure-port=6443")?;
        if pids.is_empty() {
            return self.script("apiserver.sh", &[]).await;
        }
        for pid in pids {
            kill_process(pid, Signal::CONT)?;
        }
        poll("the API server to answer", STARTING, EVERY, || {
            self.kubectl(&["--request-timeout=5s", "get", "--raw", "/readyz"])
        })
        .await?;
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

impl Cluster {
    async fn script(&self, name: &str, args: &[&str]) -> anyhow::Result<()> {
        let script = self.root.join("e2e/cluster").join(name);
        let (script, state) = (script.to_string_lossy(), self.state.to_string_lossy());
        let output = self.command(&script, &[&[&*state], args].concat(), "").await?;
        ensure!(
            output.ok,
            "{name} {}: {}{}",
            args.join(" "),
            output.err,
            output.out
        );
        Ok(())
    }

    /// Runs `node.sh`, then gives the node its accelerators again, which a new kubelet may have taken from it.
    async fn node_script(&self, node: &str, args: &[&str]) -> anyhow::Result<()> {
        let before = self.get(&path("v1", "nodes", "", node)).await?;
        self.script("node.sh", &[&[index(node)?], args].concat()).await?;
        let place = path("v1", "nodes", "", node);
        self.until("the node to be ready", STARTING, &place, |now| {
            // the heartbeat must be that of the new kubelet
            readiness(now) == "True" && heartbeat(now) != heartbeat(&before)
        })
        .await?;
        let gpus = json!({"nvidia.com/gpu": before["status"]["capacity"]["nvidia.com/gpu"]});
        let patch = json!({"status": {"capacity": gpus, "allocatable": gpus}});
        self.merge(&format!("{place}/status"), &patch).await?;
        Ok(())
    }
}

fn index(node: &str) -> anyhow::Result<&str> {
    node.strip_prefix("node").context("nodes are named node1, node2")
}

fn ready_condition(node: &Value) -> Option<&Value> {
    let conditions = node["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready")
}

fn readiness(node: &Value) -> String {
    let status = ready_condition(node).and_then(|condition| condition["status"].as_str());
    status.unwrap_or("Unknown").to_owned()
}

fn heartbeat(node: &Value) -> Option<&str> {
    ready_condition(node)?["lastHeartbeatTime"].as_str()
}

/// Processes of a program that were started with this argument; this process sees all of the cluster's.
fn processes(program: &str, argument: &str) -> anyhow::Result<Vec<Pid>> {
    processes_where(|folder| {
        let line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        let is_it = words
            .next()
            .is_some_and(|word| word.rsplit(|byte| *byte == b'/').next() == Some(program.as_bytes()));
        is_it && words.any(|word| word == argument.as_bytes())
    })
}

/// Processes in the control group of a container; this process sees all of the cluster's.
fn processes_of(container: &str) -> anyhow::Result<Vec<Pid>> {
    processes_where(|folder| {
        let groups = std::fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
        groups.contains(container)
    })
}

/// Processes whose folder under `/proc` is the one meant; a process may end while its folder is read.
fn processes_where(meant: impl Fn(&Path) -> bool) -> anyhow::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if meant(&entry.path()) {
            pids.extend(Pid::from_raw(pid));
        }
    }
    Ok(pids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_program_and_an_argument() {
        let mut child = std::process::Command::new("sleep").arg("61").spawn().unwrap();
        let holds = |argument| {
            let found = processes("sleep", argument).unwrap();
            found
                .iter()
                .any(|pid| pid.as_raw_nonzero().get().unsigned_abs() == child.id())
        };
        // a process that has just been started has no command line yet
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !holds("61") && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        let (its_own, another) = (holds("61"), holds("62"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(its_own);
        assert!(!another);
    }
}
