//! The time of one call, and how it may be spent on repetitions.
//!
//! The server is told the time that is left and ends the call by then, with what is ready. The client waits a little longer, the
//! grace, and then gives up by itself.

use std::time::Duration;

use cairn_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, sleep, timeout_at};

use crate::fault::Fault;

/// Wait before the first repetition; doubles with each.
const BACKOFF_FIRST: Duration = Duration::from_millis(25);
/// Longest wait between repetitions.
const BACKOFF_MAX: Duration = Duration::from_millis(800);

/// The time of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    call: &'static str,
    total: Duration,
    grace: Duration,
    started: Instant,
}

impl Budget {
    /// Starts now.
    pub(crate) fn start(call: &'static str, total: Duration, grace: Duration) -> Self {
        Self { call, total, grace, started: Instant::now() }
    }

    /// Time until the server has to have ended the call.
    pub(crate) fn left(&self) -> Duration {
        self.total.saturating_sub(self.started.elapsed())
    }

    /// The time left as the wire wants it: never 0, which would mean the server's default.
    pub(crate) fn timeout_ms(&self) -> u64 {
        u64::try_from(self.left().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Waits for `work` until the time and the grace are up.
    pub(crate) async fn watch<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        // A timeout of ages does not fit an instant; a day is as good.
        let end = self.total.saturating_add(self.grace).min(Duration::from_secs(86_400));
        match timeout_at(self.started + end, work).await {
            Ok(ended) => ended,
            Err(_) => Err(Fault::Hangs { call: self.call, waited: self.started.elapsed() }.into()),
        }
    }
}

/// Repeats `attempt` while it fails in a way that time may heal, `retries_max` times at most and within `budget`.
///
/// `may_repeat` says which failures prove that a repetition does no harm.
pub(crate) async fn repeated<T, F: Future<Output = Result<T>>>(
    budget: &Budget,
    retries_max: u32,
    may_repeat: impl Fn(&Error) -> bool,
    mut attempt: impl FnMut() -> F,
) -> Result<T> {
    let mut retries = 0;
    loop {
        let error = match budget.watch(attempt()).await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let wait = wait_before(retries, &error);
        if retries == retries_max || !may_repeat(&error) || wait >= budget.left() {
            return Err(error);
        }
        sleep(wait).await;
        retries += 1;
    }
}

/// Whether waiting may help: the server is away, or asked to be called later.
pub(crate) fn passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Overloaded { .. })
}

fn wait_before(retries: u32, error: &Error) -> Duration {
    let backoff = BACKOFF_FIRST.saturating_mul(1 << retries.min(10)).min(BACKOFF_MAX);
    match error.kind() {
        ErrorKind::Overloaded { retry_after } => retry_after.max(backoff),
        _ => backoff,
    }
}
