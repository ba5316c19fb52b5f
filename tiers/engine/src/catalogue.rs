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
//!
//! Here are finding, publishing, taking over and dropping; what leaves to make room is in [`room`], pages in the order of their slots in
//! [`verifying`].

use std::collections::BTreeMap;

use cairn_core::{Checksum, Generation, PageKey, SlotId, Tier};
use cairn_directory::{Entry, Index, NamespaceNo};
use cairn_policy::{EvictionPolicy, PageId, PrefixLru};
use cairn_pool::SealedPage;

use crate::leaving::slot_in;
use crate::residents::Residents;
use crate::values::{Coming, Left, OutOfOrder, PageName, Published, Shape, Wants};

mod room;
mod verifying;

/// The state of all entries.
#[derive(Debug)]
pub(crate) struct Catalogue {
    index: Index<SealedPage>,
    dram: TierState,
    ssd: TierState,
    /// By the namespace's number.
    shapes: Vec<Option<Shape>>,
    unread: Unread,
    recovered: Recovered,
}

/// Pages taken over in this step that the policy has not been told of, each with its parent; and the name of the last.
#[derive(Default, Debug)]
struct Recovered {
    pages: Vec<(PageId, Option<PageId>)>,
    last: Option<(NamespaceNo, PageKey)>,
}

/// Slots on the SSD that could not be read, and what the directory says of them.
type Unread = BTreeMap<SlotId, (NamespaceNo, Left)>;

#[derive(Debug)]
struct TierState {
    policy: Box<dyn EvictionPolicy>,
    residents: Residents,
}

impl Catalogue {
    pub(crate) fn new() -> Self {
        let tier = || TierState { policy: Box::new(PrefixLru::new()), residents: Residents::default() };
        Self {
            index: Index::new(),
            dram: tier(),
            ssd: tier(),
            shapes: Vec::new(),
            unread: BTreeMap::new(),
            recovered: Recovered::default(),
        }
    }

    /// Says what the pages of namespace `no` look like.
    pub(crate) fn set_shape(&mut self, no: NamespaceNo, shape: Shape) {
        let at = no.0 as usize;
        if at >= self.shapes.len() {
            self.shapes.resize(at + 1, None);
        }
        self.shapes[at] = Some(shape);
    }

    /// The pages of `chain[first..]` that are in a tier, up to the first that is not.
    pub(crate) fn find(
        &self,
        namespace: NamespaceNo,
        chain: &[PageKey],
        first: usize,
    ) -> Result<Vec<PageId>, OutOfOrder> {
        let Some(asked) = chain.get(first..) else { return Ok(Vec::new()) };
        let mut found = self.index.walk(namespace, asked);
        let mut before = None;
        for (at, id) in found.iter().enumerate() {
            let page = first + at;
            let Some(entry) = self.index.get(*id) else { continue };
            let in_order = entry.position as usize == page
                && (before.is_none() || entry.parent.is_none() || entry.parent == before);
            if !in_order {
                return Err(OutOfOrder { page });
            }
            before = Some(*id);
        }
        let located = found.iter().take_while(|id| self.index.get(**id).is_some_and(Entry::is_located)).count();
        found.truncate(located);
        Ok(found)
    }

    /// Where the pages of a chain are, for a put: the entry of each, whether or not those before it are there.
    pub(crate) fn find_each(
        &self,
        namespace: NamespaceNo,
        chain: &[PageKey],
    ) -> Result<Vec<Option<&Entry<SealedPage>>>, OutOfOrder> {
        let mut before: Option<PageId> = None;
        chain
            .iter()
            .enumerate()
            .map(|(page, key)| {
                let id = self.index.find(namespace, key);
                let entry = id.and_then(|id| self.index.get(id));
                let in_order = entry.is_none_or(|entry| {
                    entry.position as usize == page && (entry.parent.is_none() || entry.parent == before)
                });
                before = id;
                if in_order { Ok(entry) } else { Err(OutOfOrder { page }) }
            })
            .collect()
    }

