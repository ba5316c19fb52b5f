//! Transfers moved by an `io_uring`: one thread that owns one ring, and sleeps in it.
//!
//! The thread hands transfers from the lines to the kernel up to the depth, reads that lie side by side as one; sleeps until one has ended or
//! somebody queued one while it slept (an eventfd in the ring tells); refills, and only then tells who asked, so that the disk is never idle
//! meanwhile.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use cairn_core::Clock;
use cairn_core::metrics::{IoClass, Metrics};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::calibrate::{Calibration, DEPTH_MAX, calibrate};
use crate::line::Lines;
use crate::transfer::{Full, TOGETHER_BYTES_MAX, Transfer, TransferQueue};
use crate::uring::{Ended, Ring};

/// What a ring works on.
#[derive(Clone, Debug)]
pub struct RingTarget {
    /// The file.
    pub file: Arc<File>,
    /// Bytes of it that may be read to calibrate.
    pub bytes: u64,
    /// Transfers under way at once, 1 to 32; measured at the start if `None`.
    pub depth: Option<u32>,
}

/// The thread with the ring, and the lines it serves.
pub struct RingQueue {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    depth: usize,
    words: String,
}

struct Shared {
    state: Mutex<State>,
    wake: Arc<OwnedFd>,
    metrics: Arc<Metrics>,
}

struct State {
    lines: Lines,
    /// The thread found nothing and sleeps, or is about to.
    asleep: bool,
}

impl RingQueue {
    /// Starts the thread, with room for `length_max` waiting transfers of each class. Blocks for at most 0.3 s to measure the depth; only
    /// reads, and only a file that holds enough.
    ///
    /// # Errors
    /// If the system has no `io_uring` for this process, or no thread.
    pub fn start(
        target: RingTarget,
        length_max: usize,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let state = Mutex::new(State { lines: Lines::new(length_max, Arc::clone(&metrics)), asleep: false });
        let shared = Arc::new(Shared { state, wake, metrics });
        let (tell, told) = sync_channel(1);
        let thread = {
            let shared = Arc::clone(&shared);
            Builder::new().name("ssd-ring".to_owned()).spawn(move || shared.work(&target, &*clock, &tell))?
        };
        // A thread that ended without a word has panicked.
        let calibration = told.recv().unwrap_or_else(|_| Err(io::Error::other("the ring's thread ended")))?;
        shared.metrics.ssd_depth.set(i64::from(calibration.depth));
        let (depth, words) = (calibration.depth as usize, in_words(&calibration));
        Ok(Self { shared, thread: Some(thread), depth, words })
    }
}

fn in_words(calibration: &Calibration) -> String {
    let Calibration { depth, bytes_per_second } = calibration;
    match bytes_per_second {
        Some(rate) => format!("io_uring, depth={depth} measured_mib_per_second={}", rate >> 20),
        None => format!("io_uring, depth={depth}, not measured"),
    }
}

impl TransferQueue for RingQueue {
    fn submit(&self, class: IoClass, transfer: Box<dyn Transfer>) -> Result<(), Full> {
        let mut state = self.shared.state.lock();
        state.lines.push(class, transfer)?;
        let asleep = std::mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.shared.ring_the_bell();
        }
        Ok(())
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn describe(&self) -> &str {
        &self.words
    }
}

impl Shared {
    fn work(&self, target: &RingTarget, clock: &dyn Clock, tell: &SyncSender<io::Result<Calibration>>) {
        // However the thread ends, nobody waits for it in vain.
        let _end = Closing(self);
        let (mut ring, calibration) = match self.begin(target, clock) {
            Ok(begun) => begun,
            Err(error) => {
                tell.send(Err(error)).ok();
                return;
            }
        };
        tell.send(Ok(calibration)).ok();
        if let Err(error) = self.serve(&mut ring, calibration.depth as usize) {
            let under_way = ring.under_way();
            tracing::error!(%error, under_way, "the ring of the ssd failed; nothing more is read or written until the next start");
        }
    }

    fn begin(&self, target: &RingTarget, clock: &dyn Clock) -> io::Result<(Ring, Calibration)> {
        let mut ring = Ring::start(Arc::clone(&target.file), Arc::clone(&self.wake), DEPTH_MAX)?;
        let calibration = match target.depth {
            Some(depth) => Calibration { depth: depth.clamp(1, DEPTH_MAX), bytes_per_second: None },
            None => calibrate(&mut ring, &target.file, target.bytes, clock)?,
        };
        Ok((ring, calibration))
    }

    fn serve(&self, ring: &mut Ring, depth: usize) -> io::Result<()> {
        let mut ended: Vec<Ended> = Vec::with_capacity(depth);
        loop {
            let mut next = Vec::new();
            let open = self.fill(ring, depth, &mut next);
            ring.submit()?;
            self.metrics.ssd_in_flight.set(i64::try_from(ring.under_way()).unwrap_or(i64::MAX));
            ended.drain(..).chain(next).for_each(Ended::tell);
            if !open && ring.under_way() == 0 {
                return Ok(());
            }
            ring.wait(&mut ended, None)?;
        }
    }

    /// Hands transfers to the ring up to the depth; those that end at once go to `ended`. False once the queue is closed.
    fn fill(&self, ring: &mut Ring, depth: usize, ended: &mut Vec<Ended>) -> bool {
        while ring.under_way() < depth {
            if let Some(alone) = ring.next_apart() {
                if alone.is_wanted() {
                    ended.extend(ring.push(vec![alone]));
                }
                continue;
            }
            let mut state = self.state.lock();
            if state.lines.is_closed() {
                return false;
            }
            let Some((class, first)) = state.lines.pop(|_| true) else {
                state.asleep = true;
                return true;
            };
            let together = with_those_beside(&mut state.lines, class, first);
            drop(state);
            // Those that nobody wants are dropped here, without the lock.
            let (wanted, unwanted): (Vec<_>, Vec<_>) = together.into_iter().partition(|transfer| transfer.is_wanted());
            if unwanted.is_empty() {
                ended.extend(ring.push(wanted));
            } else {
                // They may leave a hole.
                ring.set_apart(wanted);
            }
        }
        true
    }

    fn ring_the_bell(&self) {
        // Fails only if the counter is full, and then the thread is awake.
        rustix::io::write(&*self.wake, &1_u64.to_ne_bytes()).ok();
    }

    fn close(&self) {
        let withdrawn = self.state.lock().lines.close();
        drop(withdrawn);
        self.ring_the_bell();
    }
}

/// A transfer, and the reads that wait behind it and lie beside it: small pages of a chain are then read as fast as large ones. Writes were put
/// together where they were made.
fn with_those_beside(lines: &mut Lines, class: IoClass, first: Box<dyn Transfer>) -> Vec<Box<dyn Transfer>> {
    let (mut end, mut bytes) = (first.at() + first.bytes(), first.bytes());
    let mut together = vec![first];
    while class != IoClass::Write
        && let Some(next) = lines.pop_beside(class, end, TOGETHER_BYTES_MAX.saturating_sub(bytes))
    {
        (end, bytes) = (end + next.bytes(), bytes + next.bytes());
        together.push(next);
    }
    together
}

struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for RingQueue {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to wait for.
            thread.join().ok();
        }
    }
}

impl fmt::Debug for RingQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingQueue").field("depth", &self.depth).finish_non_exhaustive()
    }
}
