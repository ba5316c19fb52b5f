//! The resident index: an entry for each page of any tier, found by namespace and key.
//!
//! Entries of a namespace form a forest: a page hangs below the page before it in its chain; pages whose predecessor is not known (or
//! which have none) are roots. An entry without any location is a *hole*: its page was lost while others still hang below it, and putting
//! it again mends the chain.
//!
//! Pure bookkeeping: no I/O, no locks, nothing blocks. Bound: the limit given at the start, for the engine what its tiers hold. About 110
//! bytes a page at worst: an entry of 96 (for a DRAM handle of 8 bytes), and 6 to 12 in the hash table. Client keys may be chosen to
//! collide, so the hash is seeded at random for each index.

use std::hash::{BuildHasher, Hasher};

use cairn_core::PageKey;
use cairn_policy::PageId;
use hashbrown::{DefaultHashBuilder, HashMap};

mod entry;
mod slab;
mod table;

pub use entry::{Entry, Node};
use slab::{NONE, Slab};
use table::Table;

/// Keys that a walk looks for together.
const STRIDE_PAGES: usize = 32;

/// The number of a namespace while the process runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NamespaceNo(pub u32);

/// The entries of all pages; `P` is how a page in DRAM is held.
#[derive(Debug)]
pub struct Index<P> {
    entries: Slab<Entry<P>>,
    table: Table,
    namespaces: HashMap<NamespaceNo, Roots>,
    hash_builder: DefaultHashBuilder,
}

/// What is known of a namespace that has entries.
#[derive(Clone, Copy, Debug)]
struct Roots {
    first: u32,
    entries: u64,
}

impl<P> Default for Index<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> Index<P> {
    /// An empty index that numbers alone limit, to 2^32 - 1 entries.
    pub fn new() -> Self {
        Self::with_limit(u32::MAX)
    }

    /// An empty index that takes up to `entries_max` entries.
    pub fn with_limit(entries_max: u32) -> Self {
        Self {
            entries: Slab::new(entries_max),
            table: Table::new(),
            namespaces: HashMap::new(),
            hash_builder: DefaultHashBuilder::default(),
        }
    }

    /// Makes room for `entries` more, so that adding as many does not grow the hash table step by step, each of which visits what is there.
    pub fn reserve(&mut self, entries: usize) {
        let Self { entries: known, table, hash_builder, .. } = self;
        table.reserve(entries, |number| hash_in(known, hash_builder, number));
    }

    /// The page `key` of `namespace`.
    pub fn find(&self, namespace: NamespaceNo, key: &PageKey) -> Option<PageId> {
        self.table.find(self.hash(namespace, key), |number| self.is_at(number, namespace, key)).map(PageId)
    }

    /// The pages of the leading keys of `chain` that are known, holes included; ends before the first that is not.
    ///
    /// A key costs three reads from memory that is not in any cache, and those of one key wait for each other. So it goes by strides: all
    /// reads of one kind for a stride of keys, then all of the next kind, which the processor has in flight together.
    pub fn walk(&self, namespace: NamespaceNo, chain: &[PageKey]) -> Vec<PageId> {
        let mut pages = Vec::with_capacity(chain.len());
        for stride in chain.chunks(STRIDE_PAGES) {
            let known_before = pages.len();
            let guesses = self.guess(namespace, stride);
            pages.extend(stride.iter().zip(guesses).map_while(|(key, guess)| match guess {
                Some(number) if self.is_at(number, namespace, key) => Some(PageId(number)),
                Some(_) => self.find(namespace, key),
                None => None,
            }));
            if pages.len() - known_before < stride.len() {
                break;
            }
        }
        pages
    }

    /// For each key of a stride the first entry that the table has under its hash, which most often is the right one; `None` if it is
    /// certain that the key is not known. Reads no entries.
    fn guess(&self, namespace: NamespaceNo, stride: &[PageKey]) -> [Option<u32>; STRIDE_PAGES] {
        let mut hashes = [0; STRIDE_PAGES];
        let mut guesses = [None; STRIDE_PAGES];
        for (hash, key) in hashes.iter_mut().zip(stride) {
            *hash = self.hash(namespace, key);
        }
        for (guess, hash) in guesses.iter_mut().zip(hashes).take(stride.len()) {
            *guess = self.table.find(hash, |_| true);
        }
        guesses
    }

