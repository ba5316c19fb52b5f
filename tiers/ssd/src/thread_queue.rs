//! Transfers moved by threads with positioned I/O: for devices that are no file, and for systems without `io_uring`.
//!
//! Each thread moves one transfer at a time. Of writes one is under way at a time, in the order they came: a page is large enough to keep a
//! disk busy alone.

use std::fmt;
use std::sync::Arc;

use cairn_core::metrics::{IoClass, Metrics};

use crate::device::Device;
use crate::error::SsdError;
use crate::line::Lines;
use crate::sync::{Builder, Condvar, JoinHandle, Mutex};
use crate::transfer::{Full, Parts, Transfer, TransferQueue};

/// The threads and the lines they serve.
pub struct ThreadQueue {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    words: String,
}

struct Shared {
    device: Arc<dyn Device>,
    state: Mutex<State>,
    changed: Condvar,
    metrics: Arc<Metrics>,
}

struct State {
    lines: Lines,
    writing: bool,
}

impl ThreadQueue {
    /// Starts `threads` threads, at least one, with room for `length_max` waiting transfers of each class.
    ///
    /// # Errors
    /// [`SsdError::Threads`] if the system has no more threads.
    pub fn start(
        device: Arc<dyn Device>,
        threads: usize,
        length_max: usize,
        metrics: Arc<Metrics>,
    ) -> Result<Self, SsdError> {
        let threads = threads.max(1);
        let state = Mutex::new(State { lines: Lines::new(length_max, Arc::clone(&metrics)), writing: false });
        metrics.ssd_depth.set(i64::try_from(threads).unwrap_or(i64::MAX));
        let words = format!("positioned I/O by threads, threads={threads}");
        let shared = Arc::new(Shared { device, state, changed: Condvar::new(), metrics });
        // Dropped on an early return, which ends the threads started so far.
        let mut queue = Self { shared, threads: Vec::with_capacity(threads), words };
        for number in 0..threads {
            let shared = Arc::clone(&queue.shared);
            let thread = Builder::new().name(format!("ssd-io-{number}"));
            queue.threads.push(thread.spawn(move || shared.work()).map_err(SsdError::Threads)?);
        }
        Ok(queue)
    }
}

impl TransferQueue for ThreadQueue {
    fn submit(&self, class: IoClass, transfer: Box<dyn Transfer>) -> Result<(), Full> {
        self.shared.state.lock().lines.push(class, transfer)?;
        self.shared.changed.notify_one();
        Ok(())
    }

    fn depth(&self) -> usize {
        self.threads.len()
    }

    fn describe(&self) -> &str {
        &self.words
    }
}

impl Shared {
    fn work(&self) {
        while let Some((class, transfer)) = self.next() {
            self.metrics.ssd_in_flight.inc();
            if transfer.is_wanted() {
                self.carry(transfer);
            }
            self.metrics.ssd_in_flight.dec();
            if class == IoClass::Write {
                self.state.lock().writing = false;
                self.changed.notify_one();
            }
        }
    }

    fn carry(&self, mut transfer: Box<dyn Transfer>) {
        let at = transfer.at();
        let outcome = match transfer.parts() {
            Parts::Into(mut parts) => self.device.read_at(at, &mut parts),
            Parts::From(parts) => self.device.write_at(at, &parts),
        };
        transfer.done(outcome);
    }

    /// The next transfer; waits for one. `None` once the queue is closed.
    fn next(&self) -> Option<(IoClass, Box<dyn Transfer>)> {
        let mut state = self.state.lock();
        loop {
            if state.lines.is_closed() {
                return None;
            }
            let writing = state.writing;
            if let Some((class, transfer)) = state.lines.pop(|class| class != IoClass::Write || !writing) {
                state.writing |= class == IoClass::Write;
                return Some((class, transfer));
            }
            self.changed.wait(&mut state);
        }
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        let withdrawn = self.shared.state.lock().lines.close();
        drop(withdrawn);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to wait for.
            thread.join().ok();
        }
    }
}

impl fmt::Debug for ThreadQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadQueue").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}
