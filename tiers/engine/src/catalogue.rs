//! The catalogue: what is where, and every change of that, under one lock.
//!
//! It joins the resident index (entries), and for each tier the eviction policy and the pages by region. Each method is one step that
//! takes it from one consistent state to the next, without I/O; the engine holds the lock for one step at a time. Rules it keeps:
//!
//! 1. A page that has a child in a tier does not leave that tier, and a page with a child anywhere does not leave its last tier. So
//!    what is found is always a prefix. The exception is damage: then the entry stays as a *hole*, so that one put mends the chain, and
//!    what hangs below it goes first.
//! 2. A DRAM page that anyone but its entry holds, and a slot that anyone reads, does not leave.
//! 3. A page is on the SSD only if the page before it is, unless damage took that one.

use std::collections::HashSet;

use cairn_core::{Checksum, Generation, NamespaceId, PageKey, SlotId, Tier};
use cairn_directory::{Entry, Index, NamespaceNo};
use cairn_policy::{EvictionPolicy, PageId, PrefixLru};
use cairn_pool::{SealedPage, TenantNo};

use crate::leaving::{Leaving, slot_in};
use crate::residents::Residents;

/// The state of all entries.
#[derive(Debug)]
pub(crate) struct Catalogue {
    index: Index<SealedPage>,
    dram: TierState,
    ssd: TierState,
    shapes: Vec<Shape>,
}

#[derive(Debug)]
struct TierState {
    policy: Box<dyn EvictionPolicy>,
    residents: Residents,
}

/// What the pages of a namespace look like: pages of one class can take each other's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) id: NamespaceId,
    /// `None` while nobody has opened it.
    pub(crate) tenant: Option<TenantNo>,
    pub(crate) page_bytes: u64,
}

impl Shape {
    /// Bytes that a page takes in a tier, headers apart.
    pub(crate) const fn frame_bytes(&self) -> u64 {
        self.page_bytes.next_multiple_of(4096)
    }
}

/// The key list contradicts what is known: the page at `page` belongs at another position or after another page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutOfOrder {
    pub(crate) page: usize,
}

/// A page's name and place in its chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageName {
    pub(crate) namespace: NamespaceNo,
    pub(crate) key: PageKey,
    pub(crate) parent: Option<PageKey>,
    pub(crate) position: u32,
}

/// What became of publishing a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Published {
    Stored,
    Present,
    ParentMissing,
}

/// What a page that waits to be written needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wants {
    Write,
    /// It is on the SSD already.
    Nothing,
    /// The page before it is not on the SSD.
    Parent,
    /// It has left DRAM.
    Gone,
}

/// A page that has left the SSD tier; its slot may be reused once the directory has forgotten it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    pub(crate) namespace: NamespaceId,
    pub(crate) key: PageKey,
    pub(crate) slot: SlotId,
}

impl Catalogue {
    pub(crate) fn new() -> Self {
        let tier = || TierState { policy: Box::new(PrefixLru::new()), residents: Residents::default() };
        Self { index: Index::new(), dram: tier(), ssd: tier(), shapes: Vec::new() }
    }

    /// Says what the pages of namespace `no` look like.
    pub(crate) fn set_shape(&mut self, no: NamespaceNo, shape: Shape) {
        let at = no.0 as usize;
        if at >= self.shapes.len() {
            self.shapes.resize(at + 1, shape);
        }
        self.shapes[at] = shape;
    }

    /// The pages of `chain[first..]` that are in a tier, up to the first that is not.
    pub(crate) fn find(
        &self,
        namespace: NamespaceNo,
        chain: &[PageKey],
        first: usize,
    ) -> Result<Vec<PageId>, OutOfOrder> {
        let mut found: Vec<PageId> = Vec::new();
        for (page, key) in chain.iter().enumerate().skip(first) {
            let Some((id, entry)) = self.index.find(namespace, key).and_then(|id| Some((id, self.index.get(id)?)))
            else {
                break;
            };
            let in_order = entry.position as usize == page
                && (page == first || entry.parent.is_none() || entry.parent == found.last().copied());
            if !in_order {
                return Err(OutOfOrder { page });
            }
            if !entry.is_located() {
                break;
            }
            found.push(id);
        }
        Ok(found)
    }