    /// The entry of `page`.
    pub fn get(&self, page: PageId) -> Option<&Entry<P>> {
        self.entries.get(page.0)
    }

    /// The entry of `page`, to change where the page is and what proves its bytes.
    pub fn get_mut(&mut self, page: PageId) -> Option<&mut Entry<P>> {
        self.entries.get_mut(page.0)
    }

    /// Adds an entry without a location, below `parent` if that is known, and returns its number. If the key is known already, returns
    /// that number and changes nothing. `None` at the limit, or if `parent` is not a page of the same namespace one position before.
    pub fn insert(
        &mut self,
        namespace: NamespaceNo,
        key: PageKey,
        position: u32,
        parent: Option<PageId>,
    ) -> Option<PageId> {
        let hash = self.hash(namespace, &key);
        if let Some(known) = self.table.find(hash, |number| self.is_at(number, namespace, &key)) {
            return Some(PageId(known));
        }
        if parent.is_some_and(|parent| !self.precedes(parent, namespace, position)) {
            return None;
        }
        let number = self.entries.insert(Entry::vacant(Node { key, namespace, position, parent: None }))?;
        let (entries, hash_builder) = (&self.entries, &self.hash_builder);
        self.table.insert(hash, number, |number| hash_in(entries, hash_builder, number));
        self.namespaces.entry(namespace).or_insert(Roots { first: NONE, entries: 0 }).entries += 1;
        self.attach(number, parent);
        Some(PageId(number))
    }

    /// Hangs a root below `parent`, which has become known later. False, and nothing changes, if `page` is not a root or `parent` is not a
    /// page of the same namespace one position before.
    pub fn link(&mut self, page: PageId, parent: PageId) -> bool {
        let fits = self
            .get(page)
            .is_some_and(|entry| entry.parent.is_none() && self.precedes(parent, entry.namespace, entry.position));
        if fits {
            self.detach(page.0);
            self.attach(page.0, Some(parent));
        }
        fits
    }

    /// Forgets `page`. False, and nothing changes, if it is not known, has a location or has children.
    pub fn remove(&mut self, page: PageId) -> bool {
        let Some(entry) = self.get(page).filter(|entry| !entry.is_located() && entry.first_child == NONE) else {
            return false;
        };
        let (namespace, hash) = (entry.namespace, self.hash(entry.namespace, &entry.key));
        self.detach(page.0);
        self.table.remove(hash, page.0);
        self.entries.remove(page.0);
        if let Some(roots) = self.namespaces.get_mut(&namespace) {
            roots.entries -= 1;
            if roots.entries == 0 {
                self.namespaces.remove(&namespace);
            }
        }
        true
    }

    /// Whether a page hangs below `page`.
    pub fn has_children(&self, page: PageId) -> bool {
        self.get(page).is_some_and(|entry| entry.first_child != NONE)
    }

