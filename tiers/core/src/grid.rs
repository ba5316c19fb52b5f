//! Slots in regions: the bookkeeping that the DRAM pool (arenas) and the SSD tier (regions of the file) share.
//!
//! A region is cut into equal slots of one class (page size, and in DRAM the tenant) when it is opened, and goes back to the common
//! stock when its last slot is given back; so several page sizes live side by side and none owns space for good. Slots of a region are
//! handed out in ascending order the first time. Pure bookkeeping: no memory, no I/O.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use crate::SlotId;

/// The regions of one tier.
#[derive(Debug)]
pub struct Grid<C> {
    regions: Vec<Region<C>>,
    /// Regions without a class.
    stock: BTreeSet<u32>,
    /// Regions by class that have a free slot and are not draining.
    open: HashMap<C, BTreeSet<u32>>,
}

#[derive(Debug)]
struct Region<C> {
    bytes: u64,
    class: Option<C>,
    slots: u32,
    free: Vec<u32>,
    draining: bool,
}

/// A slot that [`Grid::take`] handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The slot.
    pub slot: SlotId,
    /// Whether its region was opened for it, out of the stock.
    pub opened: bool,
}

impl<C: Copy + Eq + Hash> Default for Grid<C> {
    fn default() -> Self {
        Self { regions: Vec::new(), stock: BTreeSet::new(), open: HashMap::new() }
    }
}

impl<C: Copy + Eq + Hash> Grid<C> {
    /// Adds a region of `bytes` to the stock and returns its number; numbers count up from 0.
    pub fn add_region(&mut self, bytes: u64) -> u32 {
        let region = u32::try_from(self.regions.len()).unwrap_or(u32::MAX);
        self.regions.push(Region { bytes, class: None, slots: 0, free: Vec::new(), draining: false });
        self.stock.insert(region);
        region
    }

    /// Takes a free slot of `class`, of `slot_bytes` each: from an open region of that class, else from a region of the stock that
    /// holds at least one. `None` if there is neither.
    pub fn take(&mut self, class: C, slot_bytes: u64) -> Option<Place> {
        let open = self.open.get(&class).and_then(|open| open.first().copied());
        let (region, opened) = match open {
            Some(region) => (region, false),
            None => (self.open_region(class, slot_bytes)?, true),
        };
        let slot = self.regions[region as usize].free.pop()?;
        self.close_if_full(region);
        Some(Place { slot: SlotId { region, slot }, opened })
    }

    /// Marks `slot` as taken, for recovery: its region gets `class` if it has none. False if the slot does not exist, is taken already
    /// or its region has another class.
    pub fn claim(&mut self, slot: SlotId, class: C, slot_bytes: u64) -> bool {
        let Some(found) = self.regions.get(slot.region as usize) else { return false };
        match found.class {
            None => {
                if !self.assign(slot.region, class, slot_bytes) {
                    return false;
                }
            }
            Some(other) if other != class => return false,
            Some(_) => {}
        }
        let region = &mut self.regions[slot.region as usize];
        let place = region.free.iter().rposition(|free| *free == slot.slot);
        let claimed = place.map(|place| region.free.remove(place)).is_some();
        self.close_if_full(slot.region);
        if !claimed {
            self.restock_if_empty(slot.region);
        }
        claimed
    }

    /// Gives a taken slot back. True if its region went back to the stock with it.
    ///
    /// # Panics
    /// In debug builds, if the slot is not taken: that would hand it out twice.
    pub fn give_back(&mut self, slot: SlotId) -> bool {
        let region = &mut self.regions[slot.region as usize];
        debug_assert!(!region.free.contains(&slot.slot), "slot given back twice");
        region.free.push(slot.slot);
        if let (Some(class), false) = (region.class, region.draining) {
            self.open.entry(class).or_default().insert(slot.region);
        }
        self.restock_if_empty(slot.region)
    }

    /// Hands out no more slots of `region` until it has gone back to the stock.
    pub fn drain(&mut self, region: u32) {
        let found = &mut self.regions[region as usize];
        found.draining = true;
        if let Some(open) = found.class.and_then(|class| self.open.get_mut(&class)) {
            open.remove(&region);
        }
        self.restock_if_empty(region);
    }

    /// Class of a region; `None` while it is in the stock.
    pub fn class(&self, region: u32) -> Option<C> {
        self.regions.get(region as usize).and_then(|region| region.class)
    }

    /// Number of regions.
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Slots taken in all regions.
    pub fn taken(&self) -> u64 {
        self.regions.iter().map(|region| u64::from(region.slots) - region.free.len() as u64).sum()
    }

    /// Free slots that a taker of `class` could have without anything being evicted, up to `enough`.
    pub fn available(&self, class: C, slot_bytes: u64, enough: u64) -> u64 {
        let mut slots = 0;
        for region in self.open.get(&class).into_iter().flatten() {
            slots += self.regions[*region as usize].free.len() as u64;
            if slots >= enough {
                return slots;
            }
        }
        for region in &self.stock {
            slots += self.regions[*region as usize].bytes / slot_bytes.max(1);
            if slots >= enough {
                return slots;
            }
        }
        slots
    }

    fn open_region(&mut self, class: C, slot_bytes: u64) -> Option<u32> {
        let region = self.stock.iter().copied().find(|region| self.regions[*region as usize].bytes >= slot_bytes)?;
        self.assign(region, class, slot_bytes).then_some(region)
    }

    fn assign(&mut self, region: u32, class: C, slot_bytes: u64) -> bool {
        let found = &mut self.regions[region as usize];
        let slots = u32::try_from(found.bytes / slot_bytes.max(1)).unwrap_or(u32::MAX);
        if slots == 0 {
            return false;
        }
        found.class = Some(class);
        found.slots = slots;
        found.free = (0..slots).rev().collect();
        self.stock.remove(&region);
        self.open.entry(class).or_default().insert(region);
        true
    }

    fn close_if_full(&mut self, region: u32) {
        let found = &self.regions[region as usize];
        if let (Some(class), true) = (found.class, found.free.is_empty())
            && let Some(open) = self.open.get_mut(&class)
        {
            open.remove(&region);
        }
    }

    fn restock_if_empty(&mut self, region: u32) -> bool {
        let found = &mut self.regions[region as usize];
        if found.free.len() != found.slots as usize {
            return false;
        }
        if let Some(open) = found.class.and_then(|class| self.open.get_mut(&class)) {
            open.remove(&region);
        }
        found.class = None;
        found.slots = 0;
        found.free = Vec::new();
        found.draining = false;
        self.stock.insert(region)
    }
}
