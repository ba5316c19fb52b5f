//! The pool under many schedules: no frame is lent twice, none is lost, and nobody who waits for one waits for ever.
#![allow(
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "tests count in small numbers and fail by panicking"
)]

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;

use cairn_core::{Checksum, SlotId, metrics::Metrics};
use cairn_pool::{HugePages, PageBufMut, Pool, PoolSettings, TenantNo};
use cairn_schedules::{point, task, thread};
use cairn_testkit::dice::Dice;
use cairn_testkit::schedules;

const PAGE_BYTES: u64 = 4096;
const ARENAS: u64 = 2;
const FRAMES: u64 = 4;
const TENANTS: u64 = 2;
const TAKERS: u64 = 3;

fn pool() -> Pool {
    let bytes = FRAMES * PAGE_BYTES;
    let settings = PoolSettings { bytes, arena_bytes: bytes / ARENAS, huge_pages: HugePages::Off };
    Pool::start(settings, Arc::new(Metrics::new(&prometheus::Registry::new()).unwrap())).unwrap()
}

/// The frames that are out, written down between two steps of the schedule.
#[derive(Clone, Default)]
struct Lent(Arc<std::sync::Mutex<HashSet<SlotId>>>);

impl Lent {
    /// Takes a frame for `tenant` if there is one, and marks it.
    fn take(&self, pool: &Pool, tenant: u64) -> Option<PageBufMut> {
        let mut frame = pool.reserve(TenantNo(tenant as u32), PAGE_BYTES)?;
        assert!(self.0.lock().unwrap().insert(frame.slot()), "a frame was lent twice");
        assert!([0, tenant + 1].contains(&u64::from(frame[0])), "a tenant sees what another one wrote");
        frame.fill(tenant as u8 + 1);
        point();
        assert!(frame.iter().all(|byte| u64::from(*byte) == tenant + 1), "somebody else wrote into the frame");
        Some(frame)
    }

    fn is_back(&self, slot: SlotId) {
        assert!(self.0.lock().unwrap().remove(&slot), "only a frame that is out comes back");
    }
}

/// Takes frames, and gives them back in one of the ways there are.
fn take_and_give(pool: &Pool, lent: &Lent, dice: &mut Dice) {
    for _ in 0..3 {
        let Some(frame) = lent.take(pool, dice.below(TENANTS)) else { continue };
        let slot = frame.slot();
        match dice.place(4) {
            // Dropped unsealed.
            0 => {
                lent.is_back(slot);
                drop(frame);
            }
            // Refused by its checksum.
            1 => {
                lent.is_back(slot);
                frame.seal(Checksum::of(b"another page")).unwrap_err();
            }
            // Sealed and shared; the last holder gives it back.
            way => {
                let checksum = Checksum::of(&frame);
                let page = frame.seal(checksum).unwrap();
                let other = page.clone();
                let reads = lent.clone();
                let reader = thread::spawn(move || {
                    let bytes = other.verified().unwrap().into_bytes();
                    drop(other);
                    point();
                    assert_eq!(Checksum::of(&bytes), checksum, "a page changed while it was held");
                    if way == 2 {
                        reads.is_back(slot);
                    }
                });
                if way == 2 {
                    drop(page);
                    reader.join().unwrap();
                } else {
                    reader.join().unwrap();
                    lent.is_back(slot);
                    drop(page);
                }
            }
        }
        if dice.place(4) == 0 {
            pool.drain(slot.region);
        }
    }
}

/// Waits for a frame as the engine does.
async fn wait_for_frame(pool: Pool, lent: Lent, tenant: u64) {
    loop {
        let mut freed = pin!(pool.freed().notified());
        freed.as_mut().enable();
        if let Some(frame) = lent.take(&pool, tenant) {
            lent.is_back(frame.slot());
            return;
        }
        freed.await;
    }
}

fn waiters(pool: &Pool, lent: &Lent) -> Vec<task::JoinHandle<()>> {
    (0..TENANTS).map(|tenant| task::spawn(wait_for_frame(pool.clone(), lent.clone(), tenant))).collect()
}

/// Frames come and go, and whoever waits gets one of them.
fn takers_and_waiters(pool: &Pool, lent: &Lent, dice: &mut Dice) {
    let take = |_| {
        let (pool, lent, mut dice) = (pool.clone(), lent.clone(), Dice::new(dice.roll()));
        thread::spawn(move || take_and_give(&pool, &lent, &mut dice))
    };
    let takers: Vec<_> = (0..TAKERS).map(take).collect();
    let waiters = waiters(pool, lent);
    takers.into_iter().for_each(|taker| taker.join().unwrap());
    waiters.into_iter().for_each(|waiter| task::block_on(waiter).unwrap());
}

/// One of each tenant keeps its frame, so nothing comes back: whoever waits must hear of the frames beside those.
fn keepers_and_waiters(pool: &Pool, lent: &Lent, dice: &mut Dice) {
    // So that arenas change hands.
    let before: Vec<_> = (0..FRAMES).filter_map(|_| lent.take(pool, dice.below(TENANTS))).collect();
    before.iter().for_each(|frame| lent.is_back(frame.slot()));
    drop(before);
    let keep = |tenant| {
        let (pool, lent) = (pool.clone(), lent.clone());
        thread::spawn(move || lent.take(&pool, tenant))
    };
    let keepers: Vec<_> = (0..TENANTS).map(keep).collect();
    let waiters = waiters(pool, lent);
    let kept: Vec<_> = keepers.into_iter().filter_map(|keeper| keeper.join().unwrap()).collect();
    waiters.into_iter().for_each(|waiter| task::block_on(waiter).unwrap());
    kept.iter().for_each(|frame| lent.is_back(frame.slot()));
}

fn frames_come_and_go(dice: &mut Dice) {
    let (pool, lent) = (pool(), Lent::default());
    match dice.place(2) {
        0 => takers_and_waiters(&pool, &lent, dice),
        _ => keepers_and_waiters(&pool, &lent, dice),
    }
    pool.wait_warm();
    assert_eq!(pool.used_bytes(), 0);
    assert!((0..ARENAS as u32).all(|arena| pool.taken_in(arena) == 0));
    let all: Vec<_> = (0..FRAMES).map_while(|_| lent.take(&pool, 0)).collect();
    assert_eq!(all.len() as u64, FRAMES, "a frame was lost");
}

#[test]
fn frames_are_lent_once_and_whoever_waits_gets_one() {
    schedules::run("R5 pool frames", "-p cairn-pool --features schedules --test schedules", frames_come_and_go);
}
