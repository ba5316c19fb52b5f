//! Prefix LRU against the plainest model of it, and the rules that every policy keeps.
#![allow(clippy::expect_used, reason = "tests fail by panicking")]

use cairn_policy::{EvictionPolicy, PageId, PrefixLru};
use proptest::prelude::*;

/// Pages with their parent and last use; the victim is found by looking at all of them.
#[derive(Default)]
struct Model {
    pages: Vec<(PageId, Option<PageId>, u64)>,
    uses: u64,
}

impl Model {
    fn has_child(&self, page: PageId) -> bool {
        self.pages.iter().any(|(_, parent, _)| *parent == Some(page))
    }

    fn victim(&self, may_leave: impl Fn(PageId) -> bool) -> Option<PageId> {
        self.pages
            .iter()
            .filter(|(page, _, _)| !self.has_child(*page) && may_leave(*page))
            .min_by_key(|(page, _, used)| (*used, *page))
            .map(|(page, _, _)| *page)
    }

    fn insert(&mut self, page: PageId, parent: Option<PageId>) {
        self.uses += 1;
        self.pages.push((page, parent, self.uses));
    }

    fn has(&self, page: PageId) -> bool {
        self.pages.iter().any(|(found, _, _)| *found == page)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u32),
    Restore(Vec<u32>),
    Touch(u32),
    Evict { spared: u32 },
    Drop(u32),
    Demote(u32),
}

/// A fixed forest: page n hangs below page n / 2, so that 1 is the root of all but 0.
fn parent_of(page: u32) -> Option<PageId> {
    (page > 1).then_some(PageId(page / 2))
}

fn chain_to(page: u32) -> Vec<PageId> {
    let mut chain: Vec<PageId> =
        std::iter::successors(Some(page), |page| parent_of(*page).map(|parent| parent.0)).map(PageId).collect();
    chain.reverse();
    chain
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn it_evicts_what_the_plain_model_evicts(steps in proptest::collection::vec(prop_oneof![
        6 => (0..64u32).prop_map(Step::Insert),
        1 => proptest::collection::vec(0..64u32, 0..20).prop_map(Step::Restore),
        4 => (0..64u32).prop_map(Step::Touch),
        4 => (0..64u32).prop_map(|spared| Step::Evict { spared }),
        1 => (0..64u32).prop_map(Step::Drop),
        1 => (0..64u32).prop_map(Step::Demote),
    ], 1..200)) {
        let (mut policy, mut model) = (PrefixLru::new(), Model::default());
        for step in steps {
            match step {
                Step::Insert(page) if !model.has(PageId(page)) => {
                    model.insert(PageId(page), parent_of(page));
                    policy.insert(PageId(page), parent_of(page));
                }
                Step::Restore(pages) => {
                    let mut found = Vec::new();
                    for page in pages {
                        if !model.has(PageId(page)) {
                            model.insert(PageId(page), parent_of(page));
                            found.push((PageId(page), parent_of(page)));
                        }
                    }
                    policy.restore(&found);
                }
                Step::Touch(page) => {
                    let chain: Vec<_> = chain_to(page).into_iter().filter(|page| model.has(*page)).collect();
                    model.uses += 1;
                    for entry in &mut model.pages {
                        if chain.contains(&entry.0) {
                            entry.2 = model.uses;
                        }
                    }
                    policy.touch(&chain);
                }
                Step::Evict { spared } => {
                    let victim = policy.victim(&mut |page| page.0 != spared);
                    prop_assert_eq!(victim, model.victim(|page| page.0 != spared));
                    if let Some(victim) = victim {
                        policy.remove(victim);
                        model.pages.retain(|(page, _, _)| *page != victim);
                    }
                }
                // Pages also leave out of turn, when they are damaged or cleared.
                Step::Drop(page) => {
                    policy.remove(PageId(page));
                    model.pages.retain(|(found, _, _)| found.0 != page);
                }
                Step::Demote(page) if model.has(PageId(page)) => {
                    policy.demote(PageId(page));
                    for entry in &mut model.pages {
                        if entry.0.0 == page {
                            entry.2 = 0;
                        }
                    }
                }
                Step::Insert(_) | Step::Demote(_) => {}
            }
            prop_assert_eq!(policy.len(), model.pages.len());
        }
    }
}

#[test]
fn a_page_with_a_child_in_the_tier_is_never_a_victim() {
    let mut policy = PrefixLru::new();
    policy.insert(PageId(0), None);
    policy.insert(PageId(1), Some(PageId(0)));
    policy.touch(&[PageId(1)]);
    assert_eq!(policy.victim(&mut |_| true), Some(PageId(1)));
    assert_eq!(policy.victim(&mut |page| page == PageId(0)), None);
    policy.remove(PageId(1));
    assert_eq!(policy.victim(&mut |_| true), Some(PageId(0)));
}

#[test]
fn a_parent_that_comes_after_its_child_is_kept_for_it() {
    let mut policy = PrefixLru::new();
    policy.insert(PageId(1), Some(PageId(0)));
    policy.insert(PageId(0), None);
    assert!(policy.has_child(PageId(0)));
    assert_eq!(policy.victim(&mut |_| true), Some(PageId(1)));
}

#[test]
fn demoted_pages_go_first() {
    let mut policy = PrefixLru::new();
    for page in 0..4 {
        policy.insert(PageId(page), None);
    }
    policy.demote(PageId(3));
    assert_eq!(policy.victim(&mut |_| true), Some(PageId(3)));
}
