//! Which slots are taken, and who is reading them. Bookkeeping under one short lock; no I/O.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_core::metrics::Metrics;
use cairn_core::{Grid, Place, SlotId};
use parking_lot::Mutex;

use crate::layout::Layout;

#[derive(Debug)]
pub(crate) struct Slots {
    state: Mutex<State>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct State {
    /// The class of a region is the size of its slots in bytes.
    grid: Grid<u64>,
    /// Slots that are being read: no more than there are reads.
    pins: HashMap<SlotId, Pins>,
    used_bytes: u64,
}

#[derive(Debug, Default)]
struct Pins {
    readers: usize,
    /// Freed while being read: goes back when the last reader is done.
    freed: bool,
}

impl Slots {
    pub(crate) fn new(layout: &Layout, metrics: Arc<Metrics>) -> Arc<Self> {
        let mut grid = Grid::default();
        for _ in 0..layout.regions {
            grid.add_region(layout.slot_space_bytes());
        }
        metrics.ssd_capacity_bytes.set(gauge(layout.capacity_bytes()));
        metrics.ssd_used_bytes.set(0);
        Arc::new(Self { state: Mutex::new(State { grid, pins: HashMap::new(), used_bytes: 0 }), metrics })
    }

    /// Takes a free slot of this size.
    pub(crate) fn take(&self, slot_bytes: u64) -> Option<Place> {
        let mut state = self.state.lock();
        let place = state.grid.take(slot_bytes, slot_bytes)?;
        self.note_used(&mut state, slot_bytes, true);
        Some(place)
    }

    /// Takes this slot, if it is free and its region has slots of this size or none yet.
    pub(crate) fn claim(&self, slot: SlotId, slot_bytes: u64) -> bool {
        let mut state = self.state.lock();
        let claimed = state.grid.claim(slot, slot_bytes, slot_bytes);
        if claimed {
            self.note_used(&mut state, slot_bytes, true);
        }
        claimed
    }

    /// Gives a slot back, or notes that its last reader will.
    pub(crate) fn free(&self, slot: SlotId) {
        let mut state = self.state.lock();
        match state.pins.get_mut(&slot) {
            Some(pins) => pins.freed = true,
            None => self.give_back(&mut state, slot),
        }
    }

    pub(crate) fn pin(self: &Arc<Self>, slot: SlotId) -> ReadPin {
        self.state.lock().pins.entry(slot).or_default().readers += 1;
        ReadPin { slots: Arc::clone(self), slot }
    }

    pub(crate) fn is_pinned(&self, slot: SlotId) -> bool {
        self.state.lock().pins.contains_key(&slot)
    }

    /// Size of the slots that a region is cut into now.
    pub(crate) fn slot_bytes(&self, region: u32) -> Option<u64> {
        self.state.lock().grid.class(region)
    }

    /// Free slots of this size, counted up to `enough`.
    pub(crate) fn available(&self, slot_bytes: u64, enough: u64) -> u64 {
        self.state.lock().grid.available(slot_bytes, slot_bytes, enough)
    }

    /// Slots taken in `region`.
    pub(crate) fn taken_in(&self, region: u32) -> u32 {
        self.state.lock().grid.taken_in(region)
    }

    /// Slots taken in all regions.
    pub(crate) fn taken(&self) -> u64 {
        self.state.lock().grid.taken()
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes
    }

    fn unpin(&self, slot: SlotId) {
        let mut state = self.state.lock();
        let Some(pins) = state.pins.get_mut(&slot) else { return };
        pins.readers -= 1;
        if pins.readers > 0 {
            return;
        }
        let freed = pins.freed;
        state.pins.remove(&slot);
        if freed {
            self.give_back(&mut state, slot);
        }
    }

    fn give_back(&self, state: &mut State, slot: SlotId) {
        // A region without a class has no taken slot.
        let Some(slot_bytes) = state.grid.class(slot.region) else { return };
        state.grid.give_back(slot);
        self.note_used(state, slot_bytes, false);
    }

    fn note_used(&self, state: &mut State, slot_bytes: u64, taken: bool) {
        state.used_bytes =
            if taken { state.used_bytes + slot_bytes } else { state.used_bytes.saturating_sub(slot_bytes) };
        self.metrics.ssd_used_bytes.set(gauge(state.used_bytes));
    }
}

fn gauge(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// A hold on a slot for the time of a read: the slot is not handed out again before this is dropped, even if it is freed.
#[derive(Debug)]
pub struct ReadPin {
    slots: Arc<Slots>,
    slot: SlotId,
}

impl ReadPin {
    /// The slot that is held.
    pub fn slot(&self) -> SlotId {
        self.slot
    }
}

impl Drop for ReadPin {
    fn drop(&mut self) {
        self.slots.unpin(self.slot);
    }
}
