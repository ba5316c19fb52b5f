//! Faults of what lies on the disks while nobody looks: F06, F08, F09, F21, F22.
//!
//! The oracle is a comparison: a page must be served if the used bytes of its slot are what they were, and must be a counted miss if
//! not. Whatever happened to the bytes, no other answer is right.

use std::collections::HashSet;
use std::ops::Range;

use cairn_core::{Durability, HEADER_BYTES, PageKey, StopReason};
use cairn_directory::Record;
use cairn_engine::{GetOptions, OpenMode};
use cairn_testkit::dice::Dice;
use cairn_testkit::payload;
use cairn_testkit::recorder::{DirectoryState, Power, Recorder, World};
use cairn_testkit::trials::{Rig, Total, dice_of, number, record, seed};

use crate::house::{House, Seen, slot_at};
use crate::oracle::{Start, check_capacity, verify};
use crate::script::{Op, Script, roll};

/// Bytes of a header that say anything.
const HEADER_USED_BYTES: usize = 192;
/// Trials that share one world.
const TRIALS_OF_A_WORLD: u64 = 64;
/// Pages damaged in one trial, at most.
const PAGES: usize = 8;

const fn rig(name: &'static str, target: &'static str, trials: u64, nightly: u64) -> Rig {
    Rig { name, target, trials, nightly, each: 1 }
}

/// A world in which pages lie, and how it was some time before.
struct Settled {
    number: u64,
    now: World,
    before: World,
}

struct Worker {
    house: House,
    settled: Option<Settled>,
}

impl Worker {
    fn new() -> Self {
        Self { house: House::new(), settled: None }
    }

    /// The world of a trial.
    fn settle(&mut self, trial: u64) -> Result<(&House, &Settled), String> {
        let number = trial / TRIALS_OF_A_WORLD;
        if self.settled.as_ref().is_none_or(|settled| settled.number != number) {
            let (before, now) = settle(&self.house, &mut dice_of(!seed(), number))?;
            self.settled = Some(Settled { number, now, before });
        }
        Ok((&self.house, self.settled.as_ref().ok_or("no world")?))
    }
}

/// A life that leaves the SSD well filled; how the disks were in the middle and at the end of it.
pub(crate) fn settle(house: &House, dice: &mut Dice) -> Result<(World, World), String> {
    let life = house.runtime.block_on(async {
        let (cairn, start) = verify(house, House::blank(), &Start::default()).await?;
        let mut script = Script::new(house, cairn, start);
        for _ in 0..14 {
            let chain = dice.place(house.chains.len());
            let pages = house.chains[chain].keys.len();
            script.step(Op::Put { chain, pages, durability: Durability::Ssd }).await?;
        }
        script.run(&roll(house, dice, 3)).await?;
        let chain = dice.place(house.chains.len());
        script.step(Op::Put { chain, pages: 1, durability: Durability::Ssd }).await?;
        Ok::<_, String>(script.end())
    })?;
    let mut cursor = life.history.cursor();
    let points = life.history.points.len();
    let [before, now] = [points / 2, points].map(|at| {
        let mut world = cursor.crash(at, true, true);
        world.cut_power(Power::Kept, dice);
        world
    });
    Ok((before, now))
}

pub(crate) fn records(directory: &DirectoryState) -> Vec<Record> {
    directory.records.values().copied().collect()
}

/// Where the used bytes of a page lie: its header, and its payload.
pub(crate) fn used(record: &Record) -> [Range<usize>; 2] {
    let at = slot_at(record.slot, record.payload_bytes);
    let payload = at + HEADER_BYTES;
    [at..at + HEADER_USED_BYTES, payload..payload + record.payload_bytes as usize]
}

/// Whether the page that `record` names lies on the device, with the right bytes.
pub(crate) fn is_whole(record: &Record, world: &World) -> bool {
    let [header, body] = used(record);
    let Some(header) = world.durable.get(header) else { return false };
    let generation = record.generation.to_u64().to_le_bytes();
    world.durable.get(body).is_some_and(|body| payload::is_right(record.key.as_bytes(), 0, body))
        && header[64..96] == *record.key.as_bytes()
        && header[136..144] == generation
}

