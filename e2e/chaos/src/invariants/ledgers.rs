//! BS and Q return to 0 once the load pauses.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use lmetric_testkit::Admin;

use crate::fault::{Component, Pool};
use crate::fleet::{ADMIN, Fleet};

/// Time for the pickers to see the last ends: each is told by its gateway at once, or finds out by scrapes of the engine.
const LIMIT: Duration = Duration::from_secs(15);

/// What is left in which picker's ledger.
pub(crate) async fn check(fleet: &Fleet) -> anyhow::Result<Vec<String>> {
    let mut left = Vec::new();
    for pool in Pool::ALL {
        for pod in fleet.pods(pool, Component::Picker).await? {
            let ip = pod.ip.with_context(|| format!("{} has no address", pod.name))?;
            if let Err(error) = Admin::new(SocketAddr::new(ip, ADMIN)).idle(LIMIT).await {
                left.push(format!("{}: {error:#}", pod.name));
            }
        }
    }
    Ok(left)
}
