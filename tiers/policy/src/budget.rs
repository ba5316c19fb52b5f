//! The write budget: a bucket of bytes that fills at the plan's rate, and an account of every byte written.
//!
//! A write takes two steps. [`Budget::hold`] takes its upper bound out of the bucket before anything is written, or refuses; then
//! [`Budget::settle`] says what was really written and gives the rest back. What is held still takes up its place in the bucket, which
//! fills only up to what is left of it. Therefore:
//!
//! > In any span of time, however long ago its writes were admitted, the bytes settled are at most the bucket and what the span earned.
//!
//! Writes that can not be refused (wiping what is cleared, the ledger itself) are [claimed](Budget::claim) or [spent](Budget::spend) from a
//! reserve that admission leaves alone; should it be empty, they are owed, and paid back before anything else is admitted. The span's
//! bound is exceeded by what is owed, and by nothing else.
//!
//! Time is passed in and only ever goes forward: a moment before the last one counts as the last one. What survives a restart is a
//! [`Ledger`]. Time in which nothing runs earns nothing: no clock that can be set is believed.

use cairn_core::Moment;

use crate::Plan;

/// Bytes of the reserve, beside what [`Budget::keep`] says.
const RESERVE_BYTES: u64 = 1 << 20;
/// Most of the bucket that is reserved.
const RESERVE_SHARE: u64 = 16;
const HOURS: usize = 24;
const HOUR_SECONDS: u64 = 3600;

/// What is remembered over a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// Bytes in the bucket; below 0 if they are owed.
    pub level_bytes: i64,
    /// Physical bytes written since the ledger was begun.
    pub written_bytes: u64,
    /// Seconds that a server has run with it.
    pub running_seconds: u64,
    /// Bytes written by hour of running: hour `h` at `h % 24`.
    pub hour_bytes: [u64; HOURS],
}

impl Ledger {
    /// The ledger of a device that nobody has written to yet: one day's budget is there. That of any other device begins empty
    /// ([`Ledger::default`]).
    pub fn of_new_device(plan: Option<&Plan>) -> Self {
        Self { level_bytes: signed(plan.map_or(0, Plan::day_bytes)), ..Self::default() }
    }
}

/// The budget and the account. Without a plan everything is admitted and counted.
#[derive(Clone, Debug)]
pub struct Budget {
    plan: Option<Plan>,
    ledger: Ledger,
    held_bytes: u64,
    kept_bytes: u64,
    /// Earned, and less than a byte.
    fraction: u128,
    at: Moment,
    /// `running_seconds` at the start of this run, and when that was.
    ran_before: u64,
    began: Moment,
}

impl Budget {
    /// Goes on from `ledger` at `now`.
    pub fn open(plan: Option<Plan>, mut ledger: Ledger, now: Moment) -> Self {
        ledger.level_bytes = ledger.level_bytes.min(signed(plan.map_or(0, |plan| plan.bucket_bytes())));
        let ran_before = ledger.running_seconds;
        Self { plan, ledger, held_bytes: 0, kept_bytes: 0, fraction: 0, at: now, ran_before, began: now }
    }

    /// The plan, if there is one.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Bytes that could be held at `now`; `None` without a plan: as many as one likes.
    pub fn available_bytes(&mut self, now: Moment) -> Option<u64> {
        self.pass(now);
        let reserve = self.reserve_bytes()?;
        Some(u64::try_from(self.ledger.level_bytes.saturating_sub(signed(reserve))).unwrap_or(0))
    }

    /// Takes `bytes` out of the bucket for a write to come: all of them or, if it does not have as many, none.
    pub fn hold(&mut self, bytes: u64, now: Moment) -> bool {
        if self.available_bytes(now).is_some_and(|available| available < bytes) {
            return false;
        }
        self.claim(bytes, now);
        true
    }

    /// Takes `bytes` for a write to come that can not be refused; what the bucket does not have is owed. To be settled like a hold.
    pub fn claim(&mut self, bytes: u64, now: Moment) {
        self.pass(now);
        self.take(bytes);
        self.held_bytes = self.held_bytes.saturating_add(bytes);
    }

    /// Says how many bytes may have to be claimed one day: so many, up to a sixteenth of the bucket, are reserved beside the usual.
    pub fn keep(&mut self, bytes: u64) {
        self.kept_bytes = bytes;
    }

