//! The writer: the one thread that changes the SSD and the directory.
//!
//! For a batch of pages: [make room](crate::reclaim) (the directory forgets evicted pages, durably, before their slots are used again), write the
//! pages into free slots, several at once, pass one barrier, commit the batch to the directory, publish the locations, acknowledge. A crash
//! between any two steps leaves slots that no entry names, never an entry whose page is not whole; and no acknowledged page is ever
//! overwritten.
//!
//! A write or barrier that failed is never repeated: the tier takes no more writes until the next start, or until an operator [lifts the
//! quarantine](crate::quarantine); reads go on.

use cairn_core::metrics::{Damage, Skipped};
use cairn_core::{Checksum, Error, ErrorKind, Generation, NamespaceId, Result, SlotId};
use cairn_directory::{Change, NamespaceNo, Record};
use cairn_ssd::{DeviceError, Expected, PageFacts, SsdError, WriteBatch};
use tracing::warn;

use crate::endurance::{BLOCK_BYTES, COMMIT_BYTES};
use crate::engine::Shared;
use crate::quarantine::{release_writes, resume};
use crate::rebuild;
use crate::reclaim::make_room;
use crate::scrub;
use crate::sync::oneshot;
use crate::values::{Again, Coming, Left, PageName, Wants};
use crate::write_queue::{Work, WriteJob};

/// Most pages in one batch: one barrier and one directory commit are shared by so many. A rebuild counts on it: of a crashed process, the
/// last so many pages may be torn.
pub(crate) const BATCH_PAGES_MAX: usize = 64;
/// Most bytes in one batch, beyond its first page.
pub(crate) const BATCH_BYTES_MAX: u64 = 64 << 20;

/// A page that is being written; on the disk when its batch has passed the barrier.
struct Written {
    job: WriteJob,
    slot: SlotId,
    generation: Generation,
}

/// Works until the queue says stop.
pub(crate) fn run(shared: &Shared) {
    let _alarm = Alarm(shared);
    rebuild::run(shared);
    loop {
        match shared.queue.take(BATCH_PAGES_MAX, BATCH_BYTES_MAX) {
            Work::Write(jobs) => {
                resume(shared);
                write(shared, jobs);
            }
            Work::Retire(left, damage) => retire(shared, left, Some(damage)),
            // Not for a caller that has given up meanwhile.
            Work::Clear(_, _, answer) if answer.is_closed() => {}
            Work::Clear(no, id, answer) => {
                resume(shared);
                let _ = answer.send(clear(shared, no, id));
            }
            Work::SaveScrub => save_scrub(shared),
            Work::Release(answer) => {
                // Whoever asked may have gone away; then nobody needs the answer.
                let _ = answer.send(release_writes(shared));
            }
            Work::Rest => {
                resume(shared);
                remember(shared);
            }
            Work::Stop => return,
        }
    }
}

/// If the writer dies of a defect, nobody waits for it, and everybody can see it.
struct Alarm<'a>(&'a Shared);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.quarantine_writes(&Error::new(ErrorKind::Internal, "the writer thread panicked"));
            self.0.queue.stop(true);
        }
    }
}

fn write(shared: &Shared, mut jobs: Vec<WriteJob>) {
    let timer = shared.metrics.ssd_write_seconds.start_timer();
    // Of the whole batch, and held until nothing of it is under way.
    let mut charge = shared.endurance.nothing();
    jobs.iter_mut().for_each(|job| charge.add(&mut job.charge));
    if !shared.is_write_quarantined() {
        trim(shared);
        let covered = shared.endurance.cover(&*shared.directory, charge.bytes());
        if let Err(failed) = covered.and_then(|()| make_room(shared, &jobs)) {
            shared.quarantine_writes(&failed);
        }
    }
    let mut batch = shared.pages.batch();
    let mut written: Vec<Written> = Vec::with_capacity(jobs.len());
    let mut coming = Coming::new();
    for job in jobs {
        let wants = shared.catalogue.lock().wants_on_ssd(&job.name, &job.page, &coming);
        let put = match wants {
            Wants::Nothing => {
                shared.queue.done(job, true, &shared.metrics);
                continue;
            }
            Wants::Gone => Err(Skipped::Gone),
            Wants::Parent => Err(Skipped::ParentMissing),
            Wants::Write if shared.queue.is_late(&job, shared.clock.now()) => Err(Skipped::Late),
            Wants::Write => put_in_slot(shared, &mut batch, &job),
        };
        match put {
            Ok((slot, generation)) => {
                coming.insert((job.name.namespace, job.name.key));
                written.push(Written { job, slot, generation });
            }
            Err(reason) => skip(shared, job, reason),
        }
    }
    if written.is_empty() {
        timer.stop_and_discard();
        drop(batch);
        shared.endurance.settle_batch(&mut charge, 0);
        return;
    }
    let committed = commit(shared, batch, &written);
    shared.endurance.settle_batch(&mut charge, written.len());
    match committed {
        Ok(()) => publish(shared, written),
        Err(failed) => {
            let left =
                |Written { job, slot, .. }: &Written| Left { namespace: job.namespace, key: job.name.key, slot: *slot };
            shared.write_state.lose(written.iter().map(left));
            shared.quarantine_writes(&failed);
            for Written { job, .. } in written {
                skip(shared, job, Skipped::WriteFailed);
            }
        }
    }
}

