//! What leaves a tier to make room: from DRAM a page or an arena, from the SSD a region, of which some pages move.

use std::collections::HashSet;

use cairn_core::{Generation, PageKey, SlotId, Tier};
use cairn_directory::NamespaceNo;
use cairn_policy::PageId;
use cairn_pool::Pool;
use cairn_ssd::SsdTier;

use super::{Catalogue, Unread};
use crate::emptying::{Emptying, Limits};
use crate::leaving::{Leavers, Leaving};
use crate::values::{Again, Left, PageName, Reclaimed, Shape, ToVerify};

impl Catalogue {
    /// Makes room in DRAM for a page of `shape`: one page of the same class leaves, or all of an arena of another class. Nothing leaves if
    /// everything is in use. `spared` does not go away by it. The number of pages that left.
    pub(crate) fn evict(&mut self, shape: &Shape, pool: &Pool, spared: Option<(NamespaceNo, PageKey)>) -> u64 {
        // What is on the SSD too does not go away by leaving DRAM.
        let spared = spared
            .and_then(|(namespace, key)| self.index.find(namespace, &key))
            .filter(|id| self.index.get(*id).is_some_and(|entry| entry.ssd.is_none()));
        let leaving = Leaving {
            tier: Tier::Dram,
            index: &self.index,
            residents: &self.dram.residents,
            shapes: &self.shapes,
            regions: pool,
        };
        let mut refused_regions = HashSet::new();
        let mut leavers = Leavers::default();
        self.dram.policy.victim(&mut |page| {
            let with = (Some(page) != spared).then(|| leaving.with(page, shape, &mut refused_regions)).flatten();
            let leaves = with.is_some();
            leavers = with.unwrap_or_default();
            leaves
        });
        if let Some(region) = leavers.emptied {
            pool.drain(region);
        }
        let pages = leavers.pages.len() as u64;
        for id in leavers.pages {
            self.take_off(Tier::Dram, id);
            self.forget(id);
        }
        pages
    }

    /// Empties a region of the SSD: most of its pages leave, and some are to be written again. None of `spared` leaves. `None` if no region
    /// can be emptied.
    pub(crate) fn reclaim(
        &mut self,
        tier: &SsdTier,
        spared: &[(NamespaceNo, PageKey)],
        again_max: &dyn Fn(u32) -> usize,
    ) -> Option<Reclaimed> {
        let mut with_all_before = HashSet::new();
        for (namespace, key) in spared {
            let mut next = self.index.find(*namespace, key);
            while let Some(page) = next.filter(|page| with_all_before.insert(*page)) {
                next = self.index.get(page).and_then(|entry| entry.parent);
            }
        }
        let leaving = Leaving {
            tier: Tier::Ssd,
            index: &self.index,
            residents: &self.ssd.residents,
            shapes: &self.shapes,
            regions: tier,
        };
        let unread = |region| unread_in(&self.unread, region).count();
        let limits = Limits { spared: &with_all_before, again_max, unread: &unread };
        let Emptying { region, leavers, again, .. } = leaving.region_to_empty(&mut *self.ssd.policy, limits)?;
        tier.drain(region);
        let mut left = Vec::with_capacity(leavers.len());
        for id in leavers {
            left.extend(self.take_off(Tier::Ssd, id));
            self.forget(id);
        }
        let mut stale = Vec::new();
        for (no, unread) in unread_in(&self.unread, region).collect::<Vec<_>>() {
            self.unread.remove(&unread.slot);
            // The directory may know the key by a later page.
            match self.entry_of(no, &unread.key).and_then(|entry| entry.ssd) {
                Some(_) => stale.push(unread.slot),
                None => left.push(unread),
            }
        }
        let again = again.into_iter().filter_map(|id| self.again(id, tier)).collect();
        Some(Reclaimed { left, stale, again })
    }

    /// The page `key` as it is on the SSD, if it is there.
    pub(crate) fn again_of(&self, namespace: NamespaceNo, key: &PageKey, tier: &SsdTier) -> Option<Again> {
        self.index.find(namespace, key).and_then(|id| self.again(id, tier))
    }

    fn again(&self, id: PageId, tier: &SsdTier) -> Option<Again> {
        let entry = self.index.get(id)?;
        let ToVerify { expected, pin, .. } = self.to_verify(id, tier)?;
        let parent = entry.parent.and_then(|parent| self.index.get(parent)).map(|parent| parent.key);
        let name = PageName { namespace: entry.namespace, key: entry.key, parent, position: entry.position };
        Some(Again { name, expected, pin, dram: entry.dram.clone() })
    }

    /// Makes the new place of a page visible that was written again; the slot that it had before. `None` if the page has left meanwhile.
    pub(crate) fn move_on_ssd(&mut self, again: &Again, slot: SlotId, generation: Generation) -> Option<SlotId> {
        let id = self.index.find(again.name.namespace, &again.name.key)?;
        let entry = self.index.get_mut(id).filter(|entry| entry.generation == again.expected.generation)?;
        let before = entry.ssd.replace(slot);
        let Some(before) = before else {
            entry.ssd = None;
            return None;
        };
        entry.generation = generation;
        self.ssd.residents.remove(before);
        self.ssd.residents.add(slot, id);
        Some(before)
    }

    /// Remembers a slot that could not be read: the directory names it still, and it may be readable after the next start.
    pub(crate) fn note_unread(&mut self, namespace: NamespaceNo, left: Left) {
        self.unread.insert(left.slot, (namespace, left));
    }
}

/// The slots of a region that could not be read.
fn unread_in(unread: &Unread, region: u32) -> impl Iterator<Item = (NamespaceNo, Left)> {
    let slots = SlotId { region, slot: 0 }..=SlotId { region, slot: u32::MAX };
    unread.range(slots).map(|(_, unread)| *unread)
}
