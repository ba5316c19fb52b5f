//! Connections: at most so many, none for ever.
//!
//! One too many is closed at once: that tells the client to go elsewhere; one left waiting in the kernel's queue tells it nothing. A
//! connection that does not use its place loses it: each port has its [`Patience`], and who does not keep to it is told that the time is
//! up. When the server stops, connections that have not begun to speak end first; those that are left at the end of the grace are cut.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use cairn_core::metrics::{Metrics, Port};
use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, Sleep, sleep};
use tonic::transport::server::{Connected, TcpConnectInfo};
use tracing::{debug, warn};

/// Wait after the system could not accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How far the server is on its way to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    /// It serves.
    Serving,
    /// It takes no new calls and lets those in flight end.
    Draining,
    /// What is left is cut off.
    Cut,
}

/// How long a connection may keep its place without using it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// The first `bytes` bytes come within `time`. The protocol's own pings take over then.
    Opening { bytes: usize, time: Duration },
    /// It gets its first answer within `first`, and another one within `next` of each.
    Answers { first: Duration, next: Duration },
}

/// What a port allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) port: Port,
    pub(crate) connections_max: u64,
    pub(crate) patience: Patience,
}

/// A listener with a limit on its connections.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    free: Arc<Semaphore>,
    rules: Rules,
    metrics: Arc<Metrics>,
    phase: watch::Receiver<Phase>,
}

/// A connection that counts against the limit while it lives.
pub(crate) struct Connection {
    tcp: TcpStream,
    patience: Patience,
    heard_bytes: usize,
    /// Until when it has to use its place; `None` once that is no longer asked of it.
    patient: Option<Pin<Box<Sleep>>>,
    phase: watch::Receiver<Phase>,
    /// Resolves when the server no longer waits for it.
    cut: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Why it is over.
    over: Option<io::ErrorKind>,
    _place: Place,
}

/// A place among the connections.
#[derive(Debug)]
struct Place {
    port: Port,
    metrics: Arc<Metrics>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.connections.of(self.port).dec();
    }
}

