//! Tokio's channel for the latest value, with a point before each step.

use tokio::sync::watch;
pub use tokio::sync::watch::{Ref, error};

use crate::point;

/// Who says the value.
#[derive(Debug)]
pub struct Sender<T>(watch::Sender<T>);

/// Who sees it.
#[derive(Clone, Debug)]
pub struct Receiver<T>(watch::Receiver<T>);

/// A channel with a first value.
pub fn channel<T>(first: T) -> (Sender<T>, Receiver<T>) {
    let (tell, told) = watch::channel(first);
    (Sender(tell), Receiver(told))
}

impl<T> Sender<T> {
    /// Says a new value.
    ///
    /// # Errors
    /// The value, if nobody sees it.
    pub fn send(&self, value: T) -> Result<(), error::SendError<T>> {
        point();
        self.0.send(value)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        point();
    }
}

impl<T> Receiver<T> {
    /// The first value that `is_it`, this one or a later.
    ///
    /// # Errors
    /// If the sender went away before.
    pub async fn wait_for(&mut self, is_it: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, error::RecvError> {
        point();
        self.0.wait_for(is_it).await
    }
}