    /// What the pages of a namespace look like.
    pub(crate) fn shape(&self, namespace: NamespaceNo) -> Option<&Shape> {
        self.shapes.get(namespace.0 as usize)?.as_ref()
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
            return Published::Present(entry.dram.clone());
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

    /// Whether a page that waits to be written should be: it is the very page that the entry has in DRAM (after a clear or damage, another
    /// put may have brought another one), and the page before it is on the SSD or among those that are `coming` with it.
    pub(crate) fn wants_on_ssd(&self, name: &PageName, page: &SealedPage, coming: &Coming) -> Wants {
        let entry = self.entry_of(name.namespace, &name.key).filter(|entry| is_page(entry, page));
        let Some(entry) = entry else { return Wants::Gone };
        if entry.ssd.is_some() {
            return Wants::Nothing;
        }
        let parent_there = name.parent.is_none_or(|parent| {
            coming.contains(&(name.namespace, parent))
                || self.entry_of(name.namespace, &parent).is_some_and(|entry| entry.ssd.is_some())
        });
        if parent_there { Wants::Write } else { Wants::Parent }
    }

    /// Makes the SSD location of `page` visible: it has been written, has passed a barrier and is in the directory. False if the entry is
    /// gone, or has another page by now.
    pub(crate) fn publish_on_ssd(
        &mut self,
        name: &PageName,
        page: &SealedPage,
        slot: SlotId,
        generation: Generation,
    ) -> bool {
        let Some(id) = self.index.find(name.namespace, &name.key) else { return false };
        let Some(entry) = self.index.get_mut(id).filter(|entry| is_page(entry, page)) else { return false };
        entry.ssd = Some(slot);
        entry.generation = generation;
        let parent = entry.parent;
        self.ssd.residents.add(slot, id);
        self.ssd.policy.insert(id, parent);
        true
    }

    /// Makes room for so many pages more, before they are taken over.
    pub(crate) fn expect(&mut self, pages: usize) {
        self.index.reserve(pages);
    }

    /// Takes over an entry that was found on the SSD at start, the oldest first; [`Catalogue::end_recovery`] ends the step. The page before
    /// it may come later, or never. False if it is there already, or another page of that name has been put meanwhile.
    pub(crate) fn recover(
        &mut self,
        name: &PageName,
        slot: SlotId,
        generation: Generation,
        checksum: Checksum,
    ) -> bool {
        let parent = name.parent.and_then(|key| self.recovered_parent(name, key));
        let Some(id) = self.find_or_insert(name, parent) else { return false };
        let Some(entry) = self.index.get_mut(id) else { return false };
        if entry.ssd.is_some() || (entry.dram.is_some() && entry.checksum != checksum) {
            return false;
        }
        entry.ssd = Some(slot);
        entry.generation = generation;
        entry.checksum = checksum;
        self.ssd.residents.add(slot, id);
        self.recovered.pages.push((id, parent));
        self.recovered.last = Some((name.namespace, name.key));
        true
    }

    /// Pages were mostly written in the order of their chains: the parent of one is the one before.
    fn recovered_parent(&mut self, name: &PageName, parent: PageKey) -> Option<PageId> {
        match (self.recovered.last, self.recovered.pages.last()) {
            (Some(last), Some((id, _))) if last == (name.namespace, parent) => Some(*id),
            _ => self.parent_or_hole(name, parent),
        }
    }

    /// Ends a step of recovery, under the lock under which it began.
    pub(crate) fn end_recovery(&mut self) {
        let Recovered { pages, .. } = std::mem::take(&mut self.recovered);
        self.ssd.policy.restore(&pages);
    }

    /// After recovery: what hangs below a hole can not be reached, so it goes first.
    pub(crate) fn demote_below_holes(&mut self) {
        let holes: Vec<PageId> = self.index.iter().filter(|(_, entry)| !entry.is_located()).map(|(id, _)| id).collect();
        for hole in holes {
            self.demote_below(hole);
        }
    }

    /// Takes a page off the SSD whose bytes there are damaged, gone or unreadable; where it was, if it was still there.
    pub(crate) fn drop_from_ssd(&mut self, namespace: NamespaceNo, key: &PageKey, read: Generation) -> Option<Left> {
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
        let mut left: Vec<Left> =
            self.unread.values().filter(|(of, _)| *of == namespace).map(|(_, left)| *left).collect();
        self.unread.retain(|_, (of, _)| *of != namespace);
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

    /// Bytes allocated for the index.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.index.resident_bytes() as u64
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
        Some(Left { namespace: self.shape(namespace)?.id, key, slot })
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
}

/// Whether `page` is the page that the entry has in DRAM: its frame is nobody else's while it is held.
fn is_page(entry: &Entry<SealedPage>, page: &SealedPage) -> bool {
    entry.dram.as_ref().is_some_and(|found| found.slot() == page.slot())
}

fn is_in(entry: &Entry<SealedPage>, tier: Tier) -> bool {
    slot_in(entry, tier).is_some()
}
