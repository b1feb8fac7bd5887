//! The pods that match a selector, kept as the few facts that matter.

use std::{collections::HashMap, pin::Pin, sync::Arc};

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher, watcher::Event},
};
use lmetric_api::Pods;

use super::{Access, PodFacts, retry::Retry};

/// A watch is renewed so often: a connection that died silently is noticed within this and five seconds.
const RENEWED_SECONDS: u32 = 60;

/// In messages.
const WHAT: &str = "pods";

type Events = Pin<Box<dyn Stream<Item = Result<Event<Pod>, watcher::Error>> + Send>>;

/// One watch of pods.
pub struct PodWatch {
    pods: Pods,
    events: Events,
    /// All pods by UID; `None` until they were listed once.
    listed: Option<HashMap<Arc<str>, PodFacts>>,
    /// What the list that is running has brought so far.
    listing: HashMap<Arc<str>, PodFacts>,
    access: Access,
}

impl PodWatch {
    /// Begins to list and watch.
    pub fn new(client: Client, namespace: &str, pods: Pods, access: Access) -> Self {
        let labels: Vec<String> = pods
            .selector
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let config = watcher::Config::default()
            .labels(&labels.join(","))
            .timeout(RENEWED_SECONDS);
        let api: Api<Pod> = Api::namespaced(client, namespace);
        Self {
            pods,
            events: watcher(api, config).backoff(Retry::default()).boxed(),
            listed: None,
            listing: HashMap::new(),
            access,
        }
    }

    /// All pods that match, once they were listed.
    pub fn listed(&self) -> Option<&HashMap<Arc<str>, PodFacts>> {
        self.listed.as_ref()
    }

    /// Takes in the next event. A list that follows a break replaces everything at once, at its end.
    pub async fn next(&mut self) {
        let Some(event) = self.events.next().await else {
            return std::future::pending().await;
        };
        // that it begins says nothing of the server
        if !matches!(event, Ok(Event::Init) | Err(_)) {
            self.access.heard(WHAT);
        }
        match event {
            Ok(Event::Init) => self.listing.clear(),
            Ok(Event::InitApply(pod)) => {
                if let Some(facts) = self.facts(pod) {
                    self.listing.insert(facts.uid.clone(), facts);
                }
            }
            Ok(Event::InitDone) => self.listed = Some(std::mem::take(&mut self.listing)),
            Ok(Event::Apply(pod)) => {
                let uid = pod.metadata.uid.clone();
                let facts = self.facts(pod);
                let listed = self.listed.get_or_insert_default();
                match facts {
                    Some(facts) => drop(listed.insert(facts.uid.clone(), facts)),
                    // its labels were changed
                    None => drop(uid.and_then(|uid| listed.remove(&*uid))),
                }
            }
            Ok(Event::Delete(pod)) => {
                if let (Some(listed), Some(uid)) = (&mut self.listed, pod.metadata.uid) {
                    listed.remove(&*uid);
                }
            }
            Err(error) => super::failed(WHAT, &error, &self.access),
        }
    }

    /// The facts of a pod that matches.
    fn facts(&self, pod: Pod) -> Option<PodFacts> {
        let Pods { selector, ports } = &self.pods;
        let facts = PodFacts::of(pod, ports)?;
        selector
            .iter()
            .all(|(name, value)| facts.labels.get(name) == Some(value))
            .then_some(facts)
    }
}
