//! A batch of page writes: under way together, then one barrier.
//!
//! Slots are given out one behind the other, so the pages of a batch mostly lie side by side: those that do are written as one transfer, which
//! is what makes small pages as fast as large ones.

use std::fmt;
use std::sync::Arc;

use cairn_core::metrics::IoClass;
use cairn_core::{Generation, SlotId};

use crate::block::{self, Block, Blocks};
use crate::device::DeviceError;
use crate::error::SsdError;
use crate::page_io::PageIo;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::tier::{PageFacts, Prepared, SsdTier};
use crate::transfer::{Full, Parts, TOGETHER_BYTES_MAX, Transfer};

/// Writes that are under way together. Nothing of it is on the disk for certain before [`WriteBatch::finish`] has returned.
///
/// Dropping it blocks until none of its writes is under way any more, so that no slot is written after its owner has given it up.
#[derive(Debug)]
pub struct WriteBatch<'a> {
    io: &'a PageIo,
    progress: Arc<Progress>,
    /// Pages side by side that wait for one more.
    stretch: Option<Stretch>,
}

/// How far the writes of a batch are.
#[derive(Debug, Default)]
struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pending: usize,
    /// The first failure.
    failed: Option<SsdError>,
}

impl<'a> WriteBatch<'a> {
    pub(crate) fn new(io: &'a PageIo) -> Self {
        Self { io, progress: Arc::default(), stretch: None }
    }

    /// Takes a page to be written into a reserved slot: header, payload and zero tail, from where they are if the page begins at a multiple of
    /// 4,096. It begins when the next page does not lie beside it, or with [`WriteBatch::finish`]. Blocks only while the line of writes is
    /// full. Returns the generation of this filling, which was never used before.
    ///
    /// # Errors
    /// [`SsdError::NotReserved`], [`SsdError::Parent`], [`SsdError::WriteQuarantined`] if a write of this or another batch has failed,
    /// [`SsdError::Closed`], or the device's.
    pub fn write<P>(&mut self, slot: SlotId, facts: &PageFacts, page: P) -> Result<Generation, SsdError>
    where
        P: AsRef<[u8]> + Send + 'static,
    {
        let tier = &self.io.tier;
        tier.disk.writable()?;
        let Prepared { at, generation, header } = tier.prepare(slot, facts, page.as_ref().len() as u64)?;
        let page = PageOut::new(header, page);
        match &mut self.stretch {
            Some(stretch) if stretch.takes(at, &page) => stretch.push(page),
            _ => {
                self.submit()?;
                self.stretch = Some(Stretch::new(Arc::clone(tier), at, page));
            }
        }
        Ok(generation)
    }

    /// Begins to write what waits for one more.
    fn submit(&mut self) -> Result<(), SsdError> {
        let Some(mut stretch) = self.stretch.take() else { return Ok(()) };
        self.io.tier.disk.writable()?;
        self.progress.state.lock().pending += 1;
        stretch.pending = Some(Pending(Arc::clone(&self.progress)));
        let mut next: Box<dyn Transfer> = Box::new(stretch);
        while let Err(Full(refused)) = self.io.queue.submit(IoClass::Write, next) {
            if !self.progress.wait_below(1) {
                return Err(SsdError::Closed);
            }
            next = refused;
        }
        if self.io.in_step {
            drop(self.progress.settle());
        }
        Ok(())
    }

    /// Waits for every write, then passes one barrier. Blocks.
    ///
    /// # Errors
    /// The first that went wrong, and [`SsdError::WriteQuarantined`] if that was in another batch: nothing of this one may be acknowledged.
    pub fn finish(mut self) -> Result<(), SsdError> {
        self.submit()?;
        match self.progress.settle().failed.take() {
            Some(failed) => Err(failed),
            None => self.io.tier.barrier(),
        }
    }
}

impl Drop for WriteBatch<'_> {
    fn drop(&mut self) {
        drop(self.progress.settle());
    }
}

impl Progress {
    /// Waits until every write has ended.
    fn settle(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while state.pending > 0 {
            self.changed.wait(&mut state);
        }
        state
    }

