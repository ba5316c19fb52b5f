//! Slots: who takes, frees, reads, finds damage, trims, all at once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cairn_core::SlotId;
use cairn_core::metrics::Damage;
use cairn_schedules::{Mutex, point, thread};
use cairn_ssd::SsdTier;
use cairn_testkit::dice::Dice;
use cairn_testkit::schedules::{self, TurnDevice};

use crate::common::{self, FRONT_BYTES, REGION_BYTES};

/// Two slots in each region.
const PAGE_BYTES: u64 = 24 << 10;
const REGIONS: u64 = 3;
const SLOTS: u64 = 2 * REGIONS;

/// What is true of the slots at this moment, written down between two steps of the schedule.
#[derive(Default)]
struct Truth(std::sync::Mutex<Facts>);

#[derive(Default)]
struct Facts {
    taken: HashSet<SlotId>,
    pinned: HashMap<SlotId, usize>,
    damaged: HashSet<SlotId>,
    /// Releases that have begun, and those that have ended: odd during one.
    releases: u64,
}

impl Truth {
    fn is_taken(&self, slot: SlotId) {
        let mut facts = self.0.lock().unwrap();
        assert!(facts.taken.insert(slot), "a slot was handed out while it was taken");
        assert!(!facts.pinned.contains_key(&slot), "a slot was handed out while it was being read");
        assert!(!facts.damaged.contains(&slot), "a slot was handed out while it was in quarantine");
    }

    fn is_given_back(&self, slot: SlotId) {
        assert!(self.0.lock().unwrap().taken.remove(&slot));
    }

    /// Puts a slot in quarantine. If nothing was released meanwhile, it stays there.
    fn quarantine(&self, tier: &SsdTier, slot: SlotId) {
        let before = self.0.lock().unwrap().releases;
        tier.quarantine(slot, Damage::Payload);
        let mut facts = self.0.lock().unwrap();
        if facts.releases == before && before.is_multiple_of(2) {
            facts.damaged.insert(slot);
        }
    }

    fn release(&self, tier: &SsdTier) {
        let begins_or_ends = || {
            let mut facts = self.0.lock().unwrap();
            facts.releases += 1;
            facts.damaged.clear();
        };
        begins_or_ends();
        tier.release();
        begins_or_ends();
    }

    fn is_pinned(&self, slot: SlotId) {
        *self.0.lock().unwrap().pinned.entry(slot).or_default() += 1;
    }

    fn is_unpinned(&self, slot: SlotId) {
        let mut facts = self.0.lock().unwrap();
        let readers = facts.pinned.get_mut(&slot).unwrap();
        *readers -= 1;
        if *readers == 0 {
            facts.pinned.remove(&slot);
        }
    }

    fn is_trimmed(&self, region: u32) {
        let facts = self.0.lock().unwrap();
        let mut in_use = facts.taken.iter().chain(facts.pinned.keys());
        assert!(in_use.all(|slot| slot.region != region), "a region was trimmed that is in use");
    }
}

#[derive(Clone)]
struct House {
    tier: Arc<SsdTier>,
    truth: Arc<Truth>,
    /// The pages that can be found, as the catalogue knows them.
    found: Arc<Mutex<Vec<SlotId>>>,
}

impl House {
    fn new() -> Self {
        let truth = Arc::new(Truth::default());
        let told = Arc::clone(&truth);
        let device = TurnDevice::new(common::blank(REGIONS))
            .telling_of_trims(move |at| told.is_trimmed(((at - FRONT_BYTES) / REGION_BYTES) as u32));
        let tier = Arc::new(common::format(Arc::new(device)).unwrap());
        Self { tier, truth, found: Arc::default() }
    }

    fn write(&self, dice: &mut Dice) {
        for _ in 0..4 {
            if let Some(slot) = self.tier.reserve(PAGE_BYTES).unwrap() {
                self.truth.is_taken(slot);
                self.found.lock().push(slot);
            }
            if dice.place(2) == 0 {
                self.give_back(dice);
            }
        }
    }

    fn give_back(&self, dice: &mut Dice) {
        let slot = {
            let mut found = self.found.lock();
            if found.is_empty() {
                return;
            }
            let at = dice.place(found.len());
            found.swap_remove(at)
        };
        self.truth.is_given_back(slot);
        if dice.place(4) == 0 {
            self.truth.quarantine(&self.tier, slot);
        } else {
            self.tier.free(slot);
        }
    }

    fn read(&self, dice: &mut Dice) {
        for _ in 0..4 {
            let pin = {
                let found = self.found.lock();
                let Some(slot) = found.get(dice.place(found.len())) else { continue };
                let pin = self.tier.pin(*slot);
                self.truth.is_pinned(*slot);
                pin
            };
            point();
            assert!(self.tier.is_pinned(pin.slot()));
            self.truth.is_unpinned(pin.slot());
        }
    }

    fn tidy(&self, dice: &mut Dice) {
        for _ in 0..4 {
            match dice.place(4) {
                0 => self.tier.drain(dice.below(REGIONS) as u32),
                1 => self.truth.release(&self.tier),
                _ => drop(self.tier.trim().unwrap()),
            }
        }
    }

    fn all_is_free_again(&self) {
        let left = std::mem::take(&mut *self.found.lock());
        for slot in left {
            self.truth.is_given_back(slot);
            self.tier.free(slot);
        }
        self.truth.release(&self.tier);
        assert_eq!((self.tier.used_bytes(), self.tier.taken()), (0, 0));
        assert_eq!(self.tier.available(PAGE_BYTES, u64::MAX), SLOTS, "a slot was lost");
        assert!(self.tier.quarantined().is_empty());
        while self.tier.trim().unwrap() {}
        for _ in 0..SLOTS {
            self.truth.is_taken(self.tier.reserve(PAGE_BYTES).unwrap().expect("a free slot"));
        }
    }
}

fn slots_come_and_go(dice: &mut Dice) {
    let house = House::new();
    let work: [fn(&House, &mut Dice); 4] = [House::write, House::write, House::read, House::tidy];
    let threads = work.map(|work| {
        let (house, mut dice) = (house.clone(), Dice::new(dice.roll()));
        thread::spawn(move || work(&house, &mut dice))
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    house.all_is_free_again();
}

#[test]
fn no_slot_is_handed_out_while_it_is_taken_read_or_damaged() {
    schedules::run("R5 slots", "-p cairn-ssd --features schedules --test schedules slots", slots_come_and_go);
}
