//! What is done to the cluster, as the plan words it.

use std::time::Duration;

use serde::Serialize;

/// One of the two pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pool {
    /// Four engines; replaces them one by one.
    Alpha,
    /// Three engines; `Auto`.
    Beta,
}

impl Pool {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Alpha, Self::Beta];

    /// Name of the object.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Alpha => "alpha",
            Self::Beta => "beta",
        }
    }

    /// Engines when nothing is changed.
    pub(crate) fn engines(self) -> u64 {
        match self {
            Self::Alpha => 4,
            Self::Beta => 3,
        }
    }
}

/// The kinds of a pool's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Component {
    /// Simulated vLLM.
    Engine,
    /// Endpoint picker.
    Picker,
    /// Standalone Envoy.
    Envoy,
}

impl Component {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Engine, Self::Picker, Self::Envoy];

    /// Value of the component label.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Picker => "picker",
            Self::Envoy => "envoy",
        }
    }

    /// Name of its main container.
    pub(crate) fn container(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Picker => "picker",
            Self::Envoy => "envoy",
        }
    }

    /// Pods of it when nothing is changed.
    pub(crate) fn count(self, pool: Pool) -> u64 {
        match self {
            Self::Engine => pool.engines(),
            Self::Picker | Self::Envoy => 2,
        }
    }
}

/// An object that the operator makes and somebody deletes or edits by hand. Not the Envoys' Service: clients hold its address, and a new
/// one gets another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Child {
    /// The headless Service of the engines.
    EngineService,
    /// The headless Service by which Envoy finds the pickers.
    PickerService,
    /// The picker's configuration.
    PickerConfig,
    /// Envoy's configuration.
    EnvoyConfig,
    /// Who may reach the engines.
    EnginePolicy,
    /// Of the engines.
    EngineBudget,
}

impl Child {
    /// All of them.
    pub(crate) const ALL: [Self; 6] = [
        Self::EngineService,
        Self::PickerService,
        Self::PickerConfig,
        Self::EnvoyConfig,
        Self::EnginePolicy,
        Self::EngineBudget,
    ];

    /// API version, plural and suffix of the name.
    pub(crate) fn kind(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::EngineService => ("v1", "services", "engine"),
            Self::PickerService => ("v1", "services", "picker"),
            Self::PickerConfig => ("v1", "configmaps", "picker"),
            Self::EnvoyConfig => ("v1", "configmaps", "envoy"),
            Self::EnginePolicy => ("networking.k8s.io/v1", "networkpolicies", "engine"),
            Self::EngineBudget => ("policy/v1", "poddisruptionbudgets", "engine"),
        }
    }
}

/// What is wrong with a spec for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BadSpec {
    /// An image that no node has.
    Image,
    /// A pod template that the API server refuses.
    PodTemplate,
}

/// Which pod of a kind, as an index into those that are ready, modulo their number.
pub(crate) type Index = u8;

/// One fault. Those with a duration are undone after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// SIGKILL to the processes of a pod's main container.
    Kill {
        pool: Pool,
        component: Component,
        index: Index,
    },
    /// `kubectl delete pod`, with its grace.
    DeletePod {
        pool: Pool,
        component: Component,
        index: Index,
    },
    /// SIGSTOP to an engine, then SIGCONT.
    Hang { pool: Pool, index: Index, lasts: Lasts },
    /// An engine answers every request with 500.
    Errors { pool: Pool, index: Index, lasts: Lasts },
    /// An engine closes its connections and refuses new ones.
    Refuse { pool: Pool, index: Index, lasts: Lasts },
    /// KV events are numbered and never sent.
    LoseEvents { pool: Pool, index: Index, batches: u8 },
    /// SIGKILL to the operator that leads.
    KillOperator,
    /// A pod of the cluster's DNS is killed.
    KillDns,
    /// The engines get another image, one after the other.
    Roll { pool: Pool },
    /// Another routing policy, and back.
    Routing { pool: Pool, lasts: Lasts },
    /// Engines fewer by one or two, and back.
    ScaleDown { pool: Pool, by: u8, lasts: Lasts },
    /// One engine more, and back.
    ScaleUp { pool: Pool, lasts: Lasts },
    /// No engine at all, and back.
    ScaleToZero { pool: Pool, lasts: Lasts },
    /// A spec that cannot work, and back.
    BadSpec { pool: Pool, bad: BadSpec, lasts: Lasts },
    /// A child object is deleted by hand.
    DeleteChild { pool: Pool, child: Child },
    /// A child object is edited by hand.
    EditChild { pool: Pool, child: Child },
    /// Node 2 loses power, and comes back.
    CrashNode { lasts: Lasts },
    /// Node 2's kubelet is killed, and started again.
    StopKubelet { lasts: Lasts },
    /// `kubectl drain` of node 2, and `uncordon`.
    Drain { lasts: Lasts },
    /// `kubectl cordon` of node 2, and `uncordon`.
    Cordon { lasts: Lasts },
    /// The API server is gone, and comes back.
    StopApi { hangs: bool, lasts: Lasts },
}

