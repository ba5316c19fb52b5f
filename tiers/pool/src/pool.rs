//! The pool: arenas, who has which frame, and what is ready.
//!
//! One mutex over the bookkeeping, held for microseconds; no memory is touched under it. An arena joins the grid when it is warm, so a
//! frame that was handed out never faults.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use cairn_core::metrics::{Backing, Metrics};
use cairn_core::{Grid, SlotId};
use tracing::{error, info};

use crate::backing::{self, BackingBytes, HugePages};
use crate::error::PoolError;
use crate::limits;
use crate::page::PageBufMut;
use crate::raw::{Arena, Frame, HUGE_BYTES, Kind, UNIT_BYTES};
use crate::sync::{Condvar, Mutex, MutexGuard, Notify, thread};

/// Each arena is one mapping and one file, and the kernel's default lets a process have 65,530 mappings.
const ARENAS_MAX: u64 = 32_768;

/// Size and kind of the page memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolSettings {
    /// All of it; rounded down to 4 KiB.
    pub bytes: u64,
    /// One arena, a multiple of 4 KiB; only a multiple of 2 MiB can have huge pages. The last arena may be smaller. No page can be
    /// larger than this, and each tenant in use holds at least one arena per page size.
    pub arena_bytes: u64,
    /// Whether to use huge pages.
    pub huge_pages: HugePages,
}

/// A tenant, as a small number that its caller gives out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TenantNo(pub u32);

/// What the frames of one arena have in common: owner and size in bytes.
type Class = (TenantNo, u64);

/// The page memory of a process. Clones are handles to the same; it is unmapped when the last handle and the last page are gone.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

pub(crate) struct Shared {
    arenas: Vec<Arc<Arena>>,
    state: Mutex<State>,
    warmed: Condvar,
    freed: Notify,
    metrics: Arc<Metrics>,
}

struct State {
    grid: Grid<Class>,
    /// Whose bytes may lie in each arena; `None` while it is all zeros.
    owners: Vec<Option<TenantNo>>,
    /// Every arena was touched, and what backs them is known.
    warm: bool,
    capacity_bytes: u64,
    used_bytes: u64,
    backing: BackingBytes,
}

impl Pool {
    /// Maps every arena, warms the first one, and leaves the others to a thread of its own, which ends when all are warm. Blocks for
    /// about 3 s per GiB of the first arena (0.5 s with huge pages).
    ///
    /// # Errors
    /// The settings do not fit together or exceed what the machine or its control group has, or the kernel refused the memory.
    pub fn start(settings: PoolSettings, metrics: Arc<Metrics>) -> Result<Self, PoolError> {
        let capacity_bytes = settings.bytes - settings.bytes % UNIT_BYTES as u64;
        let arenas = map_arenas(settings, capacity_bytes)?;
        let state = State {
            grid: Grid::default(),
            owners: vec![None; arenas.len()],
            warm: false,
            capacity_bytes,
            used_bytes: 0,
            backing: BackingBytes::default(),
        };
        let (state, warmed, freed) = (Mutex::new(state), Condvar::new(), Notify::new());
        let shared = Arc::new(Shared { arenas, state, warmed, freed, metrics });
        shared.show(&shared.state.lock());
        shared.warm_first()?;
        let (rest, pool) = (shared.arenas[1..].to_vec(), Arc::downgrade(&shared));
        let thread = thread::Builder::new().name("cairn-pool-warm".to_owned());
        thread.spawn(move || warm_rest(&rest, &pool)).map_err(PoolError::Thread)?;
        Ok(Self(shared))
    }

    /// Blocks until every arena is warm and [`Pool::backing`] is final.
    pub fn wait_warm(&self) {
        let mut state = self.0.state.lock();
        while !state.warm {
            self.0.warmed.wait(&mut state);
        }
    }

