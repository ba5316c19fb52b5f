//! What is known of one page.

use std::ops::Deref;

use cairn_core::{Checksum, Generation, PageKey, SlotId};
use cairn_policy::PageId;

use super::NamespaceNo;
use super::slab::NONE;

/// Which page it is, and where in its chain. The index alone writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Key of the page.
    pub key: PageKey,
    /// Namespace of the page.
    pub namespace: NamespaceNo,
    /// Position in its chain, counted from 0.
    pub position: u32,
    /// The page before it, if that is known.
    pub parent: Option<PageId>,
}

/// The entry of one page: its [`Node`], readable as if its fields were the entry's own, what proves its bytes, and where they are.
#[derive(Debug)]
pub struct Entry<P> {
    pub(super) node: Node,
    pub(super) first_child: u32,
    pub(super) next_sibling: u32,
    pub(super) prev_sibling: u32,
    /// Checksum of the page's bytes; of no meaning without a location.
    pub checksum: Checksum,
    /// Generation of the SSD slot; of no meaning without one.
    pub generation: Generation,
    /// The place on the SSD.
    pub ssd: Option<SlotId>,
    /// The page in DRAM.
    pub dram: Option<P>,
}

impl<P> Entry<P> {
    pub(super) const fn vacant(node: Node) -> Self {
        Self {
            node,
            first_child: NONE,
            next_sibling: NONE,
            prev_sibling: NONE,
            checksum: Checksum::from_u64(0),
            generation: Generation::from_u64(0),
            ssd: None,
            dram: None,
        }
    }

    /// Whether the page is in any tier. If not, the entry is new or a hole.
    pub const fn is_located(&self) -> bool {
        self.dram.is_some() || self.ssd.is_some()
    }
}

impl<P> Deref for Entry<P> {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}
