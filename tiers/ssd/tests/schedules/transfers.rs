//! Pages under way while their readers go away, the queue is closed, or the ring dies: memory that the device has is nobody else's, and
//! nobody waits for ever.
//!
//! The queue is one of the test: it does what [`cairn_ssd::RingQueue`] does, without a kernel.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use cairn_core::metrics::IoClass;
use cairn_schedules::{Condvar, Mutex, point, thread};
use cairn_ssd::{
    Device, Full, PageIo, PageMemory, Parts, ReadJob, SsdError, SsdTier, Submitted, Transfer, TransferQueue,
};
use cairn_testkit::dice::Dice;
use cairn_testkit::payload;
use cairn_testkit::schedules::{self, TurnDevice};

use crate::common::{self, Written};

/// Whole blocks: the device has the page's own memory.
const PAGE_BYTES: usize = 8192;
const LINE_MAX: usize = 2;
const READERS: usize = 2;
const DEPTH: usize = 2;

/// The memory that the device has, by its first address. Never held over a point.
#[derive(Clone, Debug, Default)]
struct OnDevice(Arc<std::sync::Mutex<HashSet<usize>>>);

impl OnDevice {
    fn takes(&self, parts: &Parts<'_>) {
        let mut has = self.0.lock().unwrap();
        each(parts, |at| assert!(has.insert(at), "memory was handed to the device twice"));
    }

    fn is_done(&self, parts: &Parts<'_>) {
        let mut has = self.0.lock().unwrap();
        each(parts, |at| assert!(has.remove(&at)));
    }

    fn has(&self, memory: &[u8]) -> bool {
        self.0.lock().unwrap().contains(&memory.as_ptr().addr())
    }

    fn has_nothing(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

fn each(parts: &Parts<'_>, mut of: impl FnMut(usize)) {
    match parts {
        Parts::Into(parts) => parts.iter().filter(|part| !part.is_empty()).for_each(|part| of(part.as_ptr().addr())),
        Parts::From(parts) => parts.iter().filter(|part| !part.is_empty()).for_each(|part| of(part.as_ptr().addr())),
    }
}

/// The memory of a page. Whoever lets go of it while the device has it is found out.
struct Memory {
    page: PageMemory,
    device: OnDevice,
}

impl Memory {
    fn new(device: &OnDevice) -> Self {
        Self { page: PageMemory::new(PAGE_BYTES as u64), device: device.clone() }
    }
}

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        self.page.as_ref()
    }
}

impl AsMut<[u8]> for Memory {
    fn as_mut(&mut self) -> &mut [u8] {
        self.page.as_mut()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        assert!(!self.device.has(self.page.as_ref()), "memory is let go of while the device has it");
    }
}

/// A ring without a kernel.
#[derive(Debug)]
struct Ring {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    device: Arc<TurnDevice>,
    on_device: OnDevice,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Box<dyn Transfer>>,
    closed: bool,
    /// Transfers after which the ring dies.
    dies_after: Option<u64>,
}

impl Ring {
    fn start(device: Arc<TurnDevice>, on_device: OnDevice, dies_after: Option<u64>) -> Self {
        let state = Mutex::new(State { dies_after, ..State::default() });
        let shared = Arc::new(Shared { device, on_device, state, changed: Condvar::new() });
        let works = Arc::clone(&shared);
        Self { shared, thread: Some(thread::spawn(move || works.work())) }
    }
}

impl Shared {
    fn work(&self) {
        while let Some(transfer) = self.next(true) {
            if self.carry(transfer, 1) == Alive::No {
                break;
            }
        }
        self.close();
    }

