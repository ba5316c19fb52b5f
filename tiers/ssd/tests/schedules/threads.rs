//! The threads that move transfers: everything queued ends once, writes keep their order, and nothing happens after the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cairn_core::metrics::{IoClass, Label, Metrics};
use cairn_schedules::{Condvar, Mutex, point, thread};
use cairn_ssd::{DeviceError, Full, Parts, ThreadQueue, Transfer, TransferQueue};
use cairn_testkit::dice::Dice;
use cairn_testkit::fault_device::FaultDevice;
use cairn_testkit::schedules::{self, TurnDevice};

const BLOCK: usize = 4096;
const THREADS: usize = 2;
const CALLERS: usize = 2;
const TRANSFERS: usize = 4;
const LINE_MAX: usize = 3;

#[derive(Default)]
struct Book {
    ended: Mutex<usize>,
    changed: Condvar,
    /// Written down between two steps of the schedule, from here on.
    done: AtomicUsize,
    writing: AtomicBool,
    last_write: AtomicUsize,
    closed: AtomicBool,
}

struct Noted {
    book: Arc<Book>,
    number: usize,
    class: IoClass,
    is_wanted: bool,
    bytes: Vec<u8>,
}

impl Noted {
    fn is_alive(&self) {
        assert!(!self.book.closed.load(Ordering::SeqCst), "something happens after the queue was closed");
    }
}

impl Transfer for Noted {
    fn at(&self) -> u64 {
        (self.number * BLOCK) as u64
    }

    fn bytes(&self) -> u64 {
        BLOCK as u64
    }

    fn parts(&mut self) -> Parts<'_> {
        self.is_alive();
        if self.class != IoClass::Write {
            return Parts::Into(vec![&mut self.bytes]);
        }
        assert!(!self.book.writing.swap(true, Ordering::SeqCst), "two writes at once");
        let before = self.book.last_write.swap(self.number, Ordering::SeqCst);
        assert!(before < self.number, "writes change places");
        Parts::From(vec![&self.bytes])
    }

    fn is_wanted(&self) -> bool {
        point();
        self.is_wanted
    }

    fn done(self: Box<Self>, outcome: Result<(), DeviceError>) {
        outcome.unwrap();
        point();
        self.is_alive();
        if self.class == IoClass::Write {
            self.book.writing.store(false, Ordering::SeqCst);
        }
        self.book.done.fetch_add(1, Ordering::SeqCst);
    }

    fn lost(&mut self) {
        panic!("threads lose nothing");
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.is_alive();
        *self.book.ended.lock() += 1;
        self.book.changed.notify_all();
    }
}

/// Queues transfers, and drops those for which the line has no place; how many it has queued that will be moved.
fn call(queue: &ThreadQueue, book: &Arc<Book>, caller: usize, dice: &mut Dice) -> usize {
    let reads: Vec<_> = IoClass::all().into_iter().filter(|class| *class != IoClass::Write).collect();
    let mut moved = 0;
    for transfer in 0..TRANSFERS {
        // Only one of the callers writes: then there is an order.
        let writes = caller == 0 && dice.place(2) == 0;
        let class = if writes { IoClass::Write } else { reads[dice.place(reads.len())] };
        let number = 1 + caller * TRANSFERS + transfer;
        let is_wanted = dice.place(4) > 0;
        let noted = Noted { book: Arc::clone(book), number, class, is_wanted, bytes: vec![0; BLOCK] };
        match queue.submit(class, Box::new(noted)) {
            Ok(()) => moved += usize::from(is_wanted),
            Err(Full(refused)) => drop(refused),
        }
    }
    moved
}

fn transfers_and_threads(dice: &mut Dice) {
    let device = Arc::new(TurnDevice::new(Arc::new(FaultDevice::new((1 + CALLERS * TRANSFERS) * BLOCK))));
    let metrics = Arc::new(Metrics::new(&prometheus::Registry::new()).unwrap());
    let queue = Arc::new(ThreadQueue::start(device, THREADS, LINE_MAX, Arc::clone(&metrics)).unwrap());
    let book = Arc::new(Book::default());
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (queue, book, mut dice) = (Arc::clone(&queue), Arc::clone(&book), Dice::new(dice.roll()));
            thread::spawn(move || call(&queue, &book, caller, &mut dice))
        })
        .collect();
    let moved: usize = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
    // Closed when all is done, or in the middle of it.
    let waits = dice.place(2) == 0;
    if waits {
        let mut ended = book.ended.lock();
        while *ended < CALLERS * TRANSFERS {
            book.changed.wait(&mut ended);
        }
    }
    drop(Arc::into_inner(queue).expect("nobody else has it"));
    book.closed.store(true, Ordering::SeqCst);
    assert_eq!(*book.ended.lock(), CALLERS * TRANSFERS, "a transfer was forgotten");
    assert!(book.done.load(Ordering::SeqCst) <= moved);
    assert!(!waits || book.done.load(Ordering::SeqCst) == moved, "a transfer was dropped that was to be moved");
    assert_eq!(metrics.ssd_in_flight.get(), 0);
    assert!(IoClass::all().into_iter().all(|class| metrics.ssd_queue.of(class).get() == 0));
}

#[test]
fn every_transfer_ends_once_and_none_after_the_threads_were_stopped() {
    schedules::run("R5 threads", "-p cairn-ssd --features schedules --test schedules threads", transfers_and_threads);
}
