//! Slots in regions: the bookkeeping that the DRAM pool (arenas) and the SSD tier (regions of the file) share.
//!
//! A region is cut into equal slots of one class (page size, and in DRAM the tenant) when it is opened, and goes back to the common
//! stock when its last slot is given back; so several page sizes live side by side and none owns space for good. The lowest free slot
//! of the lowest open region goes first: a new region fills in ascending order, and thinly used regions get a chance to empty. Pure
//! bookkeeping: no memory, no I/O. One class always comes with one slot size; a region never holds slots of two sizes.
//!
//! What becomes of a slot that is given back is the grid's kind. In memory it is free again. On flash ([`Grid::sequential`]) it is dead
//! until its region is empty: a region is written once, from its first slot to its last, and then reclaimed as a whole.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use crate::SlotId;

/// The regions of one tier.
#[derive(Debug)]
pub struct Grid<C> {
    regions: Vec<Region<C>>,
    /// Regions without a class.
    stock: BTreeSet<u32>,
    /// Regions by class that have a free slot and are not draining. No class has an empty set here.
    open: HashMap<C, BTreeSet<u32>>,
    /// A slot given back stays dead until its region is empty.
    sequential: bool,
}

#[derive(Debug)]
struct Region<C> {
    bytes: u64,
    class: Option<C>,
    slots: u32,
    free: SlotSet,
    /// Neither taken nor handed out before the region is empty.
    dead: SlotSet,
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
        Self { regions: Vec::new(), stock: BTreeSet::new(), open: HashMap::new(), sequential: false }
    }
}

impl<C: Copy + Eq + Hash> Grid<C> {
    /// A grid whose regions are filled once, from the first slot to the last, before they are emptied.
    pub fn sequential() -> Self {
        Self { sequential: true, ..Self::default() }
    }

    /// Adds a region of `bytes` to the stock and returns its number; numbers count up from 0.
    pub fn add_region(&mut self, bytes: u64) -> u32 {
        let region = u32::try_from(self.regions.len()).unwrap_or(u32::MAX);
        let (free, dead) = (SlotSet::default(), SlotSet::default());
        self.regions.push(Region { bytes, class: None, slots: 0, free, dead, draining: false });
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
        let slot = self.regions[region as usize].free.take_lowest()?;
        self.close_if_full(region);
        Some(Place { slot: SlotId { region, slot }, opened })
    }

    /// Marks `slot` as taken, for recovery: its region gets `class` if it has none. False if the slot does not exist, is taken already
    /// or its region has another class; nothing has changed then. Costs the same whatever the order of the claims.
    pub fn claim(&mut self, slot: SlotId, class: C, slot_bytes: u64) -> bool {
        let Some(found) = self.regions.get(slot.region as usize) else { return false };
        let fits = match found.class {
            None => slot.slot < found.slots_of(slot_bytes) && self.assign(slot.region, class, slot_bytes),
            Some(other) => other == class,
        };
        let claimed = fits && self.regions[slot.region as usize].free.remove(slot.slot);
        if claimed {
            self.close_if_full(slot.region);
        }
        claimed
    }

    /// Gives a taken slot back. True if its region went back to the stock with it. A slot that is not taken is left as it is, so that
    /// no slot is ever handed out twice.
    pub fn give_back(&mut self, slot: SlotId) -> bool {
        let Some(region) = self.regions.get_mut(slot.region as usize) else { return false };
        let Some(class) = region.class else { return false };
        if slot.slot >= region.slots || region.free.has(slot.slot) || region.dead.has(slot.slot) {
            return false;
        }
        if self.sequential {
            region.dead.insert(slot.slot);
        } else {
            region.free.insert(slot.slot);
            if !region.draining {
                self.open.entry(class).or_default().insert(slot.region);
            }
        }
        self.restock_if_empty(slot.region)
    }

    /// Hands out a free slot no more before its region has been empty. Nothing happens if it is taken or dead.
    pub fn bury(&mut self, slot: SlotId) {
        let Some(region) = self.regions.get_mut(slot.region as usize) else { return };
        if region.free.remove(slot.slot) {
            region.dead.insert(slot.slot);
            self.close_if_full(slot.region);
        }
    }

    /// After the claims of a recovery, in a sequential grid: a free slot before a taken one is dead, so that filling goes on behind the last.
    pub fn settle(&mut self) {
        if !self.sequential {
            return;
        }
        for number in 0..self.regions.len() {
            let region = &mut self.regions[number];
            let taken = |slot: &u32| !region.free.has(*slot) && !region.dead.has(*slot);
            let Some(last) = (0..region.slots).rev().find(taken) else { continue };
            for slot in 0..last {
                if region.free.remove(slot) {
                    region.dead.insert(slot);
                }
            }
            self.close_if_full(u32::try_from(number).unwrap_or(u32::MAX));
        }
    }

    /// Hands out no more slots of `region` until it has gone back to the stock. Nothing happens if it is there, or does not exist.
    pub fn drain(&mut self, region: u32) {
        let Some(found) = self.regions.get_mut(region as usize) else { return };
        let Some(class) = found.class else { return };
        found.draining = true;
        self.shut(class, region);
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
        self.regions.iter().map(|region| u64::from(region.taken())).sum()
    }

    /// Slots taken in `region`.
    pub fn taken_in(&self, region: u32) -> u32 {
        self.regions.get(region as usize).map_or(0, Region::taken)
    }

