//! Does what the plan says, and undoes it.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context;
use http::Method;
use lmetric_testkit::Signal;
use lmetric_testkit::cluster::{PodState, RunningContainer, SYSTEM, path};
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::cost::Happened;
use crate::fault::{BadSpec, Child, Component, Fault, Lasts, Pool};
use crate::fleet::{ENGINE, Fleet, NAMESPACE, NODE};

/// The operator watches what it made and acts at once.
const PUT_BACK: Duration = Duration::from_secs(10);

/// A fault whose victim is known, so that it can strike while no API server answers.
#[derive(Debug)]
pub(crate) struct Aimed {
    fault: Fault,
    victim: String,
    engines: Vec<IpAddr>,
    bereft: Vec<(Pool, Component)>,
    act: Act,
    /// A child object and what it held, all of which the operator has to put back.
    child: Option<(String, Held)>,
}

/// What an object holds that its owner wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    spec: Value,
    data: Value,
}

impl Held {
    fn by(object: &Value) -> Self {
        Self {
            spec: object["spec"].clone(),
            data: object["data"].clone(),
        }
    }
}

/// What is done, and what undoes it.
#[derive(Debug)]
enum Act {
    /// SIGKILL.
    Kill(RunningContainer),
    /// SIGSTOP, then SIGCONT.
    Stop(RunningContainer),
    /// The simulator is told; it ends by itself.
    Simulate(PodState, Value),
    /// A pool's spec is changed, then changed back.
    Patch(Pool, Value, Option<Value>),
    /// An object is deleted, with its grace.
    Delete(String),
    /// An object is changed by a person.
    Edit(String, Value),
    CrashNode,
    StopKubelet,
    Drain,
    Cordon,
    /// The API server, by this signal.
    StopApi(Signal),
}

impl Fleet {
    /// Chooses the victim of a fault.
    pub(crate) async fn aim(&self, fault: &Fault) -> anyhow::Result<Aimed> {
        let mut aimed = Aimed {
            fault: fault.clone(),
            victim: String::new(),
            engines: Vec::new(),
            bereft: Vec::new(),
            act: Act::Drain,
            child: None,
        };
        if matches!(
            fault,
            Fault::CrashNode { .. } | Fault::StopKubelet { .. } | Fault::Drain { .. }
        ) {
            self.populate()
                .await
                .context("to give the node something to lose")?;
        }
        aimed.act = match fault {
            Fault::Kill {
                pool,
                component,
                index,
            } => {
                let pod = aimed.at(self.choose(*pool, *component, *index).await?, *component);
                Act::Kill(
                    self.cluster
                        .container(NAMESPACE, &pod.name, component.container())
                        .await?,
                )
            }
            Fault::DeletePod {
                pool,
                component,
                index,
            } => {
                let pod = aimed.at(self.choose(*pool, *component, *index).await?, *component);
                Act::Delete(path("v1", "pods", NAMESPACE, &pod.name))
            }
            Fault::Hang { pool, index, .. } => {
                let pod = aimed.at(
                    self.choose(*pool, Component::Engine, *index).await?,
                    Component::Engine,
                );
                Act::Stop(
                    self.cluster
                        .container(NAMESPACE, &pod.name, Component::Engine.container())
                        .await?,
                )
            }
            Fault::Errors { pool, index, lasts } => {
                let pod = self.choose(*pool, Component::Engine, *index).await?;
                let pod = aimed.at(pod, Component::Engine);
                Act::Simulate(pod, timed("status", *lasts, &json!({"status": 500})))
            }
            Fault::Refuse { pool, index, lasts } => {
                let pod = self.choose(*pool, Component::Engine, *index).await?;
                Act::Simulate(
                    aimed.at(pod, Component::Engine),
                    timed("refuse", *lasts, &json!({})),
                )
            }
            Fault::LoseEvents { pool, index, batches } => {
                let pod = self.choose(*pool, Component::Engine, *index).await?;
                let order = json!({"kind": "drop-events", "count": batches});
                Act::Simulate(aimed.at(pod, Component::Engine), order)
            }
            Fault::KillOperator => {
                aimed.victim = self.cluster.leader().await?;
                Act::Kill(self.cluster.container(SYSTEM, &aimed.victim, "operator").await?)
            }
            Fault::KillDns => {
                let pods = self.cluster.pods("kube-system", "k8s-app=kube-dns").await?;
                aimed.victim.clone_from(&pods.first().context("no DNS")?.name);
                Act::Kill(
                    self.cluster
                        .container("kube-system", &aimed.victim, "coredns")
                        .await?,
                )
            }
            Fault::Roll { pool }
            | Fault::Routing { pool, .. }
            | Fault::ScaleDown { pool, .. }
            | Fault::ScaleUp { pool, .. }
            | Fault::ScaleToZero { pool, .. }
            | Fault::BadSpec { pool, .. } => {
                pool.name().clone_into(&mut aimed.victim);
                let (patch, back) = self.change(*pool, fault).await?;
                Act::Patch(*pool, patch, back)
            }
            Fault::DeleteChild { pool, child } => {
                let object = child_path(*pool, *child);
                aimed.victim.clone_from(&object);
                aimed.child = Some((object.clone(), Held::by(&self.cluster.get(&object).await?)));
                Act::Delete(object)
            }
            Fault::EditChild { pool, child } => {
                let object = child_path(*pool, *child);
                aimed.victim.clone_from(&object);
                aimed.child = Some((object.clone(), Held::by(&self.cluster.get(&object).await?)));
                Act::Edit(object, edit(*child))
            }
            Fault::CrashNode { .. } => {
                NODE.clone_into(&mut aimed.victim);
                (aimed.engines, aimed.bereft) = self.held_by(NODE).await?;
                Act::CrashNode
            }
            Fault::StopKubelet { .. } => Act::StopKubelet,
            Fault::Drain { .. } => Act::Drain,
            Fault::Cordon { .. } => Act::Cordon,
            Fault::StopApi { hangs, .. } => Act::StopApi(if *hangs { Signal::STOP } else { Signal::KILL }),
        };
        Ok(aimed)
    }