    fn next(&self, waits: bool) -> Option<Box<dyn Transfer>> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            match state.waiting.pop_front() {
                Some(transfer) if transfer.is_wanted() => return Some(transfer),
                Some(unwanted) => {
                    drop(state);
                    drop(unwanted);
                    state = self.state.lock();
                }
                None if waits => self.changed.wait(&mut state),
                None => return None,
            }
        }
    }

    /// Moves a transfer, and others while it is under way.
    fn carry(&self, mut transfer: Box<dyn Transfer>, under_way: usize) -> Alive {
        let at = transfer.at();
        let mut parts = transfer.parts();
        self.on_device.takes(&parts);
        point();
        let mut alive = Alive::Yes;
        if under_way < DEPTH
            && let Some(next) = self.next(false)
        {
            alive = self.carry(next, under_way + 1);
        }
        if alive == Alive::Yes {
            alive = self.lives_on();
        }
        if alive == Alive::No {
            // The device has the memory for ever.
            drop(parts);
            transfer.lost();
            std::mem::forget(transfer);
            return alive;
        }
        let outcome = match &mut parts {
            Parts::Into(parts) => self.device.read_at(at, parts),
            Parts::From(parts) => self.device.write_at(at, parts),
        };
        self.on_device.is_done(&parts);
        drop(parts);
        transfer.done(outcome);
        alive
    }

    fn lives_on(&self) -> Alive {
        let mut state = self.state.lock();
        match &mut state.dies_after {
            Some(0) => Alive::No,
            Some(more) => {
                *more -= 1;
                Alive::Yes
            }
            None => Alive::Yes,
        }
    }

    fn close(&self) {
        let withdrawn = {
            let mut state = self.state.lock();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        drop(withdrawn);
        self.changed.notify_all();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Alive {
    Yes,
    No,
}

impl TransferQueue for Ring {
    fn submit(&self, _: IoClass, transfer: Box<dyn Transfer>) -> Result<(), Full> {
        let mut state = self.shared.state.lock();
        if state.closed || state.waiting.len() == LINE_MAX {
            return Err(Full(transfer));
        }
        state.waiting.push_back(transfer);
        drop(state);
        self.shared.changed.notify_one();
        Ok(())
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn describe(&self) -> &str {
        "a ring without a kernel"
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.close();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Reads pages, and goes away at any moment. Its hold on the queue ends before it waits, so that the queue may be closed meanwhile.
fn read(io: Arc<PageIo>, tier: &SsdTier, on_device: &OnDevice, pages: &[Written], dice: &mut Dice) {
    let mut replies = Vec::new();
    for page in pages {
        let job = ReadJob { pin: tier.pin(page.slot), expected: page.expected, into: Memory::new(on_device) };
        if let Submitted::Queued(reply) = io.read(IoClass::Demand, job) {
            replies.push((page, reply));
        }
    }
    drop(io);
    for (page, reply) in replies {
        if dice.place(3) == 0 {
            drop(reply);
            continue;
        }
        if let Ok(answer) = reply.wait() {
            let memory = answer.expect("the page is whole");
            assert!(!on_device.has(memory.as_ref()), "memory was handed on while the device has it");
            assert!(payload::is_right(page.facts.key.as_bytes(), 0, memory.as_ref()));
        }
    }
}

/// Writes a batch, and may give it up. The pages, if they are durable.
fn write(io: &PageIo, tier: &SsdTier, on_device: &OnDevice, dice: &mut Dice) -> Vec<Written> {
    let mut batch = io.batch();
    let mut written = Vec::new();
    for number in 10..13 {
        let slot = match tier.reserve(PAGE_BYTES as u64) {
            Err(SsdError::WriteQuarantined) => return Vec::new(),
            slot => slot.unwrap().expect("a free slot"),
        };
        let facts = common::facts(number, PAGE_BYTES);
        let mut memory = Memory::new(on_device);
        payload::fill(facts.key.as_bytes(), memory.as_mut());
        match batch.write(slot, &facts, memory) {
            Ok(generation) => written.push(common::written(slot, facts, generation, PAGE_BYTES)),
            Err(SsdError::Closed | SsdError::WriteQuarantined) => return Vec::new(),
            Err(other) => panic!("{other}"),
        }
    }
    if dice.place(3) == 0 {
        drop(batch);
        return Vec::new();
    }
    match batch.finish() {
        Ok(()) => written,
        Err(_) => Vec::new(),
    }
}

fn transfers_that_are_given_up(dice: &mut Dice) {
    let disk = common::blank(2);
    let device = Arc::new(TurnDevice::new(disk));
    let tier = Arc::new(common::format(device.clone()).unwrap());
    let pages: Vec<_> = (0..2)
        .map(|number| {
            let slot = tier.reserve(PAGE_BYTES as u64).unwrap().expect("a free slot");
            common::write(&tier, slot, number, PAGE_BYTES).unwrap()
        })
        .collect();
    let on_device = OnDevice::default();
    let dies_after = (dice.place(2) == 0).then(|| dice.below(6));
    let ring = Ring::start(device, on_device.clone(), dies_after);
    let io = Arc::new(PageIo::new(Arc::clone(&tier), Box::new(ring)));
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let (io, tier, on_device, pages) = (Arc::clone(&io), Arc::clone(&tier), on_device.clone(), pages.clone());
            let mut dice = Dice::new(dice.roll());
            thread::spawn(move || read(io, &tier, &on_device, &pages, &mut dice))
        })
        .collect();
    let durable = write(&io, &tier, &on_device, dice);
    drop(io);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    for page in &durable {
        common::read(&tier, page).expect("a page of a batch that has ended well");
    }
    if on_device.has_nothing() {
        assert!(pages.iter().all(|page| !tier.is_pinned(page.slot)), "a slot is held although nobody reads it");
        assert!(!tier.is_write_quarantined(), "nothing has failed");
    }
}

#[test]
fn memory_that_the_device_has_is_not_handed_on_and_nobody_waits_for_ever() {
    schedules::run(
        "R5 transfers",
        "-p cairn-ssd --features schedules --test schedules memory",
        transfers_that_are_given_up,
    );
}