/// Opens an engine on a damaged world and reads every page. `pristine` is the world as it was written. The number of damaged pages.
async fn check(house: &House, pristine: &World, world: World, put_again: bool) -> Result<u64, String> {
    let whole: HashSet<PageKey> = (records(&world.directory).iter())
        .filter(|record| {
            used(record).into_iter().all(|range| world.durable.get(range.clone()) == pristine.durable.get(range))
                && is_whole(record, pristine)
        })
        .map(|record| record.key)
        .collect();
    let rebuilt = world.directory.device.is_none();
    let recorder = Recorder::new(world);
    let directory = recorder.directory_state();
    let cairn = house.open(&recorder)?;
    if (cairn.engine.stats().recovery.mode == OpenMode::Rebuilt) != rebuilt {
        return Err(format!("{:?}", cairn.engine.stats().recovery));
    }
    let torn = cairn.damaged();
    let mut damaged = HashSet::new();
    for place in &house.places {
        let key = house.key(*place);
        let seen = house.read(&cairn, *place).await?;
        let right = match house.record(&directory, &key) {
            _ if rebuilt => seen != Seen::ReadFailed,
            None => seen == Seen::Absent,
            Some(_) if whole.contains(&key) => seen == Seen::There,
            Some(_) => seen == Seen::Damaged,
        };
        if !right {
            let whole = whole.contains(&key);
            return Err(format!("I1, I9: page {} of chain {} whole={whole} is {seen:?}", place.page, place.chain));
        }
        if seen == Seen::Damaged {
            damaged.insert(key);
        }
    }
    if cairn.damaged() != torn + damaged.len() as u64 {
        return Err(format!("I9: counted {} of {} damaged pages", cairn.damaged() - torn, damaged.len()));
    }
    check_capacity(&cairn, house.slots_bytes(&damaged))?;
    if put_again {
        let mut script = Script::new(house, cairn, Start::default());
        for chain in 0..house.chains.len() {
            if house.chains[chain].keys.iter().any(|key| damaged.contains(key)) {
                let pages = house.chains[chain].keys.len();
                script.step(Op::Put { chain, pages, durability: Durability::Ssd }).await?;
                script.step(Op::Get { chain }).await?;
            }
        }
    }
    Ok(damaged.len() as u64)
}

/// One to `PAGES` of the pages on the SSD.
fn some_of(world: &World, dice: &mut Dice) -> Vec<Record> {
    let all = records(&world.directory);
    let count = 1 + dice.place(PAGES);
    (0..count).filter_map(|_| all.get(dice.place(all.len())).copied()).collect()
}

#[test]
fn f06_f07_bit_rot_is_a_miss_is_counted_and_costs_only_its_page() {
    let rig = rig("F06 bit rot", "-p cairn-engine --test crash -- --nocapture f06_f07", 6_000, 300_000);
    let totals = Total::default();
    rig.run(Worker::new, |worker, trial, dice| {
        let (house, settled) = worker.settle(trial)?;
        let mut world = settled.now.clone();
        for page in some_of(&world, dice) {
            let [header, body] = used(&page);
            for _ in 0..=dice.place(64) {
                let range = if dice.place(8) == 0 { &header } else { &body };
                world.durable[range.start + dice.place(range.len())] ^= 1 << dice.place(8);
                totals.add("bits", 1);
            }
        }
        if trial % 16 == 0 {
            world.directory = DirectoryState::default();
        }
        let damaged = house.runtime.block_on(check(house, &settled.now, world, trial % 8 == 1))?;
        totals.add("pages", damaged);
        Ok(())
    });
    if number("CAIRN_TRIAL").is_none() {
        record("F06 pages rotten and detected", totals.of("pages"), 0, 0.0);
        record("F06 bits flipped", totals.of("bits"), 0, 0.0);
    }
}

#[test]
fn f08_misdirected_swapped_and_stale_pages_are_recognised() {
    let rig = rig("F08 misdirected write", "-p cairn-engine --test crash -- --nocapture f08", 1_000, 50_000);
    rig.run(Worker::new, |worker, trial, dice| {
        let (house, settled) = worker.settle(trial)?;
        let mut world = settled.now.clone();
        let all = records(&world.directory);
        for to in some_of(&settled.now, dice) {
            let [header, body] = used(&to);
            let there = header.start..body.end;
            let last = world.durable.len() - there.len();
            let other = all[dice.place(all.len())];
            let from = used(&other)[0].start;
            match dice.place(4) {
                // A write that went to another slot, or to a place of no slot at all.
                0 => world.durable.copy_within(there.clone(), from.min(last)),
                1 => {
                    let off = there.start + 512 * dice.place(8);
                    world.durable.copy_within(there.clone(), off.min(last));
                }
                2 if other.payload_bytes == to.payload_bytes && other.slot != to.slot => {
                    let (low, high) = (there.start.min(from), there.start.max(from));
                    let (left, right) = world.durable.split_at_mut(high);
                    left[low..low + there.len()].swap_with_slice(&mut right[..there.len()]);
                }
                // What was there before comes back.
                _ => world.durable[there.clone()].copy_from_slice(&settled.before.durable[there]),
            }
        }
        if trial % 4 == 0 {
            world.directory = DirectoryState::default();
        }
        house.runtime.block_on(check(house, &settled.now, world, trial % 8 == 1)).map(drop)
    });
}

#[test]
fn f09_a_device_cut_short_loses_what_is_beyond_its_end_and_serves_the_rest() {
    let rig = rig("F09 truncated device", "-p cairn-engine --test crash -- --nocapture f09", 1_000, 20_000);
    rig.run(Worker::new, |worker, trial, dice| {
        let (house, settled) = worker.settle(trial)?;
        let mut world = settled.now.clone();
        let bytes = dice.place(world.durable.len());
        world.durable.truncate(bytes);
        if bytes < 4096 {
            // No superblock is left, so no page can be trusted.
            return house.open(&Recorder::new(world)).err().map(drop).ok_or_else(|| "it opened".to_owned());
        }
        house.runtime.block_on(check(house, &settled.now, world, false)).map(drop)
    });
}

