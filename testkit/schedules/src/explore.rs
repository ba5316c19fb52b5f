//! Running a scenario under many schedules.

use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Steps after which a schedule is said to go round in circles.
const STEPS_MAX: usize = 200_000;
/// A page on the stack is nothing unusual here.
const STACK_BYTES: usize = 512 << 10;
/// Changes of priority in a schedule by priorities, and one more: defects that need so many orderings are found with a known probability.
const DEPTH: usize = 3;

/// How the next thread is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Any that can go on, by chance.
    Random,
    /// By priorities that are changed at a few moments (PCT).
    Priorities,
}

/// Runs `scenario` under so many schedules, all of which follow from `seed`. It is given a number of each schedule's own.
///
/// # Panics
/// If the scenario panics, if none of its threads can go on, or if they never end.
pub fn explore(choice: Choice, seed: u64, schedules: u32, scenario: impl Fn(u64) + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    let scenario = move || scenario(shuttle::rand::thread_rng().r#gen());
    let schedules = schedules as usize;
    match choice {
        Choice::Random => Runner::new(RandomScheduler::new_from_seed(seed, schedules), config).run(scenario),
        // The first one only counts the steps of the scenario.
        Choice::Priorities => {
            Runner::new(PctScheduler::new_from_seed(seed, DEPTH, schedules + 1), config).run(scenario)
        }
    };
}
