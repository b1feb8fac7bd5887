//! Who may look at the live page.
//!
//! The admin port is open to the cluster where engines announce their end and metrics are scraped there; the page is not.
//! `Loopback` wants both: a peer on this machine (`kubectl port-forward` is one) and an address bar that says so. The second
//! keeps out web pages that let a name of theirs point to 127.0.0.1, and what a service mesh's sidecar passes on.

use std::net::{IpAddr, SocketAddr};

use axum::{
    extract::{ConnectInfo, Request, State},
    http::{StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use lmetric_api::PageAccess;

const REFUSAL: &str = "the live page is shown on this machine only: open it as http://127.0.0.1:PORT/, on Kubernetes after \
                       `kubectl port-forward POD 9090`, or write `page: Anyone` into the picker's configuration\n";

pub(super) async fn check(
    State(access): State<PageAccess>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let mut response = if may_look(access, peer.ip(), host) {
        next.run(request).await
    } else {
        (StatusCode::FORBIDDEN, REFUSAL).into_response()
    };
    super::harden(&mut response);
    response
}

fn may_look(access: PageAccess, peer: IpAddr, host: &str) -> bool {
    match access {
        PageAccess::Off => false,
        PageAccess::Anyone => true,
        PageAccess::Loopback => peer.to_canonical().is_loopback() && names_loopback(host),
    }
}

/// Whether a `Host` names this machine: `localhost`, 127.x.x.x or `[::1]`, with or without a port.
fn names_loopback(host: &str) -> bool {
    let Ok(uri) = host.parse::<Uri>() else {
        return false;
    };
    let name = uri.host().unwrap_or_default();
    let ip = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(access: PageAccess, peer: &str, host: &str) -> bool {
        may_look(access, peer.parse().expect("an ip"), host)
    }

    #[test]
    fn on_this_machine_only_means_the_peer_and_the_address_bar() {
        use PageAccess::Loopback;
        for host in [
            "localhost:9090",
            "LOCALHOST",
            "127.0.0.1:9090",
            "127.3.2.1",
            "[::1]:9090",
        ] {
            assert!(looks(Loopback, "127.0.0.1", host), "{host}");
            assert!(looks(Loopback, "::ffff:127.0.0.1", host), "{host}");
            assert!(looks(Loopback, "::1", host), "{host}");
            assert!(!looks(Loopback, "10.0.0.7", host), "{host}");
        }
        for host in [
            "evil.example:9090",
            "10.0.0.7:9090",
            "",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "::",
            "@localhost@x",
        ] {
            assert!(!looks(Loopback, "127.0.0.1", host), "{host}");
        }
    }

    #[test]
    fn anyone_and_off_are_what_they_say() {
        assert!(looks(PageAccess::Anyone, "10.0.0.7", "picker.example"));
        assert!(!looks(PageAccess::Off, "127.0.0.1", "localhost"));
    }
}
