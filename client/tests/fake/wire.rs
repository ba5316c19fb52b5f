//! Pipes in memory instead of sockets. Each goes through a pump, a task that a test can stop to cut the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{DuplexStream, copy_bidirectional, duplex};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

use super::Fake;

pub type Pipes = mpsc::Sender<DuplexStream>;

pub fn pipes() -> (Pipes, impl tokio_stream::Stream<Item = io::Result<DuplexStream>>) {
    let (pipes, incoming) = mpsc::channel(8);
    (pipes, ReceiverStream::new(incoming).map(Ok))
}

#[derive(Clone)]
pub struct Connector {
    pub fake: Fake,
    pub pipes: Pipes,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<DuplexStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { fake, pipes } = self.clone();
        Box::pin(async move {
            let refused = fake.with(|state| {
                state.connections += 1;
                let refused = state.refuse_connections > 0;
                state.refuse_connections = state.refuse_connections.saturating_sub(1);
                refused
            });
            if refused {
                return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
            }
            let (client, mut near) = duplex(1 << 16);
            let (mut far, server) = duplex(1 << 16);
            let pump = tokio::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
            fake.with(|state| state.pumps.push(pump.abort_handle()));
            pipes.send(server).await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            Ok(TokioIo::new(client))
        })
    }
}
