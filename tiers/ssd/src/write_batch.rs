//! A batch of page writes: under way together, then one barrier.

use std::sync::Arc;

use cairn_core::metrics::IoClass;
use cairn_core::{Generation, SlotId};

use crate::block::{self, Block, Blocks};
use crate::device::DeviceError;
use crate::error::SsdError;
use crate::page_io::PageIo;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::tier::{PageFacts, Prepared, SsdTier};
use crate::transfer::{Full, Parts, Transfer};

/// Writes that are under way together. Nothing of it is on the disk for certain before [`WriteBatch::finish`] has returned.
///
/// Dropping it blocks until none of its writes is under way any more, so that no slot is written after its owner has given it up.
#[derive(Debug)]
pub struct WriteBatch<'a> {
    io: &'a PageIo,
    progress: Arc<Progress>,
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
        Self { io, progress: Arc::default() }
    }

    /// Begins to write a page into a reserved slot: header, payload and zero tail in one write, from where they are if the page begins at a
    /// multiple of 4,096. Blocks only while the line of writes is full. Returns the generation of this filling, which was never used before.
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
        self.progress.state.lock().pending += 1;
        let pending = Pending(Arc::clone(&self.progress));
        let mut next: Box<dyn Transfer> = Box::new(PageWrite::new(Arc::clone(tier), at, header, page, pending));
        while let Err(Full(refused)) = self.io.queue.submit(IoClass::Write, next) {
            if !self.progress.wait_below(1) {
                return Err(SsdError::Closed);
            }
            next = refused;
        }
        if self.io.in_step {
            drop(self.progress.settle());
        }
        Ok(generation)
    }

    /// Waits for every write, then passes one barrier. Blocks.
    ///
    /// # Errors
    /// The first that went wrong, and [`SsdError::WriteQuarantined`] if that was in another batch: nothing of this one may be acknowledged.
    pub fn finish(self) -> Result<(), SsdError> {
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

/// A page that is being written.
struct PageWrite<P> {
    tier: Arc<SsdTier>,
    at: u64,
    header: Box<Block>,
    /// Let go of before the write counts as ended: whoever waits for it finds the page with one holder less.
    page: Option<P>,
    /// Blocks that do not lie in the page as they must: the last incomplete one, or all if the page does not begin on a block.
    beside: Blocks,
    /// Bytes that are written from the page; the rest comes from `beside`.
    direct_bytes: usize,
    pending: Option<Pending>,
}

impl<P: AsRef<[u8]>> PageWrite<P> {
    fn new(tier: Arc<SsdTier>, at: u64, header: Block, page: P, pending: Pending) -> Self {
        let bytes = page.as_ref();
        let direct_bytes = block::direct_bytes(bytes);
        let rest = &bytes[direct_bytes..];
        let mut beside = Blocks::of(rest.len());
        beside[..rest.len()].copy_from_slice(rest);
        Self { tier, at, header: Box::new(header), page: Some(page), beside, direct_bytes, pending: Some(pending) }
    }
}

impl<P: AsRef<[u8]> + Send> Transfer for PageWrite<P> {
    fn at(&self) -> u64 {
        self.at
    }

    fn parts(&mut self) -> Parts<'_> {
        let direct = self.page.as_ref().map_or(&[][..], |page| &page.as_ref()[..self.direct_bytes]);
        // From here on the device has it, whatever comes of it.
        self.tier.disk.begins_to_write((block::BYTES + direct.len() + self.beside.len()) as u64);
        Parts::From(vec![&self.header, direct, &self.beside])
    }

    fn done(mut self: Box<Self>, outcome: Result<(), DeviceError>) {
        let Self { tier, .. } = &*self;
        let failed = outcome.err().map(|error| tier.disk.quarantine(error));
        self.end(failed);
    }

    fn lost(&mut self) {
        let source = std::io::Error::other("the ring of the ssd failed before it was answered");
        let bytes = (block::BYTES + self.direct_bytes + self.beside.len()) as u64;
        let failed = self.tier.disk.quarantine(DeviceError::Io { operation: "write", at: self.at, bytes, source });
        // The page stays the device's.
        self.tell(Some(failed));
    }
}

impl<P> PageWrite<P> {
    fn end(&mut self, failed: Option<SsdError>) {
        self.page = None;
        self.tell(failed);
    }

    fn tell(&mut self, failed: Option<SsdError>) {
        if let Some(pending) = self.pending.take() {
            pending.end(failed);
        }
    }
}

impl<P> Drop for PageWrite<P> {
    fn drop(&mut self) {
        // Withdrawn before it had begun: it was not written.
        self.end(Some(SsdError::Closed));
    }
}
