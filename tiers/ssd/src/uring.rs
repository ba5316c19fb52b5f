//! The ring, and the one place that hands memory to the kernel.
//!
//! Who may touch the memory of a transfer when: its own code until [`Ring::push`]; from then on the kernel alone, through the addresses
//! that [`Transfer::parts`] gave once; again its own code when the ring hands it back in [`Ended`], which is only after the kernel has
//! answered for it. In between the ring keeps the transfer as a raw pointer, so nothing refers to the memory, and nothing frees it: a
//! ring that is dropped with transfers under way tells who waits for them that they are lost, and leaks them, because the kernel may still
//! write there.
//!
//! Transfers that lie side by side may go together, as one call of the kernel. If that fails, each is to go alone: one that can not be moved
//! costs no other.
//!
//! What bounds it: as many calls of the kernel as the ring was made for. Each has at most one entry in the submission queue, so that never
//! overflows, and the completion queue, twice as large, neither.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::{Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::io::Errno;

use crate::block;
use crate::device::DeviceError;
use crate::transfer::{Parts, Transfer};

/// Mark of the completion that says that somebody wrote to the eventfd.
const WAKE: u64 = u64::MAX;
/// How often a transfer that the kernel could not take just now is tried again.
const TRIES_MAX: u32 = 64;
/// Rest before a kernel that was short of memory is asked again.
const PAUSE: Duration = Duration::from_millis(1);

/// Transfers that the kernel is done with: one, or several that were moved together.
pub(crate) struct Ended {
    transfers: Vec<Box<dyn Transfer>>,
    outcome: Result<(), DeviceError>,
}

impl Ended {
    /// Tells whoever asked.
    pub(crate) fn tell(self) {
        let Self { mut transfers, outcome } = self;
        let last = transfers.pop();
        transfers.into_iter().for_each(|transfer| transfer.done(Ok(())));
        if let Some(last) = last {
            last.done(outcome);
        }
    }
}

/// A ring over one file. Belongs to the thread that made it.
pub(crate) struct Ring {
    ring: IoUring,
    /// Kept open for as long as the kernel may work on it.
    file: Arc<File>,
    is_registered: bool,
    wake: Arc<OwnedFd>,
    is_listening: bool,
    places: Vec<Option<Held>>,
    free: Vec<usize>,
    /// Places whose entry is to be submitted again.
    again: Vec<usize>,
    /// Transfers that are to go alone, the next one last.
    apart: Vec<Box<dyn Transfer>>,
}

impl Ring {
    /// Makes a ring for `places` transfers at once over `file`; what is written to the eventfd `wake` ends [`Ring::wait`].
    pub(crate) fn start(file: Arc<File>, wake: Arc<OwnedFd>, places: u32) -> io::Result<Self> {
        // Kernels before 6.1 do not know these; the ring then interrupts its thread a little more often.
        let quiet = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(places + 1);
        let ring = match quiet {
            Err(error) if error.kind() == ErrorKind::InvalidInput => IoUring::new(places + 1)?,
            made => made?,
        };
        let parameters = ring.params();
        if !parameters.is_feature_nodrop() || !parameters.is_feature_ext_arg() {
            return Err(io::Error::new(ErrorKind::Unsupported, "the kernel's io_uring is older than 5.11"));
        }
        // Saves a look-up of the file for each transfer; goes without.
        let is_registered = ring.submitter().register_files(&[file.as_fd().as_raw_fd()]).is_ok();
        let count = places as usize;
        Ok(Self {
            ring,
            file,
            is_registered,
            wake,
            is_listening: false,
            places: (0..count).map(|_| None).collect(),
            free: (0..count).rev().collect(),
            again: Vec::with_capacity(count),
            apart: Vec::new(),
        })
    }

    /// Calls of the kernel under way.
    pub(crate) fn under_way(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// A transfer that is to be pushed alone, before any other.
    pub(crate) fn next_apart(&mut self) -> Option<Box<dyn Transfer>> {
        self.apart.pop()
    }

    /// Keeps transfers that are to go alone, in this order, for [`Ring::next_apart`].
    pub(crate) fn set_apart(&mut self, transfers: Vec<Box<dyn Transfer>>) {
        self.apart.extend(transfers.into_iter().rev());
    }

    /// Begins a transfer, or several that lie side by side and move the same way, at the next [`Ring::submit`] or [`Ring::wait`]. If there is
    /// nothing to move, it has ended. If the ring is full, they are set apart.
    pub(crate) fn push(&mut self, transfers: Vec<Box<dyn Transfer>>) -> Option<Ended> {
        let Some(place) = self.free.pop() else {
            self.set_apart(transfers);
            return None;
        };
        let held = Held::take(transfers);
        if held.left.is_empty() {
            self.free.push(place);
            return Some(Ended { transfers: held.give_back(), outcome: Ok(()) });
        }
        self.places[place] = Some(held);
        self.enter(place);
        None
    }

    /// Hands what was pushed to the kernel. Does not block.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        self.enter_again();
        settle(self.ring.submit())
    }

