//! What the engine and the readers rely on.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may panic, and its numbers are small")]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cairn_core::metrics::{Backing, Metrics};
use cairn_core::{Checksum, ErrorKind};
use cairn_pool::{HugePages, PageBufMut, Pool, PoolError, PoolSettings, SealedPage, TenantNo};
use prometheus::Registry;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const ALICE: TenantNo = TenantNo(0);
const BOB: TenantNo = TenantNo(1);

fn metrics() -> Arc<Metrics> {
    Arc::new(Metrics::new(&Registry::new()).unwrap())
}

fn settings(bytes: u64, arena_bytes: u64) -> PoolSettings {
    PoolSettings { bytes, arena_bytes, huge_pages: HugePages::Auto }
}

fn pool(bytes: u64, arena_bytes: u64) -> Pool {
    let pool = Pool::start(settings(bytes, arena_bytes), metrics()).unwrap();
    pool.wait_warm();
    pool
}

fn sealed(mut page: PageBufMut, byte: u8) -> SealedPage {
    page.fill(byte);
    let checksum = Checksum::of(&page);
    page.seal(checksum).unwrap()
}

/// Changes a byte of this process behind the back of everything, as a broken memory cell would.
fn flip_bit(address: usize) {
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    let mut byte = [0];
    memory.read_exact_at(&mut byte, address as u64).unwrap();
    memory.write_all_at(&[byte[0] ^ 1], address as u64).unwrap();
}

