//! Mapped memory, and the one place that touches it through raw pointers.
//!
//! Who may touch the memory of an [`Arena`] when:
//! - this process, through a [`Frame`], which is the only way to a slice: at most one frame covers a byte at any time, so a frame is
//!   an exclusive owner. The arena keeps a bit for each 4 KiB lent and refuses what overlaps; nobody above is trusted with that.
//! - the kernel, when it is given a slice of a frame for I/O, under the rules of that slice.
//! - another process that was passed the memfd: it can read, at any time. The seals let it neither write nor resize, so nothing changes
//!   under a reference, and no access is past the end of the file.
//!
//! The mapping outlives every frame: a frame holds its arena.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::sync::{AtomicU64, Ordering};

/// Frames start and end at multiples of this.
pub(crate) const UNIT_BYTES: usize = 4096;
/// A huge page.
pub(crate) const HUGE_BYTES: usize = 2 << 20;
/// Memory is touched in steps of this: the kernel holds the lock of the address space during one, about 24 ms without huge pages, and
/// every thread that maps or frees memory waits for it.
const TOUCH_BYTES: usize = 8 << 20;

/// What an arena asks the kernel for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Reserved huge pages.
    Hugetlb,
    /// Transparent huge pages; the kernel may give small ones all the same.
    Thp,
    /// Small pages.
    Small,
}

/// A memfd, sealed, mapped readable and writable, zero at first.
#[derive(Debug)]
pub(crate) struct Arena {
    file: OwnedFd,
    start: NonNull<u8>,
    bytes: usize,
    kind: Kind,
    /// A bit for each unit, set while a frame covers it.
    lent: Box<[AtomicU64]>,
}

// SAFETY: the mapping belongs to the arena and not to a thread, and is reached only through frames.
unsafe impl Send for Arena {}
// SAFETY: shared use is the atomics of `lent`, system calls on the range, and frames, which never overlap.
unsafe impl Sync for Arena {}