    /// Blocks until a transfer has ended, somebody wrote to the eventfd, or `limit` is over; adds what has ended to `ended`.
    pub(crate) fn wait(&mut self, ended: &mut Vec<Ended>, limit: Option<Duration>) -> io::Result<()> {
        self.listen();
        self.enter_again();
        let outcome = match limit {
            None => self.ring.submit_and_wait(1),
            Some(limit) => {
                let time = Timespec::from(limit);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        settle(outcome)?;
        let answers: Vec<_> = self.ring.completion().map(|answer| (answer.user_data(), answer.result())).collect();
        for (place, result) in answers {
            match place {
                WAKE => self.heard(),
                place => ended.extend(self.answer(usize::try_from(place).unwrap_or(usize::MAX), result)),
            }
        }
        Ok(())
    }

    /// What the kernel answered about a transfer: it has ended, or the rest of it is entered.
    fn answer(&mut self, place: usize, result: i32) -> Option<Ended> {
        let held = self.places.get_mut(place)?.as_mut()?;
        let Some(outcome) = held.moved(result) else {
            self.again.push(place);
            return None;
        };
        let transfers = self.places[place].take()?.give_back();
        self.free.push(place);
        if outcome.is_err() && transfers.len() > 1 {
            self.set_apart(transfers);
            return None;
        }
        Some(Ended { transfers, outcome })
    }

    fn enter_again(&mut self) {
        while let Some(place) = self.again.pop() {
            self.enter(place);
        }
    }

    fn enter(&mut self, place: usize) {
        let Some(held) = &self.places[place] else { return };
        let (at, parts) = (held.at + held.done_bytes, held.left.as_ptr().cast());
        // Few enough for one call: whoever makes a transfer sees to it.
        let count = u32::try_from(held.left.len()).unwrap_or(0);
        let fd = Fd(self.file.as_fd().as_raw_fd());
        let entry = match (held.is_read, self.is_registered) {
            (true, true) => opcode::Readv::new(Fixed(0), parts, count).offset(at).build(),
            (true, false) => opcode::Readv::new(fd, parts, count).offset(at).build(),
            (false, true) => opcode::Writev::new(Fixed(0), parts, count).offset(at).build(),
            (false, false) => opcode::Writev::new(fd, parts, count).offset(at).build(),
        };
        self.put(&entry.user_data(place as u64));
    }

    /// Asks to be told when somebody writes to the eventfd.
    fn listen(&mut self) {
        if !self.is_listening {
            self.is_listening = true;
            let readable = u32::from(rustix::event::PollFlags::IN.bits());
            self.put(&opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), readable).build().user_data(WAKE));
        }
    }

    fn heard(&mut self) {
        self.is_listening = false;
        let mut count = [0; 8];
        // It does not block, and what it says is known already.
        rustix::io::read(&*self.wake, &mut count).ok();
    }

    fn put(&mut self, entry: &Entry) {
        // SAFETY: a read or write names the parts of a `Held`, which stay valid and untouched by us until its completion is seen; the poll
        // names no memory; `file` and `wake` are open for as long as the ring is.
        let put = unsafe { self.ring.submission().push(entry) };
        debug_assert!(put.is_ok(), "the submission queue has an entry for each place and one for the eventfd");
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.places.iter().flatten().for_each(Held::lose);
    }
}

/// Waiting for too long, or an interrupted or a busy kernel, is no failure: what was pushed stays in the queue and is taken next time.
fn settle(outcome: io::Result<usize>) -> io::Result<()> {
    let Err(error) = outcome else { return Ok(()) };
    match Errno::from_io_error(&error) {
        Some(Errno::INTR | Errno::TIME) => Ok(()),
        Some(Errno::AGAIN | Errno::BUSY) => {
            std::thread::park_timeout(PAUSE);
            Ok(())
        }
        _ => Err(error),
    }
}

/// A part as the kernel reads it: `struct iovec`.
#[repr(C)]
struct Part {
    start: *mut u8,
    bytes: usize,
}

/// Transfers, side by side, whose memory is the kernel's.
struct Held {
    transfers: Vec<*mut dyn Transfer>,
    at: u64,
    is_read: bool,
    /// What has not been moved yet. The kernel reads it; its buffer does not move while an entry is under way.
    left: Vec<Part>,
    bytes: u64,
    done_bytes: u64,
    tries: u32,
}