    /// Room for a page of `page_bytes` for `owner`; `None` if no warm frame is free, or `page_bytes` is 0 or more than an arena has.
    /// Never waits for a frame and evicts nothing. When an arena passes from one tenant to another, the call that needs it wipes it
    /// first, at memory speed, while other calls go on.
    pub fn reserve(&self, owner: TenantNo, page_bytes: u64) -> Option<PageBufMut> {
        let page_len = usize::try_from(page_bytes).ok()?;
        let frame_bytes = frame_bytes(page_bytes)?;
        let slot = self.0.take_clean(owner, frame_bytes)?;
        let Some(frame) = self.0.lend(slot, frame_bytes) else {
            // The slot stays taken: whoever holds its memory keeps it.
            error!(region = slot.region, slot = slot.slot, "a free frame was lent already and is out of use");
            return None;
        };
        let taken = Taken { slot, frame_bytes, pool: Arc::clone(&self.0) };
        Some(PageBufMut::new(frame, taken, page_len))
    }

    /// Frames that `owner` could reserve now without anything being evicted; counting stops at `enough`.
    pub fn available(&self, owner: TenantNo, page_bytes: u64, enough: u64) -> u64 {
        let Some(frame_bytes) = frame_bytes(page_bytes) else { return 0 };
        self.0.state.lock().grid.available((owner, frame_bytes), frame_bytes, enough)
    }

    /// Notified, all who wait at that moment, whenever a frame came back, an arena got warm, or a holder of a sealed page let go of it (so that
    /// it may be evictable now). To miss nothing, make the future (and
    /// `enable` it) before trying to reserve.
    pub fn freed(&self) -> &Notify {
        &self.0.freed
    }

    /// Reserves no more of `arena` until it has been empty once; its pages are for the caller to drop. Nothing happens if it is empty.
    pub fn drain(&self, arena: u32) {
        self.0.state.lock().grid.drain(arena);
    }

    /// Frames taken in `arena`: pages, and frames that are being filled.
    pub fn taken_in(&self, arena: u32) -> u32 {
        self.0.state.lock().grid.taken_in(arena)
    }

    /// Size of the pool. Exactly the bytes set, rounded down to 4 KiB, less what the kernel would not provide while warming.
    pub fn capacity_bytes(&self) -> u64 {
        self.0.state.lock().capacity_bytes
    }

    /// Bytes in use, frames counted whole.
    pub fn used_bytes(&self) -> u64 {
        self.0.state.lock().used_bytes
    }

    /// What backs the memory that is warm.
    pub fn backing(&self) -> BackingBytes {
        self.0.state.lock().backing
    }

    /// The memfd of an arena, for passing to a process that may read all of the arena. It is sealed: no holder of it can write to it
    /// or resize it.
    pub fn arena_file(&self, arena: u32) -> Option<BorrowedFd<'_>> {
        self.0.arenas.get(arena as usize).map(|arena| arena.file())
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state.lock();
        write!(f, "Pool(capacity_bytes={} used_bytes={} {})", state.capacity_bytes, state.used_bytes, state.backing)
    }
}

/// A slot taken from the grid, given back when dropped.
pub(crate) struct Taken {
    slot: SlotId,
    frame_bytes: u64,
    pool: Arc<Shared>,
}

impl Taken {
    pub(crate) fn slot(&self) -> SlotId {
        self.slot
    }

    pub(crate) fn pool(&self) -> &Arc<Shared> {
        &self.pool
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.pool.give_back(self.slot, self.frame_bytes);
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Taken(region={} slot={} bytes={})", self.slot.region, self.slot.slot, self.frame_bytes)
    }
}

