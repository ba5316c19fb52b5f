//! The scrub and a verification beside whoever frees, moves or clears the pages that they read: damage is found once, and what has left
//! meanwhile is none.

use std::time::Duration;

use cairn_core::{Durability, ErrorKind, SlotId};
use cairn_engine::VerifyCounts;
use cairn_schedules::task::{block_on, spawn};
use cairn_testkit::dice::Dice;
use cairn_testkit::schedules;

use crate::house::{BLOCK_BYTES, House, Room, chain, place_of};

/// The SSD holds both chains, and two slots that are kept free: whoever puts needs a region of theirs.
const ROOM: Room = Room { dram_pages: 4, regions: 4, slots: 2, waiting_pages: 2 };
const PAGES: u32 = 3;
const START: SlotId = SlotId { region: 0, slot: 0 };

/// What happens to the pages while they are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Put,
    Clear,
    Release,
    Close,
}

/// Reads everything, as the scrub does.
async fn scrub(house: House) {
    house.engine.scrub_now(None);
    house.engine.scrubbed().await;
}

/// Reads everything in place of the scrub, or gives up after so many steps; what it found, if nothing kept it from it.
async fn verify(house: House, steps: usize) -> Option<VerifyCounts> {
    let mut verification = match house.engine.verify(None, START, 0).await {
        Ok(verification) => verification,
        Err(refused) => {
            assert!(matches!(refused.kind(), ErrorKind::Overloaded { .. }));
            return None;
        }
    };
    for _ in 0..steps {
        match verification.step().await {
            Ok(true) => {}
            Ok(false) => return Some(verification.counts()),
            Err(closing) => {
                assert_eq!(closing.kind(), ErrorKind::Unavailable);
                return None;
            }
        }
    }
    None
}

async fn happens(house: House, event: Event) {
    match event {
        Event::Put => drop(house.put(&chain(10, 2), Durability::Ssd).await),
        Event::Clear => drop(house.engine.clear(&house.namespace).await.expect("it is cleared")),
        Event::Release => drop(house.engine.release_slots()),
        Event::Close => drop(house.engine.close(Duration::from_secs(1)).await),
    }
}

/// Damages one of the pages, perhaps; how many.
fn damage(house: &House, dice: &mut Dice) -> u64 {
    if dice.place(2) == 0 {
        return 0;
    }
    let records = house.records();
    let payload = place_of(&records[dice.place(records.len())], ROOM) + BLOCK_BYTES;
    house.disk.flip_bit(payload + 100, 3);
    1
}

fn reads_and_the_end_of_pages(dice: &mut Dice) {
    let house = House::new(ROOM, &[chain(0, PAGES), chain(1, PAGES)]);
    let damaged_max = damage(&house, dice);
    let events = [Event::Put, [Event::Put, Event::Clear, Event::Release, Event::Close][dice.place(4)]];
    let mut tasks: Vec<_> = events.map(|event| spawn(happens(house.clone(), event))).into();
    tasks.push(spawn(scrub(house.clone())));
    let verifies = [1 + dice.place(3), usize::MAX].map(|steps| spawn(verify(house.clone(), steps)));
    tasks.into_iter().for_each(|task| block_on(task).unwrap());
    for verify in verifies {
        let found = block_on(verify).unwrap();
        assert!(found.is_none_or(|found| found.damaged <= damaged_max && found.unreadable == 0));
    }
    if events.contains(&Event::Close) {
        assert!(house.damaged() <= damaged_max);
        return;
    }
    // What is damaged and still there is found now, and put in quarantine before the writer comes to what it is asked next.
    block_on(scrub(house.clone()));
    block_on(house.engine.release_writes()).expect("nothing failed");
    let damaged = house.damaged();
    assert!(damaged <= damaged_max, "damage was found that there is not, or twice");
    let is_released = events.contains(&Event::Release);
    let quarantined = house.engine.quarantine().slots.len() as u64;
    assert!(quarantined == damaged || (is_released && quarantined < damaged), "a damaged slot is in use");
    house.engine.release_slots();
    house.is_settled();
    let found = block_on(verify(house.clone(), usize::MAX)).expect("nobody else verifies");
    assert_eq!((found.pages, found.damaged), (house.engine.stats().ssd.pages, 0));
}

#[test]
fn a_page_that_leaves_while_it_is_verified_is_no_damage_and_damage_is_found_once() {
    schedules::run(
        "R5 scrub",
        "-p cairn-engine --features schedules --test schedules scrub",
        reads_and_the_end_of_pages,
    );
}
