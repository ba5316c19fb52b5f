//! Which chains are written: by policy, by chain, by budget.
#![allow(clippy::expect_used, reason = "tests")]

use std::collections::HashSet;
use std::time::Duration;

use cairn_core::{Durability, KeptOff, Moment, Thousandths, Tier};
use cairn_policy::{Admission, Budget, Ledger, Link, Plan, Verdict, WritePolicy};

const PAGE_BYTES: u64 = 1 << 20;
const DAY: u64 = 86_400;

/// A store whose DRAM holds nothing for long: what was not written is gone when it is asked for again.
struct Store {
    admission: Admission,
    budget: Budget,
    ssd: HashSet<u64>,
    now: Moment,
    written_pages: u64,
}

impl Store {
    fn new(policy: WritePolicy, plan: Option<Plan>, ledger: Ledger) -> Self {
        let now = Moment::default();
        Self {
            admission: Admission::new(policy, plan.is_some()),
            budget: Budget::open(plan, ledger, now),
            ssd: HashSet::new(),
            now,
            written_pages: 0,
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    fn links(&self, chain: &[u64]) -> Vec<Link> {
        let place = |page: &u64| self.ssd.contains(page).then_some(Tier::Ssd);
        chain.iter().map(|page| Link { page: *page, place: place(page) }).collect()
    }

    /// A request: a get of `chain`, then a put of it.
    fn request(&mut self, chain: &[u64]) -> Verdict {
        self.request_asking(chain, Durability::Memory)
    }

    fn request_asking(&mut self, chain: &[u64], asked: Durability) -> Verdict {
        let links = self.links(chain);
        let verdict = self.admission.get(&links, PAGE_BYTES, &mut self.budget, self.now);
        self.write(chain, &verdict);
        let links = self.links(chain);
        let verdict = self.admission.put(&links, PAGE_BYTES, asked, &mut self.budget, self.now);
        self.write(chain, &verdict);
        verdict
    }

    fn write(&mut self, chain: &[u64], verdict: &Verdict) {
        self.ssd.extend(&chain[..verdict.pages]);
        self.budget.settle(verdict.held_bytes, verdict.held_bytes, self.now);
        self.written_pages += verdict.admitted_pages;
    }

    fn holds(&self, chain: &[u64]) -> bool {
        chain.iter().all(|page| self.ssd.contains(page))
    }
}

fn chain(name: u64, pages: u64) -> Vec<u64> {
    (0..pages).map(|page| name << 20 | page).collect()
}

fn a_day(bytes: u64, days: u64) -> Plan {
    Plan::of_drive_writes(Thousandths(1000), bytes, 5, Thousandths(days * 1000))
}

#[test]
fn policies_are_known_by_name() {
    for policy in WritePolicy::ALL {
        assert_eq!(policy.name().parse(), Ok(policy));
    }
    assert!("lru".parse::<WritePolicy>().expect_err("no such policy").contains("reused, session, budget"));
    assert_eq!(Admission::new(WritePolicy::Auto, false).policy(), WritePolicy::All);
    assert_eq!(Admission::new(WritePolicy::Auto, true).policy(), WritePolicy::Budget);
}

#[test]
fn a_chain_is_charged_in_one_step_and_written_wholly_or_not_at_all() {
    let plan = a_day(20 * PAGE_BYTES, 1);
    let mut store = Store::new(WritePolicy::All, Some(plan), Ledger::of_new_device(Some(&plan)));
    let refused = store.request(&chain(1, 20));
    assert_eq!((refused.pages, refused.refused_pages, refused.refused), (0, 20, KeptOff::BudgetSpent));
    assert_eq!(store.request(&chain(2, 12)).admitted_pages, 12);
    // Seven more would do for its tail; without its head that is of no use.
    assert_eq!(store.request(&chain(1, 8)).pages, 0);
    // What is there already costs nothing.
    let longer = chain(2, 18);
    let verdict = store.request(&longer);
    assert_eq!((verdict.pages, verdict.admitted_pages), (18, 6));
}

#[test]
fn requested_writes_what_puts_ask_for_and_nothing_else() {
    let mut store = Store::new(WritePolicy::Requested, None, Ledger::default());
    let verdict = store.request(&chain(1, 4));
    assert_eq!((verdict.pages, verdict.refused, verdict.refused_pages), (0, KeptOff::NotRequested, 4));
    assert_eq!(store.request_asking(&chain(1, 4), Durability::Ssd).admitted_pages, 4);
}

#[test]
fn session_writes_from_the_second_turn_on() {
    let mut store = Store::new(WritePolicy::Session, None, Ledger::default());
    let first = store.request(&chain(1, 6));
    assert_eq!((first.pages, first.refused), (0, KeptOff::FirstTurn));
    store.pass(Duration::from_secs(60));
    assert_eq!(store.request(&chain(1, 10)).admitted_pages, 10);
}

#[test]
fn what_a_put_asks_to_be_durable_passes_every_policy_but_not_the_budget() {
    for policy in WritePolicy::ALL {
        let plan = a_day(100 * PAGE_BYTES, 1);
        let mut store = Store::new(policy, Some(plan), Ledger::of_new_device(Some(&plan)));
        assert_eq!(store.request_asking(&chain(1, 40), Durability::Ssd).admitted_pages, 40, "{policy:?}");
        let spent = store.request_asking(&chain(2, 80), Durability::Ssd);
        assert_eq!((spent.pages, spent.refused), (0, KeptOff::BudgetSpent), "{policy:?}");
    }
}

#[test]
fn case_50_a_scan_that_is_never_repeated_stays_within_the_budget_and_the_hot_set_is_kept() {
    // 1,000 chains of 64 pages within a day, 1/10 of which the budget would pay for; between them 20 hot chains come back.
    let plan = a_day(6_400 * PAGE_BYTES, 1);
    for policy in [WritePolicy::Reused, WritePolicy::Session, WritePolicy::Budget] {
        let mut store = Store::new(policy, Some(plan), Ledger::default());
        let mut refused_pages = 0;
        for scan in 0..1000 {
            store.pass(Duration::from_secs(DAY / 2000));
            refused_pages += store.request(&chain(1_000_000 + scan, 64)).refused_pages;
            store.pass(Duration::from_secs(DAY / 2000));
            store.request(&chain(scan % 20, 8 + scan / 20 % 4));
        }
        assert!(store.budget.written_bytes() <= plan.day_bytes(), "{policy:?}");
        let hot = (0..20).filter(|name| store.holds(&chain(*name, 8))).count();
        assert_eq!(hot, 20, "{policy:?}");
        let scanned = (0..1000).filter(|scan| store.holds(&chain(1_000_000 + scan, 64))).count() as u64;
        assert_eq!(refused_pages, 64 * (1000 - scanned), "{policy:?}: what was refused is counted");
        assert!(scanned < 100, "{policy:?} {scanned}");
    }
}

#[test]
fn case_51_of_mixed_traffic_what_is_seen_twice_is_written_and_one_timers_are_not() {
    let mut store = Store::new(WritePolicy::Reused, None, Ledger::default());
    for name in 0..10_000 {
        store.request(&chain(name, 4));
        if name >= 1000 && name % 5 == 0 {
            store.request(&chain(name - 1000, 4));
        }
        store.pass(Duration::from_secs(1));
    }
    let twice = (0..9000).step_by(5);
    assert!(twice.clone().all(|name| store.holds(&chain(name, 4))));
    assert_eq!(store.written_pages, 4 * twice.count() as u64, "and nothing else");
}

#[test]
fn case_52_a_budget_used_up_by_noon_stops_writes_and_they_go_on_as_it_fills_again() {
    let plan = a_day(1000 * PAGE_BYTES, 1);
    let mut store = Store::new(WritePolicy::All, Some(plan), Ledger::of_new_device(Some(&plan)));
    let mut admitted_by_hour = Vec::new();
    for hour in 0..48 {
        let before = store.written_pages;
        for minute in 0..60 {
            store.request(&chain(hour * 60 + minute, 4));
            store.pass(Duration::from_secs(60));
        }
        admitted_by_hour.push(store.written_pages - before);
    }
    assert_eq!(admitted_by_hour[..4], [240; 4]);
    // Then the refill alone: 1,000 pages a day are 41 2/3 an hour.
    assert!(admitted_by_hour[6..].iter().all(|pages| (36..=48).contains(pages)), "{admitted_by_hour:?}");
    // A restart goes on where it was.
    let ledger = store.budget.ledger(0);
    let mut again = Store::new(WritePolicy::All, Some(plan), ledger);
    assert_eq!(again.request(&chain(9999, 40)).refused, KeptOff::BudgetSpent);
}

#[test]
fn with_too_little_budget_for_all_the_chains_that_come_back_are_written() {
    // Of every twenty sessions one comes back nine times; the budget pays for an eighth of all pages and keeps an hour's worth.
    let plan = Plan::of_drive_writes(Thousandths(1000), 24 * 60 * 26 * PAGE_BYTES, 5, Thousandths(42));
    let good = |minute: u64| minute * 20 + minute * 7 % 20;
    let hits = |policy| {
        let mut store = Store::new(policy, Some(plan), Ledger::default());
        let mut hits = 0;
        for minute in 0..600 {
            for session in 0..20 {
                store.request(&chain(minute * 20 + session, 10));
            }
            for back in 1..10.min(minute + 1) {
                let chain = chain(good(minute - back), 10 + back);
                hits += store.links(&chain).iter().take_while(|link| link.place.is_some()).count();
                store.request(&chain);
            }
            store.pass(Duration::from_secs(60));
        }
        hits
    };
    let (all, budget) = (hits(WritePolicy::All), hits(WritePolicy::Budget));
    assert!(budget > all + all / 2, "all {all}, budget {budget}");
}
