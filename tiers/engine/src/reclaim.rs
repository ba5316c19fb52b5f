//! Reclaim: room on the SSD for new pages, a region at a time.
//!
//! A region is filled once. When those that are left do not hold a batch, one is [chosen](crate::emptying) and emptied: the directory forgets the
//! pages that leave, then their slots are free; pages that are still in use are written into another region, pass a barrier, and only when
//! the directory names the new place is the old one free. A crash in between leaves each page where it was, or gone, or in its new place.
//!
//! Some slots are kept free for the pages that are written again ([`headroom`]); they are charged to the write budget like any other, and when
//! it is spent they leave instead. For the writer thread alone.

use std::collections::BTreeMap;

use cairn_core::{Generation, Result, SlotId};
use cairn_directory::Change;
use cairn_ssd::{DeviceError, Expected, PageFacts, PageMemory, SsdError, WriteBatch};

use crate::engine::Shared;
use crate::values::{Again, Left, Reclaimed, Shape};
use crate::write_queue::WriteJob;
use crate::writer::{BATCH_BYTES_MAX, BATCH_PAGES_MAX, record, retire};

/// Of the slots of a region, this part may be written again when it is emptied.
const AGAIN_SHARE: u64 = 4;
/// A device with fewer regions keeps none of its slots free for that.
const REGIONS_FOR_HEADROOM: u32 = 4;

/// Empties regions until the batch finds room, if enough can be emptied.
pub(crate) fn make_room(shared: &Shared, jobs: &[WriteJob]) -> Result<()> {
    // In order of size, so that what leaves for a batch does not depend on chance.
    let mut needed: BTreeMap<u64, (u64, Shape)> = BTreeMap::new();
    for job in jobs {
        if let Some(shape) = shared.catalogue.lock().shape(job.name.namespace).copied() {
            needed.entry(shape.frame_bytes()).or_insert((0, shape)).0 += 1;
        }
    }
    let parents: Vec<_> =
        jobs.iter().filter_map(|job| job.name.parent.map(|parent| (job.name.namespace, parent))).collect();
    for (slots, shape) in needed.into_values() {
        let wanted = slots + headroom(shared, shape.page_bytes);
        // A reader may keep a region from being empty at once; that is no reason to empty all others.
        let rounds_max = 2 + wanted / shared.tier.slots_in_region(shape.page_bytes).max(1);
        for _ in 0..rounds_max {
            if shared.tier.available(shape.page_bytes, wanted) >= wanted || !reclaim(shared, &parents)? {
                break;
            }
        }
    }
    Ok(())
}

/// Slots for pages of this size that are kept free.
fn headroom(shared: &Shared, page_bytes: u64) -> u64 {
    let keeps = shared.tier.regions() >= REGIONS_FOR_HEADROOM;
    if keeps { (shared.tier.slots_in_region(page_bytes) / AGAIN_SHARE).max(1) } else { 0 }
}

/// Empties one region; false if none can be.
fn reclaim(shared: &Shared, spared: &[(cairn_directory::NamespaceNo, cairn_core::PageKey)]) -> Result<bool> {
    let again_max = |region: u32| {
        let slots = u64::from(shared.tier.slots_of(region));
        let page_bytes = shared.tier.page_bytes_in(region);
        let share = (slots / AGAIN_SHARE).max(1);
        let room = shared.tier.available(page_bytes, share);
        usize::try_from(shared.endurance.affordable_pages(page_bytes, room)).unwrap_or(0)
    };
    let Some(reclaimed) = shared.catalogue.lock().reclaim(&shared.tier, spared, &again_max) else { return Ok(false) };
    let Reclaimed { left, stale, again } = reclaimed;
    // No record names these.
    stale.into_iter().for_each(|slot| shared.tier.free(slot));
    forget(shared, &left)?;
    for some in batches(again) {
        write_again(shared, some)?;
    }
    shared.metrics.ssd_reclaimed_regions.inc();
    Ok(true)
}

/// Makes the directory forget pages that have left, then frees their slots.
fn forget(shared: &Shared, left: &[Left]) -> Result<()> {
    if left.is_empty() {
        return Ok(());
    }
    let forget: Vec<Change> =
        left.iter().map(|left| Change::Remove { namespace: left.namespace, key: left.key }).collect();
    shared.directory.commit(&forget).inspect_err(|_| shared.write_state.lose(left.iter().copied()))?;
    shared.metrics.ssd_evicted.inc_by(left.len() as u64);
    left.iter().for_each(|left| shared.tier.free(left.slot));
    Ok(())
}

