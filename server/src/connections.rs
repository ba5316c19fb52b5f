//! Connections: at most so many, one more is closed at once.
//!
//! A connection that is closed tells the client at once to go elsewhere; one that is left waiting in the kernel's queue tells it nothing.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::{Connected, TcpConnectInfo};
use tracing::{debug, warn};

/// Wait after the system could not accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener with a limit on its connections.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    free: Arc<Semaphore>,
}

/// A connection that counts against the limit while it lives.
#[derive(Debug)]
pub(crate) struct Connection {
    tcp: TcpStream,
    _place: OwnedSemaphorePermit,
}

impl Listener {
    /// Binds `address`.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) async fn bind(address: SocketAddr, connections_max: u64) -> io::Result<Self> {
        let places = usize::try_from(connections_max).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Ok(Self { tcp: TcpListener::bind(address).await?, free: Arc::new(Semaphore::new(places)) })
    }

    /// The address that it got.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// The connections, one after the other; never ends.
    pub(crate) fn incoming(self) -> impl Stream<Item = io::Result<Connection>> {
        futures::stream::unfold(self, |listener| async move {
            let (connection, _) = listener.next().await;
            Some((Ok(connection), listener))
        })
    }

    async fn next(&self) -> (Connection, SocketAddr) {
        loop {
            match self.tcp.accept().await {
                Ok((tcp, from)) => match Arc::clone(&self.free).try_acquire_owned() {
                    Ok(place) => {
                        // Small messages of a call must not wait for more; a connection that broke already will say so itself.
                        tcp.set_nodelay(true).ok();
                        return (Connection { tcp, _place: place }, from);
                    }
                    Err(_) => debug!(%from, "closed a connection: the server is at its limit of connections"),
                },
                Err(error) => {
                    warn!(%error, "could not accept a connection");
                    // Most likely too many open files, which ends when calls do.
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl axum::serve::Listener for Listener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        self.next().await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.address()
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.tcp.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
