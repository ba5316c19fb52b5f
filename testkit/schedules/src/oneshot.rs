//! Tokio's channel for one value, with a point before each step.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
pub use tokio::sync::oneshot::error;

use crate::point;

/// Who will send.
#[derive(Debug)]
pub struct Sender<T>(oneshot::Sender<T>);

/// Who waits.
#[derive(Debug)]
pub struct Receiver<T>(oneshot::Receiver<T>);

/// A channel.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (tell, told) = oneshot::channel();
    (Sender(tell), Receiver(told))
}

impl<T> Sender<T> {
    /// Sends the value.
    ///
    /// # Errors
    /// The value, if nobody waits any more.
    pub fn send(self, value: T) -> Result<(), T> {
        point();
        self.0.send(value)
    }

    /// Whether nobody waits any more.
    pub fn is_closed(&self) -> bool {
        point();
        self.0.is_closed()
    }
}

impl<T> Receiver<T> {
    /// Waits for the value, and blocks the thread.
    ///
    /// # Errors
    /// If the sender went away.
    pub fn blocking_recv(self) -> Result<T, error::RecvError> {
        crate::task::block_on(self)
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        point();
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        point();
    }
}
