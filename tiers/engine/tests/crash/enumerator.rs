//! R1: a crash at every point of a life, and at points of very many short lives.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cairn_core::Durability;
use cairn_engine::OpenMode;
use cairn_testkit::dice::Dice;
use cairn_testkit::recorder::{DirectoryState, Point, Power, Recorder, Tally, World, pages_in};
use cairn_testkit::trials::{Rig, Total, dice_of, number, record, seed};

use crate::house::House;
use crate::oracle::{Life, Start, check_capacity, verify, verify_on};
use crate::script::{Op, Script, roll};

/// Images of each point.
const IMAGES: u64 = 32;
/// Points that the long script has at least.
const POINTS: usize = 400;
/// Crashes of one short script.
const CRASHES: u64 = 8;
/// The first points of a device format it.
const FORMAT_POINTS: usize = 4;

const EVERY_POINT: Rig = Rig {
    name: "crash at every point",
    target: "-p cairn-engine --test crash -- --nocapture a_crash_at_every_point",
    trials: POINTS as u64 * IMAGES,
    nightly: POINTS as u64 * IMAGES * 64,
    each: 1,
};
const SHORT_SCRIPTS: Rig = Rig {
    name: "crash of short scripts",
    target: "-p cairn-engine --test crash -- --nocapture a_crash_of_short_scripts",
    trials: 20_000,
    nightly: 2_000_000,
    each: 1,
};

/// What both rigs have injected.
static TOTALS: LazyLock<Total> = LazyLock::new(Total::default);

/// A worker: its house, and the life that it is crashing.
struct Worker {
    house: House,
    lives: HashMap<u64, Life>,
}

impl Worker {
    fn new() -> Self {
        Self { house: House::new(), lives: HashMap::new() }
    }
}

/// The long script: all that there is, over and over, until it has enough points.
fn long_life(house: &House, seed: u64) -> Result<Life, String> {
    let mut dice = dice_of(seed, u64::MAX);
    house.runtime.block_on(async {
        let (cairn, start) = verify(house, House::blank(), &Start::default()).await?;
        let mut script = Script::new(house, cairn, start);
        while script.cairn().recorder.len() < POINTS {
            script.run(&roll(house, &mut dice, 1)).await?;
        }
        Ok(script.end())
    })
}

fn short_life(house: &House, world: World, known: &Start, dice: &mut Dice) -> Result<Life, String> {
    house.runtime.block_on(async {
        let (cairn, start) = verify(house, world, known).await?;
        let mut script = Script::new(house, cairn, start);
        let ops_max = if dice.place(4) == 0 { 24 } else { 6 };
        let ops = 1 + dice.place(ops_max);
        script.run(&roll(house, dice, ops)).await?;
        Ok(script.end())
    })
}

/// Crashes `life` when `points` points have begun, as the dice say, and looks at what is left.
fn crash(house: &House, life: &Life, points: usize, dice: &mut Dice, totals: &Total) -> Result<(World, Start), String> {
    let (returned, landed) = (dice.place(2) == 0, dice.place(2) == 0);
    let known = life.known_at(house, points, returned)?;
    let mut world = life.history.cursor().crash(points, returned, landed);
    let unsynced = world.unsynced.len() as u64;
    let tally = match dice.place(16) {
        0 => Some(world.cut_power(Power::Kept, dice)),
        1..5 => Some(world.cut_power(Power::Lost, dice)),
        5..8 => Some(world.cut_power(Power::Torn, dice)),
        // The process alone: the writes are in the page cache, and no more.
        8 => None,
        _ => Some(world.cut_power(Power::Dice, dice)),
    };
    if number("CAIRN_TRIAL").is_some() {
        println!("crash at {points} returned={returned} landed={landed} {tally:?}");
    }
    if let Some(tally) = tally {
        count(totals, life, points, unsynced, tally);
    }
    // The medium may damage a superblock while it is first written; then neither is whole, and somebody has to look.
    let half_made =
        life.start.generation == 0 && points <= FORMAT_POINTS && tally.is_some_and(|tally| tally.flipped > 0);
    if half_made && house.open(&Recorder::new(world.clone())).is_err_and(|failed| failed.contains("superblock")) {
        totals.add("half made and refused", 1);
        return Ok((House::blank(), Start::default()));
    }
    Ok((world, known))
}

