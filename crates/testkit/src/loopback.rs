//! A `/24` of 127.0.0.0/8 for one stage, leased by holding a listener in it.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::atomic::{AtomicU32, Ordering},
};

/// The port whose listener on `127.x.y.254` is the lease.
const LEASE_PORT: u16 = 10007;

/// No network is left.
#[derive(Debug, thiserror::Error)]
pub enum LoopbackError {
    /// Every `/24` is leased.
    #[error("every loopback network is in use; end the tests that hold them")]
    Exhausted,
}

/// Addresses `127.x.y.1` to `127.x.y.253`, this process's alone until dropped.
#[derive(Debug)]
pub struct Loopback {
    network: [u8; 2],
    _lease: TcpListener,
}

impl Loopback {
    /// Leases a network. Concurrent test processes start at different places and skip what others hold.
    pub fn lease() -> Result<Self, LoopbackError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let start = std::process::id().wrapping_mul(31);
        for _ in 0..20_000 {
            let n = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
            let network = [(n / 200 % 100 + 20) as u8, (n % 200 + 20) as u8];
            let guard = Ipv4Addr::new(127, network[0], network[1], 254);
            if let Ok(lease) = TcpListener::bind((guard, LEASE_PORT)) {
                return Ok(Self {
                    network,
                    _lease: lease,
                });
            }
        }
        Err(LoopbackError::Exhausted)
    }

    /// `127.x.y.host`.
    pub fn ip(&self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.network[0], self.network[1], host)
    }

    /// `127.x.y.host:port`.
    pub fn at(&self, host: u8, port: u16) -> SocketAddr {
        SocketAddr::from((self.ip(host), port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_leases_never_share_a_network() {
        let leases: Vec<_> = (0..20).map(|_| Loopback::lease().unwrap()).collect();
        let mut ips: Vec<_> = leases.iter().map(|l| l.ip(1)).collect();
        ips.sort();
        ips.dedup();
        assert_eq!(ips.len(), 20);
    }

    #[test]
    fn a_leased_network_is_skipped_by_others() {
        let lease = Loopback::lease().unwrap();
        assert!(TcpListener::bind((lease.ip(254), LEASE_PORT)).is_err());
    }
}
