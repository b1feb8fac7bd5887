//! Accepting connections: plain or TLS. A slow or failed handshake holds up nobody else.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::Stream;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::{Connected, TcpConnectInfo};
use tracing::{debug, warn};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Handshakes at once; further connections wait in the kernel's queue.
const HANDSHAKES: usize = 256;
/// After an error of the listener itself (no file descriptors left, say).
const PAUSE: Duration = Duration::from_millis(100);

/// A gateway's connection.
pub(super) enum Connection {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Accepts until `token` is cancelled; the stream ends then.
pub(super) fn connections(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    token: CancellationToken,
) -> impl Stream<Item = io::Result<Connection>> {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        tokio::select! {
            () = token.cancelled() => {}
            () = accept(listener, tls, sender) => {}
        }
    });
    ReceiverStream::new(receiver)
}

type Accepted = mpsc::Sender<io::Result<Connection>>;

/// Runs until nobody takes connections any more.
async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, accepted: Accepted) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    while !accepted.is_closed() {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "connection not accepted");
                sleep(PAUSE).await;
                continue;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "connection lost");
            continue;
        }
        let Some(tls) = tls.clone() else {
            // a closed channel ends the loop
            let _ = accepted.send(Ok(Connection::Plain(stream))).await;
            continue;
        };
        let accepted = accepted.clone();
        let slot = handshakes.clone().acquire_owned().await.expect("never closed");
        tokio::spawn(async move {
            let _slot = slot;
            match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let _ = accepted.send(Ok(Connection::Tls(Box::new(stream)))).await;
                }
                Ok(Err(error)) => debug!(%error, "tls handshake failed"),
                Err(_) => debug!("tls handshake timed out"),
            }
        });
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        match self {
            Self::Plain(stream) => stream.connect_info(),
            Self::Tls(stream) => stream.get_ref().0.connect_info(),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
