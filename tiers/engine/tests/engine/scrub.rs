//! The scrub: it finds damage within a period, keeps its pace and its place, and takes nothing for damage that is none.

use std::sync::Arc;
use std::time::Duration;

use cairn_core::metrics::Damage;
use cairn_core::{Durability, StopReason};
use cairn_policy::ScrubPlan;
use cairn_testkit::dice::Dice;
use cairn_testkit::fault_device::FaultDevice;

use crate::rig::{JumpClock, PAGE_BYTES, Rig, Running, chain, find_payload, flip_bit, identity};

const DAY: Duration = Duration::from_secs(86_400);
const PERIOD: Duration = Duration::from_secs(7 * 86_400);

/// A rig whose clock jumps and whose SSD is scrubbed once a week.
fn rig(pages: u64) -> (Rig, Arc<JumpClock>) {
    let clock = Arc::new(JumpClock::default());
    let mut rig = Rig::new(pages + 64, pages + 64);
    rig.clock = clock.clone();
    rig.settings.scrub = ScrubPlan { period: Some(PERIOD), bytes_per_second_max: 0 };
    (rig, clock)
}

/// Lets time pass in steps, and the scrub read what becomes due.
async fn pass(cairn: &Running, clock: &JumpClock, time: Duration, step: Duration) {
    let mut left = time;
    while !left.is_zero() {
        let now = left.min(step);
        clock.jump(now);
        cairn.engine.scrubbed().await;
        left -= now;
    }
}

