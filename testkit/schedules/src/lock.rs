//! Mutex and condition variable, called as those of `parking_lot` are: a panic under a lock poisons nothing.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

use shuttle::sync;

/// A lock.
#[derive(Default)]
pub struct Mutex<T>(sync::Mutex<T>);

/// A lock that is held. Without its inner part only while it is given up for a time.
pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    held: Option<sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { lock: self, held: Some(self.take()) }
    }

    /// What it guards; nobody else can hold it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> MutexGuard<'_, T> {
    /// Gives the lock up while `work` is done.
    pub fn unlocked<R>(guard: &mut Self, work: impl FnOnce() -> R) -> R {
        guard.held = None;
        let done = work();
        guard.held = Some(guard.lock.take());
        done
    }
}

#[expect(clippy::expect_used, reason = "the inner part is away only while the guard is borrowed by who took it")]
impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("the lock is held")
    }
}

#[expect(clippy::expect_used, reason = "the inner part is away only while the guard is borrowed by who took it")]
impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("the lock is held")
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.fmt(f)
    }
}

/// A condition variable.
#[derive(Default)]
pub struct Condvar(sync::Condvar);

/// Whether a wait ended without a wakeup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimeoutResult(());

impl WaitTimeoutResult {
    /// Never: time stands still.
    pub fn timed_out(self) -> bool {
        false
    }
}

impl Condvar {
    /// One that nobody waits for.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the lock up until it is woken.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if let Some(held) = guard.held.take() {
            guard.held = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The same: the time is never over.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _time_max: Duration) -> WaitTimeoutResult {
        self.wait(guard);
        WaitTimeoutResult(())
    }

    /// Wakes one who waits; which, the schedule decides.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
