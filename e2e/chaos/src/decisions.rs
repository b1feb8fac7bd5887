//! Asks the pickers to which engine they sent each request.

use std::net::SocketAddr;
use std::time::Duration;

use lmetric_testkit::Admin;
use lmetric_testkit::cluster::PodState;
use serde_json::Value;

use crate::fault::{Component, Pool};
use crate::fleet::{ADMIN, Fleet};
use crate::load::Book;

/// Often enough that a picker that is killed takes few decisions with it.
const EVERY: Duration = Duration::from_millis(400);
/// More than a pool's requests between two looks, with room for a look that failed.
const NEWEST: usize = 60;
const PATIENCE: Duration = Duration::from_secs(2);

/// Goes on for ever.
pub(crate) async fn watch(fleet: Fleet, book: Book) {
    // what is known stays in use while the API server is gone
    let mut pickers: Vec<(PodState, Admin)> = Vec::new();
    loop {
        if let Ok(Ok(now)) = tokio::time::timeout(PATIENCE, found(&fleet)).await {
            pickers.retain(|(pod, _)| now.iter().any(|other| other.ip == pod.ip));
            for pod in now {
                if !pickers.iter().any(|(known, _)| known.ip == pod.ip)
                    && let Some(ip) = pod.ip
                {
                    pickers.push((pod, Admin::new(SocketAddr::new(ip, ADMIN))));
                }
            }
        }
        let looks = pickers.iter().map(|(_, admin)| async {
            let look = tokio::time::timeout(PATIENCE, admin.decisions(NEWEST)).await;
            for decision in look.ok().and_then(Result::ok).unwrap_or_default() {
                if let Some((id, to)) = winner(&decision) {
                    book.sent(id, to.ip());
                }
            }
        });
        futures::future::join_all(looks).await;
        tokio::time::sleep(EVERY).await;
    }
}

async fn found(fleet: &Fleet) -> anyhow::Result<Vec<PodState>> {
    let mut pods = Vec::new();
    for pool in Pool::ALL {
        pods.extend(fleet.pods(pool, Component::Picker).await?);
    }
    Ok(pods)
}

fn winner(decision: &Value) -> Option<(&str, SocketAddr)> {
    let id = decision["request_id"].as_str()?;
    Some((id, decision["winner"].as_str()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_decision_names_request_and_engine() {
        let decision = json!({"request_id": "alpha-1", "winner": "10.244.1.7:8000"});
        let (id, to) = winner(&decision).unwrap();
        assert_eq!((id, to.to_string().as_str()), ("alpha-1", "10.244.1.7:8000"));
        assert_eq!(winner(&json!({"request_id": "alpha-1", "winner": null})), None);
    }
}
