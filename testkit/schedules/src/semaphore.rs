//! Tokio's semaphore and notification, with a point before each step.

use std::sync::Arc;

use tokio::sync::futures::Notified;
use tokio::sync::{AcquireError, TryAcquireError};

use crate::point;

/// Wakes who listens.
#[derive(Debug, Default)]
pub struct Notify(tokio::sync::Notify);

impl Notify {
    /// One that nobody listens to.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens from now on.
    pub fn notified(&self) -> Notified<'_> {
        point();
        self.0.notified()
    }

    /// Wakes all who listen now.
    pub fn notify_waiters(&self) {
        point();
        self.0.notify_waiters();
    }
}

/// Places, of which there are so many.
#[derive(Debug)]
pub struct Semaphore(Arc<tokio::sync::Semaphore>);

/// A place, given back when dropped.
#[derive(Debug)]
pub struct OwnedSemaphorePermit {
    _permit: tokio::sync::OwnedSemaphorePermit,
}

impl Semaphore {
    /// So many places.
    pub fn new(places: usize) -> Self {
        Self(Arc::new(tokio::sync::Semaphore::new(places)))
    }

    /// A place, if one is free.
    ///
    /// # Errors
    /// If none is.
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        point();
        Arc::clone(&self.0).try_acquire_owned().map(|permit| OwnedSemaphorePermit { _permit: permit })
    }

    /// A place, as soon as one is free.
    ///
    /// # Errors
    /// Never: it is not closed.
    pub async fn acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, AcquireError> {
        point();
        Arc::clone(&self.0).acquire_owned().await.map(|permit| OwnedSemaphorePermit { _permit: permit })
    }
}

impl Drop for OwnedSemaphorePermit {
    fn drop(&mut self) {
        point();
    }
}