    /// Says that of `held_bytes` taken earlier `written_bytes` were written; the rest goes back into the bucket.
    pub fn settle(&mut self, held_bytes: u64, written_bytes: u64, now: Moment) {
        self.pass(now);
        self.held_bytes = self.held_bytes.saturating_sub(held_bytes);
        if self.plan.is_some() {
            self.ledger.level_bytes = self.ledger.level_bytes.saturating_add(signed(held_bytes));
        }
        self.take(written_bytes);
        self.count(written_bytes);
    }

    /// Takes `bytes` that are written in any case.
    pub fn spend(&mut self, bytes: u64, now: Moment) {
        self.pass(now);
        self.take(bytes);
        self.count(bytes);
    }

    /// Bytes in the bucket; below 0 if they are owed. 0 without a plan.
    pub fn level_bytes(&self) -> i64 {
        self.ledger.level_bytes
    }

    /// Bytes taken out for writes that are under way.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// What to remember, as if `ahead_bytes` more than is held had been written already: true until as much has been.
    pub fn ledger(&self, ahead_bytes: u64) -> Ledger {
        let mut ledger = self.ledger;
        if self.plan.is_some() {
            ledger.level_bytes = ledger.level_bytes.saturating_sub(signed(ahead_bytes));
        }
        let coming_bytes = self.held_bytes.saturating_add(ahead_bytes);
        ledger.written_bytes = ledger.written_bytes.saturating_add(coming_bytes);
        let hour = &mut ledger.hour_bytes[hour_of(ledger.running_seconds)];
        *hour = hour.saturating_add(coming_bytes);
        ledger
    }

    /// Physical bytes written since the ledger was begun.
    pub fn written_bytes(&self) -> u64 {
        self.ledger.written_bytes
    }

    /// Physical bytes written in the last 24 hours of running, to the hour.
    pub fn day_bytes(&self) -> u64 {
        self.ledger.hour_bytes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Bytes a day at the pace of the last 24 hours of running, or of all there was if that is less, but of an hour at least.
    pub fn pace_day_bytes(&self) -> u64 {
        const DAY_SECONDS: u64 = HOURS as u64 * HOUR_SECONDS;
        let seconds = self.ledger.running_seconds.clamp(HOUR_SECONDS, DAY_SECONDS);
        let pace = u128::from(self.day_bytes()) * u128::from(DAY_SECONDS) / u128::from(seconds);
        u64::try_from(pace).unwrap_or(u64::MAX)
    }

    /// Seconds that the ledger covers.
    pub fn running_seconds(&self) -> u64 {
        self.ledger.running_seconds
    }

    fn reserve_bytes(&self) -> Option<u64> {
        self.plan.map(|plan| RESERVE_BYTES.saturating_add(self.kept_bytes).min(plan.bucket_bytes() / RESERVE_SHARE))
    }

    fn take(&mut self, bytes: u64) {
        if self.plan.is_some() {
            self.ledger.level_bytes = self.ledger.level_bytes.saturating_sub(signed(bytes));
        }
    }

    fn count(&mut self, bytes: u64) {
        self.ledger.written_bytes = self.ledger.written_bytes.saturating_add(bytes);
        let hour = &mut self.ledger.hour_bytes[hour_of(self.ledger.running_seconds)];
        *hour = hour.saturating_add(bytes);
    }

    /// Lets time pass: the bucket fills, up to what is not held.
    fn pass(&mut self, now: Moment) {
        let nanos = u64::try_from(now.since(self.at).as_nanos()).unwrap_or(u64::MAX);
        self.at = self.at.max(now);
        self.turn_hours();
        let Some(plan) = self.plan else { return };
        let (earned, fraction) = Plan::earned(self.fraction.saturating_add(plan.earns(nanos)));
        let full = signed(plan.bucket_bytes()).saturating_sub(signed(self.held_bytes));
        self.ledger.level_bytes = self.ledger.level_bytes.saturating_add(signed(earned)).min(full);
        self.fraction = if self.ledger.level_bytes >= full { 0 } else { fraction };
    }

    fn turn_hours(&mut self) {
        let running = self.ran_before.saturating_add(self.at.since(self.began).as_secs());
        let (before, hour) = (self.ledger.running_seconds / HOUR_SECONDS, running / HOUR_SECONDS);
        for past in (before + 1..=hour).take(HOURS) {
            self.ledger.hour_bytes[hour_of(past * HOUR_SECONDS)] = 0;
        }
        self.ledger.running_seconds = running;
    }
}

fn hour_of(seconds: u64) -> usize {
    usize::try_from(seconds / HOUR_SECONDS % HOURS as u64).unwrap_or(0)
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