    /// What the pages of a namespace look like.
    pub(crate) fn shape(&self, namespace: NamespaceNo) -> Option<&Shape> {
        self.shapes.get(namespace.0 as usize)
    }

    /// The entry of a page that [`Catalogue::find`] has just returned, under the same lock.
    pub(crate) fn entry(&self, id: PageId) -> Option<&Entry<SealedPage>> {
        self.index.get(id)
    }

    /// The entry of `key`.
    pub(crate) fn entry_of(&self, namespace: NamespaceNo, key: &PageKey) -> Option<&Entry<SealedPage>> {
        self.index.find(namespace, key).and_then(|id| self.index.get(id))
    }

    /// A request has used these pages of one chain.
    pub(crate) fn touch(&mut self, chain: &[PageId]) {
        let index = &self.index;
        let within = |tier: Tier| -> Vec<PageId> {
            chain.iter().copied().filter(|id| index.get(*id).is_some_and(|entry| is_in(entry, tier))).collect()
        };
        let (dram, ssd) = (within(Tier::Dram), within(Tier::Ssd));
        self.dram.policy.touch(&dram);
        self.ssd.policy.touch(&ssd);
    }

    /// Makes a sealed page visible in DRAM, unless it is there already or the page before it is not.
    pub(crate) fn publish(&mut self, name: &PageName, page: SealedPage) -> Published {
        let parent = match name.parent {
            None => None,
            Some(parent) => match self.index.find(name.namespace, &parent) {
                Some(id) if self.index.get(id).is_some_and(Entry::is_located) => Some(id),
                _ => return Published::ParentMissing,
            },
        };
        let Some(id) = self.find_or_insert(name, parent) else { return Published::ParentMissing };
        let Some(entry) = self.index.get_mut(id) else { return Published::ParentMissing };
        if entry.parent != parent || entry.position != name.position {
            return Published::ParentMissing;
        }
        if entry.is_located() {
            return Published::Present;
        }
        entry.checksum = page.checksum();
        self.place_in_dram(id, page);
        Published::Stored
    }

    /// Makes a page that was loaded from the SSD visible in DRAM, if it is still the page that was asked for.
    pub(crate) fn publish_loaded(&mut self, namespace: NamespaceNo, key: &PageKey, read: Generation, page: SealedPage) {
        let Some(id) = self.index.find(namespace, key) else { return };
        let same = self
            .index
            .get(id)
            .is_some_and(|entry| entry.ssd.is_some() && entry.generation == read && entry.dram.is_none());
        if same {
            self.place_in_dram(id, page);
        }
    }

    /// Whether a page that waits to be written should be; `parents_coming` are the keys that are written with it.
    pub(crate) fn wants_on_ssd(&self, name: &PageName, parents_coming: &HashSet<PageKey>) -> Wants {
        let Some(entry) = self.entry_of(name.namespace, &name.key).filter(|entry| entry.dram.is_some()) else {
            return Wants::Gone;
        };
        if entry.ssd.is_some() {
            return Wants::Nothing;
        }
        let parent_there = name.parent.is_none_or(|parent| {
            parents_coming.contains(&parent)
                || self.entry_of(name.namespace, &parent).is_some_and(|entry| entry.ssd.is_some())
        });
        if parent_there { Wants::Write } else { Wants::Parent }
    }

    /// Makes the SSD location of a page visible: it has been written, has passed a barrier and is in the directory. False if the entry
    /// is gone.
    pub(crate) fn publish_on_ssd(
        &mut self,
        namespace: NamespaceNo,
        key: &PageKey,
        slot: SlotId,
        generation: Generation,
    ) -> bool {
        let Some(id) = self.index.find(namespace, key) else { return false };
        let Some(entry) = self.index.get_mut(id) else { return false };
        if !entry.is_located() {
            return false;
        }
        entry.ssd = Some(slot);
        entry.generation = generation;
        let parent = entry.parent;
        self.ssd.residents.add(slot, id);
        self.ssd.policy.insert(id, parent);
        true
    }