    /// Dead slots in `region`.
    pub fn dead_in(&self, region: u32) -> u32 {
        self.regions.get(region as usize).map_or(0, |region| region.dead.count)
    }

    /// Whether `region` has slots that are handed out: it has a class, and is not filled yet.
    pub fn is_open(&self, region: u32) -> bool {
        self.class(region).and_then(|class| self.open.get(&class)).is_some_and(|open| open.contains(&region))
    }

    /// Regions without a class.
    pub fn stock(&self) -> impl Iterator<Item = u32> {
        self.stock.iter().copied()
    }

    /// Free slots that a taker of `class` could have without anything being evicted; counting stops at `enough`.
    pub fn available(&self, class: C, slot_bytes: u64, enough: u64) -> u64 {
        let open = self.open.get(&class).into_iter().flatten();
        let open = open.map(|region| u64::from(self.regions[*region as usize].free.count));
        let stock = self.stock.iter().map(|region| u64::from(self.regions[*region as usize].slots_of(slot_bytes)));
        let mut slots = 0;
        for more in open.chain(stock) {
            if slots >= enough {
                break;
            }
            slots += more;
        }
        slots.min(enough)
    }

    fn open_region(&mut self, class: C, slot_bytes: u64) -> Option<u32> {
        let region =
            self.stock.iter().copied().find(|region| self.regions[*region as usize].slots_of(slot_bytes) > 0)?;
        self.assign(region, class, slot_bytes).then_some(region)
    }

    fn assign(&mut self, region: u32, class: C, slot_bytes: u64) -> bool {
        let found = &mut self.regions[region as usize];
        let slots = found.slots_of(slot_bytes);
        if slots == 0 {
            return false;
        }
        found.class = Some(class);
        found.slots = slots;
        found.free = SlotSet::all(slots);
        found.dead = SlotSet::none(slots);
        self.stock.remove(&region);
        self.open.entry(class).or_default().insert(region);
        true
    }

    fn close_if_full(&mut self, region: u32) {
        let found = &self.regions[region as usize];
        if let (Some(class), 0) = (found.class, found.free.count) {
            self.shut(class, region);
        }
    }

    fn restock_if_empty(&mut self, region: u32) -> bool {
        let found = &mut self.regions[region as usize];
        let Some(class) = found.class else { return false };
        if found.taken() > 0 {
            return false;
        }
        found.class = None;
        found.slots = 0;
        (found.free, found.dead) = (SlotSet::default(), SlotSet::default());
        found.draining = false;
        self.shut(class, region);
        self.stock.insert(region)
    }

    /// Takes `region` off the open ones of `class`, and the class with its last one: classes come and go with tenants.
    fn shut(&mut self, class: C, region: u32) {
        if let Some(open) = self.open.get_mut(&class) {
            open.remove(&region);
            if open.is_empty() {
                self.open.remove(&class);
            }
        }
    }
}

impl<C> Region<C> {
    fn taken(&self) -> u32 {
        self.slots - self.free.count - self.dead.count
    }

    /// Slots of `slot_bytes` that this region can be cut into.
    fn slots_of(&self, slot_bytes: u64) -> u32 {
        u32::try_from(self.bytes / slot_bytes.max(1)).unwrap_or(u32::MAX)
    }
}

/// Slots of a region, one bit each: taking a named slot, as recovery does a million times, costs no search.
#[derive(Default, Debug)]
struct SlotSet {
    words: Vec<u64>,
    count: u32,
    /// No word before this one has a slot.
    lowest: usize,
}

impl SlotSet {
    fn none(slots: u32) -> Self {
        let words = vec![0; slots.div_ceil(u64::BITS) as usize];
        Self { lowest: words.len(), words, count: 0 }
    }

    fn all(slots: u32) -> Self {
        let mut words = vec![u64::MAX; slots.div_ceil(u64::BITS) as usize];
        if let (Some(last), rest @ 1..) = (words.last_mut(), slots % u64::BITS) {
            *last = (1 << rest) - 1;
        }
        Self { words, count: slots, lowest: 0 }
    }

    fn take_lowest(&mut self) -> Option<u32> {
        let found = self.words[self.lowest..].iter().position(|word| *word != 0)?;
        self.lowest += found;
        let slot = u32::try_from(self.lowest).ok()? * u64::BITS + self.words[self.lowest].trailing_zeros();
        self.remove(slot).then_some(slot)
    }

    fn has(&self, slot: u32) -> bool {
        self.words.get((slot / u64::BITS) as usize).is_some_and(|word| word & (1 << (slot % u64::BITS)) != 0)
    }

    /// False if `slot` is not in it.
    fn remove(&mut self, slot: u32) -> bool {
        let bit = 1 << (slot % u64::BITS);
        let Some(word) = self.words.get_mut((slot / u64::BITS) as usize).filter(|word| **word & bit != 0) else {
            return false;
        };
        *word &= !bit;
        self.count -= 1;
        true
    }

    /// False if `slot` is in it already.
    fn insert(&mut self, slot: u32) -> bool {
        let (at, bit) = ((slot / u64::BITS) as usize, 1 << (slot % u64::BITS));
        let Some(word) = self.words.get_mut(at).filter(|word| **word & bit == 0) else { return false };
        *word |= bit;
        self.count += 1;
        self.lowest = self.lowest.min(at);
        true
    }
}
