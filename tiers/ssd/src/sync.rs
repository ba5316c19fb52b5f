//! What the tier synchronises with. With the feature `schedules`, which tests of that name switch on, a scheduler that they command. The
//! `io_uring` takes the real primitives in any case: no scheduler commands the kernel. So does [`crate::look`], which a device of a few
//! regions needs no threads for.

#[cfg(feature = "schedules")]
pub(crate) use cairn_schedules::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
    oneshot,
    thread::{Builder, JoinHandle},
};
#[cfg(not(feature = "schedules"))]
pub(crate) use {
    parking_lot::{Condvar, Mutex, MutexGuard},
    std::sync::atomic::{AtomicBool, AtomicU64, Ordering},
    std::thread::{Builder, JoinHandle},
    tokio::sync::oneshot,
};
