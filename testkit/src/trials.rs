//! Many trials of one rig: seeded, on all cores, watched, recorded.
//!
//! A trial is a function of the rig's seed and the trial's number. `CAIRN_SEED` sets the seed, `CAIRN_TRIAL` runs one trial alone,
//! `CAIRN_NIGHTLY` asks for that many percent of the nightly count; a failing trial prints the command that repeats it. The run goes into
//! `target/rigs.json`. A trial that is not done after minutes ends the process, so that a hang is a failure like any other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use cairn_core::{Clock, SystemClock};

use crate::dice::Dice;
use crate::rigs::{self, RigRun};

/// A trial that takes longer than two of these hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// Failing trials that are printed; after so many the run ends.
const FAILURES_MAX: u64 = 5;
/// No trial.
const IDLE: u64 = u64::MAX;

/// Panics of any thread of this process.
static PANICS: AtomicU64 = AtomicU64::new(0);
static COUNT_PANICS: Once = Once::new();

/// A rig: what it is called, how to run it, how often.
#[derive(Clone, Debug)]
pub struct Rig {
    /// Name in `target/rigs.json`.
    pub name: &'static str,
    /// The part of the command after `cargo test --release` that runs it: package, test target, filter.
    pub target: &'static str,
    /// Trials in every `make test`.
    pub trials: u64,
    /// Trials in every `make nightly`.
    pub nightly: u64,
    /// What one trial counts for in the record: 1, or the executions that it is made of.
    pub each: u64,
}

/// The value of an environment variable that is a number.
///
/// # Panics
/// If it is set to something else.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")))
}

/// Trials of this run: those of every run, or the wanted part of a night's if that is more.
pub fn count(every: u64, nightly: u64) -> u64 {
    let percent = number("CAIRN_NIGHTLY").unwrap_or(0);
    every.max(nightly.saturating_mul(percent) / 100)
}

/// The seed of this run: `CAIRN_SEED`, or the one that every ordinary run has.
pub fn seed() -> u64 {
    number("CAIRN_SEED").unwrap_or(1)
}

/// The dice of trial `trial` of a run with `seed`.
pub fn dice_of(seed: u64, trial: u64) -> Dice {
    Dice::new(Dice::new(seed ^ Dice::new(trial).roll()).roll())
}

/// Panics of any thread since the first rig began.
pub fn panics() -> u64 {
    PANICS.load(Ordering::SeqCst)
}

impl Rig {
    /// Trials of this run.
    pub fn count(&self) -> u64 {
        count(self.trials, self.nightly)
    }

    /// Runs every trial, each worker with a state of its own, and records the run.
    ///
    /// # Panics
    /// If a trial fails or any thread panics.
    pub fn run<W>(
        &self,
        worker: impl Fn() -> W + Sync,
        trial: impl Fn(&mut W, u64, &mut Dice) -> Result<(), String> + Sync,
    ) {
        self.run_counted(self.count(), worker, trial);
    }

    /// The same, with a count that something else decides.
    ///
    /// # Panics
    /// If a trial fails or any thread panics.
    pub fn run_counted<W>(
        &self,
        trials: u64,
        worker: impl Fn() -> W + Sync,
        trial: impl Fn(&mut W, u64, &mut Dice) -> Result<(), String> + Sync,
    ) {
        COUNT_PANICS.call_once(count_panics);
        let seed = seed();
        println!("{}: CAIRN_SEED={seed} trials={trials}", self.name);
        let (first, end) = number("CAIRN_TRIAL").map_or((0, trials), |only| (only, only + 1));
        let run = Run { rig: self, seed, next: AtomicU64::new(first), end, failures: AtomicU64::new(0) };
        let clock = SystemClock::start();
        let before = panics();
        run.on_all_cores(&worker, &trial);
        let seconds = clock.now().since_start().as_secs_f64();
        let failures = run.failures.load(Ordering::SeqCst);
        println!("{}: trials={} failures={failures} seconds={seconds:.1}", self.name, end - first);
        if end - first == trials {
            record(self.name, trials * self.each, failures, seconds);
        }
        assert_eq!(failures, 0, "{}: trials failed, see above", self.name);
        assert_eq!(panics(), before, "{}: a thread panicked, see above", self.name);
    }
}