/// How long a fault lasts, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Lasts(pub(crate) u8);

impl From<Lasts> for Duration {
    fn from(lasts: Lasts) -> Self {
        Self::from_secs(lasts.0.into())
    }
}

impl Fault {
    /// Its kind, for tables.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Kill { component, .. } => match component {
                Component::Engine => "kill engine",
                Component::Picker => "kill picker",
                Component::Envoy => "kill Envoy",
            },
            Self::DeletePod { component, .. } => match component {
                Component::Engine => "delete engine pod",
                Component::Picker => "delete picker pod",
                Component::Envoy => "delete Envoy pod",
            },
            Self::Hang { .. } => "hang engine",
            Self::Errors { .. } => "engine answers 500",
            Self::Refuse { .. } => "engine refuses",
            Self::LoseEvents { .. } => "lose KV events",
            Self::KillOperator => "kill operator",
            Self::KillDns => "kill DNS",
            Self::Roll { .. } => "roll image",
            Self::Routing { .. } => "change routing",
            Self::ScaleDown { .. } => "scale down and up",
            Self::ScaleUp { .. } => "scale up and down",
            Self::ScaleToZero { .. } => "scale to zero",
            Self::BadSpec { .. } => "bad spec",
            Self::DeleteChild { .. } => "delete child",
            Self::EditChild { .. } => "edit child",
            Self::CrashNode { .. } => "crash node",
            Self::StopKubelet { .. } => "stop kubelet",
            Self::Drain { .. } => "drain node",
            Self::Cordon { .. } => "cordon node",
            Self::StopApi { .. } => "stop API server",
        }
    }

    /// Time until it is undone; zero where nothing is to be undone.
    pub(crate) fn lasts(&self) -> Duration {
        match self {
            Self::Hang { lasts, .. }
            | Self::Errors { lasts, .. }
            | Self::Refuse { lasts, .. }
            | Self::Routing { lasts, .. }
            | Self::ScaleDown { lasts, .. }
            | Self::ScaleUp { lasts, .. }
            | Self::ScaleToZero { lasts, .. }
            | Self::BadSpec { lasts, .. }
            | Self::CrashNode { lasts }
            | Self::StopKubelet { lasts }
            | Self::Drain { lasts }
            | Self::Cordon { lasts }
            | Self::StopApi { lasts, .. } => (*lasts).into(),
            Self::Kill { .. }
            | Self::DeletePod { .. }
            | Self::LoseEvents { .. }
            | Self::KillOperator
            | Self::KillDns
            | Self::Roll { .. }
            | Self::DeleteChild { .. }
            | Self::EditChild { .. } => Duration::ZERO,
        }
    }

    /// Done in a moment, without the API server's help once its pod is known: may strike while something else goes on.
    #[cfg(test)]
    pub(crate) fn is_strike(&self) -> bool {
        matches!(
            self,
            Self::Kill { .. } | Self::KillOperator | Self::LoseEvents { .. }
        )
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind())?;
        let pool = match self {
            Self::Kill { pool, .. }
            | Self::DeletePod { pool, .. }
            | Self::Hang { pool, .. }
            | Self::Errors { pool, .. }
            | Self::Refuse { pool, .. }
            | Self::LoseEvents { pool, .. }
            | Self::Roll { pool }
            | Self::Routing { pool, .. }
            | Self::ScaleDown { pool, .. }
            | Self::ScaleUp { pool, .. }
            | Self::ScaleToZero { pool, .. } => Some(*pool),
            Self::BadSpec { pool, bad, .. } => {
                write!(f, " {bad:?}")?;
                Some(*pool)
            }
            Self::DeleteChild { pool, child } | Self::EditChild { pool, child } => {
                write!(f, " {child:?}")?;
                Some(*pool)
            }
            Self::KillOperator
            | Self::KillDns
            | Self::CrashNode { .. }
            | Self::StopKubelet { .. }
            | Self::Drain { .. }
            | Self::Cordon { .. } => None,
            Self::StopApi { hangs, .. } => {
                f.write_str(if *hangs { " (hangs)" } else { " (killed)" })?;
                None
            }
        };
        if let Some(pool) = pool {
            write!(f, " of {}", pool.name())?;
        }
        if !self.lasts().is_zero() {
            write!(f, " for {} s", self.lasts().as_secs())?;
        }
        Ok(())
    }
}