impl Listener {
    /// Binds `address`. Connections follow `phase`.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) async fn bind(
        address: SocketAddr,
        rules: Rules,
        metrics: Arc<Metrics>,
        phase: watch::Receiver<Phase>,
    ) -> io::Result<Self> {
        let places = usize::try_from(rules.connections_max).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let (tcp, free) = (TcpListener::bind(address).await?, Arc::new(Semaphore::new(places)));
        Ok(Self { tcp, free, rules, metrics, phase })
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
        let mut told = false;
        loop {
            match self.tcp.accept().await {
                Ok((tcp, from)) => match self.place() {
                    Some(place) => return (Connection::new(tcp, self.rules.patience, self.phase.clone(), place), from),
                    None => debug!(%from, "closed a connection: the server is at its limit of connections"),
                },
                Err(error) => {
                    // Once until one is accepted: it may go on for long.
                    if !std::mem::replace(&mut told, true) {
                        warn!(%error, "connections can not be accepted; they wait");
                    }
                    // Most likely too many open files, which ends when calls do.
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn place(&self) -> Option<Place> {
        let port = self.rules.port;
        match Arc::clone(&self.free).try_acquire_owned() {
            Ok(permit) => {
                self.metrics.connections.of(port).inc();
                Some(Place { port, metrics: Arc::clone(&self.metrics), _permit: permit })
            }
            Err(_) => {
                self.metrics.connections_refused.of(port).inc();
                None
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

impl Connection {
    fn new(tcp: TcpStream, patience: Patience, phase: watch::Receiver<Phase>, place: Place) -> Self {
        // Small messages of a call must not wait for more; a connection that broke already will say so itself.
        tcp.set_nodelay(true).ok();
        let (first, stays_until) = match patience {
            // Who has not begun to speak has no call in flight.
            Patience::Opening { time, .. } => (time, Phase::Draining),
            Patience::Answers { first, .. } => (first, Phase::Cut),
        };
        Self {
            tcp,
            patience,
            heard_bytes: 0,
            patient: Some(Box::pin(sleep(first))),
            cut: Box::pin(reached(phase.clone(), stays_until)),
            phase,
            over: None,
            _place: place,
        }
    }

    /// Bytes have come.
    fn heard(&mut self, bytes: usize) {
        self.heard_bytes = self.heard_bytes.saturating_add(bytes);
        if let Patience::Opening { bytes, .. } = self.patience
            && self.heard_bytes >= bytes
            && self.patient.take().is_some()
        {
            self.cut = Box::pin(reached(self.phase.clone(), Phase::Cut));
        }
    }

    /// Bytes have been sent.
    fn answered(&mut self) {
        if let (Patience::Answers { next, .. }, Some(patient)) = (self.patience, &mut self.patient) {
            patient.as_mut().reset(Instant::now() + next);
        }
    }

    /// The error with which the connection ends, once it has to.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.over.is_none() {
            let is_late = self.patient.as_mut().is_some_and(|patient| patient.as_mut().poll(cx).is_ready());
            self.over = match is_late {
                true => Some(io::ErrorKind::TimedOut),
                false => {
                    ready!(self.cut.as_mut().poll(cx));
                    Some(io::ErrorKind::ConnectionAborted)
                }
            };
        }
        match self.over {
            Some(why) => Poll::Ready(why.into()),
            None => Poll::Pending,
        }
    }
}

/// Waits until the server is in `phase` or beyond it, or gone.
pub(crate) async fn reached(mut now: watch::Receiver<Phase>, phase: Phase) {
    now.wait_for(|now| *now >= phase).await.ok();
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("tcp", &self.tcp).field("over", &self.over).finish_non_exhaustive()
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
        let before = buf.filled().len();
        match Pin::new(&mut self.tcp).poll_read(cx, buf) {
            Poll::Ready(read) => {
                self.heard(buf.filled().len() - before);
                Poll::Ready(read)
            }
            Poll::Pending => self.poll_over(cx).map(Err),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.tcp).poll_write_vectored(cx, bytes));
        self.answered();
        Poll::Ready(written)
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

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;

    const OPENING: Patience = Patience::Opening { bytes: 24, time: Duration::from_secs(10) };
    const ANSWERS: Patience = Patience::Answers { first: Duration::from_secs(10), next: Duration::from_secs(75) };

    struct Port7 {
        listener: Listener,
        metrics: Arc<Metrics>,
        phase: watch::Sender<Phase>,
    }

    impl Port7 {
        async fn open(patience: Patience, connections_max: u64) -> Self {
            let metrics = Arc::new(Metrics::new(&Registry::new()).unwrap());
            let (phase, now) = watch::channel(Phase::Serving);
            let rules = Rules { port: Port::Api, connections_max, patience };
            let listener = Listener::bind(([127, 0, 0, 1], 0).into(), rules, metrics.clone(), now).await.unwrap();
            Self { listener, metrics, phase }
        }

        async fn connected(&self) -> (TcpStream, Connection) {
            let client = TcpStream::connect(self.listener.address().unwrap()).await.unwrap();
            (client, self.listener.next().await.0)
        }

        fn open_connections(&self) -> i64 {
            self.metrics.connections.of(Port::Api).get()
        }
    }

    async fn read(connection: &mut Connection) -> Result<usize, io::ErrorKind> {
        connection.read(&mut [0; 64]).await.map_err(|error| error.kind())
    }

    /// Whether nothing happens to the connection for a day. The clock of these tests runs when nothing else does.
    async fn stays(connection: &mut Connection) -> bool {
        timeout(Duration::from_secs(86_400), read(connection)).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn who_connects_and_says_nothing_or_too_little_loses_the_place() {
        let port = Port7::open(OPENING, 2).await;
        let (_silent, mut silent_end) = port.connected().await;
        let (mut slow, mut slow_end) = port.connected().await;
        slow.write_all(&[1; 23]).await.unwrap();
        assert_eq!(read(&mut slow_end).await, Ok(23));
        assert_eq!(read(&mut slow_end).await, Err(io::ErrorKind::TimedOut));
        assert_eq!(read(&mut silent_end).await, Err(io::ErrorKind::TimedOut));
        assert_eq!(port.open_connections(), 2);
        drop((silent_end, slow_end));
        assert_eq!(port.open_connections(), 0);
        port.connected().await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_begun_to_speak_is_left_to_the_pings_of_the_protocol() {
        let port = Port7::open(OPENING, 1).await;
        let (mut client, mut end) = port.connected().await;
        client.write_all(&[1; 24]).await.unwrap();
        assert_eq!(read(&mut end).await, Ok(24));
        assert!(stays(&mut end).await);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_with_the_next_request_loses_the_place_of_the_metrics_port() {
        let port = Port7::open(ANSWERS, 1).await;
        let (mut client, mut end) = port.connected().await;
        for _ in 0..3 {
            client.write_all(b"GET").await.unwrap();
            assert_eq!(read(&mut end).await, Ok(3));
            end.write_all(b"OK").await.unwrap();
            assert!(timeout(Duration::from_secs(60), read(&mut end)).await.is_err());
        }
        client.write_all(b"GET").await.unwrap();
        assert_eq!(read(&mut end).await, Ok(3));
        assert_eq!(read(&mut end).await, Err(io::ErrorKind::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn one_too_many_is_closed_and_counted() {
        let port = Port7::open(OPENING, 1).await;
        let _first = port.connected().await;
        let mut second = TcpStream::connect(port.listener.address().unwrap()).await.unwrap();
        assert!(timeout(Duration::from_secs(1), port.listener.next()).await.is_err());
        assert_eq!(second.read(&mut [0; 1]).await.unwrap(), 0);
        assert_eq!(port.metrics.connections_refused.of(Port::Api).get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_the_silent_at_once_and_the_others_when_they_are_cut() {
        let port = Port7::open(OPENING, 2).await;
        let (_silent, mut silent_end) = port.connected().await;
        let (mut speaking, mut speaking_end) = port.connected().await;
        speaking.write_all(&[1; 24]).await.unwrap();
        assert_eq!(read(&mut speaking_end).await, Ok(24));
        port.phase.send(Phase::Draining).unwrap();
        assert_eq!(read(&mut silent_end).await, Err(io::ErrorKind::ConnectionAborted));
        assert!(stays(&mut speaking_end).await);
        port.phase.send(Phase::Cut).unwrap();
        assert_eq!(read(&mut speaking_end).await, Err(io::ErrorKind::ConnectionAborted));
    }
}
