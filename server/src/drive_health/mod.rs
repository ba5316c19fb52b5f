//! The wear of the drive that the SSD file lies on, as the drive itself counts it.
//!
//! A task of its own finds [the disk](disk) under the file, then, at the start and once an hour, has [a program](program) ask it (reading
//! the log here would need an ioctl, so unsafe code), reads [the answer](health_log), and keeps it for whoever [looks](DriveHealth::look):
//! `kvctl budget` and `/metrics`. Nobody waits for that. Until there is an answer, and wherever there is none, a look says why, and the
//! ledger stands in its place.
//!
//! Bounded: one program at a time, its time, the length of its answer, and a day of readings.

mod disk;
mod health_log;
mod program;
mod unknown;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cairn_core::metrics::Metrics;
use cairn_core::{Clock, Moment};
use parking_lot::Mutex;
use tracing::{debug, warn};

pub(crate) use health_log::HealthLog;
pub(crate) use unknown::Unknown;

/// The log is read this often: a per cent of a drive's life is weeks.
const INTERVAL: Duration = Duration::from_secs(3600);
/// Time for the program to answer; then it is killed.
const DEADLINE: Duration = Duration::from_secs(5);
/// Readings that are kept, to see the pace of a day.
const READINGS_MAX: usize = 25;
const DAY_SECONDS: f64 = 86_400.0;
const YEAR_DAYS: f64 = 365.0;

/// What is asked, and how.
#[derive(Debug)]
pub(crate) struct Question {
    /// A file on the drive.
    file: PathBuf,
    /// Asks a drive and prints what `smartctl --json=c -A` does; `None`: nothing is asked.
    program: Option<PathBuf>,
    /// Where the system shows its devices.
    sys: PathBuf,
    deadline: Duration,
}

impl Question {
    /// Asks `program` about the drive that `file` lies on.
    pub(crate) fn new(file: PathBuf, program: Option<PathBuf>) -> Self {
        Self { file, program, sys: PathBuf::from("/sys"), deadline: DEADLINE }
    }
}

/// What is known of the drive. Shared by the task that asks and all who look.
#[derive(Debug)]
pub(crate) struct DriveHealth {
    question: Question,
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct State {
    disk: String,
    /// The latest last.
    readings: VecDeque<Reading>,
    /// Why the last attempt brought none.
    unknown: Option<Unknown>,
}

#[derive(Debug)]
struct Reading {
    log: HealthLog,
    at: Moment,
}

/// What is known of the drive at one moment.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Look {
    /// Its wear; `None` if it never told.
    pub(crate) wear: Option<Wear>,
    /// Why it is not known, or was not read anew.
    pub(crate) unknown: Option<String>,
}

/// The wear of a drive.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Wear {
    /// The disk, as the system names it.
    pub(crate) disk: String,
    /// What it told last.
    pub(crate) log: HealthLog,
    /// How long ago.
    pub(crate) age: Duration,
    /// Bytes a day that anyone writes to it, by its own count; `None` until two readings tell.
    pub(crate) pace_day_bytes: Option<u64>,
}

