//! Pages through the threads: every job is answered, full is said at once, and a buffer outlives whoever asked.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can not go on says so by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use cairn_core::metrics::{Damage, IoClass};
use cairn_ssd::{
    Device, DeviceError, DeviceKind, Full, IoSettings, PageIo, ReadFault, ReadJob, ReadReply, SsdError, SsdTier,
    Submitted, ThreadQueue, Transfer, TransferQueue,
};
use cairn_testkit::fault_device::{Fault, FaultDevice, Unsynced};
use cairn_testkit::payload;
use common::{Rig, Written};
use parking_lot::Mutex;

const PAGE_BYTES: usize = 3_000;

fn job<B>(tier: &SsdTier, page: &Written, into: B) -> ReadJob<B> {
    ReadJob { pin: tier.pin(page.slot), expected: page.expected, into }
}

fn start(tier: &Arc<SsdTier>, threads: usize, line_max: usize) -> PageIo {
    PageIo::start(Arc::clone(tier), IoSettings { kind: DeviceKind::Auto, threads, line_max }).unwrap()
}

fn queued<B>(submitted: Submitted<B>) -> ReadReply<B> {
    match submitted {
        Submitted::Queued(reply) => reply,
        Submitted::Full => panic!("the queue is full"),
    }
}

#[test]
fn many_readers_on_many_threads_get_the_right_pages() {
    let rig = Rig::new(4);
    let pages: Vec<_> = (0..20).map(|number| rig.put(number, PAGE_BYTES)).collect();
    let io = start(&rig.tier, 3, 200);
    let replies = (0..200).map(|read| {
        let page = pages[read % pages.len()];
        (page, queued(io.read(IoClass::Demand, job(&rig.tier, &page, vec![0; PAGE_BYTES]))))
    });
    for (page, reply) in replies.collect::<Vec<_>>() {
        let bytes = reply.wait().unwrap().unwrap();
        assert!(payload::is_right(page.facts.key.as_bytes(), 0, &bytes));
    }
    assert_eq!(rig.metrics.ssd_queue.of(IoClass::Demand).get(), 0);
    drop(io);
    assert_eq!(rig.metrics.ssd_read_seconds.get_sample_count(), 200);
    assert!(pages.iter().all(|page| !rig.tier.is_pinned(page.slot)));
}

#[test]
fn a_failed_read_is_answered_and_the_thread_serves_on() {
    let rig = Rig::new(1);
    let (page, other) = (rig.put(1, PAGE_BYTES), rig.put(2, PAGE_BYTES));
    rig.device.flip_bit(common::slot_at(page.slot, PAGE_BYTES as u64) + 5_000, 3);
    let io = start(&rig.tier, 1, 4);
    let ask = |page, bytes| queued(io.read(IoClass::Demand, job(&rig.tier, page, vec![0; bytes]))).wait().unwrap();
    assert!(matches!(ask(&page, PAGE_BYTES), Err(ReadFault::Damaged(Damage::Payload))));
    rig.device.inject(Fault::FailRead);
    assert!(matches!(ask(&other, PAGE_BYTES), Err(ReadFault::Device(_))));
    assert!(matches!(ask(&other, PAGE_BYTES - 1), Err(ReadFault::Buffer { .. })));
    ask(&other, PAGE_BYTES).unwrap();
}

/// A device whose reads say that they have begun, then wait to be let go.
#[derive(Debug)]
struct Gate {
    inner: Arc<FaultDevice>,
    begun: SyncSender<()>,
    go: Mutex<Receiver<()>>,
}

impl Device for Gate {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }
    fn read_at(&self, at: u64, parts: &mut [&mut [u8]]) -> Result<(), DeviceError> {
        // Only reads of pages have two parts.
        if parts.len() > 1 {
            self.begun.send(()).ok();
            self.go.lock().recv().ok();
        }
        self.inner.read_at(at, parts)
    }
    fn write_at(&self, at: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        self.inner.write_at(at, parts)
    }
    fn barrier(&self) -> Result<(), DeviceError> {
        self.inner.barrier()
    }
    fn describe(&self) -> &str {
        "gate"
    }
}

/// A buffer that counts how many of its kind exist.
#[derive(Debug)]
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self(vec![0; PAGE_BYTES], Arc::clone(alive))
    }
}