#[test]
fn what_was_written_is_what_is_read() {
    let pool = pool(MIB, MIB);
    let mut page = pool.reserve(ALICE, 5000).unwrap();
    assert_eq!(page.len(), 5000);
    assert_eq!(page.as_mut_slice().as_ptr().align_offset(4096), 0);
    page.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
    let (slot, checksum) = (page.slot(), Checksum::of(&page));
    let page = page.seal(checksum).unwrap();
    assert_eq!((page.slot(), page.len_bytes(), page.checksum()), (slot, 5000, checksum));
    let read = page.verified().unwrap();
    assert_eq!(read.checksum(), checksum);
    assert!(read.as_ref().iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
    assert_eq!(Checksum::of(&read.into_bytes()), checksum);
}

#[test]
fn a_page_with_a_flipped_bit_never_leaves() {
    let pool = pool(MIB, MIB);
    let page = sealed(pool.reserve(ALICE, 64 * KIB).unwrap(), 7);
    let address = page.verified().unwrap().as_ref().as_ptr().addr();
    for at in [0, 4097, 64 * 1024 - 1] {
        flip_bit(address + at);
        let damaged = page.verified().unwrap_err();
        assert_eq!((damaged.slot, damaged.sealed), (page.slot(), page.checksum()));
        assert_ne!(damaged.found, page.checksum());
        flip_bit(address + at);
        assert!(page.verified().is_ok());
    }
}

#[test]
fn a_wrong_checksum_refuses_the_seal_and_frees_the_frame() {
    let pool = pool(64 * KIB, 64 * KIB);
    let mut page = pool.reserve(ALICE, 64 * KIB).unwrap();
    page.fill(1);
    let found = Checksum::of(&page);
    let claimed = Checksum::from_u64(found.to_u64() ^ 1);
    let refused = page.seal(claimed).unwrap_err();
    assert_eq!((refused.claimed, refused.found), (claimed, found));
    assert_eq!(pool.used_bytes(), 0);
    assert!(pool.reserve(ALICE, 64 * KIB).is_some());
}

#[test]
fn a_frame_is_taken_until_its_last_holder_is_gone() {
    let pool = pool(64 * KIB, 64 * KIB);
    let page = sealed(pool.reserve(ALICE, 64 * KIB).unwrap(), 9);
    let other = page.clone();
    assert_eq!(page.holders(), 2);
    let bytes = other.verified().unwrap().into_bytes();
    let part = bytes.slice(1000..1010);
    for holder in [Box::new(page) as Box<dyn Send>, Box::new(other), Box::new(bytes)] {
        drop(holder);
        assert_eq!(pool.used_bytes(), 64 * KIB);
        assert!(pool.reserve(ALICE, 64 * KIB).is_none());
    }
    assert_eq!(*part, [9; 10]);
    drop(part);
    assert_eq!(pool.used_bytes(), 0);
    assert!(pool.reserve(ALICE, 64 * KIB).is_some());
}

#[test]
fn pages_outlive_the_handle_of_the_pool() {
    let pool = pool(MIB, MIB);
    let bytes = sealed(pool.reserve(ALICE, 4 * KIB).unwrap(), 3).verified().unwrap().into_bytes();
    drop(pool);
    assert_eq!(*bytes, [3; 4096]);
}

#[test]
fn capacity_is_exact_whatever_the_size() {
    for (bytes, arena_bytes) in
        [(10 * MIB, 4 * MIB), (4 * MIB + 4 * KIB, 4 * MIB), (MIB + 4095, MIB), (12 * KIB, 4 * KIB)]
    {
        let pool = pool(bytes, arena_bytes);
        let whole = bytes - bytes % 4096;
        assert_eq!(pool.capacity_bytes(), whole);
        assert_eq!(pool.backing().ready_bytes(), whole);
        let pages: Vec<_> = std::iter::from_fn(|| pool.reserve(ALICE, 4 * KIB)).collect();
        assert_eq!(pages.len() as u64 * 4 * KIB, whole);
        assert_eq!(pool.used_bytes(), whole);
        drop(pages);
        assert_eq!(pool.used_bytes(), 0);
    }
}

#[test]
fn page_sizes_live_side_by_side_and_an_empty_arena_serves_any() {
    let pool = pool(3 * MIB, MIB);
    let small = pool.reserve(ALICE, 1).unwrap();
    let odd = pool.reserve(ALICE, 300_000).unwrap();
    let large = pool.reserve(ALICE, MIB).unwrap();
    assert_eq!((small.len(), odd.len(), large.len()), (1, 300_000, 1 << 20));
    assert_eq!(pool.available(ALICE, 1, u64::MAX), 255);
    assert_eq!(pool.available(ALICE, 300_000, u64::MAX), 2);
    assert!(pool.reserve(ALICE, MIB).is_none());
    assert!(pool.reserve(ALICE, 2 * MIB).is_none());
    drop(small);
    assert_eq!(pool.available(ALICE, MIB, u64::MAX), 1);
    assert!(pool.reserve(ALICE, MIB).is_some());
}

#[test]
fn a_drained_arena_goes_back_to_the_stock() {
    let pool = pool(MIB, MIB);
    let pages: Vec<_> = (0..4).map(|_| pool.reserve(ALICE, 64 * KIB).unwrap()).collect();
    pool.drain(0);
    pool.drain(99);
    assert!(pool.reserve(ALICE, 64 * KIB).is_none());
    drop(pages);
    assert_eq!(pool.available(BOB, 512 * KIB, u64::MAX), 2);
}

#[test]
fn pages_of_no_bytes_or_of_too_many_get_no_room() {
    let pool = pool(MIB, MIB);
    for page_bytes in [0, MIB + 1, u64::MAX - 1, u64::MAX] {
        assert!(pool.reserve(ALICE, page_bytes).is_none());
        assert_eq!(pool.available(ALICE, page_bytes, u64::MAX), 0);
    }
}

#[test]
fn another_tenant_finds_no_old_bytes_anywhere_in_the_arena() {
    let pool = pool(MIB, MIB);
    let pages: Vec<_> = (0..16).map(|_| sealed(pool.reserve(ALICE, 64 * KIB).unwrap(), 0xAA)).collect();
    assert!(pool.reserve(BOB, 4 * KIB).is_none());
    drop(pages);
    let page = pool.reserve(BOB, 4 * KIB).unwrap();
    assert_eq!(*page, [0; 4096]);
    assert!(arena_bytes(&pool, 0).iter().all(|byte| *byte == 0));
}

/// What a process that was passed the arena sees.
fn arena_bytes(pool: &Pool, arena: u32) -> Vec<u8> {
    let file = std::fs::File::from(pool.arena_file(arena).unwrap().try_clone_to_owned().unwrap());
    let mut bytes = vec![1; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn there_is_no_file_of_an_arena_that_does_not_exist() {
    assert!(pool(MIB, MIB).arena_file(1).is_none());
}

/// A small generator, so that a failure repeats.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.0 >> 33) % sides) as usize
    }
}

/// Reserves, seals, checks and drops at random as tenant `number`, and checks that no foreign byte shows up.
fn churn(pool: &Pool, number: u8, turns: u32) {
    let own = number + 1;
    let mut dice = Dice(u64::from(number));
    let mut held = Vec::new();
    for _ in 0..turns {
        if held.len() > 6 || dice.below(3) == 0 {
            if !held.is_empty() {
                let page: SealedPage = held.swap_remove(dice.below(held.len() as u64));
                assert!(page.verified().unwrap().as_ref().iter().all(|byte| *byte == own));
            }
            continue;
        }
        let page_bytes = [1, 4096, 9000, 20_000][dice.below(4)];
        let Some(page) = pool.reserve(TenantNo(u32::from(number)), page_bytes) else {
            held.clear();
            continue;
        };
        assert!(page.iter().all(|byte| [0, own].contains(byte)), "bytes of another tenant");
        if dice.below(8) == 0 {
            assert!(page.seal(Checksum::from_u64(1)).is_err());
        } else if dice.below(8) > 0 {
            held.push(sealed(page, own));
        }
    }
}

#[test]
fn frames_are_recycled_and_none_is_lost_shared_or_shown_to_another_tenant() {
    let pool = pool(10 * 40 * KIB + 8 * KIB, 40 * KIB);
    thread::scope(|scope| {
        for number in 0..4 {
            let pool = &pool;
            scope.spawn(move || churn(pool, number, 30_000));
        }
    });
    assert_eq!(pool.used_bytes(), 0);
    assert_eq!(pool.available(BOB, 4 * KIB, u64::MAX), 102);
    assert_eq!(pool.available(BOB, 40 * KIB, u64::MAX), 10);
    let all: Vec<_> = std::iter::from_fn(|| pool.reserve(BOB, 4 * KIB)).collect();
    assert_eq!(all.len(), 102);
}

#[tokio::test(flavor = "current_thread")]
async fn who_waits_for_a_frame_is_told_when_one_comes_back() {
    let pool = pool(64 * KIB, 64 * KIB);
    let page = pool.reserve(ALICE, 64 * KIB).unwrap();
    let freed = pool.freed().notified();
    tokio::pin!(freed);
    freed.as_mut().enable();
    assert!(pool.reserve(ALICE, 64 * KIB).is_none());
    let dropped = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            dropped.store(true, Ordering::SeqCst);
            drop(page);
        });
    });
    freed.await;
    assert!(dropped.load(Ordering::SeqCst));
    assert!(pool.reserve(ALICE, 64 * KIB).is_some());
}

