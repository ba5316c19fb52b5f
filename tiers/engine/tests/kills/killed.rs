//! R2: the process is killed at every write point, and again and again while it starts.
//!
//! A trial is a folder with a life of several processes, each of them killed at a numbered change of the disks; after each kill an engine
//! is opened on the files, and everything that was acknowledged is looked for. What the kernel had been given survives a kill; that a
//! barrier is where it must be is shown by the power cuts.

use cairn_testkit::dice::Dice;
use cairn_testkit::real_disks::{Ending, Stage};
use cairn_testkit::trials::{Rig, Total, number};

use crate::house::House;
use crate::life::{End, Fate, Folder, Twist};

/// Points at which a life of a process ends, from its start; each is the end of one.
const POINTS: u64 = 400;
/// Kills in one folder.
const KILLS: u64 = 8;
/// A number without a factor in common with [`POINTS`]: early and late ends follow each other.
const STRIDE: u64 = 153;
/// Starts in a row that do not come to their end.
const STARTS: u64 = 20;
/// Changes at which a start that makes the directory again may end.
const START_POINTS: usize = 8;
/// Longest time that a start is given; some are over by then.
const START_US_MAX: u64 = 30_000;

const KILLS_AT_POINTS: Rig = Rig {
    name: "kill at every point",
    target: "-p cairn-engine --test kills -- --nocapture a_kill_at_every_point",
    // All points once, and a quarter of them with other lives.
    trials: 63,
    nightly: 25 * POINTS / KILLS,
    each: KILLS,
};
const RESTART_STORM: Rig = Rig {
    name: "F34 restart storm",
    target: "-p cairn-engine --test kills -- --nocapture f34_",
    trials: 5,
    nightly: 500,
    each: STARTS,
};

/// What the kills at points end in the middle of.
const KINDS: [&str; 10] =
    ["superblock", "region header", "page", "wipe", "barrier", "commit", "eviction", "clear", "namespace", "device"];

pub(crate) fn stage(dice: &mut Dice) -> Stage {
    Stage::ALL[dice.place(Stage::ALL.len())]
}

#[test]
fn a_kill_at_every_point_loses_nothing_that_was_acknowledged() {
    let totals = Total::default();
    KILLS_AT_POINTS.run(House::new, |house, trial, dice| {
        let here = tempfile::tempdir().map_err(|failed| failed.to_string())?;
        let mut folder = Folder::new(house, &here.path().join("files"), here.path());
        for kill in trial * KILLS..(trial + 1) * KILLS {
            let point = 1 + (kill * STRIDE % POINTS) as usize;
            let end = End::At(Ending { point, stage: stage(dice) });
            let fate = Fate { seed: dice.roll(), twist: Twist::None, end };
            let killed = folder.live(fate).and_then(|told| {
                let (stage, kind) = told.ended.clone().unwrap_or_default();
                if number("CAIRN_TRIAL").is_some() {
                    println!("killed {stage} {kind}, point {point}, acknowledged={}", folder.known.must.len());
                }
                KINDS.iter().filter(|known| **known == kind).for_each(|known| totals.add(known, 1));
                folder.check()
            });
            killed.map_err(|failed| format!("kill {} of {KILLS}, {fate}: {failed}", kill % KILLS + 1))?;
        }
        Ok(())
    });
    println!("killed at: {totals:?}");
    if number("CAIRN_TRIAL").is_none() {
        let never: Vec<_> = KINDS.iter().filter(|kind| totals.of(kind) == 0).collect();
        assert!(never.is_empty(), "no process was killed at {never:?}");
    }
}

#[test]
fn f34_a_storm_of_restarts_loses_nothing_that_was_acknowledged() {
    RESTART_STORM.run(House::new, |house, _, dice| {
        let here = tempfile::tempdir().map_err(|failed| failed.to_string())?;
        let mut folder = Folder::new(house, &here.path().join("files"), here.path());
        let life = End::At(Ending { point: 100 + dice.place(200), stage: stage(dice) });
        folder.live(Fate { seed: dice.roll(), twist: Twist::None, end: life })?;
        for start in 0..STARTS {
            let end = match dice.place(2) {
                0 => End::Open(Ending { point: 1 + dice.place(START_POINTS), stage: stage(dice) }),
                _ => End::OpenOrAfter(dice.below(START_US_MAX)),
            };
            let twist = if dice.place(4) == 0 { Twist::NoDirectory } else { Twist::None };
            let fate = Fate { seed: 0, twist, end };
            folder.live(fate).map_err(|failed| format!("start {start}, {fate}: {failed}"))?;
        }
        folder.check()
    });
}
