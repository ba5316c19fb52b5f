//! Which slots are taken, which are dead, which are out of use, and who is reading them. Bookkeeping under one short lock; no I/O.
//!
//! A region is filled once, from its first slot to its last. A slot that is freed is dead until the last one of its region is: then the
//! region is empty, and waits to be trimmed or filled again. Bytes in quarantine are passed over by every later filling.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use cairn_core::metrics::{Damage, Metrics};
use cairn_core::{Grid, Moment, Place, SlotId};

use crate::layout::Layout;
use crate::sync::Mutex;

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
    dead_bytes: u64,
    /// When each region was begun to be filled, if that was in this life.
    begun: Vec<Option<Moment>>,
    /// Regions that were filled, are empty now, and have not been trimmed since.
    emptied: BTreeSet<u32>,
    quarantined: Vec<QuarantinedSlot>,
}

/// A slot whose bytes were found damaged: the medium under it may be bad, so nothing is written there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuarantinedSlot {
    /// The region.
    pub region: u32,
    /// Where in the region's space for slots it begins.
    pub at: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// How it was found damaged.
    pub damage: Damage,
}

impl QuarantinedSlot {
    /// Whether a slot of `slot_bytes` shares a byte with it.
    fn overlaps(&self, slot: SlotId, slot_bytes: u64) -> bool {
        let at = u64::from(slot.slot) * slot_bytes;
        slot.region == self.region && at < self.at + self.bytes && self.at < at + slot_bytes
    }
}

#[derive(Debug, Default)]
struct Pins {
    readers: usize,
    /// Freed while being read: goes back when the last reader is done.
    freed: bool,
}

impl Slots {
    pub(crate) fn new(layout: &Layout, metrics: Arc<Metrics>) -> Arc<Self> {
        let mut grid = Grid::sequential();
        for _ in 0..layout.regions {
            grid.add_region(layout.slot_space_bytes());
        }
        metrics.ssd_capacity_bytes.set(gauge(layout.capacity_bytes()));
        metrics.ssd_used_bytes.set(0);
        metrics.ssd_dead_bytes.set(0);
        metrics.ssd_quarantined_bytes.set(0);
        let state = State {
            grid,
            pins: HashMap::new(),
            used_bytes: 0,
            dead_bytes: 0,
            begun: vec![None; layout.regions as usize],
            emptied: BTreeSet::new(),
            quarantined: Vec::new(),
        };
        Arc::new(Self { state: Mutex::new(state), metrics })
    }

    /// Takes a free slot of this size.
    pub(crate) fn take(&self, slot_bytes: u64, now: Moment) -> Option<Place> {
        let state = &mut *self.state.lock();
        // Held until a good slot is found, so that they are not handed out again meanwhile.
        let mut bad: Vec<Place> = Vec::new();
        let mut place = state.grid.take(slot_bytes, slot_bytes);
        while let Some(found) = place.filter(|found| state.is_quarantined(found.slot, slot_bytes)) {
            bad.push(found);
            place = state.grid.take(slot_bytes, slot_bytes);
        }
        if let Some(Place { slot, opened }) = &mut place {
            *opened |= bad.iter().any(|bad| bad.opened && bad.slot.region == slot.region);
            if *opened {
                state.begun[slot.region as usize] = Some(now);
            }
            state.emptied.remove(&slot.region);
            state.used_bytes += slot_bytes;
        }
        bad.into_iter().for_each(|bad| state.bury(bad.slot, slot_bytes));
        self.show(state);
        place
    }

    /// After the claims of a recovery: filling goes on behind the last page of each region, and regions that are `in_use` but have no page
    /// were emptied.
    pub(crate) fn settle(&self, in_use: impl Fn(u32) -> bool) {
        let state = &mut *self.state.lock();
        state.grid.settle();
        state.emptied = state.grid.stock().filter(|region| in_use(*region)).collect();
        let regions = u32::try_from(state.grid.regions()).unwrap_or(u32::MAX);
        let dead = |region| state.grid.class(region).map_or(0, |class| class * u64::from(state.grid.dead_in(region)));
        state.dead_bytes = (0..regions).map(dead).sum();
        self.show(state);
    }

