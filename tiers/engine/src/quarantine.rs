//! What is out of use after an error, and how an operator puts it in use again.
//!
//! *Writes*: after a write, a barrier or a directory commit failed, the SSD takes no more of them. Nothing of the failed batch was
//! acknowledged or published, and its slots stay taken; so to lift it only lets new writes go to fresh slots. Before that the directory is opened
//! anew, if it was that which failed; the SSD must take two small writes; and of every page whose slot was lost to a failure the directory is
//! told what the catalogue says, whatever the failed commit has done. Then these slots are dead, as others that were freed. For the writer thread,
//! which has nothing under way.
//!
//! If it was the directory that failed, and for want of space, nothing is wrong with the disk: the writer [tries](resume) to lift it by itself,
//! once a second while there is something to write.
//!
//! *Slots*: the bytes of a page that was found damaged. Nothing is written there until they are released, or the server starts again.

use std::time::Duration;

use cairn_core::{Error, ErrorKind, Moment, Result};
use cairn_directory::Change;
use cairn_ssd::QuarantinedSlot;
use tracing::{debug, error, info, warn};

use crate::endurance::COMMIT_BYTES;
use crate::engine::{Engine, Shared};
use crate::recovery::OpenMode;
use crate::sync::{AtomicBool, Mutex, Ordering, oneshot};
use crate::values::Left;
use crate::write_queue::Work;
use crate::writer::{self, BATCH_PAGES_MAX};

/// Rest between two looks at whether a full filesystem has room again.
const RESUME_INTERVAL: Duration = Duration::from_secs(1);
/// Blocks that lifting the quarantine writes: both superblocks.
const RELEASE_BLOCKS: u64 = 2;

/// Why the SSD takes no writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteFault {
    /// What failed, with every cause.
    pub cause: String,
    /// When.
    pub at: Moment,
}

/// What is out of use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quarantine {
    /// Why the SSD takes no writes; `None` if it does.
    pub writes: Option<WriteFault>,
    /// Bytes in which nothing is written, because a page there was found damaged.
    pub slots: Vec<QuarantinedSlot>,
}

/// Whether a write, a barrier or a directory commit failed.
#[derive(Debug, Default)]
pub(crate) struct WriteState {
    failed: AtomicBool,
    /// The same, lifted or not.
    was_failed: AtomicBool,
    first: Mutex<Option<WriteFault>>,
    /// It failed for want of space, and was looked at then last.
    full: Mutex<Option<Moment>>,
    /// Slots that nobody is to find a page in, and that the directory may name: their write, barrier, commit or removal failed.
    lost: Mutex<Vec<Left>>,
}

impl WriteState {
    /// Keeps slots that nobody is to find a page in, and that the directory may name.
    pub(crate) fn lose(&self, lost: impl IntoIterator<Item = Left>) {
        self.lost.lock().extend(lost);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Whether one failed since the start, lifted or not.
    pub(crate) fn was_failed(&self) -> bool {
        self.was_failed.load(Ordering::Acquire)
    }

    /// Whether writing pauses until the filesystem has room again.
    pub(crate) fn is_full(&self) -> bool {
        self.full.lock().is_some()
    }

    /// Whether it is time to look again.
    fn is_due(&self, now: Moment) -> bool {
        let mut full = self.full.lock();
        let due = full.is_some_and(|looked| now.since(looked) >= RESUME_INTERVAL);
        if due {
            *full = Some(now);
        }
        due
    }

    fn fail(&self, cause: String, at: Moment) {
        self.first.lock().get_or_insert(WriteFault { cause, at });
        self.was_failed.store(true, Ordering::Release);
        self.failed.store(true, Ordering::Release);
    }

    fn release(&self) {
        self.failed.store(false, Ordering::Release);
        self.first.lock().take();
        self.full.lock().take();
    }
}

impl Shared {
    /// Whether the directory is being made again: what has not been found yet is a miss.
    pub(crate) fn is_rebuilding(&self) -> bool {
        self.metrics.rebuilding.get() > 0
    }

    /// Whether the SSD takes no more writes.
    pub(crate) fn is_write_quarantined(&self) -> bool {
        self.tier.is_write_quarantined() || self.write_state.has_failed()
    }