/// As many at once as in any other batch.
fn batches(again: Vec<Again>) -> Vec<Vec<Again>> {
    let mut batches: Vec<Vec<Again>> = Vec::new();
    let mut bytes = 0;
    for page in again {
        bytes += page.expected.payload_bytes;
        match batches.last_mut().filter(|last| last.len() < BATCH_PAGES_MAX && bytes <= BATCH_BYTES_MAX) {
            Some(last) => last.push(page),
            None => {
                bytes = page.expected.payload_bytes;
                batches.push(vec![page]);
            }
        }
    }
    batches
}

/// Writes pages into other slots, and frees those that they had. What can not be written stays where it is.
fn write_again(shared: &Shared, pages: Vec<Again>) -> Result<()> {
    let Some(mut charge) = shared.endurance.afford(pages.iter().map(|page| page.expected.payload_bytes)) else {
        return Ok(());
    };
    shared.endurance.cover(&*shared.directory, charge.bytes())?;
    let mut batch = shared.pages.batch();
    let mut written: Vec<(Again, SlotId, Generation)> = Vec::with_capacity(pages.len());
    let mut failed = None;
    for page in pages {
        match copy(shared, &mut batch, &page) {
            Ok(Some((slot, generation))) => written.push((page, slot, generation)),
            // What hangs below it stays with it.
            Ok(None) => break,
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    let committed = match failed {
        None if written.is_empty() => {
            drop(batch);
            Ok(())
        }
        None => commit(shared, batch, &written),
        Some(failed) => {
            drop(batch);
            Err(failed.into())
        }
    };
    shared.endurance.settle_batch(&mut charge, written.len());
    if committed.is_err() {
        shared.write_state.lose(written.iter().map(|(page, slot, _)| left_in(*slot, &page.expected)));
    }
    committed?;
    publish(shared, written);
    Ok(())
}

/// Begins to write a page into another slot. `None` if it can not be read, or there is no slot.
fn copy(
    shared: &Shared,
    batch: &mut WriteBatch<'_>,
    page: &Again,
) -> std::result::Result<Option<(SlotId, Generation)>, SsdError> {
    let Again { name, expected, pin, dram } = page;
    let facts = PageFacts {
        namespace: expected.namespace,
        key: name.key,
        parent: name.parent,
        position: name.position,
        checksum: expected.checksum,
    };
    let in_memory = dram.as_ref().and_then(|page| page.verified().ok());
    let read = match in_memory {
        Some(_) => None,
        None => {
            let mut memory = PageMemory::new(expected.payload_bytes);
            if let Err(fault) = shared.tier.read(pin, expected, memory.as_mut()) {
                shared.drop_lost_on_ssd(name.namespace, &name.key, expected.generation, &fault);
                return Ok(None);
            }
            Some(memory)
        }
    };
    let slot = match shared.tier.reserve(expected.payload_bytes) {
        Ok(Some(slot)) => slot,
        Ok(None) | Err(SsdError::Device(DeviceError::Full { .. })) => return Ok(None),
        Err(failed) => return Err(failed),
    };
    let begun = match (in_memory, read) {
        (Some(page), _) => batch.write(slot, &facts, page),
        (None, Some(memory)) => batch.write(slot, &facts, memory),
        (None, None) => return Ok(None),
    };
    let generation = begun.inspect_err(|_| shared.write_state.lose([left_in(slot, expected)]))?;
    Ok(Some((slot, generation)))
}

fn left_in(slot: SlotId, Expected { namespace, key, .. }: &Expected) -> Left {
    Left { namespace: *namespace, key: *key, slot }
}

fn commit(shared: &Shared, batch: WriteBatch<'_>, written: &[(Again, SlotId, Generation)]) -> Result<()> {
    batch.finish()?;
    let changes: Vec<Change> = written
        .iter()
        .map(|(Again { name, expected, .. }, slot, generation)| {
            let Expected { namespace, checksum, payload_bytes, .. } = *expected;
            record(namespace, name, (*slot, *generation), payload_bytes, checksum)
        })
        .collect();
    Ok(shared.directory.commit(&changes)?)
}

fn publish(shared: &Shared, written: Vec<(Again, SlotId, Generation)>) {
    for (page, slot, generation) in written {
        let moved = shared.catalogue.lock().move_on_ssd(&page, slot, generation);
        match moved {
            Some(before) => {
                shared.metrics.ssd_reinserted_bytes.inc_by(page.expected.payload_bytes);
                shared.tier.free(before);
            }
            // Dropped as damaged meanwhile: nobody may find it.
            None => retire(shared, left_in(slot, &page.expected), None),
        }
    }
}
