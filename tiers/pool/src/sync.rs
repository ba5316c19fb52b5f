//! What the pool synchronises with. With the feature `schedules`, which tests of that name switch on, a scheduler that they command.

#[cfg(feature = "schedules")]
pub(crate) use cairn_schedules::{
    Condvar, Mutex, MutexGuard, Notify,
    atomic::{AtomicU64, Ordering},
    thread,
};
#[cfg(not(feature = "schedules"))]
pub(crate) use {
    parking_lot::{Condvar, Mutex, MutexGuard},
    std::sync::atomic::{AtomicU64, Ordering},
    std::thread,
    tokio::sync::Notify,
};
