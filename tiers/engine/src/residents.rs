//! Which pages lie in which region (arena of the pool, region of the SSD), so that a region can be emptied for another page size.

use std::ops::RangeInclusive;

use cairn_core::SlotId;
use cairn_policy::PageId;

/// Pages by region of one tier.
#[derive(Debug, Default)]
pub(crate) struct Residents {
    regions: Vec<Vec<Option<PageId>>>,
}

impl Residents {
    /// `page` lies in `slot` now.
    pub(crate) fn add(&mut self, slot: SlotId, page: PageId) {
        let (region, at) = (slot.region as usize, slot.slot as usize);
        if region >= self.regions.len() {
            self.regions.resize_with(region + 1, Vec::new);
        }
        let slots = &mut self.regions[region];
        if at >= slots.len() {
            slots.resize(at + 1, None);
        }
        slots[at] = Some(page);
    }

    /// Nothing lies in `slot` any more.
    pub(crate) fn remove(&mut self, slot: SlotId) {
        if let Some(place) = self.regions.get_mut(slot.region as usize).and_then(|r| r.get_mut(slot.slot as usize)) {
            *place = None;
        }
    }

    /// Whether a page lies in `slot`.
    pub(crate) fn holds(&self, slot: SlotId) -> bool {
        self.regions
            .get(slot.region as usize)
            .and_then(|region| region.get(slot.slot as usize))
            .is_some_and(Option::is_some)
    }

    /// The first page of `region` in these slots, and its slot.
    pub(crate) fn next_in(&self, region: u32, slots: RangeInclusive<u32>) -> Option<(u32, PageId)> {
        let pages = self.regions.get(region as usize)?;
        let (first, last) = (*slots.start() as usize, *slots.end() as usize);
        let found = pages.iter().enumerate().take(last.saturating_add(1)).skip(first);
        let (slot, page) = found.filter_map(|(slot, page)| Some((slot, (*page)?))).next()?;
        Some((u32::try_from(slot).ok()?, page))
    }

    /// The pages of `region`.
    pub(crate) fn of_region(&self, region: u32) -> Vec<PageId> {
        self.regions.get(region as usize).into_iter().flatten().copied().flatten().collect()
    }
}
