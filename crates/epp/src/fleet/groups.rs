//! Which models share a tokenizer.

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use lmetric_api::ModelGroup;
use tokio::sync::watch;

/// Tokenizer groups by the names of their models. Clones share them.
#[derive(Clone, Debug)]
pub struct Groups {
    names: Arc<ArcSwap<HashMap<String, Arc<str>>>>,
    changed: Arc<watch::Sender<()>>,
}

impl Default for Groups {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl Groups {
    /// From the configuration.
    pub fn new(groups: &[ModelGroup]) -> Self {
        Self {
            names: Arc::new(ArcSwap::from_pointee(names(groups))),
            changed: Arc::new(watch::channel(()).0),
        }
    }

    /// These groups from now on.
    pub fn set(&self, groups: &[ModelGroup]) {
        self.names.store(Arc::new(names(groups)));
        self.changed.send_replace(());
    }

    /// Tells of every change from now on.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The configured group of a name.
    pub fn get(&self, model: &str) -> Option<Arc<str>> {
        self.names.load().get(model).cloned()
    }

    /// The group of an endpoint; a model that is in no group is one of its own.
    pub fn of(&self, model: &str) -> Arc<str> {
        self.get(model).unwrap_or_else(|| model.into())
    }
}

fn names(groups: &[ModelGroup]) -> HashMap<String, Arc<str>> {
    let mut names = HashMap::new();
    for group in groups {
        let name: Arc<str> = group.name().into();
        for alias in &group.names {
            names.insert(alias.clone(), name.clone());
        }
    }
    names
}
