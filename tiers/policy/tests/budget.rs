//! The write budget is exact: over any span of time, whatever happens, no more is written than the bucket and what the span earned.
#![allow(clippy::expect_used, reason = "tests")]

use std::time::Duration;

use cairn_core::{Moment, Thousandths};
use cairn_policy::{Budget, Ledger, Plan};
use proptest::prelude::*;

const GB: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

fn at(seconds: u64) -> Moment {
    Moment::from_start(Duration::from_secs(seconds))
}

/// One drive write a day of `day_bytes`, kept for `days`.
fn plan(day_bytes: u64, days: u64) -> Plan {
    Plan::of_drive_writes(Thousandths(1000), day_bytes, 5, Thousandths(days * 1000))
}

fn full(plan: &Plan) -> Ledger {
    Ledger { level_bytes: i64::try_from(plan.bucket_bytes()).expect("a bucket"), ..Ledger::default() }
}

#[test]
fn a_new_device_starts_with_a_day_and_any_other_with_nothing() {
    let plan = plan(100 * GB, 7);
    assert_eq!(Budget::open(Some(plan), Ledger::of_new_device(Some(&plan)), at(0)).level_bytes(), 100_000_000_000);
    assert_eq!(Budget::open(Some(plan), Ledger::default(), at(0)).level_bytes(), 0);
    // A bucket that has become smaller loses what does not fit.
    let smaller = self::plan(10 * GB, 1);
    assert_eq!(Budget::open(Some(smaller), full(&plan), at(0)).level_bytes(), 10_000_000_000);
}

#[test]
fn the_bucket_fills_at_the_rate_and_no_further_than_its_depth() {
    let plan = plan(86_400 * 1000, 2);
    let mut budget = Budget::open(Some(plan), Ledger::default(), at(0));
    budget.spend(0, at(7));
    assert_eq!(budget.level_bytes(), 7 * 1000);
    budget.spend(0, at(DAY));
    assert_eq!(budget.level_bytes(), 86_400_000);
    budget.spend(0, at(300 * DAY));
    assert_eq!(budget.level_bytes(), 2 * 86_400_000);
    // Time that runs backwards is no time.
    budget.spend(0, at(5));
    budget.spend(1000, at(300 * DAY));
    assert_eq!(budget.level_bytes(), 2 * 86_400_000 - 1000);
}

#[test]
fn not_a_byte_is_lost_to_rounding() {
    // 1 byte in 864 s, looked at every second.
    let mut budget = Budget::open(Some(plan(100, 1000)), Ledger::default(), at(0));
    for second in 0..=DAY {
        budget.spend(0, at(second));
    }
    assert_eq!(budget.level_bytes(), 100);
}

#[test]
fn a_hold_is_all_or_nothing_and_a_settlement_gives_the_rest_back() {
    let plan = plan(100 * GB, 1);
    let mut budget = Budget::open(Some(plan), full(&plan), at(0));
    assert!(!budget.hold(101 * GB, at(0)));
    assert!(budget.hold(60 * GB, at(0)));
    assert!(!budget.hold(60 * GB, at(0)));
    assert_eq!((budget.held_bytes(), budget.written_bytes()), (60 * GB, 0));
    budget.settle(60 * GB, 50 * GB, at(0));
    assert_eq!((budget.held_bytes(), budget.written_bytes()), (0, 50 * GB));
    assert!(budget.hold(49 * GB, at(0)));
}

#[test]
fn what_could_not_be_refused_is_owed_and_paid_back_first() {
    let plan = plan(86_400 * 1_000_000, 1);
    let mut budget = Budget::open(Some(plan), Ledger::default(), at(0));
    budget.spend(10_000_000, at(0));
    assert_eq!(budget.level_bytes(), -10_000_000);
    assert!(!budget.hold(1, at(10)));
    // The reserve of 1 MiB fills next, and only then there is something to hold.
    assert!(!budget.hold(1, at(11)));
    assert!(budget.hold(1_900_000, at(13)));
}

#[test]
fn what_may_have_to_be_claimed_is_reserved_and_a_claim_keeps_its_place_like_a_hold() {
    let plan = plan(100 * GB, 1);
    let mut budget = Budget::open(Some(plan), full(&plan), at(0));
    budget.keep(2 * GB);
    let available = budget.available_bytes(at(0)).expect("a plan");
    assert_eq!(available, 98 * GB - (1 << 20));
    assert!(budget.hold(available, at(0)));
    budget.claim(2 * GB, at(0));
    assert_eq!((budget.level_bytes(), budget.held_bytes()), (1 << 20, 100 * GB - (1 << 20)));
    // Nothing is earned beyond the bucket while all of it is held.
    budget.spend(0, at(DAY));
    assert_eq!(budget.level_bytes(), 1 << 20);
    // No more than a sixteenth of the bucket is reserved; what is claimed beyond that is owed.
    budget.settle(available, available, at(DAY));
    budget.keep(50 * GB);
    assert_eq!(budget.available_bytes(at(3 * DAY)), Some(98 * GB - 100 * GB / 16));
    budget.claim(99 * GB, at(3 * DAY));
    assert_eq!(budget.level_bytes(), -1_000_000_000);
}

