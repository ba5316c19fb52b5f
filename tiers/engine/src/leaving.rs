//! Which pages may leave a tier: the catalogue's rules, asked by the eviction policy in its order of preference.

use std::collections::HashSet;

use cairn_core::{SlotId, Tier};
use cairn_directory::{Entry, Index};
use cairn_policy::PageId;
use cairn_pool::SealedPage;

use crate::catalogue::Shape;
use crate::residents::Residents;

/// What the question needs to see of the catalogue and of one tier.
#[derive(Clone, Copy)]
pub(crate) struct Leaving<'a> {
    pub(crate) tier: Tier,
    pub(crate) index: &'a Index<SealedPage>,
    pub(crate) residents: &'a Residents,
    pub(crate) shapes: &'a [Shape],
    /// Whether a slot of the SSD is being read or held.
    pub(crate) is_held: &'a dyn Fn(SlotId) -> bool,
}

impl Leaving<'_> {
    /// The pages that leave if `victim` makes room for a page of the wanted shape, children before their parents: itself if it is of
    /// the same class, else all of its region with what hangs below. `None` if one of them must stay.
    pub(crate) fn with(
        &self,
        victim: PageId,
        wanted: &Shape,
        refused_regions: &mut HashSet<u32>,
    ) -> Option<Vec<PageId>> {
        let entry = self.index.get(victim)?;
        if self.same_class(entry, wanted) {
            let pages = HashSet::from([victim]);
            return self.may_leave_together(victim, &pages).then(|| vec![victim]);
        }
        let region = slot_in(entry, self.tier)?.region;
        if refused_regions.contains(&region) {
            return None;
        }
        let pages = self.region_with_descendants(region);
        let together: HashSet<PageId> = pages.iter().copied().collect();
        if pages.iter().all(|page| self.may_leave_together(*page, &together)) {
            Some(pages)
        } else {
            refused_regions.insert(region);
            None
        }
    }

    /// Whether `page` may leave, given that `together` all leave: nobody holds it, and no child is left behind without it.
    fn may_leave_together(&self, page: PageId, together: &HashSet<PageId>) -> bool {
        let Some(entry) = self.index.get(page) else { return false };
        let idle = match self.tier {
            Tier::Dram => entry.dram.as_ref().is_none_or(|page| page.holders() == 1),
            Tier::Ssd => entry.ssd.is_none_or(|slot| !(self.is_held)(slot)),
        };
        let elsewhere = match self.tier {
            Tier::Dram => entry.ssd.is_some(),
            Tier::Ssd => entry.dram.is_some(),
        };
        idle && (elsewhere || self.index.children(page).all(|child| together.contains(&child)))
    }

    fn same_class(&self, entry: &Entry<SealedPage>, wanted: &Shape) -> bool {
        let Some(shape) = self.shapes.get(entry.namespace.0 as usize) else { return false };
        shape.frame_bytes() == wanted.frame_bytes() && (self.tier == Tier::Ssd || shape.tenant == wanted.tenant)
    }

    fn region_with_descendants(&self, region: u32) -> Vec<PageId> {
        let mut pages = self.residents.of_region(region);
        let below: Vec<PageId> = pages.iter().flat_map(|page| self.index.descendants(*page)).collect();
        pages.extend(below);
        pages.retain(|page| self.index.get(*page).is_some_and(|entry| slot_in(entry, self.tier).is_some()));
        pages
            .sort_unstable_by_key(|page| (std::cmp::Reverse(self.index.get(*page).map(|entry| entry.position)), *page));
        pages.dedup();
        pages
    }
}

/// Where a page lies in a tier.
pub(crate) fn slot_in(entry: &Entry<SealedPage>, tier: Tier) -> Option<SlotId> {
    match tier {
        Tier::Dram => entry.dram.as_ref().map(SealedPage::slot),
        Tier::Ssd => entry.ssd,
    }
}
