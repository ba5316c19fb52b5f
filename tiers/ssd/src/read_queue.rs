//! The read threads: a bounded queue of reads, each of which owns its buffer until it is done.
//!
//! A caller that goes away leaves its buffer with the read, so memory that the disk is filling is never handed out again; a read that has not
//! begun by then is not begun. Depth and threads bound the buffers held here.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use cairn_core::Moment;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::error::{ReadFault, SsdError};
use crate::slots::ReadPin;
use crate::tier::{Expected, SsdTier};

/// One page to read.
#[derive(Debug)]
pub struct ReadJob<B> {
    /// The slot, held until the read is done.
    pub pin: ReadPin,
    /// What must be in it.
    pub expected: Expected,
    /// The buffer to fill: exactly the page's length.
    pub into: B,
}

/// Where the answer of a read arrives: the buffer with verified bytes, or why not (the buffer has then been dropped). Closed without an answer
/// if the queue is dropped first. Dropping it withdraws the read.
pub type ReadReply<B> = oneshot::Receiver<Result<B, ReadFault>>;

/// What became of a job that was submitted.
#[derive(Debug)]
pub enum Submitted<B> {
    /// It will be read.
    Queued(ReadReply<B>),
    /// The queue is full; here it is back.
    Full(ReadJob<B>),
}

/// A bounded queue and the threads that work it off, oldest first.
pub struct ReadQueue<B> {
    shared: Arc<Shared<B>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<B> {
    tier: Arc<SsdTier>,
    depth: usize,
    waiting: Mutex<Waiting<B>>,
    changed: Condvar,
}

struct Waiting<B> {
    jobs: VecDeque<Queued<B>>,
    closed: bool,
}

struct Queued<B> {
    job: ReadJob<B>,
    since: Moment,
    reply: oneshot::Sender<Result<B, ReadFault>>,
}

impl<B: AsMut<[u8]> + Send + 'static> ReadQueue<B> {
    /// Starts `threads` threads (at least one) that read from `tier`, with at most `depth` jobs waiting for them.
    ///
    /// # Errors
    /// [`SsdError::Threads`] if the system has no more threads.
    pub fn start(tier: Arc<SsdTier>, threads: usize, depth: usize) -> Result<Self, SsdError> {
        let waiting = Mutex::new(Waiting { jobs: VecDeque::with_capacity(depth), closed: false });
        let shared = Arc::new(Shared { tier, depth, waiting, changed: Condvar::new() });
        // Dropped on an early return, which ends the threads started so far.
        let mut queue = Self { shared, threads: Vec::with_capacity(threads) };
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&queue.shared);
            let thread = Builder::new().name(format!("ssd-read-{number}"));
            queue.threads.push(thread.spawn(move || shared.work()).map_err(SsdError::Threads)?);
        }
        Ok(queue)
    }

    /// Queues a read. Does not block.
    pub fn submit(&self, job: ReadJob<B>) -> Submitted<B> {
        let since = self.shared.tier.disk.clock.now();
        let mut waiting = self.shared.waiting.lock();
        if waiting.jobs.len() >= self.shared.depth {
            return Submitted::Full(job);
        }
        let (reply, answer) = oneshot::channel();
        waiting.jobs.push_back(Queued { job, since, reply });
        self.shared.note(&waiting);
        drop(waiting);
        self.shared.changed.notify_one();
        Submitted::Queued(answer)
    }
}

impl<B: AsMut<[u8]>> Shared<B> {
    fn work(&self) {
        while let Some(queued) = self.next() {
            // The caller is gone: its buffer and its hold on the slot end here.
            if queued.reply.is_closed() {
                continue;
            }
            let Queued { job: ReadJob { pin, expected, mut into }, since, reply } = queued;
            let outcome = self.tier.read(&pin, &expected, into.as_mut());
            drop(pin);
            let took = self.tier.disk.clock.now().since(since);
            self.tier.disk.metrics.ssd_read_seconds.observe(took.as_secs_f64());
            // If the caller went away meanwhile, the buffer is dropped, now that nobody fills it.
            drop(reply.send(outcome.map(|()| into)));
        }
    }

    /// The oldest job; waits for one. `None` once the queue is closed.
    fn next(&self) -> Option<Queued<B>> {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.closed {
                return None;
            }
            if let Some(job) = waiting.jobs.pop_front() {
                self.note(&waiting);
                return Some(job);
            }
            self.changed.wait(&mut waiting);
        }
    }
}

impl<B> Shared<B> {
    fn note(&self, waiting: &Waiting<B>) {
        let reads = i64::try_from(waiting.jobs.len()).unwrap_or(i64::MAX);
        self.tier.disk.metrics.ssd_read_queue.set(reads);
    }
}

impl<B> Drop for ReadQueue<B> {
    /// Withdraws what waits, and blocks until the reads under way are done.
    fn drop(&mut self) {
        let mut waiting = self.shared.waiting.lock();
        waiting.closed = true;
        let withdrawn = std::mem::take(&mut waiting.jobs);
        self.shared.note(&waiting);
        drop(waiting);
        drop(withdrawn);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to wait for.
            thread.join().ok();
        }
    }
}

impl<B> fmt::Debug for ReadQueue<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadQueue").field("depth", &self.shared.depth).field("threads", &self.threads.len()).finish()
    }
}