#[test]
fn a_restart_after_a_crash_gains_nothing_and_loses_at_most_what_was_ahead() {
    let plan = plan(100 * GB, 1);
    let mut budget = Budget::open(Some(plan), full(&plan), at(0));
    assert!(budget.hold(20 * GB, at(0)));
    let remembered = budget.ledger(5 * GB);
    // 25 GB are written before the crash: all that the ledger said.
    budget.settle(20 * GB, 20 * GB, at(1));
    assert!(budget.hold(5 * GB, at(1)));
    budget.settle(5 * GB, 5 * GB, at(1));
    let again = Budget::open(Some(plan), remembered, at(0));
    assert_eq!(again.level_bytes(), 75_000_000_000);
    assert_eq!(again.written_bytes(), budget.written_bytes());
    assert_eq!(again.held_bytes(), 0);
}

#[test]
fn without_a_plan_everything_is_admitted_and_counted() {
    let mut budget = Budget::open(None, Ledger::default(), at(0));
    assert!(budget.hold(u64::MAX / 4, at(0)));
    budget.settle(u64::MAX / 4, 7 * GB, at(0));
    assert_eq!((budget.available_bytes(at(1)), budget.written_bytes(), budget.level_bytes()), (None, 7 * GB, 0));
}

#[test]
fn the_last_day_is_the_last_24_hours_of_running_over_restarts_too() {
    let mut budget = Budget::open(None, Ledger::default(), at(0));
    budget.spend(5, at(0));
    budget.spend(7, at(23 * 3600));
    assert_eq!(budget.day_bytes(), 12);
    let mut budget = Budget::open(None, budget.ledger(0), at(1000));
    budget.spend(1, at(1000 + 2 * 3600));
    assert_eq!((budget.day_bytes(), budget.written_bytes()), (8, 13));
    budget.spend(0, at(1000 + 100 * 3600));
    assert_eq!(budget.day_bytes(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    /// Time passes, now and then a long jump.
    Pass(u64),
    Hold(u64),
    /// Settles the oldest hold, with this share of it written.
    Settle(u64),
    Spend(u64),
    /// A crash, after which the server goes on with what was remembered last; holds are forgotten.
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..5_000u64).prop_map(Step::Pass),
        1 => (0..400_000u64).prop_map(Step::Pass),
        6 => (0..60_000_000u64).prop_map(Step::Hold),
        6 => (0..=100u64).prop_map(Step::Settle),
        1 => (0..100_000u64).prop_map(Step::Spend),
        1 => Just(Step::Crash),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn over_any_window_no_more_is_written_than_the_bucket_and_what_the_window_earned(
        steps in steps(),
        day_bytes in 1_000_000..500_000_000u64,
        days in 1..4u64,
        ahead_bytes in 0..20_000_000u64,
    ) {
        let plan = plan(day_bytes, days);
        let mut budget = Budget::open(Some(plan), full(&plan), at(0));
        let mut remembered = full(&plan);
        let mut now = 0;
        let mut holds = std::collections::VecDeque::new();
        let mut writes: Vec<(u64, u64)> = Vec::new();
        // Bytes that may still be written on the strength of what is remembered.
        let mut covered = 0;
        for step in steps {
            match step {
                Step::Pass(seconds) => now += seconds,
                Step::Hold(bytes) => {
                    if budget.hold(bytes, at(now)) {
                        holds.push_back(bytes);
                    }
                }
                Step::Settle(share) => {
                    let Some(held) = holds.pop_front() else { continue };
                    if covered < held {
                        let ahead = ahead_bytes.min(u64::try_from(budget.level_bytes()).unwrap_or(0));
                        remembered = budget.ledger(ahead);
                        covered = budget.held_bytes() + ahead;
                    }
                    prop_assert!(covered >= held);
                    let written = held * share / 100;
                    budget.settle(held, written, at(now));
                    covered -= written;
                    writes.push((now, written));
                }
                Step::Spend(bytes) => {
                    if budget.available_bytes(at(now)).is_some_and(|available| available >= bytes) {
                        budget.spend(bytes, at(now));
                        covered = 0;
                        remembered = budget.ledger(0);
                        covered += budget.held_bytes();
                        writes.push((now, bytes));
                    }
                }
                Step::Crash => {
                    budget = Budget::open(Some(plan), remembered, at(now));
                    holds.clear();
                    remembered = budget.ledger(0);
                    covered = 0;
                }
            }
            prop_assert!(budget.level_bytes() >= 0);
        }
        for (first, (from, _)) in writes.iter().enumerate() {
            let mut sum: u128 = 0;
            for (until, bytes) in &writes[first..] {
                sum += u128::from(*bytes);
                // A byte may have been in the making when the window began.
                let earned = u128::from(until - from) * u128::from(plan.day_bytes()) / u128::from(DAY) + 1;
                prop_assert!(
                    sum <= u128::from(plan.bucket_bytes()) + earned,
                    "{sum} bytes from {from} s to {until} s"
                );
            }
        }
    }
}
