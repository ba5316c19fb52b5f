//! The write queue: what waits to be written to the SSD, bounded in bytes and time.
//!
//! Many put, one takes ([`crate::writer`]). A page that waits is held in DRAM by its job. One page waits at most once: who asks again
//! while it waits, or while it is being written, is answered by the same write.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use cairn_core::metrics::{Damage, Metrics};
use cairn_core::{Moment, NamespaceId, PageKey};
use cairn_directory::NamespaceNo;
use cairn_pool::SealedPage;

use crate::endurance::{Charge, REMEMBER_INTERVAL};
use crate::sync::{Condvar, Mutex, Notify, oneshot};
use crate::values::{Left, PageName};

/// A page to be written.
#[derive(Debug)]
pub(crate) struct WriteJob {
    pub(crate) name: PageName,
    pub(crate) namespace: NamespaceId,
    pub(crate) page: SealedPage,
    /// What the write may cost.
    pub(crate) charge: Charge,
    /// Since when it waits.
    pub(crate) since: Moment,
}

impl WriteJob {
    /// Page memory that it holds.
    fn bytes(&self) -> u64 {
        self.page.len_bytes().next_multiple_of(4096)
    }
}

/// What the writer does next.
#[derive(Debug)]
pub(crate) enum Work {
    Write(Vec<WriteJob>),
    /// A page was found damaged and is out of the catalogue: the directory must forget it, and its slot goes into quarantine.
    Retire(Left, Damage),
    /// Every page of a namespace must go. Answered with the number of pages, or with why it failed.
    Clear(NamespaceNo, NamespaceId, oneshot::Sender<cairn_core::Result<u64>>),
    /// Where the scrub is must be remembered.
    SaveScrub,
    /// Writes are to be taken again after one failed. Answered when that is so, or with why it can not be.
    Release(oneshot::Sender<cairn_core::Result<()>>),
    /// Nothing came for a while.
    Rest,
    Stop,
}

/// Answers whether the page is durable now.
pub(crate) type Acknowledge = oneshot::Sender<bool>;

#[derive(Debug)]
pub(crate) struct WriteQueue {
    state: Mutex<State>,
    work: Condvar,
    /// Notified whenever bytes have left the queue.
    room: Notify,
    bytes_max: u64,
    time_max: Duration,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<WriteJob>,
    other: VecDeque<Work>,
    /// Who wants to know, for every page that waits or is being written.
    asked: HashMap<(NamespaceNo, PageKey), Vec<Acknowledge>>,
    bytes: u64,
    /// Takes no pages yet: the SSD is being rebuilt.
    shut: bool,
    stopping: bool,
}

/// What became of offering a page.
#[derive(Debug)]
pub(crate) enum Offered {
    Taken,
    /// The queue is full; here is what the write would have cost.
    Full(Charge),
    /// The SSD is being rebuilt, and takes no pages before that is done.
    NotYet,
    /// The engine is closing.
    Closed,
}

impl WriteQueue {
    /// A queue that takes no pages before it is [opened](Self::open), if `shut`.
    pub(crate) fn new(bytes_max: u64, time_max: Duration, shut: bool) -> Self {
        let state = Mutex::new(State { shut, ..State::default() });
        Self { state, work: Condvar::new(), room: Notify::new(), bytes_max, time_max }
    }

    /// Offers a page; does not wait. An empty queue takes a page of any size.
    pub(crate) fn offer(&self, job: WriteJob, acknowledge: Option<Acknowledge>, metrics: &Metrics) -> Offered {
        let mut state = self.state.lock();
        if state.stopping {
            return Offered::Closed;
        }
        if state.shut {
            return Offered::NotYet;
        }
        let name = (job.name.namespace, job.name.key);
        if let Some(asked) = state.asked.get_mut(&name) {
            asked.extend(acknowledge);
            return Offered::Taken;
        }
        let bytes = job.bytes();
        if state.bytes > 0 && state.bytes + bytes > self.bytes_max {
            return Offered::Full(job.charge);
        }
        state.bytes += bytes;
        state.asked.insert(name, acknowledge.into_iter().collect());
        state.waiting.push_back(job);
        state.show(metrics);
        self.work.notify_one();
        Offered::Taken
    }

