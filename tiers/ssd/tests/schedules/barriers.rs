//! Barriers: many ask, one at a time passes, and after one that failed none.

use std::collections::HashSet;
use std::sync::Arc;

use cairn_schedules::thread;
use cairn_ssd::SsdTier;
use cairn_testkit::dice::Dice;
use cairn_testkit::fault_device::{FaultDevice, Unsynced};
use cairn_testkit::schedules::{self, TurnDevice};

use crate::common::{self, Written};

const PAGE_BYTES: usize = 4096;
const WRITERS: u64 = 3;
const PAGES: u64 = 2;

/// Pages that were written, and whether a barrier has passed since.
type Pages = Vec<(Written, bool)>;

fn write(tier: &SsdTier, writer: u64) -> Pages {
    let mut pages = Pages::new();
    for page in 0..PAGES {
        let Ok(Some(slot)) = tier.reserve(PAGE_BYTES as u64) else { break };
        let Ok(written) = common::write(tier, slot, writer * PAGES + page, PAGE_BYTES) else { break };
        let passed = tier.barrier().is_ok();
        pages.push((written, passed));
    }
    pages
}

fn barriers_beside_each_other(dice: &mut Dice) {
    let disk = common::blank(2);
    let device = Arc::new(TurnDevice::new(Arc::clone(&disk)));
    let tier = Arc::new(common::format(device.clone()).unwrap());
    // Of superblocks, of region headers, or of the pages; or none.
    device.fail_barrier_after(dice.below(12));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let tier = Arc::clone(&tier);
            thread::spawn(move || write(&tier, writer))
        })
        .collect();
    let pages: Pages = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    assert_eq!(tier.is_write_quarantined(), device.has_failed());

    let mut generations = HashSet::new();
    assert!(pages.iter().all(|(page, _)| generations.insert(page.expected.generation)), "a generation was given twice");
    let after = common::open(Arc::new(FaultDevice::from_image(disk.image(Unsynced::Lost)))).unwrap();
    for (page, passed) in &pages {
        if *passed {
            common::read(&after, page).expect("what passed a barrier is on the disk");
            assert!(after.claim(page.slot, PAGE_BYTES as u64));
        }
    }
    after.settle();
    let slot = after.reserve(PAGE_BYTES as u64).unwrap().expect("a free slot");
    let next = common::write(&after, slot, 1000, PAGE_BYTES).unwrap().expected.generation;
    assert!(generations.iter().all(|before| *before < next), "a generation comes again after a crash");
}

#[test]
fn what_passed_a_barrier_is_there_although_another_barrier_failed() {
    schedules::run(
        "R5 barriers",
        "-p cairn-ssd --features schedules --test schedules barrier",
        barriers_beside_each_other,
    );
}
