//! Transfers that write down what becomes of them.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use cairn_core::metrics::IoClass;
use cairn_ssd::{DeviceError, Parts, Transfer, TransferQueue};
use cairn_testkit::payload;
use parking_lot::{Condvar, Mutex};

pub(crate) const BLOCK: usize = 4096;

/// Whole blocks at the right address.
#[derive(Debug)]
pub(crate) struct Buffer {
    room: Vec<u8>,
    from: usize,
    bytes: usize,
}

impl Buffer {
    pub(crate) fn of(blocks: usize) -> Self {
        let room = vec![0xee; (blocks + 1) * BLOCK];
        let at = room.as_ptr().addr();
        Self { room, from: at.next_multiple_of(BLOCK) - at, bytes: blocks * BLOCK }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.room[self.from..self.from + self.bytes]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.from..self.from + self.bytes]
    }
}

/// Blocks whose bytes follow from `name`.
pub(crate) fn blocks(name: u64, count: usize) -> Buffer {
    let mut buffer = Buffer::of(count);
    payload::fill(&name.to_le_bytes(), &mut buffer);
    buffer
}

/// How a transfer ended.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) at: usize,
    pub(crate) outcome: Result<(), DeviceError>,
    pub(crate) buffer: Buffer,
}

/// What became of all transfers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Book>);

#[derive(Debug, Default)]
struct Book {
    told: Mutex<(Vec<Told>, usize)>,
    changed: Condvar,
    begun: AtomicUsize,
    alive: AtomicUsize,
}

impl Ledger {
    /// Waits for `count` ends, and takes all that there are.
    pub(crate) fn take(&self, count: usize) -> Vec<Told> {
        self.wait_for(count);
        std::mem::take(&mut self.0.told.lock().0)
    }

    pub(crate) fn wait_for(&self, count: usize) {
        let mut told = self.0.told.lock();
        while told.0.len() < count {
            self.0.changed.wait(&mut told);
        }
    }

    pub(crate) fn begun(&self) -> usize {
        self.0.begun.load(Ordering::SeqCst)
    }

    pub(crate) fn told(&self) -> usize {
        self.0.told.lock().1
    }

    /// Transfers that have not been dropped.
    pub(crate) fn alive(&self) -> usize {
        self.0.alive.load(Ordering::SeqCst)
    }
}

/// Counts itself.
#[derive(Debug)]
struct Alive(Ledger);

impl Alive {
    fn new(ledger: &Ledger) -> Self {
        ledger.0.alive.fetch_add(1, Ordering::SeqCst);
        Self(ledger.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.0.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Noted {
    at: usize,
    is_read: bool,
    buffer: Buffer,
    /// Whoever asked holds the other end.
    caller: Option<Arc<()>>,
    is_wanted: bool,
    alive: Alive,
}

impl Transfer for Noted {
    fn at(&self) -> u64 {
        (self.at * BLOCK) as u64
    }

    fn bytes(&self) -> u64 {
        self.buffer.len() as u64
    }

    fn parts(&mut self) -> Parts<'_> {
        self.alive.0.0.begun.fetch_add(1, Ordering::SeqCst);
        // In two parts, where there is more than one block.
        let middle = self.buffer.len() / BLOCK / 2 * BLOCK;
        if self.is_read {
            let (front, back) = self.buffer.split_at_mut(middle);
            Parts::Into(vec![front, back])
        } else {
            let (front, back) = self.buffer.split_at(middle);
            Parts::From(vec![front, back])
        }
    }

    fn is_wanted(&self) -> bool {
        self.is_wanted && self.caller.as_ref().is_none_or(|caller| Arc::strong_count(caller) > 1)
    }

    fn done(self: Box<Self>, outcome: Result<(), DeviceError>) {
        let Self { at, buffer, alive, .. } = *self;
        let book = Arc::clone(&alive.0.0);
        drop(alive);
        let mut told = book.told.lock();
        told.0.push(Told { at, outcome, buffer });
        told.1 += 1;
        book.changed.notify_all();
    }

    fn lost(&mut self) {}
}

fn noted(ledger: &Ledger, at: usize, is_read: bool, buffer: Buffer) -> Noted {
    Noted { at, is_read, buffer, caller: None, is_wanted: true, alive: Alive::new(ledger) }
}

pub(crate) fn read(ledger: &Ledger, at: usize, count: usize) -> Box<dyn Transfer> {
    Box::new(noted(ledger, at, true, Buffer::of(count)))
}

pub(crate) fn write(ledger: &Ledger, at: usize, buffer: Buffer) -> Box<dyn Transfer> {
    Box::new(noted(ledger, at, false, buffer))
}

/// A read that nobody wants.
pub(crate) fn unwanted(ledger: &Ledger, at: usize) -> Box<dyn Transfer> {
    Box::new(Noted { is_wanted: false, ..noted(ledger, at, true, Buffer::of(1)) })
}

/// A read that is wanted as long as what is returned beside it.
pub(crate) fn with_caller(ledger: &Ledger, at: usize, count: usize) -> (Box<dyn Transfer>, Arc<()>) {
    let caller = Arc::new(());
    let read = Noted { caller: Some(Arc::clone(&caller)), ..noted(ledger, at, true, Buffer::of(count)) };
    (Box::new(read), caller)
}

/// Keeps a queue that moves one transfer at a time busy until something is sent; everything queued meanwhile waits.
pub(crate) fn gate(queue: &dyn TransferQueue) -> SyncSender<()> {
    struct Gate(Buffer, SyncSender<()>, std::sync::mpsc::Receiver<()>);
    impl Transfer for Gate {
        fn at(&self) -> u64 {
            0
        }
        fn bytes(&self) -> u64 {
            self.0.len() as u64
        }
        fn parts(&mut self) -> Parts<'_> {
            Parts::Into(vec![&mut self.0])
        }
        fn done(self: Box<Self>, _: Result<(), DeviceError>) {
            self.1.send(()).ok();
            self.2.recv().ok();
        }
        fn lost(&mut self) {}
    }
    let ((shut, is_shut), (open, opened)) = (sync_channel(1), sync_channel(1));
    queue.submit(IoClass::Demand, Box::new(Gate(Buffer::of(1), shut, opened))).unwrap();
    is_shut.recv().unwrap();
    open
}
