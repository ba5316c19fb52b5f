//! A durable acknowledgement survives any crash of the process.
//!
//! Needs `cairnd` beside the test's own build: `cargo build --release -p cairn-server`. `CAIRN_KILLS` sets the number of kills,
//! `CAIRN_SEED` repeats a run. The run is recorded in `target/rigs.json`.

use std::path::Path;

use cairn_bench::kill;
use cairn_bench::rigs::{self, RigRun};

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