    /// Takes over an entry that was found on the SSD at start. The page before it may come later, or never. False if it is there
    /// already.
    pub(crate) fn recover(
        &mut self,
        name: &PageName,
        slot: SlotId,
        generation: Generation,
        checksum: Checksum,
    ) -> bool {
        let parent = name.parent.and_then(|key| self.parent_or_hole(name, key));
        let Some(id) = self.find_or_insert(name, parent) else { return false };
        let Some(entry) = self.index.get_mut(id) else { return false };
        if entry.ssd.is_some() {
            return false;
        }
        entry.ssd = Some(slot);
        entry.generation = generation;
        entry.checksum = checksum;
        self.ssd.residents.add(slot, id);
        self.ssd.policy.insert(id, parent);
        true
    }

    /// After recovery: what hangs below a hole can not be reached, so it goes first.
    pub(crate) fn demote_below_holes(&mut self) {
        let holes: Vec<PageId> = self.index.iter().filter(|(_, entry)| !entry.is_located()).map(|(id, _)| id).collect();
        for hole in holes {
            self.demote_below(hole);
        }
    }

    /// Frees page memory for a page of `shape`: one page of the same class, or all of an arena of another. The number of
    /// pages that left; 0 if every page is in use.
    pub(crate) fn evict_from_dram(&mut self, shape: &Shape) -> u64 {
        self.evict(Tier::Dram, shape, &|_| false).len() as u64
    }

    /// Frees a slot for a page of `shape`: takes one page of the same class off the SSD, or all of a region of another. None, if every
    /// page is held.
    pub(crate) fn evict_from_ssd(&mut self, shape: &Shape, is_held: &dyn Fn(SlotId) -> bool) -> Vec<Left> {
        self.evict(Tier::Ssd, shape, is_held)
    }

    /// Drops a page whose bytes on the SSD are damaged or gone; what the directory must forget, if it was still there.
    pub(crate) fn drop_damaged_on_ssd(
        &mut self,
        namespace: NamespaceNo,
        key: &PageKey,
        read: Generation,
    ) -> Option<Left> {
        let id = self.index.find(namespace, key)?;
        self.index.get(id).filter(|entry| entry.ssd.is_some() && entry.generation == read)?;
        let left = self.take_off(Tier::Ssd, id);
        self.settle(id);
        left
    }

    /// Drops a page whose bytes in DRAM are damaged.
    pub(crate) fn drop_damaged_in_dram(&mut self, namespace: NamespaceNo, key: &PageKey, damaged: SlotId) {
        let Some(id) = self.index.find(namespace, key) else { return };
        let same = self.index.get(id).is_some_and(|e| e.dram.as_ref().is_some_and(|page| page.slot() == damaged));
        if same {
            self.take_off(Tier::Dram, id);
            self.settle(id);
        }
    }

    /// Drops every page of a namespace from both tiers; what was on the SSD, and how many pages there were.
    pub(crate) fn clear(&mut self, namespace: NamespaceNo) -> (Vec<Left>, u64) {
        let pages: Vec<PageId> = self.index.of_namespace(namespace).collect();
        let mut left = Vec::new();
        let mut cleared = 0;
        // Children before their parents.
        for id in pages.into_iter().rev() {
            cleared += u64::from(self.index.get(id).is_some_and(Entry::is_located));
            self.take_off(Tier::Dram, id);
            left.extend(self.take_off(Tier::Ssd, id));
            self.forget(id);
        }
        (left, cleared)
    }

    /// Whether a page lies in this slot of the SSD.
    pub(crate) fn is_on_ssd(&self, slot: SlotId) -> bool {
        self.ssd.residents.holds(slot)
    }

    /// Pages in a tier.
    pub(crate) fn pages_in(&self, tier: Tier) -> u64 {
        self.tier(tier).policy.len() as u64
    }

    /// Entries, holes included.
    pub(crate) fn entries(&self) -> u64 {
        self.index.len() as u64
    }

    /// Pages of `namespace` in DRAM and on the SSD.
    pub(crate) fn count(&self, namespace: NamespaceNo) -> (u64, u64) {
        self.index.of_namespace(namespace).filter_map(|id| self.index.get(id)).fold((0, 0), |(dram, ssd), entry| {
            (dram + u64::from(entry.dram.is_some()), ssd + u64::from(entry.ssd.is_some()))
        })
    }

