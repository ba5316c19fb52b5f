//! Many who ask for one page: one read, and an answer for each.

use cairn_schedules::task::{block_on, spawn};
use cairn_testkit::dice::Dice;
use cairn_testkit::schedules;
use futures::FutureExt as _;

use crate::house::{House, Room, chain, place_of};

/// Room for every page twice, so that none is read again because it left.
const ROOM: Room = Room { dram_pages: 8, regions: 4, slots: 2, waiting_pages: 2 };
const PAGES: u32 = 3;
const READERS: u64 = 3;

async fn read(house: House, mut dice: Dice) {
    let chain = chain(0, PAGES);
    match dice.place(4) {
        // Starts loads, and goes away before they have ended.
        0 => {
            let mut get = house.begin_get(&chain);
            get.next().now_or_never();
        }
        1 => {
            let mut get = house.begin_get(&chain);
            get.next().await;
        }
        _ => assert_eq!(house.get(&chain).await, PAGES as usize),
    }
}

fn readers_of_one_chain(dice: &mut Dice) {
    let house = House::new(ROOM, &[chain(0, PAGES)]);
    // With less memory, a page may leave and be read again.
    house.engine.wait_warm();
    let readers: Vec<_> = (0..READERS).map(|_| spawn(read(house.clone(), Dice::new(dice.roll())))).collect();
    for reader in readers {
        block_on(reader).unwrap();
    }
    assert_eq!(block_on(house.get(&chain(0, PAGES))), PAGES as usize);
    let reads = house.device.take_reads();
    for record in house.records() {
        assert_eq!(reads.get(&place_of(&record, ROOM)), Some(&1), "a page was read more than once");
    }
    house.is_in_order();
}

#[test]
fn a_page_is_read_once_however_many_ask_and_each_is_answered() {
    schedules::run(
        "R5 single flight",
        "-p cairn-engine --features schedules --test schedules loads",
        readers_of_one_chain,
    );
}
