//! A durable acknowledgement survives any crash of the process.
//!
//! Needs `cairnd` beside the test's own build: `cargo build --release -p cairn-server`. `CAIRN_KILLS` and `CAIRN_POWER_CUTS` set the
//! numbers, `CAIRN_SEED` repeats a run. The runs are recorded in `target/rigs.json`.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests count in small numbers and fail by panicking"
)]

use std::io;
use std::path::{Path, PathBuf};

use cairn_bench::cairnd::{Cairnd, Recipe};
use cairn_bench::error::BenchError;
use cairn_bench::kill::{self, BusyLoad};
use cairn_bench::sizes::Sizes;
use cairn_bench::store::Store;
use cairn_lazyfs::{LazyFs, Unsynced};
use cairn_testkit::dice::Dice;
use cairn_testkit::rigs::{self, RigRun};
use cairn_testkit::trials::{count, number};

/// Kills of one server folder: it grows with them.
const KILLS_OF_A_FOLDER: u64 = 50;
/// Seeds between two folders of one run.
const STRIDE: u64 = 1_000_003;

/// Kills servers, folder after folder, and records the run. `prepare` makes what a folder's server lives in, below the given path, and says
/// what else happens after a kill.
async fn kill_all<D: FnMut() -> io::Result<()>>(rig: &str, kills: u64, prepare: impl Fn(&Path, u64) -> (PathBuf, D)) {
    let first_seed = number("CAIRN_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let (mut trials, mut seconds, mut acknowledged) = (0, 0.0, 0);
    for start in (0..kills).step_by(KILLS_OF_A_FOLDER as usize) {
        let (seed, some) = (first_seed + start / KILLS_OF_A_FOLDER * STRIDE, KILLS_OF_A_FOLDER.min(kills - start));
        println!("{rig}: CAIRN_SEED={seed} CAIRN_KILLS={some}");
        let here = tempfile::tempdir().unwrap();
        let (folder, mut while_down) = prepare(here.path(), seed);
        let run = kill::run_with(&folder, some, seed, &mut while_down).await;
        let run = run.unwrap_or_else(|failed| panic!("{} {}", failed.chain(), again(seed, some)));
        trials += run.kills + run.kills_in_recovery;
        seconds += run.elapsed.as_secs_f64();
        acknowledged += run.verdict.acknowledged;
        if run.failures > 0 {
            record(rig, trials, run.failures, first_seed, seconds);
            panic!("{run:?} {}", again(seed, some));
        }
    }
    println!("{rig}: trials={trials} failures=0 acknowledged={acknowledged} seconds={seconds:.1}");
    record(rig, trials, 0, first_seed, seconds);
    assert!(acknowledged > 0, "nothing was acknowledged, so nothing was shown");
}

fn again(seed: u64, kills: u64) -> String {
    format!(
        "again: CAIRN_SEED={seed} CAIRN_KILLS={kills} cargo test --release -p cairn-bench --test kill -- --nocapture"
    )
}

fn record(rig: &str, trials: u64, failures: u64, seed: u64, seconds: f64) {
    let record = RigRun { rig: rig.to_owned(), trials, failures, seed, seconds };
    rigs::record(&record, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/rigs.json")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_acknowledged_as_durable_is_found_after_every_kill() {
    let kills = number("CAIRN_KILLS").unwrap_or_else(|| count(100, 10_000));
    kill_all("kill", kills, |here, _| (here.join("data"), || Ok(()))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_acknowledged_as_durable_is_found_after_every_kill_and_power_cut() {
    if let Err(reason) = LazyFs::is_possible() {
        println!("skipped: a file system that loses what was not synced can not be mounted here: {reason}");
        return;
    }
    let kills = number("CAIRN_POWER_CUTS").unwrap_or_else(|| count(5, 300));
    kill_all("kill and power cut", kills, |here, seed| {
        let (below, at) = (here.join("below"), here.join("at"));
        std::fs::create_dir(&below).unwrap();
        std::fs::create_dir(&at).unwrap();
        let lazy = LazyFs::mount(&below, &at).unwrap();
        let mut dice = Dice::new(seed);
        let cut = move || {
            let unsynced = if dice.chance(0.3) { Unsynced::Lost } else { Unsynced::Dice };
            lazy.cut_power(unsynced, &mut dice).map(drop)
        };
        (at.join("data"), cut)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rig_notices_when_acknowledged_pages_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = Sizes { page_bytes: 4096, dram_pages: 1000, ssd_pages: 1000 };
    let recipe = Recipe::beside_this_program(&folder.path().join("data"), sizes.settings()).unwrap();
    let load = BusyLoad { page_bytes: 4096, salt: 1, first_chain: 0, chains: 20 };
    let cairnd = Cairnd::start(recipe).await.unwrap();
    let (recipe, chains) = load.put_until_killed(cairnd, 5, &mut Dice::new(1)).await.unwrap();
    std::fs::remove_dir_all(&recipe.folder).unwrap();
    let cairnd = Cairnd::start(recipe).await.unwrap();
    let store = Store::open(cairnd.endpoint(), 4096, 1).await.unwrap();
    let verdict = kill::verify(&store, &chains).await.unwrap();
    assert!(verdict.acknowledged >= 5, "{verdict:?}");
    assert!(matches!(verdict.judge(), Err(BenchError::LostPages { .. })), "{verdict:?}");
}
