//! The write queue: every put that must be durable is answered, whatever becomes of the queue meanwhile.

use std::time::Duration;

use cairn_core::{Durability, PageKey};
use cairn_engine::{Closed, PutReport};
use cairn_schedules::task::{block_on, spawn};
use cairn_testkit::dice::Dice;
use cairn_testkit::schedules;

use crate::house::{House, Room, chain};

/// Two pages may wait, and three chains of two want to.
const ROOM: Room = Room { dram_pages: 8, regions: 4, slots: 3, waiting_pages: 2 };
const PAGES: u32 = 2;
const WRITERS: u32 = 3;

async fn write(house: House, chain: Vec<PageKey>) -> (Vec<PageKey>, PutReport) {
    let report = house.put(&chain, Durability::Ssd).await;
    (chain, report)
}

/// What happens to the queue while they wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Nothing,
    Clear,
    /// A close that may take its time.
    Close,
    /// A close whose time is over at once, as after a crash.
    Abandon,
}

fn puts_and_the_end_of_the_queue(dice: &mut Dice) {
    let house = House::new(ROOM, &[]);
    let event = [Event::Nothing, Event::Clear, Event::Close, Event::Abandon][dice.place(4)];
    // Two of them put the same pages.
    let writers: Vec<_> = (0..WRITERS).map(|writer| spawn(write(house.clone(), chain(writer / 2, PAGES)))).collect();
    match event {
        Event::Nothing => {}
        Event::Clear => drop(block_on(house.engine.clear(&house.namespace)).expect("it is cleared")),
        Event::Close => assert_eq!(block_on(house.engine.close(Duration::from_secs(1))), Closed::Orderly),
        Event::Abandon => drop(block_on(house.engine.close(Duration::ZERO))),
    }
    let reports: Vec<_> = writers.into_iter().map(|writer| block_on(writer).unwrap()).collect();
    if matches!(event, Event::Nothing | Event::Clear) {
        assert!(
            event == Event::Clear || reports.iter().all(|(_, report)| report.durability == Durability::Ssd),
            "a put was told that its pages are not durable, although nothing happened"
        );
        house.is_in_order();
    }
    if event != Event::Clear {
        let records = house.records();
        for (chain, report) in &reports {
            let durable = if report.durability == Durability::Ssd { report.good_pages } else { 0 };
            assert!(
                chain[..durable].iter().all(|key| records.iter().any(|record| record.key == *key)),
                "a page is said to be durable that nothing names"
            );
        }
    }
}

#[test]
fn every_put_that_waits_for_the_ssd_is_answered_once() {
    schedules::run(
        "R5 write queue",
        "-p cairn-engine --features schedules --test schedules write_queue",
        puts_and_the_end_of_the_queue,
    );
}