    /// The pages right below `page`, in no order.
    pub fn children(&self, page: PageId) -> impl Iterator<Item = PageId> + '_ {
        let mut next = self.get(page).map_or(NONE, |entry| entry.first_child);
        std::iter::from_fn(move || {
            let child = self.entries.get(next)?;
            Some(PageId(std::mem::replace(&mut next, child.next_sibling)))
        })
    }

    /// The pages below `page`, a page before those below it.
    pub fn descendants(&self, page: PageId) -> impl Iterator<Item = PageId> + '_ {
        self.in_order(self.get(page).map_or(NONE, |entry| entry.first_child), Some(page))
    }

    /// The pages of `namespace`, holes included, a page before those below it. Takes time by their number, not by the index's.
    pub fn of_namespace(&self, namespace: NamespaceNo) -> impl Iterator<Item = PageId> + '_ {
        self.in_order(self.namespaces.get(&namespace).map_or(NONE, |roots| roots.first), None)
    }

    /// All pages, holes included, by number.
    pub fn iter(&self) -> impl Iterator<Item = (PageId, &Entry<P>)> {
        self.entries.iter().map(|(number, entry)| (PageId(number), entry))
    }

    /// Number of entries, holes included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of entries of `namespace`, holes included.
    pub fn count(&self, namespace: NamespaceNo) -> u64 {
        self.namespaces.get(&namespace).map_or(0, |roots| roots.entries)
    }

    /// Bytes allocated for all of it; what DRAM handles point at is not in it.
    pub fn resident_bytes(&self) -> usize {
        self.entries.resident_bytes() + self.table.resident_bytes() + self.namespaces.allocation_size()
    }

    /// Bytes allocated for each entry that there is; 0 if there is none.
    pub fn bytes_per_entry(&self) -> usize {
        self.resident_bytes().checked_div(self.len()).unwrap_or(0)
    }

    fn is_at(&self, number: u32, namespace: NamespaceNo, key: &PageKey) -> bool {
        self.entries.get(number).is_some_and(|entry| entry.key == *key && entry.namespace == namespace)
    }

    fn hash(&self, namespace: NamespaceNo, key: &PageKey) -> u64 {
        hash_of(&self.hash_builder, namespace, key)
    }

    /// Whether a page at `position` of `namespace` may hang below `parent`. Positions grow downwards, so there are no cycles.
    fn precedes(&self, parent: PageId, namespace: NamespaceNo, position: u32) -> bool {
        self.get(parent).is_some_and(|p| p.namespace == namespace && p.position.checked_add(1) == Some(position))
    }

    /// `from`, all below it and right of it, depth first, up to where that would leave what is below `top`.
    fn in_order(&self, from: u32, top: Option<PageId>) -> impl Iterator<Item = PageId> + '_ {
        let mut next = from;
        std::iter::from_fn(move || {
            let page = self.entries.get(next)?;
            let down = if page.first_child == NONE { self.beside(page, top) } else { page.first_child };
            Some(PageId(std::mem::replace(&mut next, down)))
        })
    }

    /// The page right of `page`, or else of the nearest above it that has one.
    fn beside(&self, page: &Entry<P>, top: Option<PageId>) -> u32 {
        let mut page = page;
        while page.next_sibling == NONE && page.parent != top {
            match page.parent.and_then(|parent| self.get(parent)) {
                Some(parent) => page = parent,
                None => return NONE,
            }
        }
        page.next_sibling
    }

    /// Hangs a page that hangs nowhere below `parent`, or among the roots.
    fn attach(&mut self, number: u32, parent: Option<PageId>) {
        let Some(namespace) = self.entries.get(number).map(|entry| entry.namespace) else { return };
        let Some(first) = self.first_below(parent, namespace) else { return };
        let right = std::mem::replace(first, number);
        if let Some(right) = self.entries.get_mut(right) {
            right.prev_sibling = number;
        }
        if let Some(entry) = self.entries.get_mut(number) {
            entry.node.parent = parent;
            (entry.prev_sibling, entry.next_sibling) = (NONE, right);
        }
    }

    /// Takes a page, with all below it, from where it hangs.
    fn detach(&mut self, number: u32) {
        let Some(entry) = self.entries.get(number) else { return };
        let (left, right, parent, namespace) = (entry.prev_sibling, entry.next_sibling, entry.parent, entry.namespace);
        match self.entries.get_mut(left) {
            Some(left) => left.next_sibling = right,
            None => {
                if let Some(first) = self.first_below(parent, namespace) {
                    *first = right;
                }
            }
        }
        if let Some(right) = self.entries.get_mut(right) {
            right.prev_sibling = left;
        }
    }

    fn first_below(&mut self, parent: Option<PageId>, namespace: NamespaceNo) -> Option<&mut u32> {
        match parent {
            Some(parent) => self.entries.get_mut(parent.0).map(|parent| &mut parent.first_child),
            None => self.namespaces.get_mut(&namespace).map(|roots| &mut roots.first),
        }
    }
}

/// The hash of the entry `number`.
fn hash_in<P>(entries: &Slab<Entry<P>>, hash_builder: &DefaultHashBuilder, number: u32) -> u64 {
    entries.get(number).map_or(0, |entry| hash_of(hash_builder, entry.namespace, &entry.key))
}

fn hash_of(hash_builder: &DefaultHashBuilder, namespace: NamespaceNo, key: &PageKey) -> u64 {
    let mut hasher = hash_builder.build_hasher();
    hasher.write(key.as_bytes());
    hasher.write_u32(namespace.0);
    hasher.finish()
}

#[cfg(test)]
mod tests;
