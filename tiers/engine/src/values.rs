//! What goes into a step of the catalogue, and what comes out of it: plain values.

use std::collections::HashSet;

use cairn_core::{NamespaceId, PageKey, SlotId};
use cairn_directory::NamespaceNo;
use cairn_pool::{SealedPage, TenantNo};
use cairn_ssd::{Expected, ReadPin};

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
#[derive(Debug)]
pub(crate) enum Published {
    Stored,
    /// It was there already; in DRAM, if that is where it is.
    Present(Option<SealedPage>),
    ParentMissing,
}

/// The pages of a batch that have been written and wait for their barrier.
pub(crate) type Coming = HashSet<(NamespaceNo, PageKey)>;

/// What a page that waits to be written needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wants {
    Write,
    /// It is on the SSD already.
    Nothing,
    /// The page before it is not on the SSD.
    Parent,
    /// The entry does not have this page any more.
    Gone,
}

/// What came of emptying a region of the SSD.
#[derive(Debug)]
pub(crate) struct Reclaimed {
    /// Pages that leave; their slots are free once the directory has forgotten them.
    pub(crate) left: Vec<Left>,
    /// Slots that nothing needs any more: their pages could not be read, and are elsewhere by now.
    pub(crate) stale: Vec<SlotId>,
    /// Pages that are to be written again, parents before their children; until then they are where they were.
    pub(crate) again: Vec<Again>,
}

/// A page on the SSD that is to be written to another slot.
#[derive(Debug)]
pub(crate) struct Again {
    pub(crate) name: PageName,
    pub(crate) expected: Expected,
    pub(crate) pin: ReadPin,
    /// The page, if it is in DRAM too.
    pub(crate) dram: Option<SealedPage>,
}

/// A page on the SSD that is to be verified; the pin keeps its slot from being filled again.
#[derive(Debug)]
pub(crate) struct ToVerify {
    pub(crate) namespace: NamespaceNo,
    pub(crate) expected: Expected,
    pub(crate) pin: ReadPin,
}

/// A page that has left the SSD tier; its slot may be reused once the directory has forgotten it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    pub(crate) namespace: NamespaceId,
    pub(crate) key: PageKey,
    pub(crate) slot: SlotId,
}
