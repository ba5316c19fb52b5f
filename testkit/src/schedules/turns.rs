//! A device that takes its time: other threads go on before, within and after each of its steps.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use cairn_schedules::point;
use cairn_ssd::{Device, DeviceError};
use parking_lot::Mutex;

use crate::fault_device::{Fault, FaultDevice};

/// What is written when a page's header is wiped.
const HEADER_BYTES: u64 = 4096;

/// What the owner of a test wants to know of a trim: where it begins.
type OnTrim = Box<dyn Fn(u64) + Send + Sync>;

/// A [`FaultDevice`] under a schedule. It panics if it is used as no device may be: two barriers at once, a barrier after one that failed, or
/// something written where another call reads or writes at that moment. A header alone may be wiped under a reader, who finds no page then.
pub struct TurnDevice {
    inner: Arc<FaultDevice>,
    /// What a file would be, so that nobody takes the device for one that counts steps.
    file: Arc<File>,
    on_trim: Option<OnTrim>,
    /// Never held over a point.
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    /// Ranges under way, and whether they are written.
    under_way: Vec<(Range<u64>, bool)>,
    in_barrier: bool,
    barriers: u64,
    /// Which barrier fails, counted from 0.
    fails_at: Option<u64>,
    has_failed: bool,
    reads: BTreeMap<u64, u64>,
}

impl TurnDevice {
    /// Takes the turns of `inner`.
    ///
    /// # Panics
    /// If the system has no `/dev/null`.
    pub fn new(inner: Arc<FaultDevice>) -> Self {
        let file = File::open("/dev/null").unwrap_or_else(|failed| panic!("open /dev/null: {failed}"));
        Self { inner, file: Arc::new(file), on_trim: None, book: Mutex::default() }
    }

    /// Tells `on_trim` of each trim.
    #[must_use]
    pub fn telling_of_trims(mut self, on_trim: impl Fn(u64) + Send + Sync + 'static) -> Self {
        self.on_trim = Some(Box::new(on_trim));
        self
    }

    /// Makes a barrier fail: after so many more.
    pub fn fail_barrier_after(&self, barriers: u64) {
        let mut book = self.book.lock();
        book.fails_at = Some(book.barriers + barriers);
    }

    /// Whether a barrier has failed.
    pub fn has_failed(&self) -> bool {
        self.book.lock().has_failed
    }

    /// How many reads began at each place, since this was asked last.
    pub fn take_reads(&self) -> BTreeMap<u64, u64> {
        std::mem::take(&mut self.book.lock().reads)
    }

    fn take_turns<T>(&self, range: Range<u64>, is_write: bool, work: impl FnOnce() -> T) -> T {
        point();
        {
            let mut book = self.book.lock();
            let meets = |(other, writes): &&(Range<u64>, bool)| {
                let is_wipe = is_write && !writes && range.end - range.start == HEADER_BYTES;
                (is_write || *writes) && !is_wipe && other.start < range.end && range.start < other.end
            };
            if let Some(other) = book.under_way.iter().find(meets) {
                panic!("{range:?} is written={is_write} while another call uses {other:?}");
            }
            book.under_way.push((range.clone(), is_write));
        }
        point();
        let done = work();
        point();
        let mut book = self.book.lock();
        if let Some(at) = book.under_way.iter().position(|(other, _)| *other == range) {
            book.under_way.swap_remove(at);
        }
        done
    }
}

impl Device for TurnDevice {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read_at(&self, at: u64, parts: &mut [&mut [u8]]) -> Result<(), DeviceError> {
        *self.book.lock().reads.entry(at).or_default() += 1;
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        self.take_turns(at..at + bytes, false, || self.inner.read_at(at, parts))
    }

    fn write_at(&self, at: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        self.take_turns(at..at + bytes, true, || self.inner.write_at(at, parts))
    }

    fn barrier(&self) -> Result<(), DeviceError> {
        point();
        {
            let mut book = self.book.lock();
            assert!(!book.in_barrier, "two barriers at once");
            assert!(!book.has_failed, "a barrier after one that failed");
            book.in_barrier = true;
            if book.fails_at == Some(book.barriers) {
                self.inner.inject(Fault::FailBarrier);
            }
            book.barriers += 1;
        }
        point();
        let outcome = self.inner.barrier();
        {
            let mut book = self.book.lock();
            book.in_barrier = false;
            book.has_failed |= outcome.is_err();
        }
        point();
        outcome
    }

    fn trim(&self, at: u64, bytes: u64) -> Result<bool, DeviceError> {
        self.take_turns(at..at + bytes, true, || {
            if let Some(tell) = &self.on_trim {
                tell(at);
            }
            self.inner.trim(at, bytes)
        })
    }

    fn describe(&self) -> &str {
        "memory that takes turns"
    }

    fn ring_file(&self) -> Option<Arc<File>> {
        Some(Arc::clone(&self.file))
    }
}

impl fmt::Debug for TurnDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnDevice").field("inner", &self.inner).field("book", &self.book).finish_non_exhaustive()
    }
}
