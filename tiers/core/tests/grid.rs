//! The grid of slots against a model that knows nothing of free lists, and its rules one by one.
#![allow(clippy::cast_possible_truncation, reason = "the numbers of a test are small")]

use std::collections::{BTreeMap, BTreeSet};

use cairn_core::{Grid, Place, SlotId};
use cairn_testkit::trials::Rig;
use proptest::prelude::*;

type Small = Grid<(u8, u64)>;

fn grid(regions_bytes: &[u64]) -> Small {
    let mut grid = Small::default();
    for bytes in regions_bytes {
        grid.add_region(*bytes);
    }
    grid
}

fn slot(region: u32, slot: u32) -> SlotId {
    SlotId { region, slot }
}

fn take(grid: &mut Small, class: (u8, u64)) -> Option<Place> {
    grid.take(class, class.1)
}

const A: (u8, u64) = (0, 10);
const B: (u8, u64) = (1, 25);

#[test]
fn a_new_region_is_filled_in_ascending_order() {
    let mut grid = grid(&[1000]);
    let taken: Vec<u32> = (0..100).map(|_| take(&mut grid, A).unwrap().slot.slot).collect();
    assert_eq!(taken, (0..100).collect::<Vec<_>>());
    assert_eq!(take(&mut grid, A), None);
}

#[test]
fn only_the_first_slot_of_a_region_says_that_it_opened_it() {
    let mut grid = grid(&[20, 20]);
    let opened: Vec<bool> = (0..4).map(|_| take(&mut grid, A).unwrap().opened).collect();
    assert_eq!(opened, [true, false, true, false]);
}

#[test]
fn classes_never_share_a_region() {
    let mut grid = grid(&[100, 100]);
    assert_eq!(take(&mut grid, A).unwrap().slot.region, 0);
    assert_eq!(take(&mut grid, B).unwrap().slot.region, 1);
    assert_eq!(take(&mut grid, (2, 10)), None);
}

#[test]
fn a_region_goes_to_another_class_when_its_last_slot_came_back() {
    let mut grid = grid(&[20]);
    let first = take(&mut grid, A).unwrap().slot;
    let second = take(&mut grid, A).unwrap().slot;
    assert!(!grid.give_back(first));
    assert!(grid.give_back(second));
    assert_eq!(grid.class(0), None);
    assert!(take(&mut grid, (1, 20)).unwrap().opened);
}

#[test]
fn a_region_too_small_for_the_slot_is_passed_over() {
    let mut grid = grid(&[20, 30]);
    assert_eq!(take(&mut grid, B).unwrap().slot, slot(1, 0));
    assert_eq!(take(&mut grid, B), None);
}

#[test]
fn a_draining_region_hands_out_nothing_until_it_was_empty() {
    let mut grid = grid(&[30]);
    let first = take(&mut grid, A).unwrap().slot;
    let second = take(&mut grid, A).unwrap().slot;
    grid.drain(0);
    assert_eq!(take(&mut grid, A), None);
    assert!(!grid.give_back(first));
    assert_eq!(take(&mut grid, A), None);
    assert_eq!(grid.available(A, A.1, 9), 0);
    assert!(grid.give_back(second));
    assert_eq!(take(&mut grid, A), Some(Place { slot: slot(0, 0), opened: true }));
    assert!(!grid.give_back(slot(0, 1)));
}

#[test]
fn draining_what_is_in_the_stock_or_nowhere_changes_nothing() {
    let mut grid = grid(&[30]);
    grid.drain(0);
    grid.drain(7);
    assert_eq!(grid.available(A, A.1, 9), 3);
    assert!(take(&mut grid, A).is_some());
}

#[test]
fn a_slot_given_back_twice_is_handed_out_once() {
    let mut grid = grid(&[30]);
    let first = take(&mut grid, A).unwrap().slot;
    let second = take(&mut grid, A).unwrap().slot;
    grid.give_back(first);
    grid.give_back(first);
    assert_eq!(take(&mut grid, A).unwrap().slot, first);
    assert_ne!(take(&mut grid, A).unwrap().slot, second);
    assert_eq!(take(&mut grid, A), None);
    assert_eq!(grid.taken(), 3);
}