fn count(totals: &Total, life: &Life, points: usize, unsynced: u64, tally: Tally) {
    totals.add("F02 torn write", u64::from(tally.torn > 0));
    totals.add("F03 lost unsynced writes", u64::from(tally.lost > 0));
    totals.add("bits flipped in unsynced sectors", tally.flipped);
    // One side further than the other: a commit beside page writes that were not whole, or pages kept without theirs.
    let commit_in_flight = points > 0 && matches!(life.history.points[points - 1], Point::Commit(_));
    let out_of_order = unsynced > 0 && (tally.kept > 0 || tally.torn > 0) && (tally.lost > 0 || tally.torn > 0);
    totals.add(
        "F04 reordered writes",
        u64::from(commit_in_flight || out_of_order || (unsynced > 0 && tally.kept == unsynced)),
    );
}

/// Records the shares of the rigs that are faults of their own. The rig that ends last writes the sum.
fn record_totals() {
    println!("{:?}", *TOTALS);
    for name in ["F02 torn write", "F03 lost unsynced writes", "F04 reordered writes"] {
        if number("CAIRN_TRIAL").is_none() {
            record(name, TOTALS.of(name), 0, 0.0);
        }
    }
}

/// After it has been checked: the engine works on, and nothing that it found is in the way.
async fn work_on(house: &House, world: World, known: &Start, dice: &mut Dice) -> Result<(), String> {
    let (cairn, start) = verify(house, world, known).await?;
    let out_of_use_bytes = house.slots_bytes(&start.weak);
    let mut script = Script::new(house, cairn, start);
    let chain = dice.place(house.chains.len());
    script.step(Op::Put { chain, pages: house.chains[chain].keys.len(), durability: Durability::Ssd }).await?;
    check_capacity(script.cairn(), out_of_use_bytes)?;
    let life = script.end();
    life.known_at(house, life.history.points.len(), true).map(drop)
}

#[test]
fn a_crash_at_every_point_loses_nothing_that_was_acknowledged() {
    let life = long_life(&House::new(), seed()).expect("the long script runs");
    let points = life.history.points.len() as u64;
    let rounds = EVERY_POINT.count() / EVERY_POINT.trials;
    EVERY_POINT.run_counted((points + 1) * IMAGES * rounds, Worker::new, |worker, trial, dice| {
        let house = &worker.house;
        let at = (trial / (IMAGES * rounds)) as usize;
        let (world, known) = crash(house, &life, at, dice, &TOTALS)?;
        house.runtime.block_on(async {
            if trial % 4 == 0 {
                return work_on(house, world, &known, dice).await;
            }
            verify(house, world, &known).await.map(drop)
        })
    });
    record_totals();
}

#[test]
fn a_crash_of_short_scripts_loses_nothing_that_was_acknowledged() {
    let trials = number("CAIRN_CRASH_TRIALS").unwrap_or_else(|| SHORT_SCRIPTS.count());
    let seed = seed();
    SHORT_SCRIPTS.run_counted(trials, Worker::new, |worker, trial, dice| {
        let script = trial / CRASHES;
        if !worker.lives.contains_key(&script) {
            let mut dice = dice_of(!seed, script);
            let life = short_life(&worker.house, House::blank(), &Start::default(), &mut dice)?;
            worker.lives.clear();
            worker.lives.insert(script, life);
        }
        let (house, life) = (&worker.house, &worker.lives[&script]);
        let (mut world, mut known) = crash(house, life, point_of(life, dice), dice, &TOTALS)?;
        // One in eight lives on, crashes again, and may live a third time.
        while dice.place(8) == 0 {
            let life = short_life(house, world, &known, dice)?;
            (world, known) = crash(house, &life, point_of(&life, dice), dice, &TOTALS)?;
        }
        house.runtime.block_on(verify(house, world, &known)).map(drop)
    });
    record_totals();
}