#[test]
fn f21_a_record_without_its_page_is_a_miss_and_is_retired() {
    let rig = rig("F21 record without page", "-p cairn-engine --test crash -- --nocapture f21", 1_000, 50_000);
    rig.run(Worker::new, |worker, trial, dice| {
        let (house, settled) = worker.settle(trial)?;
        let mut world = settled.now.clone();
        let lost = some_of(&world, dice);
        for page in &lost {
            let [header, body] = used(page);
            let range = if dice.place(2) == 0 { header.start..body.end } else { header };
            world.durable[range].fill([0, 0xff][dice.place(2)]);
        }
        let lost: HashSet<PageKey> = lost.iter().map(|record| record.key).collect();
        house.runtime.block_on(check_prefixes(house, world, &lost))
    });
}

/// Gets of whole chains end right before the page that is missing.
async fn check_prefixes(house: &House, world: World, lost: &HashSet<PageKey>) -> Result<(), String> {
    let recorder = Recorder::new(world);
    let directory = recorder.directory_state();
    let cairn = house.open(&recorder)?;
    let mut found = HashSet::new();
    for chain in &house.chains {
        let there = |key: &PageKey| house.record(&directory, key).is_some() && !lost.contains(key);
        let good_pages = chain.keys.iter().take_while(|key| there(key)).count();
        let options = GetOptions { first_page: 0, usable_pages: u64::MAX, deadline: cairn.deadline() };
        let get = cairn.engine.get_prefix(&cairn.spaces[chain.space], chain.keys.clone(), options);
        let mut get = get.map_err(|failed| failed.chain())?;
        while let Some(served) = get.next().await {
            if !payload::is_right(chain.keys[served.page].as_bytes(), 0, served.bytes.as_ref()) {
                return Err("I1: wrong bytes".to_owned());
            }
        }
        let missing = chain.keys.get(good_pages).filter(|key| lost.contains(*key));
        let stop = match missing {
            Some(key) if found.insert(*key) => StopReason::Damaged,
            None if good_pages == chain.keys.len() => StopReason::EndOfChain,
            _ => StopReason::NotStored,
        };
        let end = get.end();
        if (end.good_pages, end.stop) != (good_pages, stop) {
            return Err(format!("I4: {end:?} is not {good_pages} pages and {stop:?}"));
        }
    }
    // The loads that the gets had ahead of them have found more.
    let retired = |key: &&PageKey| house.record(&recorder.directory_state(), key).is_none();
    while found.iter().any(|key| !retired(&key)) {
        tokio::task::yield_now().await;
    }
    if cairn.damaged() < found.len() as u64 || cairn.damaged() > lost.len() as u64 {
        return Err(format!("I9: counted {}, found {}, lost {}", cairn.damaged(), found.len(), lost.len()));
    }
    Ok(())
}

#[test]
fn f22_pages_without_a_record_are_reclaimed_or_adopted() {
    let rig = rig("F22 page without record", "-p cairn-engine --test crash -- --nocapture f22", 600, 20_000);
    rig.run(Worker::new, |worker, trial, dice| {
        let (house, settled) = worker.settle(trial)?;
        let mut world = settled.now.clone();
        let must: HashSet<PageKey> =
            records(&world.directory).iter().filter(|page| is_whole(page, &world)).map(|page| page.key).collect();
        match dice.place(3) {
            // Some records are gone: their slots are free.
            0 => {
                world.directory.records.retain(|_, _| dice.place(3) > 0);
                house.runtime.block_on(check(house, &settled.now, world, true)).map(drop)
            }
            // The directory is from another time: whatever it says is checked against the page.
            1 => {
                world.directory = settled.before.directory.clone();
                world.directory.device = settled.now.directory.device;
                house.runtime.block_on(check_loosely(house, world))
            }
            // All of it is lost: every page is found again.
            _ => {
                world.directory = DirectoryState::default();
                let known = Start { must, ..Start::default() };
                house.runtime.block_on(verify(house, world, &known)).map(drop)
            }
        }
    });
}

/// Right bytes or a miss, and a count that fits.
pub(crate) async fn check_loosely(house: &House, world: World) -> Result<(), String> {
    let cairn = house.open(&Recorder::new(world))?;
    let (before, mut damaged) = (cairn.damaged(), HashSet::new());
    for place in &house.places {
        if house.read(&cairn, *place).await? == Seen::Damaged {
            damaged.insert(house.key(*place));
        }
    }
    if cairn.damaged() != before + damaged.len() as u64 {
        return Err(format!("I9: counted {} of {} damaged pages", cairn.damaged() - before, damaged.len()));
    }
    check_capacity(&cairn, house.slots_bytes(&damaged))
}
