//! One engine's HTTP port: accepts, serves, and plays dead when told to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fault::Fault;
use crate::faults::Faults;
use crate::http;
use crate::site::Site;

/// Whether the port is closed.
fn is_closed(fault: &Fault) -> bool {
    matches!(fault, Fault::Refuse | Fault::Crash)
}

/// Serves until cancelled; open connections get until the tracker's owner stops waiting.
pub(crate) async fn serve(
    site: Arc<Site>,
    listener: TcpListener,
    faults: Faults,
    cancel: CancellationToken,
    tasks: TaskTracker,
) {
    let mut fault = site.watch_fault();
    let mut listener = Some(listener);
    loop {
        if is_closed(&fault.borrow_and_update()) {
            listener = None;
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = fault.changed() => continue,
            }
        }
        let Some(open) = &listener else {
            listener = rebind(site.address, &cancel).await;
            if listener.is_none() {
                return;
            }
            continue;
        };
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = fault.changed() => {}
            accepted = open.accept() => match accepted {
                Ok((stream, _)) => {
                    let connection = connection(Arc::clone(&site), stream, faults.clone(), fault.clone(), cancel.clone());
                    tasks.spawn(connection);
                }
                Err(error) => {
                    tracing::warn!(%error, address = %site.address, "connection not accepted");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }
}

async fn connection(
    site: Arc<Site>,
    stream: TcpStream,
    faults: Faults,
    mut fault: watch::Receiver<Fault>,
    cancel: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no delay is not set");
    }
    let service = service_fn(move |request| {
        let answer = http::respond(Arc::clone(&site), faults.clone(), request);
        async move { Ok::<_, std::convert::Infallible>(answer.await) }
    });
    let mut served = std::pin::pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    let mut draining = false;
    loop {
        tokio::select! {
            ended = &mut served => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            changed = fault.changed() => {
                if changed.is_err() || is_closed(&fault.borrow_and_update()) {
                    return;
                }
            }
            () = cancel.cancelled(), if !draining => {
                draining = true;
                served.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Takes the port again; tries until it is free.
async fn rebind(address: SocketAddr, cancel: &CancellationToken) -> Option<TcpListener> {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return Some(listener),
            Err(error) => tracing::warn!(%error, %address, "port not taken again yet"),
        }
        tokio::select! {
            () = cancel.cancelled() => return None,
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
    }
}
