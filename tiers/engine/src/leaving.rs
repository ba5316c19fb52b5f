//! Which pages may leave a tier: the catalogue's rules, asked by the eviction policy in its order of preference.

use std::cmp::Reverse;
use std::collections::HashSet;

use cairn_core::{SlotId, Tier};
use cairn_directory::{Entry, Index};
use cairn_policy::PageId;
use cairn_pool::{Pool, SealedPage};
use cairn_ssd::SsdTier;

use crate::residents::Residents;
use crate::values::Shape;

/// What lies below a tier: the arenas of the pool, or the regions of the SSD.
pub(crate) trait Regions {
    /// Whether anybody but its entry holds the page.
    fn is_held(&self, entry: &Entry<SealedPage>) -> bool;
    /// Slots taken in `region`: pages, and slots that no entry names (being filled, being written, still being read).
    fn slots_taken(&self, region: u32) -> u32;
    /// Whether slots of `region` are handed out.
    fn is_open(&self, region: u32) -> bool;
}

impl Regions for Pool {
    fn is_held(&self, entry: &Entry<SealedPage>) -> bool {
        entry.dram.as_ref().is_some_and(|page| page.holders() > 1)
    }

    fn slots_taken(&self, region: u32) -> u32 {
        self.taken_in(region)
    }

    /// A pool hands out the slots of any arena again.
    fn is_open(&self, _region: u32) -> bool {
        true
    }
}

impl Regions for SsdTier {
    fn is_held(&self, entry: &Entry<SealedPage>) -> bool {
        entry.ssd.is_some_and(|slot| self.is_pinned(slot))
    }

    fn slots_taken(&self, region: u32) -> u32 {
        self.taken_in(region)
    }

    fn is_open(&self, region: u32) -> bool {
        Self::is_open(self, region)
    }
}

/// What the question needs to see of the catalogue and of one tier.
#[derive(Clone, Copy)]
pub(crate) struct Leaving<'a> {
    pub(crate) tier: Tier,
    pub(crate) index: &'a Index<SealedPage>,
    pub(crate) residents: &'a Residents,
    pub(crate) shapes: &'a [Option<Shape>],
    pub(crate) regions: &'a dyn Regions,
}

/// The pages that leave together.
#[derive(Debug, Default)]
pub(crate) struct Leavers {
    /// Children before their parents.
    pub(crate) pages: Vec<PageId>,
    /// The region that is empty once they have left, if they leave for a page of another class.
    pub(crate) emptied: Option<u32>,
}

impl Leaving<'_> {
    /// The pages that leave if `victim` makes room for a page of the wanted shape: itself if it is of the same class, else all of its
    /// region with what hangs below. `None` if one of them must stay.
    pub(crate) fn with(&self, victim: PageId, wanted: &Shape, refused_regions: &mut HashSet<u32>) -> Option<Leavers> {
        let entry = self.index.get(victim)?;
        if self.same_class(entry, wanted) {
            let pages = HashSet::from([victim]);
            return self.may_leave_together(victim, &pages).then(|| Leavers { pages: vec![victim], emptied: None });
        }
        let region = slot_in(entry, self.tier)?.region;
        if refused_regions.contains(&region) {
            return None;
        }
        let leavers = self.empty(region);
        if leavers.is_none() {
            refused_regions.insert(region);
        }
        leavers
    }

    /// All pages of `region` and what hangs below them in the tier; `None` if the region would not be empty without them.
    fn empty(&self, region: u32) -> Option<Leavers> {
        let pages = self.residents.of_region(region);
        if pages.len() != self.regions.slots_taken(region) as usize {
            return None;
        }
        let together = self.with_all_below(&pages);
        let mut pages: Vec<PageId> = together.iter().copied().collect();
        let may_leave = pages.iter().all(|page| self.may_leave_together(*page, &together));
        pages.sort_unstable_by_key(|page| (Reverse(self.position(*page)), *page));
        may_leave.then_some(Leavers { pages, emptied: Some(region) })
    }

    /// These pages and all that hangs below them in the tier.
    pub(crate) fn with_all_below(&self, pages: &[PageId]) -> HashSet<PageId> {
        let mut together: HashSet<PageId> = pages.iter().copied().collect();
        let mut open = pages.to_vec();
        while let Some(page) = open.pop() {
            let below = self.index.children(page).filter(|child| self.is_in_tier(*child) && together.insert(*child));
            open.extend(below);
        }
        together
    }

    /// Where a page stands in its chain.
    pub(crate) fn position(&self, page: PageId) -> u32 {
        self.index.get(page).map_or(0, |entry| entry.position)
    }

    /// Where a page lies.
    pub(crate) fn region_of(&self, page: PageId) -> Option<u32> {
        self.index.get(page).and_then(|entry| slot_in(entry, self.tier)).map(|slot| slot.region)
    }

    /// Whether `page` may leave, given that `together` all leave: nobody holds it, and no child is left behind without it.
    pub(crate) fn may_leave_together(&self, page: PageId, together: &HashSet<PageId>) -> bool {
        let Some(entry) = self.index.get(page) else { return false };
        let goes_too = |child: PageId| together.contains(&child) && !self.is_elsewhere(child);
        !self.regions.is_held(entry) && (self.is_elsewhere(page) || self.index.children(page).all(goes_too))
    }

    /// Whether the page is in the other tier too: then it does not go away by leaving this one.
    pub(crate) fn is_elsewhere(&self, page: PageId) -> bool {
        self.index.get(page).is_some_and(|entry| match self.tier {
            Tier::Dram => entry.ssd.is_some(),
            Tier::Ssd => entry.dram.is_some(),
        })
    }

    fn is_in_tier(&self, page: PageId) -> bool {
        self.index.get(page).is_some_and(|entry| slot_in(entry, self.tier).is_some())
    }

    fn same_class(&self, entry: &Entry<SealedPage>, wanted: &Shape) -> bool {
        let Some(Some(shape)) = self.shapes.get(entry.namespace.0 as usize) else { return false };
        shape.frame_bytes() == wanted.frame_bytes() && shape.tenant == wanted.tenant
    }
}

/// Where a page lies in a tier.
pub(crate) fn slot_in(entry: &Entry<SealedPage>, tier: Tier) -> Option<SlotId> {
    match tier {
        Tier::Dram => entry.dram.as_ref().map(SealedPage::slot),
        Tier::Ssd => entry.ssd,
    }
}