    fn tier(&self, tier: Tier) -> &TierState {
        match tier {
            Tier::Dram => &self.dram,
            Tier::Ssd => &self.ssd,
        }
    }

    fn tier_mut(&mut self, tier: Tier) -> &mut TierState {
        match tier {
            Tier::Dram => &mut self.dram,
            Tier::Ssd => &mut self.ssd,
        }
    }

    /// The page's entry. A hole made at recovery does not know its parent, and learns it here. `None` if the index is full.
    fn find_or_insert(&mut self, name: &PageName, parent: Option<PageId>) -> Option<PageId> {
        let id = self.index.insert(name.namespace, name.key, name.position, parent)?;
        if let (Some(parent), Some(None)) = (parent, self.index.get(id).map(|entry| entry.parent)) {
            self.index.link(id, parent);
        }
        Some(id)
    }

    /// The entry of the page before `name`, or a hole in its place.
    fn parent_or_hole(&mut self, name: &PageName, parent: PageKey) -> Option<PageId> {
        self.index.insert(name.namespace, parent, name.position.checked_sub(1)?, None)
    }

    fn place_in_dram(&mut self, id: PageId, page: SealedPage) {
        let Some(entry) = self.index.get_mut(id) else { return };
        let (slot, parent) = (page.slot(), entry.parent);
        entry.dram = Some(page);
        self.dram.residents.add(slot, id);
        self.dram.policy.insert(id, parent);
    }

    /// Takes a page off one tier; the entry stays.
    fn take_off(&mut self, tier: Tier, id: PageId) -> Option<Left> {
        let entry = self.index.get_mut(id)?;
        let slot = match tier {
            Tier::Dram => entry.dram.take().map(|page| page.slot()),
            Tier::Ssd => entry.ssd.take(),
        }?;
        let (key, namespace) = (entry.key, entry.namespace);
        let state = self.tier_mut(tier);
        state.residents.remove(slot);
        state.policy.remove(id);
        Some(Left { namespace: self.shapes[namespace.0 as usize].id, key, slot })
    }

    /// Settles an entry after a page was taken off: forgets it if nothing is left of it, or makes it a hole.
    fn settle(&mut self, id: PageId) {
        let Some(entry) = self.index.get(id) else { return };
        if entry.is_located() {
            return;
        }
        if self.index.has_children(id) {
            self.demote_below(id);
        } else {
            self.forget(id);
        }
    }

    /// Removes an entry without location and children, and holes above it that it was the last reason for.
    fn forget(&mut self, id: PageId) {
        let mut next = Some(id);
        while let Some(id) = next {
            let Some(entry) = self.index.get(id) else { return };
            if entry.is_located() || self.index.has_children(id) {
                return;
            }
            next = entry.parent;
            self.index.remove(id);
        }
    }

    fn demote_below(&mut self, hole: PageId) {
        for id in self.index.descendants(hole) {
            if self.index.get(id).is_some_and(|entry| entry.dram.is_some()) {
                self.dram.policy.demote(id);
            }
            if self.index.get(id).is_some_and(|entry| entry.ssd.is_some()) {
                self.ssd.policy.demote(id);
            }
        }
    }

    fn evict(&mut self, tier: Tier, wanted: &Shape, is_held: &dyn Fn(SlotId) -> bool) -> Vec<Left> {
        let state = match tier {
            Tier::Dram => &mut self.dram,
            Tier::Ssd => &mut self.ssd,
        };
        let leaving = Leaving { tier, index: &self.index, residents: &state.residents, shapes: &self.shapes, is_held };
        let mut refused_regions = HashSet::new();
        let mut pages = Vec::new();
        state.policy.victim(&mut |page| match leaving.with(page, wanted, &mut refused_regions) {
            Some(with) => {
                pages = with;
                true
            }
            None => false,
        });
        let mut left = Vec::with_capacity(pages.len());
        for id in pages {
            left.extend(self.take_off(tier, id));
            self.forget(id);
        }
        left
    }
}

fn is_in(entry: &Entry<SealedPage>, tier: Tier) -> bool {
    slot_in(entry, tier).is_some()
}
