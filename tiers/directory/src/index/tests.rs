use std::sync::Arc;

use super::*;

const SPACE: NamespaceNo = NamespaceNo(3);

fn key(n: u32) -> PageKey {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&n.to_le_bytes());
    PageKey::from_bytes(bytes)
}

/// A chain of the keys `from..from + pages`.
fn put_chain(index: &mut Index<Arc<()>>, from: u32, pages: u32) -> Vec<PageId> {
    let mut chain: Vec<PageId> = Vec::new();
    for position in 0..pages {
        chain.push(index.insert(SPACE, key(from + position), position, chain.last().copied()).unwrap());
    }
    chain
}

#[test]
fn a_walk_gives_the_known_head_of_a_chain_and_stops_at_the_first_unknown_key() {
    let mut index = Index::new();
    let chain = put_chain(&mut index, 0, 512);
    let keys: Vec<PageKey> = (0..600).map(key).collect();
    assert_eq!(index.walk(SPACE, &keys), chain);
    assert_eq!(index.walk(SPACE, &keys[1..]), chain[1..]);
    assert_eq!(index.walk(NamespaceNo(4), &keys), []);
    assert_eq!(index.walk(SPACE, &[]), []);
}

#[test]
fn a_walk_does_not_jump_over_unknown_keys_wherever_they_are() {
    let mut index = Index::new();
    let chain = put_chain(&mut index, 0, 200);
    let unknown = key(1000);
    for gap in 0..200 {
        let mut keys: Vec<PageKey> = (0..200).map(key).collect();
        keys[gap] = unknown;
        assert_eq!(index.walk(SPACE, &keys), chain[..gap], "gap={gap}");
        let longer = gap.next_multiple_of(STRIDE_PAGES).max(gap + 1).min(200);
        keys[gap..longer].fill(unknown);
        assert_eq!(index.walk(SPACE, &keys), chain[..gap], "gap={gap}..{longer}");
    }
}

#[test]
fn a_hundred_thousand_pages_take_less_than_160_bytes_each() {
    let mut index = Index::new();
    for chain in 0..200 {
        put_chain(&mut index, chain * 512, 512);
    }
    assert_eq!(size_of::<Entry<Arc<()>>>(), 96);
    assert!(index.bytes_per_entry() < 160, "bytes_per_entry={}", index.bytes_per_entry());
}

#[test]
fn at_its_limit_the_index_takes_no_page_until_one_has_left() {
    let mut index = Index::with_limit(2);
    let pages = put_chain(&mut index, 0, 2);
    assert_eq!(index.insert(SPACE, key(9), 0, None), None);
    assert_eq!(index.insert(SPACE, key(1), 1, Some(pages[0])), Some(pages[1]), "a known page needs no room");
    assert!(index.remove(pages[1]));
    assert_eq!(index.insert(SPACE, key(9), 0, None), Some(pages[1]), "the number is used again");
}

#[test]
fn a_page_below_a_hole_stays_reachable_and_one_put_mends_the_chain() {
    let mut index = Index::new();
    let chain = put_chain(&mut index, 0, 3);
    for page in &chain {
        index.get_mut(*page).unwrap().dram = Some(Arc::new(()));
    }
    index.get_mut(chain[1]).unwrap().dram = None;
    assert!(!index.remove(chain[1]), "it has a child");
    let mended = index.insert(SPACE, key(1), 1, Some(chain[0])).unwrap();
    index.get_mut(mended).unwrap().dram = Some(Arc::new(()));
    assert_eq!(index.walk(SPACE, &[key(0), key(1), key(2)]), chain);
    assert!(chain.iter().all(|page| index.get(*page).unwrap().is_located()));
}

#[test]
fn a_page_found_before_its_parent_is_linked_when_that_is_found() {
    let mut index: Index<()> = Index::new();
    let child = index.insert(SPACE, key(1), 1, None).unwrap();
    let grandchild = index.insert(SPACE, key(2), 2, Some(child)).unwrap();
    let parent = index.insert(SPACE, key(0), 0, None).unwrap();
    let stranger = index.insert(NamespaceNo(4), key(0), 0, None).unwrap();
    assert!(!index.link(child, stranger), "another namespace");
    assert!(!index.link(child, grandchild), "not the page before it");
    assert!(index.link(child, parent));
    assert!(!index.link(child, parent), "it hangs there already");
    assert_eq!(index.descendants(parent).collect::<Vec<_>>(), [child, grandchild]);
    assert_eq!(index.of_namespace(SPACE).collect::<Vec<_>>(), [parent, child, grandchild]);
}

#[test]
fn a_very_long_chain_is_walked_without_recursion() {
    let mut index = Index::new();
    let chain = put_chain(&mut index, 0, 200_000);
    assert_eq!(index.descendants(chain[0]).count(), chain.len() - 1);
    assert_eq!(index.of_namespace(SPACE).count(), chain.len());
}

#[test]
fn numbers_that_are_not_in_use_are_answered_with_nothing() {
    let mut index: Index<()> = Index::new();
    for page in [PageId(0), PageId(u32::MAX), PageId(1 << 20)] {
        assert!(index.get(page).is_none() && index.get_mut(page).is_none());
        assert!(!index.remove(page) && !index.link(page, page) && !index.has_children(page));
        assert_eq!(index.insert(SPACE, key(1), 1, Some(page)), None);
        assert_eq!(index.children(page).chain(index.descendants(page)).count(), 0);
    }
    assert!(index.is_empty());
}