fn put_in_slot(shared: &Shared, batch: &mut WriteBatch<'_>, job: &WriteJob) -> Result<(SlotId, Generation), Skipped> {
    if shared.is_write_quarantined() {
        return Err(if shared.write_state.is_full() { Skipped::NoSpace } else { Skipped::Quarantined });
    }
    let Ok(bytes) = job.page.verified() else {
        // Damage in memory never reaches the disk.
        shared.drop_damaged_in_dram(job.name.namespace, &job.name.key, &job.page);
        return Err(Skipped::WriteFailed);
    };
    let slot = match shared.tier.reserve(job.page.len_bytes()) {
        Ok(Some(slot)) => slot,
        // No region of this device can hold such a page.
        Ok(None) | Err(SsdError::PageBytes { .. }) => return Err(Skipped::NoSpace),
        // The next page may find some.
        Err(SsdError::Device(full @ DeviceError::Full { .. })) => {
            if let Some(kept_back) = shared.page_troubles.no_room.line(shared.clock.now()) {
                warn!(cause = %full, kept_back, "pages stay in memory only");
            }
            return Err(Skipped::NoSpace);
        }
        Err(failed) => {
            shared.quarantine_writes(&failed.into());
            return Err(Skipped::WriteFailed);
        }
    };
    let facts = PageFacts {
        namespace: job.namespace,
        key: job.name.key,
        parent: job.name.parent,
        position: job.name.position,
        checksum: job.page.checksum(),
    };
    match batch.write(slot, &facts, bytes) {
        Ok(generation) => Ok((slot, generation)),
        Err(failed) => {
            // What the slot holds now is unknown: nothing is written there.
            shared.write_state.lose([Left { namespace: job.namespace, key: job.name.key, slot }]);
            shared.quarantine_writes(&failed.into());
            Err(Skipped::WriteFailed)
        }
    }
}

fn commit(shared: &Shared, batch: WriteBatch<'_>, written: &[Written]) -> Result<()> {
    batch.finish()?;
    let changes: Vec<Change> = written
        .iter()
        .map(|Written { job, slot, generation }| {
            let (page_bytes, checksum) = (job.page.len_bytes(), job.page.checksum());
            record(job.namespace, &job.name, (*slot, *generation), page_bytes, checksum)
        })
        .collect();
    shared.directory.commit(&changes)?;
    Ok(())
}

/// What the directory is told of a page that is where it was.
pub(crate) fn record_as_it_is(Again { name, expected, pin, .. }: &Again) -> Change {
    let Expected { namespace, generation, payload_bytes, checksum, .. } = *expected;
    record(namespace, name, (pin.slot(), generation), payload_bytes, checksum)
}

/// What the directory is told of a page in its slot.
pub(crate) fn record(
    namespace: NamespaceId,
    name: &PageName,
    (slot, generation): (SlotId, Generation),
    payload_bytes: u64,
    checksum: Checksum,
) -> Change {
    let PageName { key, parent, position, .. } = *name;
    Change::Put(Record { namespace, key, parent, position, slot, generation, payload_bytes, checksum })
}

fn publish(shared: &Shared, written: Vec<Written>) {
    let published: Vec<bool> = {
        let mut catalogue = shared.catalogue.lock();
        written
            .iter()
            .map(|Written { job, slot, generation }| catalogue.publish_on_ssd(&job.name, &job.page, *slot, *generation))
            .collect()
    };
    for (Written { job, slot, .. }, published) in written.into_iter().zip(published) {
        if !published {
            // Dropped from DRAM as damaged while it was being written: nobody may find it.
            retire(shared, Left { namespace: job.namespace, key: job.name.key, slot }, None);
        } else {
            shared.metrics.ssd_page_bytes.inc_by(job.page.len_bytes());
        }
        shared.queue.done(job, published, &shared.metrics);
    }
}

