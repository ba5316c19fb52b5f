//! Which region of the SSD is emptied next, what leaves with it, and what is written again.
//!
//! Candidates are the regions of the chains that would leave first. The one that costs the least freshness is emptied: each of its pages costs
//! its own, whether it is lost or written once more, and so does each page elsewhere that is lost with them. Pages that must stay (others hang below them, in memory or about to be written), and
//! pages that were used lately, are written again, up to a share of the region, so that what the flash absorbs stays near what was put.

use std::cmp::Reverse;
use std::collections::HashSet;

use cairn_policy::{EvictionPolicy, PageId};

use crate::leaving::Leaving;

/// Regions that are compared.
const CANDIDATES_MAX: usize = 8;
/// Pages of one chain whose regions are looked at.
const CHAIN_PAGES_MAX: usize = 4096;
/// A page this fresh is written again.
const FRESH: f64 = 0.5;

/// A region that can be emptied.
#[derive(Debug)]
pub(crate) struct Emptying {
    pub(crate) region: u32,
    /// The pages that leave, children before their parents; some lie in other regions, below these.
    pub(crate) leavers: Vec<PageId>,
    /// The pages that are to be written again, parents before their children.
    pub(crate) again: Vec<PageId>,
    cost: f64,
}

/// What limits an emptying.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    /// Pages that must not leave, with all that is before them: others are about to be written below them.
    pub(crate) spared: &'a HashSet<PageId>,
    /// Pages of a region that can be written again.
    pub(crate) again_max: &'a dyn Fn(u32) -> usize,
    /// Slots of a region that no page is found in any more, and that can be freed with it.
    pub(crate) unread: &'a dyn Fn(u32) -> usize,
}

impl Leaving<'_> {
    /// The region to empty; `None` if none can be. One that is being filled only if there is no other.
    pub(crate) fn region_to_empty(&self, policy: &mut dyn EvictionPolicy, limits: Limits<'_>) -> Option<Emptying> {
        let (open, closed): (Vec<u32>, Vec<u32>) =
            self.candidates(policy).into_iter().partition(|region| self.regions.is_open(*region));
        let best = |regions: Vec<u32>| {
            let emptyings = regions.into_iter().filter_map(|region| self.emptying(region, policy, limits));
            emptyings.min_by(|a, b| a.cost.total_cmp(&b.cost))
        };
        best(closed).or_else(|| best(open))
    }

    fn candidates(&self, policy: &mut dyn EvictionPolicy) -> Vec<u32> {
        let mut regions = Vec::with_capacity(CANDIDATES_MAX);
        let mut closed = 0;
        policy.victim(&mut |leaf| {
            for page in self.up_from(leaf).take(CHAIN_PAGES_MAX) {
                if let Some(region) = self.region_of(page).filter(|region| !regions.contains(region)) {
                    closed += usize::from(!self.regions.is_open(region));
                    regions.push(region);
                }
                if closed >= CANDIDATES_MAX {
                    break;
                }
            }
            closed >= CANDIDATES_MAX
        });
        regions
    }

    /// A page and those before it.
    fn up_from(&self, page: PageId) -> impl Iterator<Item = PageId> {
        std::iter::successors(Some(page), |page| self.index.get(*page).and_then(|entry| entry.parent))
    }

    fn emptying(&self, region: u32, policy: &dyn EvictionPolicy, limits: Limits<'_>) -> Option<Emptying> {
        let mut pages = self.residents.of_region(region);
        // Slots that are being written, or are held by readers of pages that have left, keep a region from being emptied.
        if pages.len() + (limits.unread)(region) != self.regions.slots_taken(region) as usize {
            return None;
        }
        let must_stay = self.that_must_stay(&pages, limits.spared);
        let rank = |page: &PageId| {
            (!must_stay.contains(page), Reverse(order(policy.freshness(*page))), self.position(*page), *page)
        };
        pages.sort_by_cached_key(rank);
        let stays = |page: &&PageId| must_stay.contains(*page) || policy.freshness(**page) >= FRESH;
        let kept = pages.iter().take((limits.again_max)(region)).take_while(stays).count();
        let (again, leavers) = pages.split_at(kept);
        let together = self.with_all_below(leavers);
        let mut again: Vec<PageId> = again.iter().copied().filter(|page| !together.contains(page)).collect();
        let mut leavers: Vec<PageId> = together.iter().copied().collect();
        let is_free = |page: &PageId| !must_stay.contains(page) && !limits.spared.contains(page);
        let may_leave = |page: &PageId| is_free(page) && self.may_leave_together(*page, &together);
        if !leavers.iter().all(may_leave) {
            return None;
        }
        let beside = leavers.iter().filter(|page| self.region_of(**page) != Some(region));
        let cost = pages.iter().chain(beside).map(|page| policy.freshness(*page)).sum();
        leavers.sort_unstable_by_key(|page| (Reverse(self.position(*page)), *page));
        again.sort_unstable_by_key(|page| (self.position(*page), *page));
        Some(Emptying { region, leavers, again, cost })
    }

    /// Of the pages of a region, those that others need: `spared`, those that have a child in memory and are not there themselves, and what is
    /// before them in the region.
    fn that_must_stay(&self, pages: &[PageId], spared: &HashSet<PageId>) -> HashSet<PageId> {
        let in_region: HashSet<PageId> = pages.iter().copied().collect();
        let in_memory = |page: PageId| self.index.get(page).is_some_and(|entry| entry.dram.is_some());
        let is_needed =
            |page: &PageId| spared.contains(page) || (!in_memory(*page) && self.index.children(*page).any(in_memory));
        let mut must_stay = HashSet::new();
        for page in pages.iter().copied().filter(is_needed) {
            // Those before it, as long as they are in the region and not seen yet.
            let _ = self.up_from(page).take_while(|page| in_region.contains(page) && must_stay.insert(*page)).count();
        }
        must_stay
    }
}

/// A share from 0 to 1 in an order that is total.
fn order(share: f64) -> u64 {
    share.max(0.0).to_bits()
}
