//! A queue of the tests: it does what [`cairn_ssd::RingQueue`] does with a single transfer, without a kernel; and memory that knows whether the
//! device has it.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use cairn_core::metrics::IoClass;
use cairn_schedules::{Condvar, Mutex, point, thread};
use cairn_ssd::{Device, Full, PageMemory, Parts, Transfer, TransferQueue};
use cairn_testkit::schedules::TurnDevice;

const LINE_MAX: usize = 2;
const DEPTH: usize = 2;

/// The memory that the device has, by its first address. Never held over a point.
#[derive(Clone, Debug, Default)]
pub(crate) struct OnDevice(Arc<std::sync::Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    memory: HashSet<usize>,
    writes: usize,
}

impl OnDevice {
    fn takes(&self, parts: &Parts<'_>) {
        let mut has = self.0.lock().unwrap();
        has.writes += usize::from(matches!(parts, Parts::From(_)));
        each(parts, |at| assert!(has.memory.insert(at), "memory was handed to the device twice"));
    }

    fn is_done(&self, parts: &Parts<'_>) {
        let mut has = self.0.lock().unwrap();
        each(parts, |at| assert!(has.memory.remove(&at)));
    }

    pub(crate) fn has(&self, memory: &[u8]) -> bool {
        self.0.lock().unwrap().memory.contains(&memory.as_ptr().addr())
    }

    pub(crate) fn has_nothing(&self) -> bool {
        self.0.lock().unwrap().memory.is_empty()
    }

    /// Writes that have begun.
    pub(crate) fn writes(&self) -> usize {
        self.0.lock().unwrap().writes
    }
}

fn each(parts: &Parts<'_>, mut of: impl FnMut(usize)) {
    match parts {
        Parts::Into(parts) => parts.iter().filter(|part| !part.is_empty()).for_each(|part| of(part.as_ptr().addr())),
        Parts::From(parts) => parts.iter().filter(|part| !part.is_empty()).for_each(|part| of(part.as_ptr().addr())),
    }
}

/// The memory of a page. Whoever lets go of it while the device has it is found out.
pub(crate) struct Memory {
    page: PageMemory,
    device: OnDevice,
}

impl Memory {
    pub(crate) fn new(device: &OnDevice, page_bytes: usize) -> Self {
        Self { page: PageMemory::new(page_bytes as u64), device: device.clone() }
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
pub(crate) struct Ring {
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
    /// One that dies after so many transfers, if it does.
    pub(crate) fn start(device: Arc<TurnDevice>, on_device: OnDevice, dies_after: Option<u64>) -> Self {
        let state = Mutex::new(State { dies_after, ..State::default() });
        let shared = Arc::new(Shared { device, on_device, state, changed: Condvar::new() });
        let works = Arc::clone(&shared);
        Self { shared, thread: Some(thread::spawn(move || works.work())) }
    }

    /// Closes it from elsewhere, while others use it.
    pub(crate) fn closer(&self) -> impl FnOnce() + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.close()
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
