//! The bar: how much a chain must be worth to be written, so that what is written uses the budget and no more.

use std::collections::VecDeque;
use std::time::Duration;

use cairn_core::Moment;

use crate::Budget;

/// Candidates that the bar is taken from: those of so much time, ...
const WINDOW: Duration = Duration::from_secs(15 * 60);
/// ... and no more than so many.
const CANDIDATES_MAX: usize = 4096;
/// With fewer seconds behind it, the budget of so many is shared out.
const WINDOW_SECONDS_MIN: f64 = 60.0;
/// Candidates after which the bar is taken anew.
const CANDIDATES_A_BAR: u32 = 16;
/// What is saved up is spent over this share of the bucket's depth: a bucket of an hour within two minutes, one of a week within hours.
const BUCKET_SHARE: f64 = 28.0;

/// Takes the bar from the candidates of the last minutes: best first, those that the budget suffices for are above it.
#[derive(Debug, Default)]
pub(crate) struct Bar {
    candidates: VecDeque<Candidate>,
    /// Number of the first of them.
    first: u64,
    bar: f64,
    untaken: u32,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    at: Moment,
    value: f64,
    bytes: u64,
}

impl Bar {
    /// Adds a candidate, and returns its number.
    pub(crate) fn add(&mut self, value: f64, bytes: u64, now: Moment) -> u64 {
        self.candidates.push_back(Candidate { at: now, value, bytes });
        while self.candidates.len() > CANDIDATES_MAX
            || self.candidates.front().is_some_and(|oldest| now.since(oldest.at) > WINDOW)
        {
            self.candidates.pop_front();
            self.first += 1;
        }
        self.first + self.candidates.len() as u64 - 1
    }

    /// The candidate has come again, longer: it counts once.
    pub(crate) fn replace(&mut self, number: u64) {
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(candidate) = at.and_then(|at| self.candidates.get_mut(at)) {
            candidate.bytes = 0;
        }
    }

    /// Whether a chain of this value is above the bar. Without a plan every one is.
    pub(crate) fn is_passed_by(&mut self, value: f64, budget: &mut Budget, now: Moment) -> bool {
        let Some(available) = budget.available_bytes(now) else { return true };
        if self.untaken == 0 {
            self.untaken = CANDIDATES_A_BAR;
            self.bar = self.taken(budget, available, now);
        }
        self.untaken -= 1;
        value >= self.bar
    }

    fn taken(&self, budget: &Budget, available: u64, now: Moment) -> f64 {
        let Some((plan, oldest)) = budget.plan().zip(self.candidates.front()) else { return 0.0 };
        let seconds = now.since(oldest.at).as_secs_f64().max(WINDOW_SECONDS_MIN);
        let rate = plan.bytes_per_second();
        let spread = (plan.bucket_bytes() as f64 / rate.max(1.0) / BUCKET_SHARE).max(1.0);
        let mut share = (rate + available as f64 / spread) * seconds;
        let mut best: Vec<&Candidate> = self.candidates.iter().filter(|candidate| candidate.bytes > 0).collect();
        best.sort_unstable_by(|a, b| b.value.total_cmp(&a.value));
        for candidate in best {
            share -= candidate.bytes as f64;
            if share < 0.0 {
                return candidate.value;
            }
        }
        0.0
    }
}