/// Writes a line into `target/rigs.json` of this workspace.
///
/// # Panics
/// If the file can not be written.
pub fn record(rig: &str, trials: u64, failures: u64, seconds: f64) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/rigs.json");
    let run = RigRun { rig: rig.to_owned(), trials, failures, seed: seed(), seconds };
    if let Err(failed) = rigs::record(&run, &path) {
        panic!("record the run in {}: {failed}", path.display());
    }
}

struct Run<'a> {
    rig: &'a Rig,
    seed: u64,
    next: AtomicU64,
    end: u64,
    failures: AtomicU64,
}

impl Run<'_> {
    fn on_all_cores<W>(
        &self,
        worker: &(impl Fn() -> W + Sync),
        trial: &(impl Fn(&mut W, u64, &mut Dice) -> Result<(), String> + Sync),
    ) {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let running: Vec<AtomicU64> = (0..cores).map(|_| AtomicU64::new(IDLE)).collect();
        let (done, all_done) = sync_channel::<()>(cores);
        std::thread::scope(|scope| {
            for running in &running {
                let done = done.clone();
                scope.spawn(move || {
                    self.work(running, worker, trial);
                    drop(done);
                });
            }
            drop(done);
            self.watch(&running, &all_done);
        });
    }

    fn work<W>(
        &self,
        running: &AtomicU64,
        worker: &impl Fn() -> W,
        trial: &impl Fn(&mut W, u64, &mut Dice) -> Result<(), String>,
    ) {
        let mut state = worker();
        while self.failures.load(Ordering::SeqCst) < FAILURES_MAX {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            if number >= self.end {
                break;
            }
            running.store(number, Ordering::SeqCst);
            let mut dice = dice_of(self.seed, number);
            let outcome = catch_unwind(AssertUnwindSafe(|| trial(&mut state, number, &mut dice)));
            let failed = match outcome {
                Ok(Ok(())) => continue,
                Ok(Err(failed)) => failed,
                Err(_) => {
                    state = worker();
                    "it panicked".to_owned()
                }
            };
            self.failures.fetch_add(1, Ordering::SeqCst);
            println!("FAILED {} trial {number}: {failed}\n  again: {}", self.rig.name, self.again(number));
        }
        running.store(IDLE, Ordering::SeqCst);
    }

    fn again(&self, trial: u64) -> String {
        format!("CAIRN_SEED={} CAIRN_TRIAL={trial} cargo test --release {}", self.seed, self.rig.target)
    }

    fn watch(&self, running: &[AtomicU64], all_done: &std::sync::mpsc::Receiver<()>) {
        let look = || -> Vec<u64> { running.iter().map(|trial| trial.load(Ordering::SeqCst)).collect() };
        let mut before = look();
        while all_done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let now = look();
            if let Some((trial, _)) = now.iter().zip(&before).find(|(now, before)| now == before && **now != IDLE) {
                println!("HANGS {} trial {trial}\n  again: {}", self.rig.name, self.again(*trial));
                std::process::abort();
            }
            before = now;
        }
    }
}

fn count_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // A test says that it failed by panicking, in a thread that is named like it: not what is counted here.
        let is_test = std::thread::current().name().is_some_and(|name| name.contains("::"));
        PANICS.fetch_add(u64::from(!is_test), Ordering::SeqCst);
        print(panic);
    }));
}

/// A total that trials on several threads add to.
#[derive(Debug, Default)]
pub struct Total(parking_lot::Mutex<std::collections::BTreeMap<&'static str, u64>>);

impl Total {
    /// Adds `more` to the total of `what`.
    pub fn add(&self, what: &'static str, more: u64) {
        *self.0.lock().entry(what).or_default() += more;
    }

    /// The total of `what`.
    pub fn of(&self, what: &'static str) -> u64 {
        self.0.lock().get(what).copied().unwrap_or(0)
    }
}
