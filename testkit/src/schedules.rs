//! The rig of schedules: one scenario of the real code under many orders of its threads' steps.
//!
//! The crate under test is built with its feature `schedules`. Half of the schedules choose the next thread by chance, half by priorities
//! that change at a few moments. A schedule that fails is one of a trial's, and the trial's command runs it again.

mod turns;

use std::sync::Arc;

use cairn_schedules::{Choice, explore};

use crate::dice::Dice;
use crate::trials::Rig;

pub use turns::TurnDevice;

/// Schedules of each kind in every `make test`.
const SCHEDULES: u64 = 1000;
/// Schedules of one trial.
const EACH: u32 = 50;
/// Trials in every `make test`: of both kinds.
const TRIALS: u64 = 2 * SCHEDULES / EACH as u64;

/// Runs `scenario`, which is given dice of each schedule's own. `target` is what comes after `cargo test --release` to run this test alone.
///
/// # Panics
/// If a schedule fails: the scenario panicked, or no thread of it could go on.
pub fn run(name: &'static str, target: &'static str, scenario: impl Fn(&mut Dice) + Send + Sync + 'static) {
    let rig = Rig { name, target, trials: TRIALS, nightly: TRIALS * 20, each: u64::from(EACH) };
    let scenario = Arc::new(scenario);
    rig.run(
        || (),
        |(), trial, dice| {
            let choice = if trial % 2 == 0 { Choice::Random } else { Choice::Priorities };
            let scenario = Arc::clone(&scenario);
            explore(choice, dice.roll(), EACH, move |seed| scenario(&mut Dice::new(seed)));
            Ok(())
        },
    );
}
