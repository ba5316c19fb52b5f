//! A batch of writes, whose pages go together where they lie side by side, while the queue is closed or the ring dies: whoever waits is
//! told, and what is said to be on the disk is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cairn_core::SlotId;
use cairn_schedules::thread;
use cairn_ssd::{PageIo, SsdError, SsdTier};
use cairn_testkit::dice::Dice;
use cairn_testkit::fault_device::{FaultDevice, Unsynced};
use cairn_testkit::payload;
use cairn_testkit::schedules::{self, TurnDevice};

use crate::common::{self, Written};
use crate::ring::{Memory, OnDevice, Ring};

const PAGE_BYTES: usize = 4096;
const PAGES: u64 = 6;

/// Schedules in which pages went together. It is no part of them.
static TOGETHER: AtomicU64 = AtomicU64::new(0);

/// What happens while the batch is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Nothing,
    Close,
    /// The ring dies after so many transfers.
    Death(u64),
}

/// A page of a batch, which can tell whether all of them have been let go of.
struct Page {
    memory: Memory,
    _held: Arc<()>,
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref()
    }
}

/// A slot for the next page. Some are left out, so that not all pages lie side by side.
fn slot(tier: &SsdTier, dice: &mut Dice) -> Result<SlotId, SsdError> {
    let next = || tier.reserve(PAGE_BYTES as u64).map(|slot| slot.expect("a free slot"));
    if dice.place(4) == 0 {
        tier.free(next()?);
    }
    next()
}

fn fill(
    io: &PageIo,
    tier: &SsdTier,
    (on_device, held): (&OnDevice, &Arc<()>),
    dice: &mut Dice,
) -> Result<Vec<Written>, SsdError> {
    let mut batch = io.batch();
    let mut written = Vec::new();
    for number in 0..PAGES {
        let slot = slot(tier, dice)?;
        let facts = common::facts(number, PAGE_BYTES);
        let mut memory = Memory::new(on_device, PAGE_BYTES);
        payload::fill(facts.key.as_bytes(), memory.as_mut());
        let generation = batch.write(slot, &facts, Page { memory, _held: Arc::clone(held) })?;
        written.push(common::written(slot, facts, generation, PAGE_BYTES));
    }
    batch.finish().map(|()| written)
}

/// The pages of a batch, if they are durable.
fn write(io: &PageIo, tier: &SsdTier, on_device: &OnDevice, event: Event, dice: &mut Dice) -> Vec<Written> {
    let held = Arc::new(());
    let outcome = fill(io, tier, (on_device, &held), dice);
    let is_right = match (&outcome, event) {
        (Ok(_), _) => true,
        (Err(_), Event::Nothing) => false,
        (Err(failed), Event::Close) => matches!(failed, SsdError::Closed),
        (Err(_), Event::Death(_)) => true,
    };
    assert!(is_right, "{event:?}: a batch ended with {outcome:?}");
    // What a ring has when it dies stays there.
    if outcome.is_ok() || event == Event::Close {
        assert_eq!(Arc::strong_count(&held), 1, "a batch has ended, and a page of it is held");
    }
    outcome.unwrap_or_default()
}

fn a_batch_that_is_cut_off(dice: &mut Dice) {
    let event = [Event::Nothing, Event::Close, Event::Death(dice.below(4))][dice.place(3)];
    let disk = common::blank(3);
    let device = Arc::new(TurnDevice::new(Arc::clone(&disk)));
    let tier = Arc::new(common::format(device.clone()).unwrap());
    let on_device = OnDevice::default();
    let dies_after = if let Event::Death(after) = event { Some(after) } else { None };
    let ring = Ring::start(device, on_device.clone(), dies_after);
    let closer = (event == Event::Close).then(|| ring.closer());
    let closer = closer.map(thread::spawn);
    let io = PageIo::new(Arc::clone(&tier), Box::new(ring));
    let durable = write(&io, &tier, &on_device, event, dice);
    drop(io);
    closer.into_iter().for_each(|closer| closer.join().unwrap());
    assert!(matches!(event, Event::Death(_)) || (on_device.has_nothing() && !tier.is_write_quarantined()));
    let went_together = event == Event::Nothing && on_device.writes() < PAGES as usize;
    TOGETHER.fetch_add(u64::from(went_together), Ordering::SeqCst);

    let after = common::open(Arc::new(FaultDevice::from_image(disk.image(Unsynced::Lost)))).unwrap();
    for page in &durable {
        common::read(&after, page).expect("a page of a batch that has ended well");
    }
}

#[test]
fn a_batch_that_has_ended_well_is_on_the_disk_and_one_that_is_cut_off_says_so() {
    schedules::run("R5 batches", "-p cairn-ssd --features schedules --test schedules batch", a_batch_that_is_cut_off);
    assert!(TOGETHER.load(Ordering::SeqCst) > 0, "no pages went together");
}
