//! The pods that are known, by UID: who may ask to be drained, and who did.
//!
//! An engine's pod announces its end before Kubernetes' watch may have told of it, and also where only its container
//! ends (a liveness probe that failed). The mark is of one run of the container: the next one takes requests again.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use parking_lot::Mutex;

use super::Endpoint;

/// A pod as it is known now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPod {
    /// UID.
    pub uid: Arc<str>,
    /// Its addresses, of either family.
    pub ips: Vec<IpAddr>,
    /// Changes when its engine's container restarts.
    pub incarnation: String,
}

/// Why a pod is not drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrainRefusal {
    /// No such pod.
    #[error("no engine of this pool has this UID")]
    Unknown,
    /// Somebody else asks.
    #[error("only the pod itself may ask for this")]
    NotItself,
}

#[derive(Debug)]
struct Entry {
    pod: KnownPod,
    /// Run of the container that is being drained.
    drained: Option<String>,
}

/// All pods that are known; empty where endpoints are no pods. Each call takes one lock for O(1), but for
/// [`PodRegistry::replace`], O(pods).
#[derive(Debug, Default)]
pub struct PodRegistry(Mutex<HashMap<Arc<str>, Entry>>);

impl PodRegistry {
    /// These are the pods now. A pod that stays keeps its mark.
    pub fn replace(&self, pods: Vec<KnownPod>) {
        let mut entries = self.0.lock();
        let mut before = std::mem::take(&mut *entries);
        entries.extend(pods.into_iter().map(|pod| {
            let drained = before.remove(&pod.uid).and_then(|entry| entry.drained);
            (pod.uid.clone(), Entry { pod, drained })
        }));
    }

    /// That `peer` is the pod.
    pub fn check(&self, uid: &str, peer: IpAddr) -> Result<(), DrainRefusal> {
        let entries = self.0.lock();
        let entry = entries.get(uid).ok_or(DrainRefusal::Unknown)?;
        entry.check(peer)
    }

    /// Marks the pod's running container as draining, when the pod itself asks.
    pub fn drain(&self, uid: &str, peer: IpAddr) -> Result<(), DrainRefusal> {
        let mut entries = self.0.lock();
        let entry = entries.get_mut(uid).ok_or(DrainRefusal::Unknown)?;
        entry.check(peer)?;
        entry.drained = Some(entry.pod.incarnation.clone());
        Ok(())
    }

    /// The endpoint's pod is being drained, in the run of its container that the endpoint is of.
    pub fn is_drained(&self, endpoint: &Endpoint) -> bool {
        let Some(uid) = &endpoint.pod else {
            return false;
        };
        let entries = self.0.lock();
        entries
            .get(uid)
            .is_some_and(|entry| entry.drained.as_ref() == Some(&endpoint.incarnation))
    }
}

impl Entry {
    fn check(&self, peer: IpAddr) -> Result<(), DrainRefusal> {
        // a listener on [::] sees IPv4 peers as mapped addresses
        if self.pod.ips.contains(&peer.to_canonical()) {
            Ok(())
        } else {
            Err(DrainRefusal::NotItself)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(incarnation: &str) -> KnownPod {
        KnownPod {
            uid: "u".into(),
            ips: vec![IpAddr::from([10, 0, 0, 1])],
            incarnation: incarnation.to_owned(),
        }
    }

    fn endpoint(incarnation: &str) -> Endpoint {
        Endpoint {
            address: "10.0.0.1:8000".parse().expect("an address"),
            rank: None,
            model: "m".to_owned(),
            events: None,
            replay: None,
            block_size: None,
            incarnation: incarnation.to_owned(),
            terminating: false,
            ready: true,
            pod: Some("u".into()),
        }
    }

    #[test]
    fn only_the_pod_itself_may_ask() {
        let registry = PodRegistry::default();
        let own = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(registry.drain("u", own), Err(DrainRefusal::Unknown));
        registry.replace(vec![pod("1")]);
        assert_eq!(
            registry.drain("u", IpAddr::from([10, 0, 0, 2])),
            Err(DrainRefusal::NotItself)
        );
        assert!(!registry.is_drained(&endpoint("1")));
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().expect("an address");
        assert_eq!(registry.drain("u", mapped), Ok(()));
        assert_eq!(registry.check("u", own), Ok(()));
        assert!(registry.is_drained(&endpoint("1")));
    }

    #[test]
    fn a_mark_outlives_news_of_the_pod_but_not_its_container() {
        let registry = PodRegistry::default();
        registry.replace(vec![pod("1")]);
        registry
            .drain("u", IpAddr::from([10, 0, 0, 1]))
            .expect("the pod itself");
        registry.replace(vec![pod("1")]);
        assert!(registry.is_drained(&endpoint("1")));
        registry.replace(vec![pod("2")]);
        assert!(!registry.is_drained(&endpoint("2")));
        registry.replace(Vec::new());
        registry.replace(vec![pod("1")]);
        assert!(!registry.is_drained(&endpoint("1")), "a pod that was gone");
    }
}
