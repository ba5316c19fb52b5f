//! What must be found after a crash, and what must not.
//!
//! A key is *acknowledged* once a durable put of it has been answered, and stays so until a removal of its record is begun. A key is
//! *gone* once a clear of its space has been answered, until it is written again. A key is *weak* once its bytes on the SSD were found damaged,
//! until it is acknowledged again; a filling of a slot is *rotten* for good
//! once the medium has changed it. Of all other keys nothing is promised but the right
//! bytes, and that the directory and the SSD say the same.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cairn_core::{PageKey, Tier};
use cairn_directory::Change;
use cairn_engine::OpenMode;
use cairn_testkit::recorder::{History, Point, Recorder, World, pages_in};

use crate::house::{Cairn, House, PAGE_BYTES, Seen, slot_bytes};

/// What a script learnt; each is noted with the number of points before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Note {
    Acknowledged(PageKey),
    ClearBegun(usize),
    Cleared(usize),
    /// The page in this filling of its slot.
    Rotten(PageKey, u64),
}

/// What a change of the disks means for what must be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A page is written into a slot, as this generation.
    Filled(PageKey, u64),
    /// The directory names this filling.
    Recorded(PageKey, u64),
    /// The directory names the page no more.
    Forgotten(PageKey),
    /// The directory names no page of the space any more.
    SpaceForgotten(usize),
}

/// Something that happened: on the disks, or to a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Happened {
    Event(Event),
    Note(Note),
}

/// What is known when a life begins.
#[derive(Clone, Default, Debug)]
pub(crate) struct Start {
    pub(crate) must: HashSet<PageKey>,
    pub(crate) gone: HashSet<PageKey>,
    pub(crate) weak: HashSet<PageKey>,
    pub(crate) rotten: HashSet<(PageKey, u64)>,
    /// Keys with a rotten filling that were written again: a torn write of the same bytes into the same slot may have made it whole.
    pub(crate) mended: HashSet<PageKey>,
    /// No generation up to this may be handed out again.
    pub(crate) generation: u64,
}

/// What happened from one opening to the crash.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) history: History,
    pub(crate) notes: Vec<(usize, Note)>,
    pub(crate) start: Start,
}

struct Knowledge<'a> {
    house: &'a House,
    now: Start,
    /// In the directory, as far as commits have begun; which filling, if that was in this life.
    committed: HashMap<PageKey, u64>,
    ever_committed: HashSet<PageKey>,
}

impl Life {
    /// What is known when the first `points` points have begun, and the last of them has `returned` or not.
    pub(crate) fn known_at(&self, house: &House, points: usize, returned: bool) -> Result<Start, String> {
        let mut known = Knowledge::new(house, self.start.clone());
        let mut notes = self.notes.iter().peekable();
        for at in 0..=points {
            while let Some((_, note)) = notes.next_if(|(noted, _)| *noted <= at) {
                // Rot is nobody's call, so it is not in flight.
                if at < points || returned || matches!(note, Note::Rotten(..)) {
                    known.note(*note)?;
                }
            }
            if at < points {
                Event::of(house, &self.history.points[at]).into_iter().try_for_each(|event| known.event(event))?;
            }
        }
        Ok(known.now)
    }
}

impl Start {
    /// What is known after all of this has happened, and nothing else.
    pub(crate) fn after(self, house: &House, happened: &[Happened]) -> Result<Self, String> {
        let mut known = Knowledge::new(house, self);
        for happened in happened {
            match happened {
                Happened::Event(event) => known.event(*event)?,
                Happened::Note(note) => known.note(*note)?,
            }
        }
        Ok(known.now)
    }
}

impl Event {
    /// What the change means, one after the other.
    pub(crate) fn of(house: &House, point: &Point) -> Vec<Self> {
        match point {
            Point::Write(write) => {
                pages_in(write).into_iter().map(|(key, generation)| Self::Filled(key, generation)).collect()
            }
            Point::Commit(changes) => changes.iter().filter_map(|change| Self::of_change(house, change)).collect(),
            _ => Vec::new(),
        }
    }

    fn of_change(house: &House, change: &Change) -> Option<Self> {
        match change {
            Change::Put(record) => Some(Self::Recorded(record.key, record.generation.to_u64())),
            Change::Remove { key, .. } => Some(Self::Forgotten(*key)),
            Change::RemoveNamespace(id) => house.space_of(id).map(Self::SpaceForgotten),
        }
    }
}

