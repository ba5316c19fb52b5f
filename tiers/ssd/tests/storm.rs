//! Readers that go away at every moment, with frames of the page pool, through `io_uring` and through threads: no frame is lost, and none is
//! written to after it has been handed on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can not go on says so by panicking")]

mod common;

use std::collections::VecDeque;
use std::sync::Arc;

use cairn_core::metrics::{IoClass, Metrics};
use cairn_pool::{HugePages, PageBufMut, Pool, PoolSettings, TenantNo};
use cairn_ssd::{DeviceKind, FileDevice, IoSettings, PageIo, ReadJob, SsdTier, Submitted};
use cairn_testkit::dice::Dice;
use cairn_testkit::fault_device::SeededEntropy;
use cairn_testkit::payload;
use common::{Written, begin};

const READS: usize = 10_000;
/// Not whole blocks: the last bytes of a page come another way than the rest.
const PAGE_BYTES: usize = 41_000;
const FRAMES: u64 = 64;

struct House {
    _folder: tempfile::TempDir,
    pool: Pool,
    tier: Arc<SsdTier>,
    io: PageIo,
    pages: Vec<Written>,
}

fn house(kind: DeviceKind) -> House {
    let folder = tempfile::tempdir().unwrap();
    let device = Arc::new(FileDevice::open_or_create(&folder.path().join("ssd"), 16 << 20).unwrap());
    let components = common::components(device);
    let tier = Arc::new(SsdTier::format(components, 1 << 20, &SeededEntropy::new(1)).unwrap());
    let io = PageIo::start(Arc::clone(&tier), IoSettings { kind, threads: 4, line_max: 32 }).unwrap();
    let bytes = FRAMES * (PAGE_BYTES as u64).next_multiple_of(4096);
    let settings = PoolSettings { bytes, arena_bytes: bytes, huge_pages: HugePages::Off };
    let pool = Pool::start(settings, Arc::new(Metrics::new(&prometheus::Registry::new()).unwrap())).unwrap();
    pool.wait_warm();
    let mut batch = io.batch();
    let pages = (0..100).map(|number| begin(&tier, &mut batch, number, PAGE_BYTES)).collect();
    batch.finish().unwrap();
    House { _folder: folder, pool, tier, io, pages }
}

/// A frame that belongs to the test: whatever was written to it late would show.
struct Mine(PageBufMut, u64);

impl Mine {
    fn new(mut frame: PageBufMut, name: u64) -> Self {
        payload::fill(&name.to_le_bytes(), &mut frame);
        Self(frame, name)
    }

    fn check(&self) {
        assert!(payload::is_right(&self.1.to_le_bytes(), 0, &self.0), "a frame was written to after it was handed on");
    }
}

fn storm(kind: DeviceKind) {
    let House { pool, tier, io, pages, .. } = &house(kind);
    let (mut dice, mut mine, mut replies) = (Dice::new(3), VecDeque::new(), VecDeque::new());
    let (mut dropped, mut reads) = (0, 0);
    while dropped < READS {
        let Some(frame) = pool.reserve(TenantNo(1), PAGE_BYTES as u64) else {
            let Some((page, reply)): Option<(Written, cairn_ssd::ReadReply<PageBufMut>)> = replies.pop_front() else {
                std::thread::yield_now();
                continue;
            };
            let bytes = reply.wait().unwrap().unwrap();
            assert!(payload::is_right(page.facts.key.as_bytes(), 0, &bytes));
            reads += 1;
            continue;
        };
        if dice.place(4) == 0 {
            mine.push_back(Mine::new(frame, dice.roll()));
            if mine.len() > 16 {
                mine.pop_front().unwrap().check();
            }
            continue;
        }
        let page = pages[dice.place(pages.len())];
        let job = ReadJob { pin: tier.pin(page.slot), expected: page.expected, into: frame };
        let Submitted::Queued(reply) = io.read(IoClass::Demand, job) else {
            std::thread::yield_now();
            continue;
        };
        if dice.place(10) == 0 {
            replies.push_back((page, reply));
        } else {
            drop(reply);
            dropped += 1;
        }
    }
    mine.iter().for_each(Mine::check);
    replies.drain(..).for_each(|(_, reply)| drop(reply.wait().unwrap().unwrap()));
    assert!(reads > 0, "some were awaited");
    mine.clear();
}

fn nothing_is_left(kind: DeviceKind) {
    let House { pool, tier, io, pages, _folder } = house(kind);
    let jobs = pages.iter().filter_map(|page| {
        let into = pool.reserve(TenantNo(1), PAGE_BYTES as u64)?;
        Some(io.read(IoClass::Demand, ReadJob { pin: tier.pin(page.slot), expected: page.expected, into }))
    });
    drop(jobs.collect::<Vec<_>>());
    drop(io);
    assert_eq!(pool.used_bytes(), 0, "every frame is free again");
    assert!(pages.iter().all(|page| !tier.is_pinned(page.slot)));
    pages.iter().for_each(|page| tier.free(page.slot));
    assert_eq!(tier.used_bytes(), 0);
}

#[test]
fn ten_thousand_readers_that_go_away_leave_io_uring_as_it_was() {
    storm(DeviceKind::IoUring);
    nothing_is_left(DeviceKind::IoUring);
}

#[test]
fn ten_thousand_readers_that_go_away_leave_the_threads_as_they_were() {
    storm(DeviceKind::Positioned);
    nothing_is_left(DeviceKind::Positioned);
}
