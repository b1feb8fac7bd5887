//! A `/24` of 127.0.0.0/8 for one stage, leased by holding a listener in it.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::atomic::{AtomicU32, Ordering},
};

/// The port whose listener on `127.x.y.254` is the lease.
const LEASE_PORT: u16 = 10_007;

/// Every port of a stage, before the shift.
const PORTS: [u16; 8] = [5_557, 5_657, 8_000, 8_081, 9_002, 9_003, 9_090, 9_901];

/// Shifts that are tried when a program listens on one of [`PORTS`] on every address (0.0.0.0).
const SHIFTS: [u16; 4] = [0, 10_100, 20_200, 30_300];

/// No network is left.
#[derive(Debug, thiserror::Error)]
pub enum LoopbackError {
    /// Every `/24` is leased.
    #[error("every loopback network is in use; end the tests that hold them")]
    Exhausted,
    /// Other programs listen on ports of a stage, shifted or not, on every address.
    #[error(
        "port {0} is busy on every address, and so are its stand-ins; stop the programs that listen there"
    )]
    PortsBusy(u16),
}

/// Addresses `127.x.y.1` to `127.x.y.253`, this process's alone until dropped.
#[derive(Debug)]
pub struct Loopback {
    network: [u8; 2],
    shift: u16,
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
                    shift: free_shift(guard)?,
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

    /// The port that stands for `port` here: itself, unless it is busy on this machine.
    pub fn port(&self, port: u16) -> u16 {
        port + self.shift
    }

    /// `127.x.y.host` and [`Loopback::port`].
    pub fn at(&self, host: u8, port: u16) -> SocketAddr {
        SocketAddr::from((self.ip(host), self.port(port)))
    }
}

fn free_shift(on: Ipv4Addr) -> Result<u16, LoopbackError> {
    let mut busy = 0;
    for shift in SHIFTS {
        match PORTS
            .into_iter()
            .find(|port| TcpListener::bind((on, port + shift)).is_err())
        {
            None => return Ok(shift),
            Some(port) => busy = port,
        }
    }
    Err(LoopbackError::PortsBusy(busy))
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

    #[test]
    fn ports_that_a_program_took_on_every_address_are_shifted() {
        let lease = Loopback::lease().unwrap();
        let taken = TcpListener::bind((lease.ip(200), PORTS[0]));
        let shift = free_shift(lease.ip(200)).unwrap();
        assert!(taken.is_err() || shift > 0);
        assert_eq!(free_shift(lease.ip(201)).unwrap(), lease.shift);
    }
}