    /// What a change of a spec patches, and what patches it back.
    async fn change(&self, pool: Pool, fault: &Fault) -> anyhow::Result<(Value, Option<Value>)> {
        let image = self.pool(pool).await?["spec"]["engine"]["image"].clone();
        let images = self.cluster.images();
        let next = if image == images.vllm_next.as_str() {
            &images.vllm
        } else {
            &images.vllm_next
        };
        let engines = pool.engines();
        Ok(match fault {
            Fault::Routing { .. } => (
                json!({"routing": {"policy": "least-request"}}),
                Some(json!({"routing": {"policy": "lmetric"}})),
            ),
            Fault::ScaleDown { by, .. } => (
                json!({"replicas": engines - u64::from(*by)}),
                Some(json!({"replicas": engines})),
            ),
            Fault::ScaleUp { .. } => (
                json!({"replicas": engines + 1}),
                Some(json!({"replicas": engines})),
            ),
            Fault::ScaleToZero { .. } => (json!({"replicas": 0}), Some(json!({"replicas": engines}))),
            Fault::BadSpec {
                bad: BadSpec::Image, ..
            } => (
                json!({"engine": {"image": "e2e.local/vllm:v0.33.0-absent"}}),
                Some(json!({"engine": {"image": image}})),
            ),
            Fault::BadSpec { .. } => (
                json!({"podTemplate": {"spec": {"tolerations": [{"operator": "Sometimes"}]}}}),
                Some(json!({"podTemplate": null})),
            ),
            _ => (json!({"engine": {"image": next}}), None),
        })
    }

    /// Engines of a node, and of which pool it holds the last pods of a kind.
    async fn held_by(&self, node: &str) -> anyhow::Result<(Vec<IpAddr>, Vec<(Pool, Component)>)> {
        let (mut engines, mut bereft) = (Vec::new(), Vec::new());
        for pool in Pool::ALL {
            for component in Component::ALL {
                let pods = self.pods(pool, component).await?;
                let here = |pod: &&PodState| pod.node.as_deref() == Some(node);
                if component == Component::Engine {
                    engines.extend(pods.iter().filter(here).filter_map(|pod| pod.ip));
                }
                if pods.iter().all(|pod| here(&pod)) {
                    bereft.push((pool, component));
                }
            }
        }
        Ok((engines, bereft))
    }