    /// A write, a barrier or a commit failed: it is not repeated, and nothing more is written.
    pub(crate) fn quarantine_writes(&self, failed: &Error) {
        if failed.kind() == ErrorKind::NoSpace && !self.is_write_quarantined() {
            warn!(cause = failed.chain(), "nothing is written to the SSD until the filesystem has room again");
            *self.write_state.full.lock() = Some(self.clock.now());
            self.write_state.fail(failed.chain(), self.clock.now());
            self.metrics.ssd_write_quarantined.set(1);
            return;
        }
        error!(
            cause = failed.chain(),
            "the SSD takes no more writes until the next start, or `kvctl quarantine release --writes`"
        );
        self.write_state.fail(failed.chain(), self.clock.now());
        self.metrics.ssd_write_quarantined.set(1);
    }
}

impl Engine {
    /// What is out of use. Does not block.
    pub fn quarantine(&self) -> Quarantine {
        let shared = &self.shared;
        let first = shared.write_state.first.lock().clone();
        // The tier knows of a failed write a moment before the writer says what it was.
        let unsaid = || WriteFault { cause: "a write failed a moment ago".to_owned(), at: shared.clock.now() };
        let writes = shared.is_write_quarantined().then(|| first.unwrap_or_else(unsaid));
        Quarantine { writes, slots: shared.tier.quarantined() }
    }

    /// Puts all slots in quarantine back in use, each with the next filling of its region; how many. Does not block.
    pub fn release_slots(&self) -> u64 {
        let released = self.shared.tier.release();
        if released > 0 {
            info!(slots = released, "slots of damaged pages are in use again");
        }
        released
    }

    /// Takes writes again after one failed. Does nothing if none did.
    ///
    /// # Errors
    /// `Unavailable` if the SSD or the directory still fail, or the writer has ended: nothing is written then, as before.
    pub async fn release_writes(&self) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        self.shared.queue.push(Work::Release(answer));
        let ended = || Error::new(ErrorKind::Unavailable, "the writer has ended: start the server again");
        answered.await.unwrap_or_else(|_| Err(ended()))
    }
}

/// Writes again, if that paused for want of space, and there is some. For the writer thread, between two works.
pub(crate) fn resume(shared: &Shared) {
    if shared.tier.is_write_quarantined() || !shared.write_state.is_due(shared.clock.now()) {
        return;
    }
    if shared.recovery.lock().mode == OpenMode::Rebuilding {
        return;
    }
    match shared.directory.release().map_err(Error::from).and_then(|()| free_lost(shared)) {
        Ok(()) => {
            shared.write_state.release();
            shared.metrics.ssd_write_quarantined.set(0);
            info!("the filesystem has room again: the SSD takes writes");
        }
        Err(failed) => debug!(cause = failed.chain(), "the filesystem has no room yet"),
    }
}

/// For the writer thread, between two works.
pub(crate) fn release_writes(shared: &Shared) -> Result<()> {
    if !shared.is_write_quarantined() {
        return Ok(());
    }
    let released = try_release(shared);
    match &released {
        Ok(()) => warn!("the SSD takes writes again: an operator has lifted the quarantine"),
        Err(failed) => shared.quarantine_writes(failed),
    }
    released
}

fn try_release(shared: &Shared) -> Result<()> {
    let refused = |what: &str, cause: Error| Error::new(ErrorKind::Unavailable, what).caused_by(cause);
    if shared.recovery.lock().mode == OpenMode::Rebuilding {
        // Which slots are free is not known: a write could go to a page's place.
        return Err(Error::new(
            ErrorKind::Unavailable,
            "the rebuild of the directory failed; look at the disk, then restart",
        ));
    }
    let directory = shared.directory.release().map_err(Error::from);
    directory.map_err(|e| refused("the directory can not be opened again; look at the disk, then restart", e))?;
    let device = || Ok(shared.tier.release_writes()?);
    let written = writer::charged(shared, RELEASE_BLOCKS, 0, device).and_then(|()| free_lost(shared));
    written.map_err(|e| refused("the disk still refuses writes; look at it, then try again or restart", e))?;
    shared.write_state.release();
    Ok(())
}

/// Makes the directory say what the catalogue says of the pages whose slots were lost, then frees these.
fn free_lost(shared: &Shared) -> Result<()> {
    let lost = shared.write_state.lost.lock().clone();
    for some in lost.chunks(BATCH_PAGES_MAX) {
        let changes: Vec<Change> = some.iter().map(|left| as_it_is(shared, left)).collect();
        writer::charged(shared, 0, some.len() as u64 * COMMIT_BYTES, || Ok(shared.directory.commit(&changes)?))?;
        some.iter().for_each(|left| shared.tier.free(left.slot));
        shared.write_state.lost.lock().drain(..some.len());
    }
    Ok(())
}

/// What the directory must say of a page.
fn as_it_is(shared: &Shared, Left { namespace, key, .. }: &Left) -> Change {
    let found =
        shared.namespaces.number(namespace).and_then(|no| shared.catalogue.lock().again_of(no, key, &shared.tier));
    match found {
        Some(again) => writer::record_as_it_is(&again),
        None => Change::Remove { namespace: *namespace, key: *key },
    }
}
