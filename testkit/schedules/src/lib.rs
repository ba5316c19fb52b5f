//! Locks, threads and tasks under a scheduler that a test commands.
//!
//! The pool, the SSD tier and the engine take what they synchronise with from a module of their own, `sync`. It names the real primitives;
//! with the feature `schedules`, which only the tests of that name switch on, it names those of this crate. So the same code runs, with every
//! lock, atomic, notification and thread of it a point at which the scheduler may go on with another thread. All threads of a test are
//! then taken in turns by one, and a schedule is a function of its seed.
//!
//! Threads, locks and atomics are shuttle's. What tokio has for tasks is tokio's own, one step at a time, with a point before each call;
//! its runtime and its timers are not there. Time stands still: a wait with a deadline waits without one, so a wakeup that is lost is
//! a deadlock, and found. Not seen are orders that only weak memory allows (every atomic is sequentially consistent here), and the moments
//! at which a reference is counted.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod explore;
mod lock;
pub mod oneshot;
mod semaphore;
pub mod task;
pub mod watch;

pub use explore::{Choice, explore};
pub use lock::{Condvar, Mutex, MutexGuard, WaitTimeoutResult};
pub use semaphore::{Notify, OwnedSemaphorePermit, Semaphore};
pub use shuttle::sync::atomic;
pub use shuttle::thread;

/// A moment at which another thread may go on. Nothing while a thread unwinds: what panics must not panic again.
pub fn point() {
    if !std::thread::panicking() {
        // The one public call that is a point and no more: `yield_now` is also a wish.
        shuttle::thread::sleep(std::time::Duration::ZERO);
    }
}
