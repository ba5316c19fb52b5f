//! The read threads: every job is answered, full is said at once, and a buffer outlives whoever asked.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can not go on says so by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use cairn_core::metrics::Damage;
use cairn_ssd::{Device, DeviceError, ReadFault, ReadJob, ReadQueue, ReadReply, SsdTier, Submitted};
use cairn_testkit::fault_device::{Fault, FaultDevice};
use cairn_testkit::payload;
use common::{Rig, Written};
use parking_lot::Mutex;

const PAGE_BYTES: usize = 3_000;

fn job<B>(tier: &SsdTier, page: &Written, into: B) -> ReadJob<B> {
    ReadJob { pin: tier.pin(page.slot), expected: page.expected, into }
}

fn queued<B>(submitted: Submitted<B>) -> ReadReply<B> {
    match submitted {
        Submitted::Queued(reply) => reply,
        Submitted::Full(_) => panic!("the queue is full"),
    }
}

#[test]
fn many_readers_on_many_threads_get_the_right_pages() {
    let rig = Rig::new(4);
    let pages: Vec<_> = (0..20).map(|number| rig.put(number, PAGE_BYTES)).collect();
    let queue = ReadQueue::start(Arc::clone(&rig.tier), 3, 200).unwrap();
    let replies = (0..200).map(|read| {
        let page = pages[read % pages.len()];
        (page, queued(queue.submit(job(&rig.tier, &page, vec![0; PAGE_BYTES]))))
    });
    for (page, reply) in replies.collect::<Vec<_>>() {
        let bytes = reply.blocking_recv().unwrap().unwrap();
        assert!(payload::is_right(page.facts.key.as_bytes(), 0, &bytes));
    }
    assert_eq!(rig.metrics.ssd_read_queue.get(), 0);
    drop(queue);
    assert_eq!(rig.metrics.ssd_read_seconds.get_sample_count(), 200);
    assert!(pages.iter().all(|page| !rig.tier.is_pinned(page.slot)));
}

#[test]
fn a_failed_read_is_answered_and_the_thread_serves_on() {
    let rig = Rig::new(1);
    let (page, other) = (rig.put(1, PAGE_BYTES), rig.put(2, PAGE_BYTES));
    rig.device.flip_bit(common::slot_at(page.slot, PAGE_BYTES as u64) + 5_000, 3);
    let queue = ReadQueue::start(Arc::clone(&rig.tier), 1, 4).unwrap();
    let ask = |page, bytes| queued(queue.submit(job(&rig.tier, page, vec![0; bytes]))).blocking_recv().unwrap();
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
fn a_full_queue_gives_the_job_back_at_once() {
    let Gated { tier, page, begun, go, alive } = gated();
    let queue = ReadQueue::start(Arc::clone(&tier), 1, 2).unwrap();
    let submit = || queue.submit(job(&tier, &page, Counted::new(&alive)));
    let first = queued(submit());
    begun.recv().unwrap();
    let waiting = [queued(submit()), queued(submit())];
    let Submitted::Full(back) = submit() else { panic!("two may wait") };
    drop(back);
    (0..3).for_each(|_| go.send(()).unwrap());
    first.blocking_recv().unwrap().unwrap();
    for reply in waiting {
        reply.blocking_recv().unwrap().unwrap();
    }
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn a_caller_that_goes_away_leaves_its_buffer_until_the_read_is_done_and_withdraws_what_waits() {
    let Gated { tier, page, begun, go, alive } = gated();
    let queue = ReadQueue::start(Arc::clone(&tier), 1, 8).unwrap();
    let reading = queued(queue.submit(job(&tier, &page, Counted::new(&alive))));
    begun.recv().unwrap();
    let waiting = queued(queue.submit(job(&tier, &page, Counted::new(&alive))));
    let last = queued(queue.submit(job(&tier, &page, Counted::new(&alive))));
    drop((reading, waiting));
    tier.free(page.slot);
    assert_eq!(alive.load(Ordering::SeqCst), 3, "the disk may be filling the first");
    assert!(tier.is_pinned(page.slot));
    (0..3).for_each(|_| go.send(()).unwrap());
    last.blocking_recv().unwrap().unwrap();
    drop(queue);
    assert_eq!(begun.try_iter().count(), 1, "of the two that waited, only the one that was wanted was read");
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    assert!(!tier.is_pinned(page.slot));
    assert_eq!(tier.used_bytes(), 0);
}

#[test]
fn a_queue_that_is_dropped_ends_what_is_under_way_and_closes_what_waits() {
    let Gated { tier, page, begun, go, alive } = gated();
    let queue = ReadQueue::start(Arc::clone(&tier), 1, 8).unwrap();
    let reading = queued(queue.submit(job(&tier, &page, Counted::new(&alive))));
    begun.recv().unwrap();
    let waiting = queued(queue.submit(job(&tier, &page, Counted::new(&alive))));
    go.send(()).unwrap();
    // The waiting read may begin before the queue closes.
    go.send(()).unwrap();
    drop(queue);
    reading.blocking_recv().unwrap().unwrap();
    drop(waiting.blocking_recv());
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    assert!(!tier.is_pinned(page.slot));
}
