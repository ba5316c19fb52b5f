//! Copies that nothing names any more: what a clear wipes, and what an earlier cut of a region left behind.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can not go on says so by panicking")]

mod common;

use cairn_core::NamespaceId;
use common::{BLOCK_BYTES, NAMESPACE, REGION_BYTES, Rig, scan};

#[test]
fn what_nothing_names_is_wiped_for_its_namespace_only() {
    let rig = Rig::new(1);
    let pages = [1, 2, 3].map(|number| rig.put(number, 4096));
    rig.tier.free(pages[1].slot);
    let is_live = |slot| slot == pages[0].slot;
    assert_eq!(rig.tier.stale_headers(&NamespaceId::from_bytes([8; 32]), &is_live).count(), 0);
    let stale = rig.tier.stale_headers(&NAMESPACE, &is_live);
    assert_eq!(stale.count(), 2);
    let written_before = rig.tier.written_bytes();
    rig.tier.wipe_stale(stale).unwrap();
    assert_eq!(rig.tier.written_bytes() - written_before, 2 * BLOCK_BYTES);
    rig.tier.barrier().unwrap();
    let (headers, report) = scan(&rig.reopen().tier);
    assert_eq!((headers.len(), headers[0].key), (1, pages[0].facts.key));
    assert_eq!(report.empty_slots, REGION_BYTES / 8192 - 2);
}

#[test]
fn pages_of_an_earlier_cut_of_a_region_are_not_found_when_it_is_cut_that_way_again() {
    let rig = Rig::new(1);
    let small = [1, 2, 3, 4].map(|number| rig.put(number, 4096));
    small.iter().for_each(|page| rig.tier.free(page.slot));
    // Its one page covers the first two of the small ones.
    let large = rig.put(5, 9000);
    rig.tier.free(large.slot);
    let again = rig.put(6, 4096);
    rig.tier.barrier().unwrap();
    let (headers, report) = scan(&rig.reopen().tier);
    assert_eq!(headers.iter().map(|header| header.key).collect::<Vec<_>>(), [again.facts.key]);
    assert_eq!(report.damaged_slots, 2, "{report:?}");
}