impl<'a> Knowledge<'a> {
    fn new(house: &'a House, start: Start) -> Self {
        let committed = start.must.iter().map(|key| (*key, 0)).collect();
        let ever_committed = start.must.clone();
        Self { house, now: start, committed, ever_committed }
    }

    fn note(&mut self, note: Note) -> Result<(), String> {
        match note {
            Note::Acknowledged(key) if self.committed.contains_key(&key) => {
                if !self.now.rotten.contains(&(key, self.committed[&key])) {
                    self.now.weak.remove(&key);
                    self.now.must.insert(key);
                }
            }
            // Removed again before the answer was noted.
            Note::Acknowledged(key) if self.ever_committed.contains(&key) => {}
            Note::Acknowledged(key) => return Err(format!("I3: {key} was acknowledged and never committed")),
            Note::ClearBegun(space) => {
                // An answer that comes from now on may be about a page that goes right after it.
                self.house.keys_of(space).for_each(|key| self.forget(key));
            }
            Note::Cleared(space) => {
                self.now.gone.extend(self.house.keys_of(space));
            }
            Note::Rotten(key, generation) => {
                self.now.must.remove(&key);
                self.now.rotten.insert((key, generation));
            }
        }
        Ok(())
    }

    fn event(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Filled(key, generation) => {
                if generation <= self.now.generation {
                    return Err(format!("I8: generation {generation} after {}", self.now.generation));
                }
                self.now.generation = generation;
                self.now.gone.remove(&key);
                if self.now.rotten.iter().any(|(rotten, _)| *rotten == key) {
                    self.now.mended.insert(key);
                }
            }
            Event::Recorded(key, generation) => {
                self.committed.insert(key, generation);
                self.ever_committed.insert(key);
            }
            Event::Forgotten(key) => self.forget(&key),
            Event::SpaceForgotten(space) => {
                let house = self.house;
                house.keys_of(space).for_each(|key| self.forget(key));
            }
        }
        Ok(())
    }

    fn forget(&mut self, key: &PageKey) {
        self.committed.remove(key);
        self.now.must.remove(key);
    }
}

/// Opens an engine on `world`, reads every page there is, and compares with what is known. The engine, and what is known from now on.
pub(crate) async fn verify(house: &House, world: World, known: &Start) -> Result<(Cairn, Start), String> {
    let recorder = Recorder::new(world);
    verify_on(house, &recorder, known).await
}

/// The same, on a recorder that may have plans.
pub(crate) async fn verify_on(
    house: &House,
    recorder: &Arc<Recorder>,
    known: &Start,
) -> Result<(Cairn, Start), String> {
    let directory = recorder.directory_state();
    let cairn = house.open(recorder).map_err(|failed| format!("it does not open: {failed}"))?;
    let recovery = cairn.engine.stats().recovery;
    let from_directory = recovery.mode == OpenMode::Directory;
    if from_directory != directory.device.is_some() {
        return Err(format!("it was opened {} with device={:?}", recovery.mode.label(), directory.device));
    }
    if from_directory {
        if recovery.dropped > 0 || recovery.pages != directory.records.len() as u64 {
            return Err(format!("I3: {recovery:?} of {} records", directory.records.len()));
        }
        if let Some(key) = known.must.iter().find(|key| house.record(&directory, key).is_none()) {
            return Err(format!("I3: {key} was acknowledged and is not in the directory"));
        }
    }
    check_capacity(&cairn, 0)?;
    check_entries(house, &cairn)?;
    check_matches(house, &cairn)?;
    // A rebuild reads what may be torn, and counts what is.
    let torn = cairn.damaged();
    if from_directory && torn > 0 {
        return Err("I9: damage was counted and nothing was read".to_owned());
    }
    let (mut there, mut damaged) = (HashSet::new(), HashSet::new());
    let mut damaged_bytes = 0;
    for place in &house.places {
        let key = house.key(*place);
        let seen = house.read(&cairn, *place).await?;
        let record = house.record(&directory, &key);
        let rotten = record.is_some_and(|record| known.rotten.contains(&(key, record.generation.to_u64())));
        check_page(known, &key, seen, from_directory.then_some(record.is_some()), rotten)
            .map_err(|failed| format!("{failed}: page {} of chain {}", place.page, place.chain))?;
        match seen {
            Seen::There => drop(there.insert(key)),
            Seen::Damaged => {
                damaged.insert(key);
                damaged_bytes += slot_bytes(PAGE_BYTES[house.chains[place.chain].space]);
            }
            Seen::Absent | Seen::ReadFailed => {}
        }
    }
    if cairn.damaged() != torn + damaged.len() as u64 {
        return Err(format!("I9: counted {} damaged pages, saw {}", cairn.damaged(), damaged.len()));
    }
    check_capacity(&cairn, damaged_bytes)?;
    let gone = known.gone.iter().copied().filter(|key| !there.contains(key)).collect();
    let Start { rotten, mended, generation, .. } = known.clone();
    Ok((cairn, Start { must: there, gone, weak: damaged, rotten, mended, generation }))
}