impl DriveHealth {
    /// Knows nothing yet; [`DriveHealth::watch`] asks.
    pub(crate) fn new(question: Question, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Arc<Self> {
        let unknown = if question.program.is_some() { Unknown::NotYet } else { Unknown::Off };
        let state = State { disk: String::new(), readings: VecDeque::new(), unknown: Some(unknown) };
        Arc::new(Self { question, state: Mutex::new(state), clock, metrics })
    }

    /// Asks now and once an hour, for ever; ends only where there is nothing to ask. Dropping it kills a program that runs.
    pub(crate) async fn watch(self: Arc<Self>) {
        let Some(program) = &self.question.program else { return };
        // Once: a file that is open does not move. Not on this thread, because a sick filesystem may not answer.
        let (file, sys) = (self.question.file.clone(), self.question.sys.clone());
        let found = tokio::task::spawn_blocking(move || disk::under(&file, &sys)).await;
        let disk = match found {
            Ok(Ok(disk)) => disk,
            Ok(Err(unknown)) => return self.keep(Err(unknown)),
            // The server is stopping.
            Err(_) => return,
        };
        self.state.lock().disk.clone_from(&disk);
        loop {
            let answer = program::ask(program, &disk, self.question.deadline).await;
            self.keep(answer.and_then(|answer| health_log::read(&answer)));
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// What is known now; sets the gauges in the metrics by it.
    pub(crate) fn look(&self) -> Look {
        let look = self.state.lock().look(self.clock.now());
        let gauge = |value: Option<u64>| i64::try_from(value.unwrap_or(0)).unwrap_or(i64::MAX);
        let log = look.wear.as_ref().map(|wear| &wear.log);
        let metrics = &self.metrics;
        metrics.drive_known.set(i64::from(log.is_some()));
        metrics.drive_wear_percent.set(gauge(log.map(|log| log.used_percent)));
        metrics.drive_written_bytes.set(gauge(log.and_then(|log| log.written_bytes)));
        metrics.drive_spare_percent.set(gauge(log.and_then(|log| log.spare_percent)));
        metrics.drive_warning.set(gauge(log.map(|log| log.critical_warning)));
        metrics.drive_age_seconds.set(gauge(look.wear.as_ref().map(|wear| wear.age.as_secs())));
        look
    }

    fn keep(&self, read: Result<HealthLog, Unknown>) {
        let mut state = self.state.lock();
        match read {
            Ok(log) => {
                let warned = state.readings.back().map_or(0, |last| last.log.critical_warning);
                if log.critical_warning != 0 && log.critical_warning != warned {
                    warn!(
                        disk = state.disk,
                        critical_warning = log.critical_warning,
                        "the drive warns; kvctl budget says of what"
                    );
                }
                if state.readings.len() == READINGS_MAX {
                    state.readings.pop_front();
                }
                state.readings.push_back(Reading { log, at: self.clock.now() });
                state.unknown = None;
            }
            Err(unknown) => {
                debug!(%unknown, "the drive's wear was not read");
                state.unknown = Some(unknown);
            }
        }
    }
}

impl State {
    fn look(&self, now: Moment) -> Look {
        let wear = self.readings.back().map(|last| Wear {
            disk: self.disk.clone(),
            log: last.log,
            age: now.since(last.at),
            pace_day_bytes: self.pace_day_bytes(),
        });
        Look { wear, unknown: self.unknown.as_ref().map(Unknown::to_string) }
    }

    /// Bytes a day from the oldest reading that is kept to the latest.
    fn pace_day_bytes(&self) -> Option<u64> {
        let (first, last) = (self.readings.front()?, self.readings.back()?);
        let bytes = last.log.written_bytes?.saturating_sub(first.log.written_bytes?);
        let seconds = last.at.since(first.at).as_secs_f64();
        (seconds > 0.0).then(|| whole(bytes as f64 * DAY_SECONDS / seconds))
    }
}

impl Wear {
    /// Years until its rated life is used up, at the pace by its own count, or at `pace_day_bytes` until that is known. What a per cent is
    /// in bytes comes from its own past, so `None` before the first is used up, from a drive that does not count bytes, and without a pace.
    pub(crate) fn years_left(&self, pace_day_bytes: u64) -> Option<f64> {
        let HealthLog { used_percent, written_bytes, .. } = self.log;
        let pace_day_bytes = self.pace_day_bytes.unwrap_or(pace_day_bytes);
        if used_percent == 0 || pace_day_bytes == 0 {
            return None;
        }
        let percent_bytes = written_bytes? as f64 / used_percent as f64;
        let left_bytes = 100_u64.saturating_sub(used_percent) as f64 * percent_bytes;
        Some(left_bytes / pace_day_bytes as f64 / YEAR_DAYS)
    }
}

/// A number of bytes, from above zero.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; casts of floats saturate")]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}

#[cfg(test)]
mod tests;