impl AsMut<[u8]> for Counted {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Gated {
    tier: Arc<SsdTier>,
    page: Written,
    begun: Receiver<()>,
    go: SyncSender<()>,
    alive: Arc<AtomicUsize>,
}

fn gated() -> Gated {
    let rig = Rig::new(1);
    let page = rig.put(1, PAGE_BYTES);
    let ((begun, has_begun), (let_go, go)) = (sync_channel(8), sync_channel(8));
    let gate = Gate { inner: rig.device, begun, go: Mutex::new(go) };
    let tier = Arc::new(common::open(Arc::new(gate)).unwrap());
    assert!(tier.claim(page.slot, PAGE_BYTES as u64));
    Gated { tier, page, begun: has_begun, go: let_go, alive: Arc::default() }
}

#[test]
fn a_full_line_says_so_at_once() {
    let Gated { tier, page, begun, go, alive } = gated();
    let io = start(&tier, 1, 2);
    let submit = || io.read(IoClass::Demand, job(&tier, &page, Counted::new(&alive)));
    let first = queued(submit());
    begun.recv().unwrap();
    let waiting = [queued(submit()), queued(submit())];
    assert!(matches!(submit(), Submitted::Full), "two may wait");
    assert_eq!(alive.load(Ordering::SeqCst), 3, "who is turned away lets go of the buffer");
    (0..3).for_each(|_| go.send(()).unwrap());
    first.wait().unwrap().unwrap();
    for reply in waiting {
        reply.wait().unwrap().unwrap();
    }
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn a_caller_that_goes_away_leaves_its_buffer_until_the_read_is_done_and_withdraws_what_waits() {
    let Gated { tier, page, begun, go, alive } = gated();
    let io = start(&tier, 1, 8);
    let reading = queued(io.read(IoClass::Demand, job(&tier, &page, Counted::new(&alive))));
    begun.recv().unwrap();
    let waiting = queued(io.read(IoClass::Demand, job(&tier, &page, Counted::new(&alive))));
    let last = queued(io.read(IoClass::Demand, job(&tier, &page, Counted::new(&alive))));
    drop((reading, waiting));
    tier.free(page.slot);
    assert_eq!(alive.load(Ordering::SeqCst), 3, "the disk may be filling the first");
    assert!(tier.is_pinned(page.slot));
    (0..3).for_each(|_| go.send(()).unwrap());
    last.wait().unwrap().unwrap();
    drop(io);
    assert_eq!(begun.try_iter().count(), 1, "of the two that waited, only the one that was wanted was read");
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    assert!(!tier.is_pinned(page.slot));
    assert_eq!(tier.used_bytes(), 0);
}

#[test]
fn a_queue_that_is_dropped_ends_what_is_under_way_and_closes_what_waits() {
    let Gated { tier, page, begun, go, alive } = gated();
    let io = start(&tier, 1, 8);
    let reading = queued(io.read(IoClass::Demand, job(&tier, &page, Counted::new(&alive))));
    begun.recv().unwrap();
    let waiting = queued(io.read(IoClass::Demand, job(&tier, &page, Counted::new(&alive))));
    go.send(()).unwrap();
    // The waiting read may begin before the queue closes.
    go.send(()).unwrap();
    drop(io);
    reading.wait().unwrap().unwrap();
    drop(waiting.wait());
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    assert!(!tier.is_pinned(page.slot));
}

#[test]
fn a_batch_is_durable_when_it_is_finished_and_not_before() {
    let rig = Rig::new(4);
    let io = start(&rig.tier, 2, 4);
    let mut batch = io.batch();
    let pages: Vec<_> = (0..20).map(|number| rig.begin(&mut batch, number, PAGE_BYTES)).collect();
    batch.finish().unwrap();
    let after = Rig::on(rig.device.image(Unsynced::Lost));
    for page in &pages {
        assert!(after.tier.claim(page.slot, PAGE_BYTES as u64));
        after.get(page).unwrap();
    }
    assert_eq!(rig.metrics.ssd_queue.of(IoClass::Write).get(), 0);
}

/// Counts the transfers that are handed to the queue below.
#[derive(Debug)]
struct Counting {
    below: ThreadQueue,
    submitted: Arc<AtomicUsize>,
}

impl TransferQueue for Counting {
    fn submit(&self, class: IoClass, transfer: Box<dyn Transfer>) -> Result<(), Full> {
        self.submitted.fetch_add(1, Ordering::SeqCst);
        self.below.submit(class, transfer)
    }

    fn depth(&self) -> usize {
        self.below.depth()
    }

    fn describe(&self) -> &str {
        self.below.describe()
    }
}

#[test]
fn pages_that_lie_side_by_side_are_written_as_one_transfer() {
    let rig = Rig::new(2);
    let submitted = Arc::new(AtomicUsize::new(0));
    let device: Arc<dyn Device> = rig.device.clone();
    let below = ThreadQueue::start(device, 1, 64, Arc::clone(&rig.metrics)).unwrap();
    let io = PageIo::new(Arc::clone(&rig.tier), Box::new(Counting { below, submitted: Arc::clone(&submitted) }));
    // Larger ones go to a region of their own.
    for (pages, page_bytes, transfers) in [(7, PAGE_BYTES, 1), (3, 3 * PAGE_BYTES, 1)] {
        submitted.store(0, Ordering::SeqCst);
        let mut batch = io.batch();
        let pages: Vec<_> = (0..pages).map(|number| rig.begin(&mut batch, number, page_bytes)).collect();
        batch.finish().unwrap();
        assert_eq!(submitted.load(Ordering::SeqCst), transfers, "of {page_bytes} bytes a page");
        for page in &pages {
            rig.get(page).unwrap();
        }
    }
}

#[test]
fn a_write_that_fails_fails_its_batch_and_quarantines_the_tier() {
    let rig = Rig::new(1);
    let io = start(&rig.tier, 2, 4);
    // Opens the region and raises the limit of generations: the next write is the page's.
    rig.put(0, PAGE_BYTES);
    let mut batch = io.batch();
    let slot = rig.tier.reserve(PAGE_BYTES as u64).unwrap().unwrap();
    rig.device.inject(Fault::FailWrite);
    let facts = common::facts(1, PAGE_BYTES);
    batch.write(slot, &facts, payload::page(facts.key.as_bytes(), PAGE_BYTES)).unwrap();
    assert!(matches!(batch.finish(), Err(SsdError::Device(_))));
    assert!(rig.tier.is_write_quarantined());
    assert!(matches!(io.batch().write(slot, &facts, vec![0; PAGE_BYTES]), Err(SsdError::WriteQuarantined)));
    assert!(matches!(io.batch().finish(), Err(SsdError::WriteQuarantined)));
}

#[test]
fn io_uring_by_name_is_refused_for_a_device_that_is_no_file() {
    let rig = Rig::new(1);
    let settings = IoSettings { kind: DeviceKind::IoUring, threads: 1, line_max: 1 };
    let refused = PageIo::start(Arc::clone(&rig.tier), settings).unwrap_err();
    assert!(matches!(refused, SsdError::Ring(_)), "{refused}");
}