#[test]
fn giving_back_what_never_was_changes_nothing() {
    let mut grid = grid(&[30]);
    for foreign in [slot(0, 0), slot(0, 99), slot(9, 0)] {
        assert!(!grid.give_back(foreign));
    }
    take(&mut grid, A).unwrap();
    assert!(!grid.give_back(slot(0, 63)));
    assert_eq!((grid.taken(), grid.available(A, A.1, 9)), (1, 2));
}

#[test]
fn a_refused_claim_leaves_a_fresh_region_in_the_stock() {
    let mut grid = grid(&[30]);
    assert!(!grid.claim(slot(0, 3), A, A.1));
    assert!(!grid.claim(slot(0, 0), (0, 31), 31));
    assert!(!grid.claim(slot(1, 0), A, A.1));
    assert_eq!(grid.class(0), None);
    assert!(take(&mut grid, B).is_some());
}

#[test]
fn a_claimed_slot_is_not_handed_out() {
    let mut grid = grid(&[30]);
    assert!(grid.claim(slot(0, 1), A, A.1));
    assert!(!grid.claim(slot(0, 1), A, A.1));
    assert!(!grid.claim(slot(0, 0), B, B.1));
    assert_eq!(take(&mut grid, A).unwrap(), Place { slot: slot(0, 0), opened: false });
    assert_eq!(take(&mut grid, A).unwrap().slot, slot(0, 2));
    assert_eq!(take(&mut grid, A), None);
}

#[test]
fn available_counts_open_regions_and_the_stock_up_to_enough() {
    let mut grid = grid(&[100, 100, 5]);
    take(&mut grid, A).unwrap();
    assert_eq!(grid.available(A, A.1, 100), 19);
    assert_eq!(grid.available(A, A.1, 12), 12);
    assert_eq!(grid.available(B, B.1, 100), 4);
}

fn sequential(regions_bytes: &[u64]) -> Small {
    let mut grid = Small::sequential();
    for bytes in regions_bytes {
        grid.add_region(*bytes);
    }
    grid
}

#[test]
fn a_sequential_region_is_filled_once_and_is_new_again_when_its_last_page_has_left() {
    let mut grid = sequential(&[30]);
    let taken: Vec<SlotId> = (0..3).map(|_| take(&mut grid, A).unwrap().slot).collect();
    assert!(!grid.give_back(taken[0]));
    assert!(!grid.give_back(taken[0]), "dead already");
    assert_eq!((take(&mut grid, A), grid.taken_in(0), grid.dead_in(0)), (None, 2, 1));
    assert!(!grid.give_back(taken[2]));
    assert!(grid.give_back(taken[1]));
    assert_eq!(take(&mut grid, A), Some(Place { slot: slot(0, 0), opened: true }));
    assert_eq!(grid.dead_in(0), 0);
}

#[test]
fn after_a_recovery_a_sequential_region_is_filled_behind_its_last_page() {
    let mut grid = sequential(&[60]);
    assert!(grid.claim(slot(0, 3), A, A.1));
    assert!(grid.claim(slot(0, 1), A, A.1));
    grid.settle();
    assert_eq!((grid.taken_in(0), grid.dead_in(0)), (2, 2));
    assert_eq!(take(&mut grid, A).unwrap(), Place { slot: slot(0, 4), opened: false });
    assert_eq!(take(&mut grid, A).unwrap().slot, slot(0, 5));
    assert!(!grid.is_open(0));
    assert_eq!(take(&mut grid, A), None);
}

#[test]
fn a_buried_slot_is_passed_over_until_its_region_was_empty() {
    let mut grid = sequential(&[30]);
    let first = take(&mut grid, A).unwrap().slot;
    grid.bury(slot(0, 1));
    grid.bury(first);
    assert_eq!(take(&mut grid, A).unwrap().slot, slot(0, 2));
    assert_eq!((grid.taken_in(0), grid.dead_in(0)), (2, 1));
    assert!(!grid.give_back(first));
    assert!(grid.give_back(slot(0, 2)));
    assert_eq!(grid.available(A, A.1, 9), 3);
}