impl Held {
    fn take(transfers: Vec<Box<dyn Transfer>>) -> Self {
        let at = transfers.first().map_or(0, |first| first.at());
        let transfers: Vec<_> = transfers.into_iter().map(Box::into_raw).collect();
        let (mut is_read, mut left) = (true, Vec::new());
        for transfer in &transfers {
            // SAFETY: from a box a moment ago, and borrowed for as long as the kernel has the memory: nobody touches it before `give_back`.
            let parts = unsafe { &mut **transfer }.parts();
            match parts {
                Parts::Into(parts) => {
                    left.extend(parts.into_iter().map(|part| Part { start: part.as_mut_ptr(), bytes: part.len() }));
                }
                Parts::From(parts) => {
                    is_read = false;
                    // Never written through: the kernel's structure has no other type for it.
                    let part = |part: &[u8]| Part { start: part.as_ptr().cast_mut(), bytes: part.len() };
                    left.extend(parts.into_iter().map(part));
                }
            }
        }
        left.retain(|part| part.bytes > 0);
        let bytes = left.iter().map(|part| part.bytes as u64).sum();
        Self { transfers, at, is_read, left, bytes, done_bytes: 0, tries: 0 }
    }

    fn give_back(self) -> Vec<Box<dyn Transfer>> {
        // SAFETY: made by `Box::into_raw` in `take`; the kernel has answered for the transfer or never had it; given back once, with `self`.
        self.transfers.into_iter().map(|transfer| unsafe { Box::from_raw(transfer) }).collect()
    }

    /// The kernel will not answer: whoever waits is told, and the memory stays the kernel's for ever.
    fn lose(&self) {
        for transfer in &self.transfers {
            // SAFETY: made by `Box::into_raw` in `take` and not given back; only the ring's thread comes here, once, and what is called
            // leaves the memory that the kernel has alone.
            unsafe { &mut **transfer }.lost();
        }
    }

    /// Takes the kernel's answer; `None` if there is more to move.
    fn moved(&mut self, result: i32) -> Option<Result<(), DeviceError>> {
        let Ok(moved) = usize::try_from(result) else {
            return self.refused(Errno::from_raw_os_error(result.wrapping_neg()));
        };
        self.done_bytes += moved as u64;
        if self.done_bytes >= self.bytes {
            return Some(Ok(()));
        }
        // Between blocks more can follow; within one, and after nothing, the device has ended.
        if moved == 0 || !moved.is_multiple_of(block::BYTES) {
            return Some(Err(self.short()));
        }
        self.skip(moved);
        None
    }

    fn refused(&mut self, errno: Errno) -> Option<Result<(), DeviceError>> {
        self.tries += 1;
        let passes = matches!(errno, Errno::AGAIN | Errno::INTR) && self.tries < TRIES_MAX;
        if passes { None } else { Some(Err(self.io_error(errno))) }
    }

    fn short(&self) -> DeviceError {
        if self.is_read {
            DeviceError::Short { at: self.at, wanted_bytes: self.bytes, got_bytes: self.done_bytes }
        } else {
            self.io_error(Errno::IO)
        }
    }

    fn io_error(&self, errno: Errno) -> DeviceError {
        let operation = if self.is_read { "read" } else { "write" };
        DeviceError::Io { operation, at: self.at, bytes: self.bytes, source: errno.into() }
    }

    fn skip(&mut self, mut bytes: usize) {
        while let Some(first) = self.left.first_mut() {
            if bytes < first.bytes {
                first.start = first.start.wrapping_add(bytes);
                first.bytes -= bytes;
                return;
            }
            bytes -= first.bytes;
            self.left.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can not go on says so by panicking")]

    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::block::Blocks;

    struct Endless {
        into: Blocks,
        is_lost: Arc<AtomicBool>,
    }

    impl Transfer for Endless {
        fn at(&self) -> u64 {
            0
        }

        fn bytes(&self) -> u64 {
            self.into.len() as u64
        }

        fn parts(&mut self) -> Parts<'_> {
            Parts::Into(vec![&mut self.into])
        }

        fn done(self: Box<Self>, outcome: Result<(), DeviceError>) {
            panic!("nothing was ever sent: {outcome:?}");
        }

        fn lost(&mut self) {
            self.is_lost.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn who_waits_for_a_transfer_is_told_when_the_ring_ends_before_the_device_answers() {
        let (silent, _sender) = io::pipe().unwrap();
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let mut ring = Ring::start(Arc::new(File::from(OwnedFd::from(silent))), wake, 2).unwrap();
        let is_lost = Arc::new(AtomicBool::new(false));
        let endless = Endless { into: Blocks::of(block::BYTES), is_lost: Arc::clone(&is_lost) };
        assert!(ring.push(vec![Box::new(endless)]).is_none());
        ring.submit().unwrap();
        drop(ring);
        assert!(is_lost.load(Ordering::SeqCst));
    }
}
