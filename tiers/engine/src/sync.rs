//! What the engine synchronises with. With the feature `schedules`, which tests of that name switch on, a scheduler that they command.

#[cfg(feature = "schedules")]
pub(crate) use cairn_schedules::{
    Condvar, Mutex, Notify, OwnedSemaphorePermit, Semaphore,
    atomic::{AtomicBool, AtomicU64, Ordering},
    oneshot,
    task::{sleep, spawn, spawn_blocking, timeout},
    thread::{Builder, JoinHandle, scope},
    watch,
};
#[cfg(not(feature = "schedules"))]
pub(crate) use {
    parking_lot::{Condvar, Mutex},
    std::sync::atomic::{AtomicBool, AtomicU64, Ordering},
    std::thread::{Builder, JoinHandle, scope},
    tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch},
    tokio::task::{spawn, spawn_blocking},
    tokio::time::{sleep, timeout},
};
