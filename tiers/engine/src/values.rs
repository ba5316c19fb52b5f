//! What goes into a step of the catalogue, and what comes out of it: plain values.

use std::collections::HashSet;

use cairn_core::{NamespaceId, PageKey, SlotId};
use cairn_directory::NamespaceNo;
use cairn_pool::{SealedPage, TenantNo};

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

/// What an eviction did.
#[derive(Debug)]
pub(crate) struct Evicted {
    pub(crate) left: Vec<Left>,
    /// They were all of a region of another class: as much room as one region has.
    pub(crate) emptied: bool,
}

/// A page that has left the SSD tier; its slot may be reused once the directory has forgotten it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    pub(crate) namespace: NamespaceId,
    pub(crate) key: PageKey,
    pub(crate) slot: SlotId,
}