impl Arena {
    /// Creates and maps an arena. `bytes` is a multiple of [`UNIT_BYTES`], with [`Kind::Hugetlb`] of [`HUGE_BYTES`].
    pub(crate) fn create(bytes: usize, kind: Kind) -> io::Result<Self> {
        if bytes == 0 || !bytes.is_multiple_of(UNIT_BYTES) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let huge = if kind == Kind::Hugetlb { MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB } else { MemfdFlags::empty() };
        let file = memfd_create("cairn-pool", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | huge)?;
        ftruncate(&file, bytes as u64)?;
        let start = map(file.as_fd(), bytes)?;
        let lent = (0..bytes.div_ceil(UNIT_BYTES).div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let arena = Self { file, start, bytes, kind, lent };
        // After mapping: from now on nobody gets a second writable mapping, in this process or another.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        fcntl_add_seals(&arena.file, seals)?;
        // Page bytes are users' conversations: they do not belong in a core file.
        arena.advise(0..bytes, Advice::LinuxDontDump)?;
        // Kernels without transparent huge pages refuse this advice; what came of it is measured, see `backing`.
        match kind {
            Kind::Hugetlb => None,
            Kind::Thp => arena.advise(0..bytes, Advice::LinuxHugepage).ok(),
            Kind::Small => arena.advise(0..bytes, Advice::LinuxNoHugepage).ok(),
        };
        Ok(arena)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Addresses of the mapping.
    pub(crate) fn addresses(&self) -> Range<usize> {
        let start = self.start.as_ptr().addr();
        start..start + self.bytes
    }

    /// Makes the kernel provide all the memory now; content does not change. Blocks: about 3 s per GiB without huge pages.
    pub(crate) fn touch(&self) -> io::Result<()> {
        for from in (0..self.bytes).step_by(TOUCH_BYTES) {
            self.advise(from..self.bytes.min(from + TOUCH_BYTES), Advice::LinuxPopulateWrite)?;
        }
        Ok(())
    }

    /// Lends the `bytes` from `at` on, both multiples of [`UNIT_BYTES`]. `None` if they are not inside the arena, or partly lent.
    pub(crate) fn lend(self: &Arc<Self>, at: usize, bytes: usize) -> Option<Frame> {
        let end = at.checked_add(bytes).filter(|end| *end <= self.bytes)?;
        if bytes == 0 || !at.is_multiple_of(UNIT_BYTES) || !end.is_multiple_of(UNIT_BYTES) {
            return None;
        }
        let units = at / UNIT_BYTES..end / UNIT_BYTES;
        for (word, mask) in masks(units.clone()) {
            let before = self.lent[word].fetch_or(mask, Ordering::Acquire);
            if before & mask != 0 {
                self.lent[word].fetch_and(!mask | before, Ordering::Release);
                self.take_back(units.start..word * 64);
                return None;
            }
        }
        Some(Frame { arena: Arc::clone(self), at, bytes })
    }

    fn take_back(&self, units: Range<usize>) {
        for (word, mask) in masks(units) {
            self.lent[word].fetch_and(!mask, Ordering::Release);
        }
    }

    /// `advice` must be one that changes neither content nor mapping.
    fn advise(&self, range: Range<usize>, advice: Advice) -> io::Result<()> {
        let from = self.start.as_ptr().wrapping_add(range.start).cast::<c_void>();
        // SAFETY: the range lies in our own mapping, and the callers, all in this file, pass only advice about backing and dumps.
        Ok(unsafe { madvise(from, range.len(), advice) }?)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and whole, and no frame is left, since each holds the arena.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of a whole mapping");
    }
}

/// A part of an arena, owned exclusively until dropped.
#[derive(Debug)]
pub(crate) struct Frame {
    arena: Arc<Arena>,
    at: usize,
    bytes: usize,
}

impl Frame {
    pub(crate) fn as_slice(&self) -> &[u8] {
        let from = self.arena.start.as_ptr().wrapping_add(self.at);
        // SAFETY: mapped and initialised (a memfd starts as zeros); lent to this frame alone, and shared while `self` is borrowed.
        unsafe { slice::from_raw_parts(from, self.bytes) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let from = self.arena.start.as_ptr().wrapping_add(self.at);
        // SAFETY: as in `as_slice`, and borrowed exclusively here.
        unsafe { slice::from_raw_parts_mut(from, self.bytes) }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.arena.take_back(self.at / UNIT_BYTES..(self.at + self.bytes) / UNIT_BYTES);
    }
}

/// Maps all of `file`, at a multiple of [`HUGE_BYTES`] if the address is free: without that the kernel can not use huge pages.
fn map(file: BorrowedFd<'_>, bytes: usize) -> io::Result<NonNull<u8>> {
    let hint = aligned_hole(bytes + HUGE_BYTES)?;
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: without MAP_FIXED the kernel takes the address as a wish and replaces no mapping.
    let start = unsafe { mmap(hint, bytes, access, flags, file, 0) }?;
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// An aligned address with free room behind it; only a wish, since another thread may map something there meanwhile.
fn aligned_hole(bytes: usize) -> io::Result<*mut c_void> {
    // SAFETY: a new mapping without access, at an address of the kernel's choice.
    let hole =
        unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE) }?;
    // SAFETY: exactly the mapping made above, which nothing refers to.
    unsafe { munmap(hole, bytes) }?;
    Ok(hole.wrapping_byte_add(hole.cast::<u8>().align_offset(HUGE_BYTES)))
}

/// The words that hold the bits of `units`, each with the mask of its part.
fn masks(units: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    (units.start / 64..units.end.div_ceil(64)).map(move |word| {
        let from = units.start.max(word * 64) - word * 64;
        let to = units.end.min(word * 64 + 64) - word * 64;
        (word, (u64::MAX >> (64 - (to - from))) << from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(units: usize) -> Arc<Arena> {
        Arc::new(Arena::create(units * UNIT_BYTES, Kind::Small).unwrap())
    }

    fn lend(arena: &Arc<Arena>, units: Range<usize>) -> Option<Frame> {
        arena.lend(units.start * UNIT_BYTES, units.len() * UNIT_BYTES)
    }

    #[test]
    fn no_byte_is_lent_twice() {
        let arena = arena(200);
        let held = lend(&arena, 60..140).unwrap();
        for overlap in [0..61, 59..60 + 1, 100..101, 139..200, 0..200] {
            assert!(lend(&arena, overlap).is_none());
        }
        let (before, behind) = (lend(&arena, 0..60), lend(&arena, 140..200));
        assert!(before.is_some() && behind.is_some());
        drop((held, before, behind));
        assert!(lend(&arena, 0..200).is_some());
    }

    #[test]
    fn nothing_outside_the_arena_or_between_units_is_lent() {
        let arena = arena(4);
        for (at, bytes) in [
            (0, 0),
            (1, UNIT_BYTES),
            (0, 17),
            (0, 5 * UNIT_BYTES),
            (4 * UNIT_BYTES, UNIT_BYTES),
            (UNIT_BYTES, usize::MAX),
        ] {
            assert!(arena.lend(at, bytes).is_none(), "at={at} bytes={bytes}");
        }
    }

    #[test]
    fn the_file_shows_what_a_frame_holds_but_can_not_be_written_or_resized() {
        let arena = arena(2);
        let mut frame = lend(&arena, 1..2).unwrap();
        frame.as_mut_slice()[7] = 42;
        let mut seen = [0];
        rustix::io::pread(arena.file(), &mut seen, (UNIT_BYTES + 7) as u64).unwrap();
        assert_eq!(seen, [42]);
        assert!(rustix::io::pwrite(arena.file(), &[1], 0).is_err());
        for bytes in [0, 1 << 20] {
            assert!(ftruncate(arena.file(), bytes).is_err());
        }
    }

    #[test]
    fn an_arena_of_odd_size_is_refused() {
        assert!(Arena::create(0, Kind::Small).is_err());
        assert!(Arena::create(UNIT_BYTES + 1, Kind::Small).is_err());
    }
}