impl Shared {
    /// Takes a slot from an arena that holds no bytes of anybody but `owner`, wiping one if it must.
    fn take_clean(&self, owner: TenantNo, frame_bytes: u64) -> Option<SlotId> {
        let mut state = self.state.lock();
        // Each turn but the last wipes an arena; more turns than arenas would mean that others undo it all the time.
        for _ in 0..=self.arenas.len() {
            let place = state.grid.take((owner, frame_bytes), frame_bytes)?;
            let arena = place.slot.region as usize;
            if place.opened && state.owners[arena].is_some_and(|before| before != owner) {
                self.wipe(&mut state, place.slot)?;
                continue;
            }
            state.owners[arena] = Some(owner);
            state.used_bytes += frame_bytes;
            self.show_used(&state);
            return Some(place.slot);
        }
        None
    }

    /// Overwrites the arena of `only`, the one slot taken in it, with zeros and returns it to the stock. The lock is open meanwhile;
    /// draining keeps others out of the arena.
    fn wipe(&self, state: &mut MutexGuard<'_, State>, only: SlotId) -> Option<()> {
        state.grid.drain(only.region);
        let arena = self.arenas.get(only.region as usize)?;
        let wiped =
            MutexGuard::unlocked(state, || arena.lend(0, arena.bytes()).map(|mut all| all.as_mut_slice().fill(0)));
        if wiped.is_none() {
            // Not returned to the stock: whoever still writes there must not write into another tenant's arena.
            error!(region = only.region, "a free arena had a frame lent and is out of use");
            return None;
        }
        state.owners[only.region as usize] = None;
        state.grid.give_back(only);
        // Who found nothing while the arena was away should look again; the lock keeps them until this caller has its slot.
        self.freed.notify_waiters();
        Some(())
    }

    fn lend(&self, slot: SlotId, frame_bytes: u64) -> Option<Frame> {
        let frame_bytes = usize::try_from(frame_bytes).ok()?;
        self.arenas.get(slot.region as usize)?.lend(frame_bytes.checked_mul(slot.slot as usize)?, frame_bytes)
    }

    fn give_back(&self, slot: SlotId, frame_bytes: u64) {
        let mut state = self.state.lock();
        state.grid.give_back(slot);
        state.used_bytes -= frame_bytes;
        self.show_used(&state);
        drop(state);
        self.freed.notify_waiters();
    }

    /// Somebody let go of a page that others may still hold.
    pub(crate) fn let_go(&self) {
        self.freed.notify_waiters();
    }

    fn warm_first(&self) -> Result<(), PoolError> {
        let first = &self.arenas[0];
        first.touch().map_err(|source| PoolError::Touch { arena: 0, bytes: first.bytes() as u64, source })?;
        self.admit(0);
        self.measure();
        Ok(())
    }

    /// Arenas join the grid in order, so that its region numbers are theirs.
    fn admit(&self, arena: usize) {
        let (bytes, kind) = (self.arenas[arena].bytes() as u64, self.arenas[arena].kind());
        let mut state = self.state.lock();
        state.grid.add_region(bytes);
        match kind {
            Kind::Hugetlb => state.backing.hugetlb_bytes += bytes,
            Kind::Thp | Kind::Small => state.backing.small_bytes += bytes,
        }
        self.show(&state);
        drop(state);
        self.freed.notify_waiters();
    }

    /// The pool goes on without an arena that the kernel would not fill: a region of no bytes keeps the numbers in order.
    fn leave_out(&self, arena: usize) {
        let mut state = self.state.lock();
        state.grid.add_region(0);
        state.capacity_bytes -= self.arenas[arena].bytes() as u64;
        self.show(&state);
    }

    fn finish_warming(&self) {
        self.measure();
        let mut state = self.state.lock();
        state.warm = true;
        info!(backing = %state.backing, "page memory is warm");
        drop(state);
        self.warmed.notify_all();
    }

    /// Finds out which arenas really have transparent huge pages.
    fn measure(&self) {
        if self.arenas.iter().all(|arena| arena.kind() != Kind::Thp) {
            return;
        }
        let thp_bytes = backing::thp_bytes(&self.arenas);
        let mut state = self.state.lock();
        let shared_bytes = state.backing.small_bytes + state.backing.thp_bytes;
        state.backing.thp_bytes = thp_bytes.min(shared_bytes);
        state.backing.small_bytes = shared_bytes - state.backing.thp_bytes;
        self.show(&state);
    }