    /// Resolves when bytes leave the queue after the call. Cancel-safe.
    pub(crate) fn room(&self) -> tokio::sync::futures::Notified<'_> {
        self.room.notified()
    }

    /// Adds work that is not a write; it is done before further writes. Dropped if the engine is closing.
    pub(crate) fn push(&self, work: Work) {
        let mut state = self.state.lock();
        if !state.stopping {
            state.other.push_back(work);
            self.work.notify_one();
        }
    }

    /// Takes pages from now on.
    pub(crate) fn open(&self) {
        self.state.lock().shut = false;
    }

    /// Whether the engine is closing.
    pub(crate) fn is_stopping(&self) -> bool {
        self.state.lock().stopping
    }

    /// Takes no more; the writer stops once everything that waits is done, or at once if `abandon`.
    pub(crate) fn stop(&self, abandon: bool) {
        let mut state = self.state.lock();
        state.stopping = true;
        if abandon {
            state.waiting.clear();
            state.other.clear();
            state.asked.clear();
            state.bytes = 0;
        }
        self.work.notify_one();
        drop(state);
        self.room.notify_waiters();
    }

    /// Drops the pages of a namespace that wait; who asked for them is told that they are not durable.
    pub(crate) fn forget(&self, namespace: NamespaceNo, metrics: &Metrics) {
        let forgotten: Vec<WriteJob> = {
            let mut state = self.state.lock();
            let waiting = std::mem::take(&mut state.waiting);
            let (forgotten, kept): (VecDeque<_>, VecDeque<_>) =
                waiting.into_iter().partition(|job| job.name.namespace == namespace);
            state.waiting = kept;
            forgotten.into()
        };
        for job in forgotten {
            self.done(job, false, metrics);
        }
    }

    /// The next work; waits for it. A batch of writes has at most `pages_max` pages and, beyond its first page, `bytes_max` bytes.
    pub(crate) fn take(&self, pages_max: usize, bytes_max: u64) -> Work {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.other.pop_front() {
                return work;
            }
            if !state.waiting.is_empty() {
                return Work::Write(state.batch(pages_max, bytes_max));
            }
            if state.stopping {
                return Work::Stop;
            }
            if self.work.wait_for(&mut state, REMEMBER_INTERVAL).timed_out() {
                return Work::Rest;
            }
        }
    }

    /// Whether a page of a taken batch has waited too long, and nobody waits for it.
    pub(crate) fn is_late(&self, job: &WriteJob, now: Moment) -> bool {
        let is_asked =
            |state: &State| state.asked.get(&(job.name.namespace, job.name.key)).is_some_and(|asked| !asked.is_empty());
        now.since(job.since) > self.time_max && !is_asked(&self.state.lock())
    }

    /// Says that a page of a taken batch is done with, and whether it is durable; gives its bytes back to the queue.
    pub(crate) fn done(&self, job: WriteJob, durable: bool, metrics: &Metrics) {
        let asked = {
            let mut state = self.state.lock();
            state.bytes = state.bytes.saturating_sub(job.bytes());
            let asked = state.asked.remove(&(job.name.namespace, job.name.key));
            state.show(metrics);
            asked
        };
        drop(job);
        for acknowledge in asked.into_iter().flatten() {
            // Whoever asked may have gone away; then nobody needs the answer.
            let _ = acknowledge.send(durable);
        }
        self.room.notify_waiters();
    }
}

impl State {
    fn batch(&mut self, pages_max: usize, bytes_max: u64) -> Vec<WriteJob> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(job) = self.waiting.front() {
            bytes += job.bytes();
            if batch.len() == pages_max || (!batch.is_empty() && bytes > bytes_max) {
                break;
            }
            batch.extend(self.waiting.pop_front());
        }
        batch
    }

    fn show(&self, metrics: &Metrics) {
        metrics.ssd_write_queue_pages.set(i64::try_from(self.asked.len()).unwrap_or(i64::MAX));
        metrics.ssd_write_queue_bytes.set(i64::try_from(self.bytes).unwrap_or(i64::MAX));
    }
}
