//! Readers beside a writer that needs their room.

use cairn_core::{Durability, Tier};
use cairn_schedules::task::{block_on, spawn};
use cairn_testkit::dice::Dice;
use cairn_testkit::schedules;

use crate::house::{House, Room, chain};

/// The SSD holds two chains of three, and the slots that are kept free; DRAM a little more than one.
const ROOM: Room = Room { dram_pages: 4, regions: 4, slots: 2, waiting_pages: 2 };
const PAGES: u32 = 3;
const READERS: u32 = 2;
const WRITERS: u32 = 2;

async fn read(house: House, mut dice: Dice) {
    for _ in 0..2 {
        let chain = chain(dice.below(2) as u32, PAGES);
        if dice.place(4) == 0 {
            // Goes away in the middle.
            let mut get = house.begin_get(&chain);
            get.next().await;
        } else {
            house.get(&chain).await;
        }
    }
}

async fn write(house: House, name: u32, durability: Durability) {
    house.put(&chain(name, 2), durability).await;
}

fn readers_and_writers(dice: &mut Dice) {
    let house = House::new(ROOM, &[chain(0, PAGES), chain(1, PAGES)]);
    let mut tasks = Vec::new();
    for _ in 0..READERS {
        tasks.push(spawn(read(house.clone(), Dice::new(dice.roll()))));
    }
    for writer in 0..WRITERS {
        let durability = [Durability::Ssd, Durability::Memory][dice.place(2)];
        tasks.push(spawn(write(house.clone(), 10 + writer, durability)));
    }
    for task in tasks {
        block_on(task).unwrap();
    }
    // Behind everything that was offered to the SSD.
    block_on(write(house.clone(), 20, Durability::Ssd));
    house.is_in_order();
    let pages =
        |tier| if tier == Tier::Dram { house.engine.stats().dram.pages } else { house.engine.stats().ssd.pages };
    assert!(pages(Tier::Dram) > 0 && pages(Tier::Ssd) > 0, "both tiers are in use");
}

#[test]
fn a_page_that_is_being_read_does_not_lose_its_slot() {
    schedules::run(
        "R5 pin against evict",
        "-p cairn-engine --features schedules --test schedules eviction",
        readers_and_writers,
    );
}
