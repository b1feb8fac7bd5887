//! A pod that announces its end: out of picking at once, and how much of what it has is still in flight.

use std::net::IpAddr;

use super::Fleet;
use crate::discovery::DrainRefusal;

impl Fleet {
    /// Takes the pod's endpoints out of picking until its container restarts, when the pod itself asks. Engine requests
    /// that are in flight there; a pick that ended before this returned counts, none follows.
    pub fn drain(&self, uid: &str, peer: IpAddr) -> Result<u64, DrainRefusal> {
        self.pods.drain(uid, peer)?;
        for member in self.members().iter().filter(|member| member.is_of_pod(uid)) {
            self.refresh_ready(member);
        }
        let in_flight = self.in_flight(uid);
        tracing::info!(pod = uid, %peer, in_flight, "an engine drains");
        Ok(in_flight)
    }

    /// Engine requests in flight on the pod's endpoints, when the pod itself asks.
    pub fn drained(&self, uid: &str, peer: IpAddr) -> Result<u64, DrainRefusal> {
        self.pods.check(uid, peer)?;
        Ok(self.in_flight(uid))
    }

    fn in_flight(&self, uid: &str) -> u64 {
        let members = self.members();
        let slots: Vec<u16> = members
            .iter()
            .filter(|member| member.is_of_pod(uid))
            .map(|member| member.id.slot.0)
            .collect();
        let views = self.scheduler.endpoints(self.clock.now());
        let own = views.iter().filter(|view| slots.contains(&view.slot));
        own.map(|view| view.bs).sum()
    }
}