    /// A region that was emptied and waits to be trimmed. It is the caller's to trim or not.
    pub(crate) fn take_emptied(&self) -> Option<u32> {
        self.state.lock().emptied.pop_first()
    }

    /// Frees a slot, and lets nothing be written there until it is released.
    pub(crate) fn quarantine(&self, slot: SlotId, damage: Damage) {
        let mut state = self.state.lock();
        if let Some(bytes) = state.grid.class(slot.region) {
            let at = bytes * u64::from(slot.slot);
            state.quarantined.push(QuarantinedSlot { region: slot.region, at, bytes, damage });
        }
        drop(state);
        self.free(slot);
    }

    pub(crate) fn quarantined(&self) -> Vec<QuarantinedSlot> {
        self.state.lock().quarantined.clone()
    }

    /// Puts quarantined slots back in use, each with the next filling of its region; how many.
    pub(crate) fn release(&self) -> u64 {
        let state = &mut *self.state.lock();
        let released = std::mem::take(&mut state.quarantined).len() as u64;
        self.show(state);
        released
    }

    /// Takes this slot, if it is free and its region has slots of this size or none yet.
    pub(crate) fn claim(&self, slot: SlotId, slot_bytes: u64) -> bool {
        let state = &mut *self.state.lock();
        let claimed = state.grid.claim(slot, slot_bytes, slot_bytes);
        if claimed {
            state.used_bytes += slot_bytes;
            self.show(state);
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

    /// Whether slots of `region` are handed out.
    pub(crate) fn is_open(&self, region: u32) -> bool {
        self.state.lock().grid.is_open(region)
    }

    /// Hands out no more slots of `region` before it has been empty.
    pub(crate) fn drain(&self, region: u32) {
        self.state.lock().grid.drain(region);
    }

    /// Slots taken in `region`.
    pub(crate) fn taken_in(&self, region: u32) -> u32 {
        self.state.lock().grid.taken_in(region)
    }

    /// Slots taken in all regions.
    pub(crate) fn taken(&self) -> u64 {
        self.state.lock().grid.taken()
    }

    /// Every region with taken slots, and when it was begun.
    pub(crate) fn in_use(&self, visit: &mut dyn FnMut(u32, Option<Moment>)) {
        let state = self.state.lock();
        for (region, begun) in (0..).zip(&state.begun) {
            if state.grid.taken_in(region) > 0 {
                visit(region, *begun);
            }
        }
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
        let taken = state.grid.taken_in(slot.region);
        state.bury(slot, slot_bytes);
        if state.grid.taken_in(slot.region) < taken {
            state.used_bytes = state.used_bytes.saturating_sub(slot_bytes);
        }
        self.show(state);
    }

    fn show(&self, state: &State) {
        self.metrics.ssd_used_bytes.set(gauge(state.used_bytes));
        self.metrics.ssd_dead_bytes.set(gauge(state.dead_bytes));
        self.metrics.ssd_quarantined_bytes.set(gauge(state.quarantined.iter().map(|bad| bad.bytes).sum()));
    }
}

impl State {
    fn is_quarantined(&self, slot: SlotId, slot_bytes: u64) -> bool {
        self.quarantined.iter().any(|bad| bad.overlaps(slot, slot_bytes))
    }

    /// Makes a taken slot a dead one, or its region an emptied one.
    fn bury(&mut self, slot: SlotId, slot_bytes: u64) {
        let dead = self.grid.dead_in(slot.region);
        if self.grid.give_back(slot) {
            self.dead_bytes = self.dead_bytes.saturating_sub(slot_bytes * u64::from(dead));
            self.emptied.insert(slot.region);
        } else {
            self.dead_bytes += slot_bytes * u64::from(self.grid.dead_in(slot.region) - dead);
        }
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