    /// Gauges are set under the lock, from the numbers it guards: they can not drift.
    fn show(&self, state: &State) {
        self.metrics.dram_capacity_bytes.set(gauge(state.capacity_bytes));
        for (backing, bytes) in [
            (Backing::Hugetlb, state.backing.hugetlb_bytes),
            (Backing::Thp, state.backing.thp_bytes),
            (Backing::Small, state.backing.small_bytes),
        ] {
            self.metrics.dram_backing_bytes.of(backing).set(gauge(bytes));
        }
        self.show_used(state);
    }

    fn show_used(&self, state: &State) {
        self.metrics.dram_used_bytes.set(gauge(state.used_bytes));
    }
}

/// The warming thread. It ends early when the pool is gone.
fn warm_rest(arenas: &[Arc<Arena>], pool: &Weak<Shared>) {
    for (arena, memory) in (1..).zip(arenas) {
        if pool.strong_count() == 0 {
            return;
        }
        let touched = memory.touch();
        let Some(pool) = pool.upgrade() else { return };
        match touched {
            Ok(()) => pool.admit(arena),
            Err(cause) => {
                error!(arena, bytes = memory.bytes(), %cause, "arena could not be filled with memory and is left out");
                pool.leave_out(arena);
            }
        }
    }
    if let Some(pool) = pool.upgrade() {
        pool.finish_warming();
    }
}

fn map_arenas(settings: PoolSettings, capacity_bytes: u64) -> Result<Vec<Arc<Arena>>, PoolError> {
    let PoolSettings { bytes, arena_bytes, huge_pages } = settings;
    if arena_bytes == 0 || !arena_bytes.is_multiple_of(UNIT_BYTES as u64) {
        return Err(PoolError::ArenaSize { arena_bytes });
    }
    if capacity_bytes < arena_bytes {
        return Err(PoolError::SmallerThanArena { bytes, arena_bytes });
    }
    let arenas = capacity_bytes.div_ceil(arena_bytes);
    if arenas > ARENAS_MAX {
        return Err(PoolError::TooManyArenas { arenas, most: ARENAS_MAX });
    }
    limits::check(capacity_bytes)?;
    let kinds = backing::kinds(huge_pages);
    let starts = (0..capacity_bytes).step_by(usize::try_from(arena_bytes).unwrap_or(usize::MAX));
    let sizes = starts.map(|start| arena_bytes.min(capacity_bytes - start));
    sizes.enumerate().map(|(arena, bytes)| map_arena(arena, bytes, &kinds).map(Arc::new)).collect()
}

/// Maps an arena of the first of `kinds` that works.
fn map_arena(arena: usize, bytes: u64, kinds: &[Kind]) -> Result<Arena, PoolError> {
    let failed = |source| PoolError::Map { arena, bytes, source };
    let size = usize::try_from(bytes).map_err(|_| failed(std::io::ErrorKind::OutOfMemory.into()))?;
    let whole = size.is_multiple_of(HUGE_BYTES);
    let hugetlb = kinds.iter().find(|kind| **kind == Kind::Hugetlb && whole);
    if let Some(made) = hugetlb.and_then(|kind| Arena::create(size, *kind).ok()) {
        return Ok(made);
    }
    let other = kinds.iter().copied().find(|kind| *kind != Kind::Hugetlb).unwrap_or(Kind::Small);
    Arena::create(size, other).map_err(failed)
}

/// Size of the frame for a page; `None` for a page of 0 bytes, or one that no machine could hold.
fn frame_bytes(page_bytes: u64) -> Option<u64> {
    page_bytes.checked_next_multiple_of(UNIT_BYTES as u64).filter(|bytes| *bytes > 0)
}

fn gauge(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