/// Makes the directory forget a page, unless it names a later copy by now, and gives up its slot; for good if that was found damaged.
pub(crate) fn retire(shared: &Shared, left: Left, damage: Option<Damage>) {
    let written_again = shared
        .namespaces
        .number(&left.namespace)
        .is_some_and(|no| shared.catalogue.lock().entry_of(no, &left.key).is_some_and(|entry| entry.ssd.is_some()));
    if !written_again
        && let Err(failed) = shared.directory.commit(&[Change::Remove { namespace: left.namespace, key: left.key }])
    {
        // The directory may name the slot still: it stays taken.
        shared.write_state.lose([left]);
        shared.quarantine_writes(&failed.into());
        return;
    }
    match damage {
        Some(damage) => shared.tier.quarantine(left.slot, damage),
        None => shared.tier.free(left.slot),
    }
}

/// Tells the device of regions that were emptied. One that refuses is none the worse.
fn trim(shared: &Shared) {
    loop {
        match shared.tier.trim() {
            Ok(true) => {}
            Ok(false) => return,
            Err(failed) => {
                warn!(cause = Error::from(failed).chain(), "the SSD was not told that a region is empty");
                return;
            }
        }
    }
}

fn clear(shared: &Shared, no: NamespaceNo, id: NamespaceId) -> Result<u64> {
    let (left, pages) = shared.catalogue.lock().clear(no);
    // Pages that waited to be written are out of the catalogue too; who puts them again must not join their jobs.
    shared.queue.forget(no, &shared.metrics);
    if shared.is_write_quarantined() {
        return Err(Error::new(
            ErrorKind::Unavailable,
            "the pages are gone until the next start, not for good: the SSD takes no writes since one failed",
        ));
    }
    if let Err(failed) = forget_and_wipe(shared, id, &left) {
        shared.write_state.lose(left);
        shared.quarantine_writes(&failed);
        return Err(failed);
    }
    for left in left {
        shared.tier.free(left.slot);
    }
    trim(shared);
    Ok(pages)
}

/// Nothing is to be written: what was emptied is trimmed, and what the write budget has earned is remembered.
fn remember(shared: &Shared) {
    if shared.is_write_quarantined() {
        return;
    }
    trim(shared);
    if let Err(failed) = shared.endurance.cover(&*shared.directory, 0) {
        shared.quarantine_writes(&failed);
    }
}

fn save_scrub(shared: &Shared) {
    if let Err(failed) = scrub::save(shared) {
        shared.quarantine_writes(&failed);
    }
}

/// The directory first: it never names a page that has been wiped, which would look like damage after a crash. Then the headers: a rebuild
/// after the loss of the directory must not bring the pages back, nor older copies that nothing names.
fn forget_and_wipe(shared: &Shared, id: NamespaceId, left: &[Left]) -> Result<()> {
    charged(shared, left.len() as u64, COMMIT_BYTES, || {
        shared.directory.commit(&[Change::RemoveNamespace(id)])?;
        left.iter().try_for_each(|left| shared.tier.wipe(left.slot))?;
        Ok(())
    })?;
    let stale = shared.tier.stale_headers(&id, &|slot| shared.catalogue.lock().is_on_ssd(slot));
    // In any case with a barrier: a trim that a crash undoes would bring back what no scan of today sees.
    charged(shared, stale.count(), 0, || {
        shared.tier.wipe_stale(stale)?;
        Ok(shared.tier.barrier()?)
    })
}

/// Does what can not be refused: wipes so many headers, and hands so much to the directory. It is on the account before and after, whatever
/// comes of it.
pub(crate) fn charged(
    shared: &Shared,
    wipes: u64,
    directory_bytes: u64,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut charge = shared.endurance.demand(wipes * BLOCK_BYTES + directory_bytes);
    shared.endurance.cover(&*shared.directory, charge.bytes())?;
    let outcome = work();
    shared.endurance.settle(&mut charge, directory_bytes);
    outcome
}

fn skip(shared: &Shared, job: WriteJob, reason: Skipped) {
    shared.metrics.ssd_skipped.of(reason).inc();
    shared.queue.done(job, false, &shared.metrics);
}

/// Asks the writer to clear a namespace.
pub(crate) async fn ask_to_clear(shared: &Shared, no: NamespaceNo, id: NamespaceId) -> Result<u64> {
    let (answer, answered) = oneshot::channel();
    shared.queue.push(Work::Clear(no, id, answer));
    answered.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "the server is stopping")))
}
