//! What `/debug/config` says.

use std::{path::Path, sync::Arc};

use parking_lot::Mutex;
use serde::Serialize;

/// Whether what was written last is in force.
#[derive(Clone, Debug, Serialize)]
pub struct ConfigStatus {
    /// The configuration's name.
    pub file: String,
    /// It is followed while the picker runs.
    pub followed: bool,
    /// Why the one that was written last is not in force; an older one is.
    pub error: Option<String>,
    /// Fields that wait for a restart.
    pub waiting: Vec<&'static str>,
    /// Changes taken over.
    pub changes: u64,
}

/// Clones are the same.
#[derive(Clone, Debug)]
pub struct ReloadStatus(Arc<Mutex<ConfigStatus>>);

impl ReloadStatus {
    /// As at start.
    pub fn new(file: &Path, followed: bool) -> Self {
        Self(Arc::new(Mutex::new(ConfigStatus {
            file: file.display().to_string(),
            followed,
            error: None,
            waiting: Vec::new(),
            changes: 0,
        })))
    }

    /// Now.
    pub fn now(&self) -> ConfigStatus {
        self.0.lock().clone()
    }

    pub(super) fn taken(&self, changed: bool, waiting: &[&'static str]) {
        let mut status = self.0.lock();
        status.error = None;
        status.waiting = waiting.to_vec();
        status.changes += u64::from(changed);
    }

    pub(super) fn refused(&self, error: String) {
        self.0.lock().error = Some(error);
    }
}