    /// Waits until one of the writes has ended; false at once if at most `own` are pending, since then nothing here will make room.
    fn wait_below(&self, own: usize) -> bool {
        let mut state = self.state.lock();
        let before = state.pending;
        if before <= own {
            return false;
        }
        while state.pending >= before {
            self.changed.wait(&mut state);
        }
        true
    }
}

/// Counts a write as pending until it is dropped, however that comes.
#[derive(Debug)]
struct Pending(Arc<Progress>);

impl Pending {
    fn end(self, failed: Option<SsdError>) {
        let mut state = self.0.state.lock();
        state.failed = state.failed.take().or(failed);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.state.lock().pending -= 1;
        self.0.changed.notify_all();
    }
}

/// A page that is written: its header, its whole blocks from where they are, and the rest.
struct PageOut {
    header: Box<Block>,
    page: Box<dyn AsRef<[u8]> + Send>,
    /// Blocks that do not lie in the page as they must: the last incomplete one, or all if the page does not begin on a block.
    beside: Blocks,
    /// Bytes that are written from the page; the rest comes from `beside`.
    direct_bytes: usize,
}

impl PageOut {
    fn new<P: AsRef<[u8]> + Send + 'static>(header: Block, page: P) -> Self {
        let bytes = page.as_ref();
        let direct_bytes = block::direct_bytes(bytes);
        let rest = &bytes[direct_bytes..];
        let mut beside = Blocks::of(rest.len());
        beside[..rest.len()].copy_from_slice(rest);
        Self { header: Box::new(header), page: Box::new(page), beside, direct_bytes }
    }

    fn parts(&self) -> [&[u8]; 3] {
        [&self.header, &(*self.page).as_ref()[..self.direct_bytes], &self.beside]
    }

    fn bytes(&self) -> u64 {
        (block::BYTES + self.direct_bytes + self.beside.len()) as u64
    }
}

impl fmt::Debug for PageOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageOut").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

/// Pages that lie side by side on the device, written as one transfer.
#[derive(Debug)]
struct Stretch {
    tier: Arc<SsdTier>,
    at: u64,
    bytes: u64,
    /// Let go of before the write counts as ended: whoever waits for it finds each page with one holder less.
    pages: Vec<PageOut>,
    /// There once it has been submitted.
    pending: Option<Pending>,
}

impl Stretch {
    fn new(tier: Arc<SsdTier>, at: u64, first: PageOut) -> Self {
        Self { tier, at, bytes: first.bytes(), pages: vec![first], pending: None }
    }

    fn takes(&self, at: u64, page: &PageOut) -> bool {
        at == self.at + self.bytes && self.bytes + page.bytes() <= TOGETHER_BYTES_MAX
    }

    fn push(&mut self, page: PageOut) {
        self.bytes += page.bytes();
        self.pages.push(page);
    }

    fn end(&mut self, failed: Option<SsdError>) {
        self.pages.clear();
        self.tell(failed);
    }

    fn tell(&mut self, failed: Option<SsdError>) {
        if let Some(pending) = self.pending.take() {
            pending.end(failed);
        }
    }
}

impl Transfer for Stretch {
    fn at(&self) -> u64 {
        self.at
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn parts(&mut self) -> Parts<'_> {
        // From here on the device has it, whatever comes of it.
        self.tier.disk.begins_to_write(self.bytes);
        Parts::From(self.pages.iter().flat_map(PageOut::parts).collect())
    }

    fn done(mut self: Box<Self>, outcome: Result<(), DeviceError>) {
        let failed = outcome.err().map(|error| self.tier.disk.quarantine(error));
        self.end(failed);
    }

    fn lost(&mut self) {
        let source = std::io::Error::other("the ring of the ssd failed before it was answered");
        let error = DeviceError::Io { operation: "write", at: self.at, bytes: self.bytes, source };
        let failed = self.tier.disk.quarantine(error);
        // The pages stay the device's.
        self.tell(Some(failed));
    }
}

impl Drop for Stretch {
    fn drop(&mut self) {
        // Withdrawn before it had begun: it was not written.
        self.end(Some(SsdError::Closed));
    }
}