#[test]
fn a_million_claims_in_any_order_end_in_a_full_grid() {
    let (slots, page_bytes) = (1_u32 << 20, 4096);
    let mut grid = Grid::default();
    let region_slots = 1 << 18;
    for _ in 0..slots / region_slots {
        grid.add_region(u64::from(region_slots) * page_bytes);
    }
    // An odd step walks through every slot once, far apart.
    for n in 0..slots {
        let at = n.wrapping_mul(0x9E37_79B1) % slots;
        assert!(grid.claim(slot(at / region_slots, at % region_slots), (), page_bytes));
    }
    assert_eq!(grid.taken(), u64::from(slots));
    assert_eq!(grid.take((), page_bytes), None);
}

#[derive(Clone, Debug)]
enum Step {
    Take(u8),
    Claim(u8, SlotId),
    GiveBack(usize),
    GiveBackAny(SlotId),
    Drain(u32),
    Bury(SlotId),
    Settle,
}

const CLASSES: [(u8, u64); 3] = [(0, 7), (1, 7), (2, 64)];
const REGIONS_BYTES: [u64; 4] = [7 * 70, 7 * 3 + 6, 128, 64];

fn step() -> impl Strategy<Value = Step> {
    let class = 0..CLASSES.len() as u8;
    let any_slot = (0..6u32, 0..80u32).prop_map(|(region, index)| slot(region, index));
    prop_oneof![
        8 => class.clone().prop_map(Step::Take),
        2 => (class, any_slot.clone()).prop_map(|(class, slot)| Step::Claim(class, slot)),
        8 => any::<usize>().prop_map(Step::GiveBack),
        1 => any_slot.clone().prop_map(Step::GiveBackAny),
        1 => (0..6u32).prop_map(Step::Drain),
        1 => any_slot.prop_map(Step::Bury),
        1 => Just(Step::Settle),
    ]
}

/// What is taken, by whom, what is dead, and which regions drain; everything else follows.
#[derive(Default)]
struct Model {
    taken: BTreeMap<(u32, u32), usize>,
    dead: BTreeSet<(u32, u32)>,
    draining: BTreeSet<u32>,
    sequential: bool,
}

impl Model {
    fn class(&self, region: u32) -> Option<usize> {
        self.taken.range((region, 0)..=(region, u32::MAX)).next().map(|(_, class)| *class)
    }

    fn exists(at: (u32, u32), class: usize) -> bool {
        REGIONS_BYTES.get(at.0 as usize).is_some_and(|bytes| u64::from(at.1) < bytes / CLASSES[class].1)
    }

    fn claimable(&self, at: (u32, u32), class: usize) -> bool {
        let is_free = !self.taken.contains_key(&at) && !self.dead.contains(&at);
        Self::exists(at, class) && is_free && self.class(at.0).is_none_or(|other| other == class)
    }

    fn takeable(&self, class: usize) -> Vec<(u32, u32)> {
        let all = (0..REGIONS_BYTES.len() as u32).flat_map(|region| (0..80).map(move |slot| (region, slot)));
        all.filter(|at| !self.draining.contains(&at.0) && self.claimable(*at, class)).collect()
    }

    fn give_back(&mut self, at: (u32, u32)) -> bool {
        let was_taken = self.taken.remove(&at).is_some();
        if was_taken && self.sequential {
            self.dead.insert(at);
        }
        let restocked = was_taken && self.class(at.0).is_none();
        if restocked {
            self.draining.remove(&at.0);
            self.dead.retain(|dead| dead.0 != at.0);
        }
        restocked
    }

    fn bury(&mut self, at: (u32, u32)) {
        if self.class(at.0).is_some_and(|class| self.claimable(at, class)) {
            self.dead.insert(at);
        }
    }