#[test]
fn a_rotten_page_may_be_made_whole_by_a_torn_write_of_the_same_page() {
    let house = House::new();
    let chain = house.chains.iter().position(|chain| chain.keys.len() == 1).expect("a chain of one page");
    let put_first = |chain| Op::Put { chain, pages: 1, durability: Durability::Ssd };
    let put = put_first(chain);
    // Another page before it keeps its region in use, so that its slot is filled again in the same filling.
    let key = house.chains[chain].keys[0];
    let is_other = |other: &crate::house::Chain| other.space == house.chains[chain].space && other.keys[0] != key;
    let keeper = house.chains.iter().position(is_other).expect("another chain");
    let nth = usize::from(house.chains[keeper].keys[0].as_bytes() < key.as_bytes());
    let life = house.runtime.block_on(async {
        let (cairn, start) = verify(&house, House::blank(), &Start::default()).await?;
        let mut script = Script::new(&house, cairn, start);
        // In the third sector of the payload.
        let rot = Op::Rot { nth, at: 1200 };
        script.run(&[put_first(keeper), put, rot, Op::Reopen { orderly: false }, put]).await?;
        Ok::<_, String>(script.end())
    });
    let life = life.expect("the script runs");
    let is_page = |point: &Point| matches!(point, Point::Write(write) if !pages_in(write).is_empty());
    let last = life.history.points.iter().rposition(is_page).expect("it was put twice") + 1;
    let mut world = life.history.cursor().crash(last, false, false);
    let write = world.unsynced.pop().expect("the write is under way");
    // Its header is lost, so the slot says that the older page is in it, and that is what the directory is made of.
    world.durable[write.at + 512..write.at + write.bytes.len()].copy_from_slice(&write.bytes[512..]);
    world.directory = DirectoryState::default();
    let known = life.known_at(&house, last, false).expect("a history");
    let (cairn, known) = house.runtime.block_on(verify(&house, world, &known)).expect("no promise is broken");
    assert_eq!(cairn.engine.stats().recovery.mode, OpenMode::Rebuilt);
    assert!(known.must.contains(&house.chains[chain].keys[0]), "it is there again");
    let recorder = Arc::clone(&cairn.recorder);
    drop(cairn);
    let (cairn, _) = house.runtime.block_on(verify_on(&house, &recorder, &known)).expect("nor after another start");
    assert_eq!(cairn.engine.stats().recovery.mode, OpenMode::Directory);
}

/// Where to crash: anywhere, within two points after a barrier, or when a write is under way.
fn point_of(life: &Life, dice: &mut Dice) -> usize {
    let points = &life.history.points;
    let after = |is: fn(&Point) -> bool| (0..points.len()).filter(|at| is(&points[*at])).map(|at| at + 1).collect();
    let (near, spread): (Vec<usize>, usize) = match dice.place(3) {
        0 => ((0..=points.len()).collect(), 1),
        1 => (after(|point| matches!(point, Point::Barrier { .. })), 3),
        _ => (after(|point| matches!(point, Point::Write(_))), 1),
    };
    let nearest = near.get(dice.place(near.len())).copied().unwrap_or(0);
    (nearest + dice.place(spread)).min(points.len())
}

#[test]
fn the_same_script_makes_the_same_history() {
    for trial in 0..60 {
        let [first, second] = [0, 1].map(|_| {
            let mut dice = dice_of(seed(), trial);
            let life = short_life(&House::new(), House::blank(), &Start::default(), &mut dice).expect("it runs");
            // Between which two points a note was taken is a matter of threads: never before what it says.
            let notes: Vec<_> = life.notes.into_iter().map(|(_, note)| note).collect();
            (life.history, notes)
        });
        assert!(first.1 == second.1, "trial {trial}: I12: other notes");
        assert!(
            first.0 == second.0,
            "trial {trial}: I12: {} and {} points",
            first.0.points.len(),
            second.0.points.len()
        );
    }
}
