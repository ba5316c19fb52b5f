//! A second opinion on power cuts: the files lie in a file system that loses what was not synced, below a real process, a real RocksDB and
//! the kernel.
//!
//! The crash tests cut the power of disks in memory, which is fast, and believe a directory to be whole. Here a process is killed, then
//! what it had not synced is lost or torn, of its pages and of RocksDB's files alike. Where the two disagree, the disks in memory are wrong.

use cairn_lazyfs::{LazyFs, Unsynced};
use cairn_testkit::dice::Dice;
use cairn_testkit::real_disks::Ending;
use cairn_testkit::trials::{Rig, Total, dice_of, seed};

use crate::house::House;
use crate::killed::stage;
use crate::life::{End, Fate, Folder, Twist};

/// Cuts in one file system.
const CUTS: u64 = 4;
/// Changes of the disks after which a process ends, at most.
const POINTS_MAX: usize = 250;
/// Lives without barriers, of which one at least must be noticed.
const LIVES_WITHOUT_BARRIERS: u64 = 20;

const POWER_CUTS: Rig = Rig {
    name: "power cut below the kernel",
    target: "-p cairn-engine --test kills -- --nocapture a_power_cut_below",
    trials: 20,
    nightly: 300,
    each: CUTS,
};

/// Why there can be no such file system here, said once.
fn is_skipped() -> bool {
    let possible = LazyFs::is_possible();
    if let Err(reason) = &possible {
        println!("skipped: a file system that loses what was not synced can not be mounted here: {reason}");
    }
    possible.is_err()
}

/// A few lives in one file system, each ended by a kill and a power cut.
fn lives(house: &House, twist: Twist, dice: &mut Dice, totals: &Total) -> Result<(), String> {
    let here = tempfile::tempdir().map_err(|failed| failed.to_string())?;
    let (below, at) = (here.path().join("below"), here.path().join("at"));
    for folder in [&below, &at] {
        std::fs::create_dir(folder).map_err(|failed| failed.to_string())?;
    }
    let lazy = LazyFs::mount(&below, &at).map_err(|failed| format!("mount: {failed}"))?;
    let mut folder = Folder::new(house, &at.join("files"), here.path());
    for cut in 1..=CUTS {
        let end = End::At(Ending { point: 1 + dice.place(POINTS_MAX), stage: stage(dice) });
        let fate = Fate { seed: dice.roll(), twist, end };
        let unsynced = if dice.place(3) == 0 { Unsynced::Lost } else { Unsynced::Dice };
        // What a cut rolls depends on what RocksDB happened to write: not from the dice that decide what comes next.
        let mut fates = Dice::new(dice.roll());
        let mut live = || {
            folder.live(fate)?;
            let cut = lazy.cut_power(unsynced, &mut fates).map_err(|failed| format!("cut the power: {failed}"))?;
            totals.add("kept", cut.kept);
            totals.add("lost", cut.lost);
            totals.add("torn", cut.torn);
            folder.check()?;
            // Whoever checked has written too.
            lazy.cut_power(unsynced, &mut fates).map(drop).map_err(|failed| format!("cut the power: {failed}"))
        };
        live().map_err(|failed| format!("cut {cut} of {CUTS}, {unsynced:?}, {fate}: {failed}"))?;
    }
    Ok(())
}

#[test]
fn a_power_cut_below_the_kernel_loses_nothing_that_was_acknowledged() {
    if is_skipped() {
        return;
    }
    let totals = Total::default();
    POWER_CUTS.run(House::new, |house, _, dice| lives(house, Twist::None, dice, &totals));
    println!("writes that were not synced: {totals:?}");
}

#[test]
fn a_missing_barrier_is_noticed_after_a_power_cut_below_the_kernel() {
    if is_skipped() {
        return;
    }
    let (house, totals) = (House::new(), Total::default());
    let noticed = (0..LIVES_WITHOUT_BARRIERS)
        .find_map(|trial| lives(&house, Twist::NoBarriers, &mut dice_of(seed(), trial), &totals).err());
    println!("noticed: {noticed:?}");
    // A page that is not whole, an acknowledged one that is gone, or a device that is blank again: whichever comes first.
    assert!(noticed.is_some_and(|noticed| !noticed.contains("mount:")));
}
