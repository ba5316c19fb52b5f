//! The eviction seam.

use std::fmt;

/// A page's number in the resident index: small, dense, reused after the page has left every tier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageId(pub u32);

/// Decides which page leaves a tier next. One instance a tier; all calls come from under one lock, in the order of the events.
///
/// Invariant, for every policy: a page that has a child in the tier is never a victim. So what remains of a chain is always a prefix
/// of what was there.
pub trait EvictionPolicy: Send + fmt::Debug {
    /// Name in configuration and statistics.
    fn name(&self) -> &'static str;

    /// `page` has entered the tier. `parent` is the page before it in its chain, whether that is in the tier or not. Counts as a use.
    fn insert(&mut self, page: PageId, parent: Option<PageId>);

    /// Pages have been found in the tier after a restart, each with its parent, the one used longest ago first. As [`EvictionPolicy::insert`] of
    /// each, and may be faster.
    fn restore(&mut self, pages: &[(PageId, Option<PageId>)]) {
        for (page, parent) in pages {
            self.insert(*page, *parent);
        }
    }

    /// A request has used these pages of one chain, head first. All of them are in the tier.
    fn touch(&mut self, chain: &[PageId]);

    /// `page` has left the tier, for whatever reason.
    fn remove(&mut self, page: PageId);

    /// `page` can not be reached any more (the page before it is gone from every tier): it goes before all that can be.
    fn demote(&mut self, page: PageId);

    /// The page that should leave next, among those without a child in the tier for which `may_leave` holds; `None` if there is none.
    /// The caller removes it with [`EvictionPolicy::remove`]. `may_leave` is asked in order of preference, for a bounded number of pages.
    fn victim(&mut self, may_leave: &mut dyn FnMut(PageId) -> bool) -> Option<PageId>;

    /// How little `page`, which is in the tier, deserves to leave: from 0, as much as the next victim, to 1, as little as one used just now.
    fn freshness(&self, page: PageId) -> f64;

    /// Whether a child of `page` is in the tier.
    fn has_child(&self, page: PageId) -> bool;

    /// Pages in the tier.
    fn len(&self) -> usize;

    /// Whether the tier is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
