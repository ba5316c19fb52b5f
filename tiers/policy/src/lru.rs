//! Least recently used, by prefix.

use std::collections::BTreeSet;

use crate::{EvictionPolicy, PageId};

/// Most pages asked for one victim: pages in use are few, and a call must end.
const ASKED_MAX: usize = 4096;

/// Evicts the leaf (a page without a child in the tier) that was used longest ago.
///
/// A use of a chain is a use of all its pages at once, so a parent was used at least as lately as its children, and taking leaves in
/// order of their last use is exact LRU that never breaks a chain. Only leaves are kept in order: a use of a chain moves one page,
/// O(log n), however long the chain is. 16 bytes a page, and 24 a leaf.
#[derive(Debug, Default)]
pub struct PrefixLru {
    nodes: Vec<Node>,
    leaves: BTreeSet<(u64, PageId)>,
    uses: u64,
    resident: usize,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Number of the use that touched the page last; 0 for demoted pages.
    used: u64,
    parent: Option<PageId>,
    /// Children in the tier; counted even while the page itself is not in it.
    children: u32,
    resident: bool,
}

const ABSENT: Node = Node { used: 0, parent: None, children: 0, resident: false };

impl PrefixLru {
    /// An empty tier.
    pub fn new() -> Self {
        Self::default()
    }

    fn node(&mut self, page: PageId) -> &mut Node {
        let at = page.0 as usize;
        if at >= self.nodes.len() {
            self.nodes.resize(at + 1, ABSENT);
        }
        &mut self.nodes[at]
    }

    /// Counts a page in, as used just now, but not yet among the leaves. The place there of its parent, if that is a leaf no more.
    fn enter(&mut self, page: PageId, parent: Option<PageId>) -> Option<(u64, PageId)> {
        self.uses += 1;
        let used = self.uses;
        let node = self.node(page);
        debug_assert!(!node.resident, "page inserted twice");
        *node = Node { used, parent, children: node.children, resident: true };
        self.resident += 1;
        let parent = parent?;
        let node = self.node(parent);
        node.children += 1;
        (node.resident && node.children == 1).then_some((node.used, parent))
    }

    /// Gives a resident page its place among the leaves, if it is one.
    fn note_leaf(&mut self, page: PageId) {
        let node = *self.node(page);
        if node.children == 0 {
            self.leaves.insert((node.used, page));
        }
    }

    /// Sets the last use of a resident page, and its place among the leaves if it is one.
    fn set_used(&mut self, page: PageId, used: u64) {
        let node = self.node(page);
        let before = std::mem::replace(&mut node.used, used);
        let leaf = node.resident && node.children == 0;
        if leaf {
            self.leaves.remove(&(before, page));
            self.leaves.insert((used, page));
        }
    }
}

impl EvictionPolicy for PrefixLru {
    fn name(&self) -> &'static str {
        "lru"
    }

    fn insert(&mut self, page: PageId, parent: Option<PageId>) {
        let no_leaf_now = self.enter(page, parent);
        self.note_leaf(page);
        if let Some(place) = no_leaf_now {
            self.leaves.remove(&place);
        }
    }

    /// Most pages have a child that comes with them, and never are leaves.
    fn restore(&mut self, pages: &[(PageId, Option<PageId>)]) {
        let before = self.uses;
        for (page, parent) in pages {
            let no_leaf_now = self.enter(*page, *parent);
            if let Some(place) = no_leaf_now.filter(|(used, _)| *used <= before) {
                self.leaves.remove(&place);
            }
        }
        for (page, _) in pages {
            self.note_leaf(*page);
        }
    }

    fn touch(&mut self, chain: &[PageId]) {
        self.uses += 1;
        for page in chain {
            self.set_used(*page, self.uses);
        }
    }

    fn remove(&mut self, page: PageId) {
        let node = self.node(page);
        if !node.resident {
            return;
        }
        node.resident = false;
        let (used, parent) = (node.used, node.parent.take());
        self.leaves.remove(&(used, page));
        self.resident -= 1;
        if let Some(parent) = parent {
            let node = self.node(parent);
            node.children -= 1;
            if node.resident && node.children == 0 {
                let used = node.used;
                self.leaves.insert((used, parent));
            }
        }
    }

    fn demote(&mut self, page: PageId) {
        self.set_used(page, 0);
    }

    fn victim(&mut self, may_leave: &mut dyn FnMut(PageId) -> bool) -> Option<PageId> {
        self.leaves.iter().take(ASKED_MAX).map(|(_, page)| *page).find(|page| may_leave(*page))
    }

    /// The share of the time since the oldest leaf was used that has passed when the page was.
    #[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
    fn freshness(&self, page: PageId) -> f64 {
        let used = self.nodes.get(page.0 as usize).map_or(0, |node| node.used);
        // Demoted pages say nothing of how long a page stays.
        let oldest = self.leaves.range((1, PageId(0))..).next().map_or(self.uses, |(used, _)| *used);
        let (stayed, span) = (used.saturating_sub(oldest), self.uses.saturating_sub(oldest));
        if span == 0 { f64::from(u8::from(used >= oldest)) } else { stayed as f64 / span as f64 }
    }

    fn has_child(&self, page: PageId) -> bool {
        self.nodes.get(page.0 as usize).is_some_and(|node| node.children > 0)
    }

    fn len(&self) -> usize {
        self.resident
    }
}