    fn settle(&mut self) {
        let last_slots = if self.sequential { self.taken.keys().copied().collect() } else { Vec::new() };
        for (region, last) in last_slots {
            (0..last).for_each(|before| self.bury((region, before)));
        }
    }
}

/// Takes one step with both, and compares everything that can be asked.
fn take_step(grid: &mut Small, model: &mut Model, step: Step) {
    match step {
        Step::Take(class) => {
            let class = class as usize;
            let possible = model.takeable(class);
            let place = take(grid, CLASSES[class]);
            assert_eq!(place.is_some(), !possible.is_empty());
            if let Some(Place { slot, opened }) = place {
                let at = (slot.region, slot.slot);
                assert!(possible.contains(&at));
                assert_eq!(opened, model.class(at.0).is_none());
                model.taken.insert(at, class);
            }
        }
        Step::Claim(class, slot) => {
            let (class, at) = (class as usize, (slot.region, slot.slot));
            let possible = model.claimable(at, class);
            assert_eq!(grid.claim(slot, CLASSES[class], CLASSES[class].1), possible);
            if possible {
                model.taken.insert(at, class);
            }
        }
        Step::GiveBack(nth) => {
            if let Some(at) = model.taken.keys().copied().nth(nth % model.taken.len().max(1)) {
                assert_eq!(grid.give_back(slot(at.0, at.1)), model.give_back(at));
            }
        }
        Step::GiveBackAny(slot) => {
            assert_eq!(grid.give_back(slot), model.give_back((slot.region, slot.slot)));
        }
        Step::Drain(region) => {
            if model.class(region).is_some() {
                model.draining.insert(region);
            }
            grid.drain(region);
        }
        Step::Bury(slot) => {
            grid.bury(slot);
            model.bury((slot.region, slot.slot));
        }
        Step::Settle => {
            grid.settle();
            model.settle();
        }
    }
    assert_eq!(grid.taken(), model.taken.len() as u64);
    for (class, kind) in CLASSES.iter().enumerate() {
        assert_eq!(grid.available(*kind, kind.1, u64::MAX), model.takeable(class).len() as u64);
    }
    for region in 0..REGIONS_BYTES.len() as u32 {
        assert_eq!(grid.class(region), model.class(region).map(|class| CLASSES[class]));
        assert_eq!(grid.dead_in(region) as usize, model.dead.iter().filter(|dead| dead.0 == region).count());
    }
}

fn pair(sequential: bool) -> (Small, Model) {
    let grid = if sequential { self::sequential(&REGIONS_BYTES) } else { grid(&REGIONS_BYTES) };
    (grid, Model { sequential, ..Model::default() })
}

proptest! {
    #[test]
    fn the_grid_does_what_the_model_does(sequential: bool, steps in prop::collection::vec(step(), 1..400)) {
        let (mut grid, mut model) = pair(sequential);
        for step in steps {
            take_step(&mut grid, &mut model, step);
        }
    }
}

/// The same from seeds, very often.
#[test]
fn a_grid_does_what_the_model_does_over_any_sequence() {
    let rig = Rig {
        name: "R4 grid sequences",
        target: "-p cairn-core --test grid -- --nocapture a_grid_does",
        trials: 10_000,
        nightly: 500_000,
        each: 1,
    };
    rig.run(
        || (),
        |(), _, dice| {
            let (mut grid, mut model) = pair(dice.place(2) == 0);
            for _ in 0..1 + dice.place(200) {
                let class = dice.place(CLASSES.len()) as u8;
                let slot = slot(dice.place(6) as u32, dice.place(80) as u32);
                let step = match dice.place(22) {
                    0..8 => Step::Take(class),
                    8..10 => Step::Claim(class, slot),
                    10..18 => Step::GiveBack(dice.place(1000)),
                    18 => Step::GiveBackAny(slot),
                    19 => Step::Bury(slot),
                    20 => Step::Settle,
                    _ => Step::Drain(slot.region),
                };
                take_step(&mut grid, &mut model, step);
            }
            Ok(())
        },
    );
}
