//! A durable acknowledgement survives any crash of the process.
//!
//! Needs `cairnd` beside the test's own build: `cargo build --release -p cairn-server`. `CAIRN_KILLS` sets the number of kills,
//! `CAIRN_SEED` repeats a run. The run is recorded in `target/rigs.json`.

use std::path::Path;

use cairn_bench::cairnd::{Cairnd, Recipe};
use cairn_bench::error::BenchError;
use cairn_bench::kill::{self, BusyLoad};
use cairn_bench::sizes::Sizes;
use cairn_bench::store::Store;
use cairn_testkit::dice::Dice;
use cairn_testkit::rigs::{self, RigRun};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_acknowledged_as_durable_is_found_after_every_kill() {
    let kills = number("CAIRN_KILLS").unwrap_or(50);
    let seed = number("CAIRN_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("CAIRN_SEED={seed} CAIRN_KILLS={kills}");
    let folder = tempfile::tempdir().unwrap();
    let run = kill::run(&folder.path().join("data"), kills, seed).await.unwrap_or_else(|e| panic!("{}", e.chain()));
    println!("{run:?}");
    let record = RigRun {
        rig: "kill".to_owned(),
        trials: run.kills + run.kills_in_recovery,
        failures: run.failures,
        seed,
        seconds: run.elapsed.as_secs_f64(),
    };
    rigs::record(&record, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/rigs.json")).unwrap();
    assert_eq!(run.failures, 0, "{run:?}");
    assert!(run.verdict.acknowledged > 0, "nothing was acknowledged, so nothing was shown");
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
