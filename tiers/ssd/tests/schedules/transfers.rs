//! Pages under way while their readers go away, the queue is closed, or the ring dies: memory that the device has is nobody else's, and
//! nobody waits for ever.

use std::sync::Arc;

use cairn_core::metrics::IoClass;
use cairn_schedules::thread;
use cairn_ssd::{PageIo, ReadJob, SsdError, SsdTier, Submitted};
use cairn_testkit::dice::Dice;
use cairn_testkit::payload;
use cairn_testkit::schedules::{self, TurnDevice};

use crate::common::{self, Written};
use crate::ring::{Memory, OnDevice, Ring};

/// Whole blocks: the device has the page's own memory.
const PAGE_BYTES: usize = 8192;
const READERS: usize = 2;

/// Reads pages, and goes away at any moment. Its hold on the queue ends before it waits, so that the queue may be closed meanwhile.
fn read(io: Arc<PageIo>, tier: &SsdTier, on_device: &OnDevice, pages: &[Written], dice: &mut Dice) {
    let mut replies = Vec::new();
    for page in pages {
        let job =
            ReadJob { pin: tier.pin(page.slot), expected: page.expected, into: Memory::new(on_device, PAGE_BYTES) };
        if let Submitted::Queued(reply) = io.read(IoClass::Demand, job) {
            replies.push((page, reply));
        }
    }
    drop(io);
    for (page, reply) in replies {
        if dice.place(3) == 0 {
            drop(reply);
            continue;
        }
        if let Ok(answer) = reply.wait() {
            let memory = answer.expect("the page is whole");
            assert!(!on_device.has(memory.as_ref()), "memory was handed on while the device has it");
            assert!(payload::is_right(page.facts.key.as_bytes(), 0, memory.as_ref()));
        }
    }
}

/// Writes a batch, and may give it up. The pages, if they are durable.
fn write(io: &PageIo, tier: &SsdTier, on_device: &OnDevice, dice: &mut Dice) -> Vec<Written> {
    let mut batch = io.batch();
    let mut written = Vec::new();
    for number in 10..13 {
        let slot = match tier.reserve(PAGE_BYTES as u64) {
            Err(SsdError::WriteQuarantined) => return Vec::new(),
            slot => slot.unwrap().expect("a free slot"),
        };
        let facts = common::facts(number, PAGE_BYTES);
        let mut memory = Memory::new(on_device, PAGE_BYTES);
        payload::fill(facts.key.as_bytes(), memory.as_mut());
        match batch.write(slot, &facts, memory) {
            Ok(generation) => written.push(common::written(slot, facts, generation, PAGE_BYTES)),
            Err(SsdError::Closed | SsdError::WriteQuarantined) => return Vec::new(),
            Err(other) => panic!("{other}"),
        }
    }
    if dice.place(3) == 0 {
        drop(batch);
        return Vec::new();
    }
    match batch.finish() {
        Ok(()) => written,
        Err(_) => Vec::new(),
    }
}

fn transfers_that_are_given_up(dice: &mut Dice) {
    let disk = common::blank(2);
    let device = Arc::new(TurnDevice::new(disk));
    let tier = Arc::new(common::format(device.clone()).unwrap());
    let pages: Vec<_> = (0..2)
        .map(|number| {
            let slot = tier.reserve(PAGE_BYTES as u64).unwrap().expect("a free slot");
            common::write(&tier, slot, number, PAGE_BYTES).unwrap()
        })
        .collect();
    let on_device = OnDevice::default();
    let dies_after = (dice.place(2) == 0).then(|| dice.below(6));
    let ring = Ring::start(device, on_device.clone(), dies_after);
    let io = Arc::new(PageIo::new(Arc::clone(&tier), Box::new(ring)));
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let (io, tier, on_device, pages) = (Arc::clone(&io), Arc::clone(&tier), on_device.clone(), pages.clone());
            let mut dice = Dice::new(dice.roll());
            thread::spawn(move || read(io, &tier, &on_device, &pages, &mut dice))
        })
        .collect();
    let durable = write(&io, &tier, &on_device, dice);
    drop(io);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    for page in &durable {
        common::read(&tier, page).expect("a page of a batch that has ended well");
    }
    if on_device.has_nothing() {
        assert!(pages.iter().all(|page| !tier.is_pinned(page.slot)), "a slot is held although nobody reads it");
        assert!(!tier.is_write_quarantined(), "nothing has failed");
    }
}

#[test]
fn memory_that_the_device_has_is_not_handed_on_and_nobody_waits_for_ever() {
    schedules::run(
        "R5 transfers",
        "-p cairn-ssd --features schedules --test schedules memory",
        transfers_that_are_given_up,
    );
}