fn damaged(cairn: &Running) -> u64 {
    cairn.metrics.ssd_damaged.iter().map(|(_, counter): (Damage, _)| counter.get()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn f06_the_scrub_finds_every_flipped_bit_within_one_period_of_its_flip() {
    let (rig, clock) = rig(40);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    let chains: Vec<_> = (0..8).map(|name| chain(&namespace, name, 5)).collect();
    for keys in &chains {
        assert_eq!(cairn.put(&namespace, keys, Durability::Ssd).await.durability, Durability::Ssd);
    }
    let mut dice = Dice::new(1);
    for (round, keys) in chains.iter().enumerate() {
        // At any moment of a pass, in header or payload.
        pass(&cairn, &clock, DAY.mul_f64(dice.place(700) as f64 / 100.0), DAY / 24).await;
        let page = dice.place(5);
        let at = find_payload(&rig, &keys[page]);
        flip_bit(&rig, if dice.chance(0.5) { at + 17 } else { at - 4096 + 100 });
        assert_eq!(damaged(&cairn), round as u64);
        pass(&cairn, &clock, PERIOD, DAY / 24).await;
        assert_eq!(damaged(&cairn), round as u64 + 1);
        assert_eq!(cairn.metrics.ssd_scrub_damaged.get(), round as u64 + 1);
        // Gone from the SSD; still there in memory, where it was not damaged.
        assert_eq!(cairn.engine.stats().ssd.pages, 39 - round as u64);
        assert_eq!(cairn.get(&namespace, keys).await.end.stop, StopReason::EndOfChain);
    }
    cairn.written(&namespace).await;
    assert_eq!(cairn.engine.quarantine().slots.len(), 8);
    assert_eq!(cairn.engine.stats().flash.quarantined_bytes, 8 * (PAGE_BYTES + 4096));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_the_scrub_found_damaged_is_a_miss_before_anybody_asks_and_a_put_mends_it() {
    let (rig, clock) = rig(8);
    let cairn = rig.open().await;
    let keys = chain(&cairn.namespace(), 1, 8);
    cairn.put(&cairn.namespace(), &keys, Durability::Ssd).await;
    drop(cairn);
    flip_bit(&rig, find_payload(&rig, &keys[3]));
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    assert_eq!(cairn.matched(&namespace, &keys), 8);
    pass(&cairn, &clock, PERIOD, DAY / 24).await;
    assert_eq!(cairn.matched(&namespace, &keys), 3);
    cairn.put(&namespace, &keys, Durability::Ssd).await;
    assert_eq!(cairn.get(&namespace, &keys).await.end.good_pages, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_page_is_read_once_a_period_and_each_region_has_its_share_of_it() {
    let (rig, clock) = rig(448);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    // Six of the eight regions.
    for name in 0..6 {
        cairn.put(&namespace, &chain(&namespace, name, 64), Durability::Ssd).await;
    }
    assert_eq!(cairn.engine.stats().ssd.pages, 384);
    // The very first slot is due at the very first moment.
    cairn.engine.scrubbed().await;
    let start = cairn.metrics.ssd_scrubbed_pages.get();
    for turn in 0..16 {
        for part in 1..=8 {
            let before = cairn.metrics.ssd_scrubbed_pages.get();
            pass(&cairn, &clock, PERIOD / 64, PERIOD / 512).await;
            let read = cairn.metrics.ssd_scrubbed_pages.get() - before;
            let due = if turn % 8 < 6 { 8 } else { 0 };
            assert!(read.abs_diff(due) <= 1, "turn={turn} part={part} read={read}");
        }
        let scrub = cairn.engine.stats().scrub;
        assert!(scrub.oldest.expect("there are pages") <= PERIOD + PERIOD / 8, "{scrub:?}");
        assert_eq!((scrub.passes, scrub.progress_ppm), ((turn + 1) / 8, (turn + 1) % 8 * 125_000));
    }
    assert_eq!(cairn.metrics.ssd_scrubbed_pages.get() - start, 2 * 384);
    assert_eq!(damaged(&cairn), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_holds_over_every_span_of_time() {
    const RATE: u64 = 5 * PAGE_BYTES;
    let (mut rig, clock) = rig(100);
    rig.settings.scrub.bytes_per_second_max = RATE;
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    cairn.put(&namespace, &chain(&namespace, 1, 100), Durability::Ssd).await;
    cairn.engine.scrubbed().await;
    let start = cairn.metrics.ssd_scrubbed_pages.get();
    // What was read before has taken its time by then.
    clock.jump(DAY / 24);
    cairn.engine.scrub_now(None);
    let step = Duration::from_millis(50);
    let mut read = Vec::new();
    while cairn.metrics.ssd_scrub_passes.get() == 0 {
        pass(&cairn, &clock, step, step).await;
        read.push(cairn.metrics.ssd_scrubbed_bytes.get());
        assert!(read.len() < 2 * 20 * 20, "it keeps its pace: {read:?}");
    }
    // And perhaps the first slot of the pass that follows.
    assert!((100..=101).contains(&(cairn.metrics.ssd_scrubbed_pages.get() - start)));
    assert!(read.len() >= 19 * 20, "100 pages at 5 a second take 20 s");
    for (first, from) in read.iter().enumerate() {
        for (last, to) in read.iter().enumerate().skip(first) {
            let allowed = RATE * (last - first) as u64 / 20 + PAGE_BYTES;
            assert!(to - from <= allowed, "{} bytes in {} steps", to - from, last - first);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_goes_on_where_the_scrub_was_so_that_the_period_is_kept() {
    let (mut rig, clock) = rig(64);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    for name in 0..8 {
        cairn.put(&namespace, &chain(&namespace, name, 16), Durability::Ssd).await;
    }
    let pages = cairn.engine.stats().ssd.pages;
    let mut cairn = Some(cairn);
    let mut read = 0;
    for day in 1..=7 {
        let running = cairn.take().expect("it runs");
        pass(&running, &clock, DAY, DAY / 24).await;
        read += running.metrics.ssd_scrubbed_pages.get();
        let before = running.engine.stats().scrub;
        running.engine.close(Duration::from_secs(60)).await;
        drop(running);
        // The time of a process begins anew.
        rig.clock = clock.clone();
        let running = rig.open().await;
        running.engine.scrubbed().await;
        let after = running.engine.stats().scrub;
        assert_eq!((after.progress_ppm, after.passes, after.asked), (before.progress_ppm, day / 7, false));
        let (Some(before), Some(after)) = (before.oldest, after.oldest) else { panic!("there are pages") };
        assert!(after.abs_diff(before) <= DAY, "about as old as before: {before:?} {after:?}");
        cairn = Some(running);
    }
    // A region that was begun is begun again: of eight regions, seven times.
    assert!((pages..=pages + 7 * 16).contains(&read), "read={read} pages={pages}");
}

#[tokio::test(flavor = "multi_thread")]
async fn if_nobody_remembers_what_was_verified_a_pass_begins_at_once() {
    let (rig, clock) = rig(16);
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    cairn.put(&namespace, &chain(&namespace, 1, 16), Durability::Ssd).await;
    drop(cairn);
    std::fs::remove_dir_all(rig.directory_path()).expect("the directory is lost");
    let cairn = rig.open().await;
    cairn.engine.scrubbed().await;
    // And the first slot of the pass that follows at once.
    // It may have begun before the pages were found again; then the next one reads them.
    assert!(cairn.metrics.ssd_scrub_passes.get() >= 1);
    pass(&cairn, &clock, PERIOD, DAY / 24).await;
    assert!(cairn.metrics.ssd_scrub_passes.get() >= 2);
    assert!(cairn.metrics.ssd_scrubbed_pages.get() >= 16, "{}", cairn.metrics.ssd_scrubbed_pages.get());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrub_that_is_off_reads_nothing_until_somebody_asks() {
    let (mut rig, clock) = rig(16);
    rig.settings.scrub.period = None;
    let cairn = rig.open().await;
    let namespace = cairn.namespace();
    cairn.put(&namespace, &chain(&namespace, 1, 16), Durability::Ssd).await;
    pass(&cairn, &clock, 4 * PERIOD, PERIOD).await;
    assert_eq!(cairn.metrics.ssd_scrubbed_pages.get(), 0);
    assert_eq!(cairn.engine.stats().scrub.oldest, Some(4 * PERIOD));
    cairn.engine.scrub_now(None);
    cairn.engine.scrubbed().await;
    assert_eq!(cairn.metrics.ssd_scrubbed_pages.get(), 16);
    assert_eq!(cairn.engine.stats().scrub.oldest, Some(Duration::ZERO));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_can_not_be_read_stays_and_its_age_shows() {
    let (rig, clock) = rig(16);
    let device = Arc::new(FaultDevice::new(rig.ssd_bytes as usize));
    let cairn = rig.open_on(device.clone()).await;
    let namespace = cairn.namespace();
    let keys = chain(&namespace, 1, 16);
    cairn.put(&namespace, &keys, Durability::Ssd).await;
    // The first slot of the first region.
    device.break_sectors(65_536 + 4096..65_536 + 4096 + 512);
    clock.jump(Duration::from_secs(1));
    cairn.engine.scrub_now(None);
    cairn.engine.scrubbed().await;
    let tries = cairn.metrics.ssd_read_failed.get();
    pass(&cairn, &clock, 2 * PERIOD, DAY).await;
    assert_eq!((cairn.metrics.ssd_read_failed.get() - tries, damaged(&cairn)), (2, 0));
    assert_eq!(cairn.matched(&namespace, &keys), 16);
    assert_eq!(cairn.engine.stats().scrub.oldest, Some(2 * PERIOD + Duration::from_secs(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_scrub_during_puts_gets_clears_and_reclaims_finds_no_damage() {
    let mut rig = Rig::new(96, 128);
    rig.settings.scrub = ScrubPlan { period: Some(PERIOD), bytes_per_second_max: 0 };
    let cairn = Arc::new(rig.open().await);
    let scrubbing = tokio::spawn({
        let cairn = Arc::clone(&cairn);
        async move {
            while Arc::strong_count(&cairn) > 1 {
                cairn.engine.scrub_now(None);
                cairn.engine.scrubbed().await;
            }
        }
    });
    let mut other = identity();
    other.model = "another".into();
    let spaces = [cairn.namespace(), cairn.namespace_of(&other)];
    let mut dice = Dice::new(7);
    for round in 0..600 {
        let namespace = &spaces[dice.place(2)];
        let keys = chain(namespace, dice.place(24) as u32, 12);
        match dice.place(20) {
            0 => drop(cairn.engine.clear(namespace).await.expect("cleared")),
            1..8 => drop(cairn.get(namespace, &keys).await),
            _ => {
                let report = cairn.put(namespace, &keys, Durability::Ssd).await;
                assert!(report.good_pages > 0, "round={round}");
            }
        }
    }
    let metrics = Arc::clone(&cairn.metrics);
    assert!(metrics.ssd_reclaimed_regions.get() > 0 && metrics.ssd_scrubbed_pages.get() > 1000);
    assert_eq!((damaged(&cairn), metrics.ssd_read_failed.get()), (0, 0));
    drop(cairn);
    scrubbing.await.expect("it ends");
}
