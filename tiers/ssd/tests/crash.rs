//! Lives of a tier that end by power cuts, kills and failed writes, as dice decide. After each: what passed a barrier is there and right,
//! nothing wrong is served, nothing that was wiped comes back, and no generation repeats.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can not go on says so by panicking")]

mod common;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use cairn_core::{Generation, SlotId};
use cairn_ssd::{ReadFault, SsdError, SsdTier};
use cairn_testkit::dice::Dice;
use cairn_testkit::fault_device::{Fault, FaultDevice, Unsynced};
use common::{Written, device_bytes, format, of_header, open, read, scan, write};

const SEEDS: u64 = 1_500;
const LIVES: usize = 6;
const PAGE_SIZES: [usize; 4] = [300, 4_096, 9_000, 20_000];

/// What a user of the tier knows.
#[derive(Debug)]
struct Model {
    dice: Dice,
    /// Pages that passed a barrier and were not freed since.
    acknowledged: BTreeMap<SlotId, Written>,
    /// Pages written since the last barrier.
    written: Vec<Written>,
    wiped: HashSet<Generation>,
    highest: Generation,
    pages: u64,
}

#[test]
fn whatever_passed_a_barrier_survives_any_crash() {
    for seed in 0..SEEDS {
        let mut model = Model {
            dice: Dice::new(seed),
            acknowledged: BTreeMap::new(),
            written: Vec::new(),
            wiped: HashSet::new(),
            highest: Generation::default(),
            pages: 0,
        };
        let mut image = vec![0; usize::try_from(device_bytes(4)).unwrap()];
        for _ in 0..LIVES {
            let device = Arc::new(FaultDevice::from_image(image));
            device.cut_power_after(model.dice.roll() % 150);
            // However it ends, the next life begins with what it left.
            let _ended = model.live(&device, seed);
            image = device.image(match model.dice.below(4) {
                0 => Unsynced::Kept,
                1 => Unsynced::Lost,
                _ => Unsynced::Dice(model.dice.roll()),
            });
        }
        let tier = match open(Arc::new(FaultDevice::from_image(image))) {
            Err(SsdError::Blank) => continue,
            opened => opened.unwrap(),
        };
        model.check(&tier, seed);
    }
}

impl Model {
    fn live(&mut self, device: &Arc<FaultDevice>, seed: u64) -> Result<(), SsdError> {
        let tier = match open(device.clone()) {
            Err(SsdError::Blank) => {
                assert!(self.acknowledged.is_empty(), "seed {seed}");
                format(device.clone())?
            }
            opened => opened?,
        };
        self.written.clear();
        self.check(&tier, seed);
        for page in self.acknowledged.values() {
            assert!(tier.claim(page.slot, page.expected.payload_bytes), "seed {seed}");
        }
        for _ in 0..120 {
            match self.dice.below(40) {
                0..22 => self.put(&tier, seed)?,
                22..30 => self.barrier(&tier)?,
                30..35 => self.evict(&tier),
                35..38 => self.wipe(&tier)?,
                _ => self.hurt(device),
            }
        }
        Ok(())
    }

    fn put(&mut self, tier: &SsdTier, seed: u64) -> Result<(), SsdError> {
        let page_bytes = PAGE_SIZES[self.dice.place(4)];
        let Some(slot) = tier.reserve(page_bytes as u64)? else {
            self.evict(tier);
            return Ok(());
        };
        self.pages += 1;
        let page = write(tier, slot, self.pages, page_bytes)?;
        assert!(page.expected.generation > self.highest, "seed {seed}: a generation repeats");
        self.highest = page.expected.generation;
        read(tier, &page).unwrap();
        self.written.push(page);
        Ok(())
    }

    fn barrier(&mut self, tier: &SsdTier) -> Result<(), SsdError> {
        tier.barrier()?;
        self.acknowledged.extend(self.written.drain(..).map(|page| (page.slot, page)));
        Ok(())
    }

    fn evict(&mut self, tier: &SsdTier) {
        if let Some(page) = self.take_one() {
            tier.free(page.slot);
        }
    }

    fn wipe(&mut self, tier: &SsdTier) -> Result<(), SsdError> {
        let Some(page) = self.take_one() else { return Ok(()) };
        tier.wipe(page.slot)?;
        self.barrier(tier)?;
        tier.free(page.slot);
        self.wiped.insert(page.expected.generation);
        Ok(())
    }

    fn take_one(&mut self) -> Option<Written> {
        let slots: Vec<_> = self.acknowledged.keys().copied().collect();
        let slot = slots.get(self.dice.place(slots.len()))?;
        self.acknowledged.remove(slot)
    }

    fn hurt(&mut self, device: &FaultDevice) {
        match self.dice.below(8) {
            0 => device.inject(Fault::FailBarrier),
            1 => device.inject(Fault::ShortWrite { kept_bytes: self.dice.place(9_000) }),
            2 => device.inject(Fault::FailWrite),
            _ => {}
        }
    }

    fn check(&mut self, tier: &SsdTier, seed: u64) {
        let (headers, report) = scan(tier);
        assert_eq!(report.unreadable_slots, 0, "seed {seed}");
        let found: BTreeMap<_, _> = headers.iter().map(|header| (header.slot, of_header(header))).collect();
        for page in self.acknowledged.values() {
            let header = found.get(&page.slot).unwrap_or_else(|| panic!("seed {seed}: an acknowledged page is gone"));
            assert_eq!((header.facts, header.expected), (page.facts, page.expected), "seed {seed}");
            read(tier, page).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        }
        for page in found.values() {
            assert!(!self.wiped.contains(&page.expected.generation), "seed {seed}: a wiped page came back");
            // A write that failed may be there all the same.
            self.highest = self.highest.max(page.expected.generation);
            // Right bytes (checked by the reader), or damage that it found.
            if let Err(fault) = read(tier, page) {
                assert!(matches!(fault, ReadFault::Damaged(_)), "seed {seed}: {fault}");
            }
        }
    }
}