#[test]
fn the_first_arena_is_there_at_once_and_the_others_follow() {
    let pool = Pool::start(settings(64 * MIB, 8 * MIB), metrics()).unwrap();
    assert!(pool.backing().ready_bytes() >= 8 * MIB);
    assert!(pool.reserve(ALICE, 8 * MIB).is_some());
    pool.wait_warm();
    assert_eq!(pool.backing().ready_bytes(), 64 * MIB);
    assert_eq!(pool.available(ALICE, 8 * MIB, u64::MAX), 8);
}

#[test]
fn warm_memory_does_not_fault() {
    let pool = pool(16 * MIB, 8 * MIB);
    let mut page = pool.reserve(ALICE, 8 * MIB).unwrap();
    let before = faults();
    page.fill(1);
    assert!(faults() - before < 100, "2048 small pages were touched for the first time");
}

/// Page faults of this thread so far.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    fields.split_whitespace().nth(7).unwrap().parse().unwrap()
}

#[test]
fn the_gauges_say_what_the_pool_says() {
    let metrics = metrics();
    let pool = Pool::start(settings(5 * MIB, 2 * MIB), Arc::clone(&metrics)).unwrap();
    pool.wait_warm();
    let ready: i64 = metrics.dram_backing_bytes.iter().map(|(_, gauge)| gauge.get()).sum();
    assert_eq!((metrics.dram_capacity_bytes.get(), ready), (5 << 20, 5 << 20));
    assert_eq!(metrics.dram_backing_bytes.of(Backing::Thp).get() as u64, pool.backing().thp_bytes);
    let page = pool.reserve(ALICE, 5000).unwrap();
    assert_eq!(metrics.dram_used_bytes.get(), 8192);
    drop(page);
    assert_eq!(metrics.dram_used_bytes.get(), 0);
}

#[test]
fn huge_pages_can_be_turned_off() {
    let settings = PoolSettings { huge_pages: HugePages::Off, ..settings(4 * MIB, 2 * MIB) };
    let pool = Pool::start(settings, metrics()).unwrap();
    pool.wait_warm();
    assert_eq!(pool.backing().small_bytes, 4 * MIB);
}

#[test]
fn settings_that_can_not_work_are_refused_by_name() {
    let refused = |bytes, arena_bytes| Pool::start(settings(bytes, arena_bytes), metrics()).unwrap_err();
    assert!(matches!(refused(MIB, 0), PoolError::ArenaSize { .. }));
    assert!(matches!(refused(MIB, 5000), PoolError::ArenaSize { .. }));
    assert!(matches!(refused(MIB, 2 * MIB), PoolError::SmallerThanArena { .. }));
    assert!(matches!(refused(0, MIB), PoolError::SmallerThanArena { .. }));
    assert!(matches!(refused(u64::MAX, 4 * KIB), PoolError::TooManyArenas { .. }));
    assert!(matches!(refused(1 << 52, 1 << 45), PoolError::LargerThanMemory { .. }));
    let error = cairn_core::Error::from(refused(MIB, 2 * MIB));
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(
        error.chain(),
        "page pool did not start: pool is smaller than one arena bytes=1048576 arena_bytes=2097152"
    );
}