/// One page against what is known. `recorded`: whether the directory names it, if there is one.
fn check_page(known: &Start, key: &PageKey, seen: Seen, recorded: Option<bool>, rotten: bool) -> Result<(), String> {
    let excused = rotten || known.weak.contains(key);
    match (seen, recorded) {
        (Seen::There, _) if known.gone.contains(key) => Err("a cleared page came back".to_owned()),
        (Seen::There, _) if rotten && !known.mended.contains(key) => Err("I9: damage was not noticed".to_owned()),
        (Seen::There, Some(false)) => Err("I4: a page without a record is found".to_owned()),
        (Seen::There, _) => Ok(()),
        _ if known.must.contains(key) => Err(format!("I3: an acknowledged page is {seen:?}")),
        (Seen::Damaged, Some(_)) if !excused => Err("I9: the directory named a page that was not whole".to_owned()),
        (Seen::Damaged, _) => Ok(()),
        (Seen::Absent, Some(true)) => Err("I3: a page with a record is not found".to_owned()),
        (Seen::Absent, _) => Ok(()),
        (Seen::ReadFailed, _) => Err("a read failed".to_owned()),
    }
}

/// I5 at quiet: what is used is what the pages need, and what was damaged is in quarantine.
pub(crate) fn check_capacity(cairn: &Cairn, damaged_bytes: u64) -> Result<(), String> {
    let (ssd_bytes, dram_bytes) = cairn.needed_bytes();
    // The slot of a retired page is given up a moment after the directory has forgotten the page.
    let is_right = || {
        let quarantined_bytes = u64::try_from(cairn.metrics.ssd_quarantined_bytes.get()).unwrap_or(0);
        cairn.engine.stats().ssd.used_bytes == ssd_bytes && quarantined_bytes >= damaged_bytes
    };
    let mut patience = 1_000_000;
    while !is_right() && patience > 0 {
        std::thread::yield_now();
        patience -= 1;
    }
    let stats = cairn.engine.stats();
    if !is_right() || stats.ssd.used_bytes > stats.ssd.capacity_bytes {
        let quarantined_bytes = cairn.metrics.ssd_quarantined_bytes.get();
        return Err(format!("I5: {:?} needed={ssd_bytes} {damaged_bytes} {quarantined_bytes}", stats.ssd));
    }
    if stats.dram.used_bytes != dram_bytes {
        return Err(format!("I5: {:?} needed={dram_bytes}", stats.dram));
    }
    Ok(())
}

/// I5 after an opening: an entry for each page on the SSD, and one for each missing page right before one.
fn check_entries(house: &House, cairn: &Cairn) -> Result<(), String> {
    let (stats, directory) = (cairn.engine.stats(), cairn.recorder.directory_state());
    let keys: HashSet<PageKey> = directory.records.values().map(|record| record.key).collect();
    let holes: HashSet<&PageKey> =
        keys.iter().filter_map(|key| house.parent(key)).filter(|parent| !keys.contains(*parent)).collect();
    let entries = (keys.len() + holes.len()) as u64;
    if stats.ssd.pages != keys.len() as u64 || stats.entries != entries {
        return Err(format!("I5: {} records, {} holes, {stats:?}", keys.len(), holes.len()));
    }
    Ok(())
}

/// A match names what is there, from the first page on, in the tier where it is.
fn check_matches(house: &House, cairn: &Cairn) -> Result<(), String> {
    let directory = cairn.recorder.directory_state();
    for chain in &house.chains {
        let matched = cairn.engine.match_prefix(&cairn.spaces[chain.space], &chain.keys, u64::MAX);
        let matched = matched.map_err(|failed| failed.chain())?;
        let there = chain.keys.iter().take_while(|key| house.record(&directory, key).is_some()).count();
        if matched.pages != there || matched.runs.iter().any(|(tier, _)| *tier != Tier::Ssd) {
            return Err(format!("a match finds {matched:?} where {there} pages are"));
        }
    }
    Ok(())
}