    /// Does it.
    pub(crate) async fn strike(&self, aimed: &Aimed, clock: Clock) -> anyhow::Result<Happened> {
        let happened = Happened {
            fault: aimed.fault.clone(),
            at: clock.now(),
            undone: None,
            settled: None,
            victim: aimed.victim.clone(),
            engines: aimed.engines.clone(),
            bereft: aimed.bereft.clone(),
        };
        let cluster = &self.cluster;
        match &aimed.act {
            Act::Kill(container) => container.signal(Signal::KILL)?,
            Act::Stop(container) => container.signal(Signal::STOP)?,
            Act::Simulate(pod, order) => cluster.engine_fault(pod, ENGINE, order).await?,
            Act::Patch(pool, patch, _) => self.patch(*pool, patch).await?,
            Act::Delete(object) => cluster.delete(object).await?,
            Act::Edit(object, patch) => {
                let by_hand = format!("{object}?fieldManager=kubectl-edit");
                let body = Some(("application/merge-patch+json", patch));
                cluster.request(Method::PATCH, &by_hand, body).await?;
            }
            Act::CrashNode => cluster.crash_node(NODE)?,
            Act::StopKubelet => cluster.kill_kubelet(NODE)?,
            Act::Drain => {
                let drain = ["drain", NODE, "--ignore-daemonsets", "--delete-emptydir-data"];
                cluster
                    .kubectl(&[&drain[..], &["--timeout=170s"]].concat())
                    .await?;
            }
            Act::Cordon => {
                cluster.kubectl(&["cordon", NODE]).await?;
            }
            Act::StopApi(signal) => cluster.stop_api_server(*signal)?,
        }
        Ok(happened)
    }

    /// Undoes it, where there is something to undo.
    pub(crate) async fn undo(&self, aimed: &Aimed) -> anyhow::Result<()> {
        match &aimed.act {
            Act::Stop(container) => container.signal(Signal::CONT)?,
            Act::Patch(pool, _, Some(back)) => self.patch(*pool, back).await?,
            Act::CrashNode => self.cluster.start_node(NODE).await?,
            Act::StopKubelet => self.cluster.start_kubelet(NODE).await?,
            Act::Drain | Act::Cordon => {
                self.cluster.kubectl(&["uncordon", NODE]).await?;
            }
            Act::StopApi(_) => self.cluster.start_api_server().await?,
            // gone for good, or over by itself
            Act::Kill(_) | Act::Simulate(..) | Act::Patch(_, _, None) | Act::Delete(_) | Act::Edit(..) => {}
        }
        Ok(())
    }
}

impl Fleet {
    /// Waits until a child object that was deleted or edited holds what it held before.
    pub(crate) async fn put_back(&self, aimed: &Aimed) -> anyhow::Result<()> {
        let Some((object, held)) = &aimed.child else {
            return Ok(());
        };
        self.cluster
            .until("the operator to put it back", PUT_BACK, object, |now| {
                Held::by(now) == *held
            })
            .await?;
        Ok(())
    }
}

impl Aimed {
    fn at(&mut self, pod: PodState, component: Component) -> PodState {
        self.victim.clone_from(&pod.name);
        if component == Component::Engine {
            self.engines.extend(pod.ip);
        }
        pod
    }
}

fn timed(kind: &str, lasts: Lasts, more: &Value) -> Value {
    let mut order = json!({"kind": kind, "for": format!("{}s", lasts.0)});
    if let (Some(order), Some(more)) = (order.as_object_mut(), more.as_object()) {
        order.extend(more.clone());
    }
    order
}

fn child_path(pool: Pool, child: Child) -> String {
    let (api_version, plural, suffix) = child.kind();
    path(
        api_version,
        plural,
        NAMESPACE,
        &format!("{}-{suffix}", pool.name()),
    )
}

/// What somebody writes into a child object and the operator has to put back.
fn edit(child: Child) -> Value {
    match child {
        Child::EngineService => json!({"spec": {"selector": {"app.kubernetes.io/component": "nobody"}}}),
        Child::PickerService => json!({"spec": {"publishNotReadyAddresses": false}}),
        Child::PickerConfig => json!({"data": {"picker.yaml": "nonsense: ["}}),
        Child::EnvoyConfig => json!({"data": {"envoy.yaml": "nonsense: ["}}),
        Child::EnginePolicy => json!({"spec": {"ingress": []}}),
        Child::EngineBudget => json!({"spec": {"maxUnavailable": "50%"}}),
    }
}
