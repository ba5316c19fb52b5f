//! Failures that other stores have had on their disks, played through here. The numbers are those of `docs/FAULTS.md`, which names
//! the tests that cover the others.

use std::collections::{HashMap, HashSet};

use cairn_core::{Checksum, Durability, PageKey, SlotId, StopReason};
use cairn_directory::Change;
use cairn_engine::GetOptions;
use cairn_testkit::payload;
use cairn_testkit::recorder::{Plan, Point, Power, Recorder, Step, Verdict, pages_in};
use cairn_testkit::trials::dice_of;

use crate::at_rest::used;
use crate::house::{House, PAGE_BYTES, Place, Seen, slot_at, slot_bytes};
use crate::oracle::{Life, Start, verify};
use crate::script::{Op, Script, roll};

fn put_all(chain: usize, house: &House) -> Op {
    Op::Put { chain, pages: house.chains[chain].keys.len(), durability: Durability::Ssd }
}

/// Runs `ops` on blank disks.
fn live(house: &House, ops: &[Op]) -> Life {
    house.runtime.block_on(async {
        let (cairn, start) = verify(house, House::blank(), &Start::default()).await.expect("it opens");
        let mut script = Script::new(house, cairn, start);
        script.run(ops).await.expect("the script runs");
        script.end()
    })
}

#[test]
fn replay_04_a_reader_of_a_page_that_is_being_sent_sees_nothing_or_all_of_it() {
    let house = House::new();
    house.runtime.block_on(async {
        let cairn = house.open(&Recorder::new(House::blank())).unwrap();
        let chain = &house.chains[0];
        let mut put = cairn.begin(chain, 1, Durability::Ssd).unwrap();
        let mut frame = put.reserve(0).await.unwrap();
        let place = Place { chain: 0, page: 0 };
        payload::fill(chain.keys[0].as_bytes(), &mut frame);
        let checksum = Checksum::of(&frame);
        frame[2048..].fill(0);
        assert_eq!(house.read(&cairn, place).await.unwrap(), Seen::Absent);
        payload::fill(chain.keys[0].as_bytes(), &mut frame);
        put.commit(0, frame, checksum);
        assert_eq!(house.read(&cairn, place).await.unwrap(), Seen::There);
        put.finish().await;
    });
}

#[test]
fn replay_05_a_restart_finds_what_was_there_and_nothing_else() {
    let house = House::new();
    for trial in 0..20 {
        let life = live(&house, &roll(&house, &mut dice_of(5, trial), 12));
        let points = life.history.points.len();
        let known = life.known_at(&house, points, true).unwrap();
        let world = life.history.cursor().crash(points, true, true);
        let before = world.directory.records.len();
        // It compares page by page with the directory, and with what was acknowledged.
        let (_, start) = house.runtime.block_on(verify(&house, world, &known)).unwrap();
        assert_eq!(start.must.len() + start.weak.len(), before);
    }
}

#[test]
fn replay_06_a_put_that_its_client_gave_up_is_not_in_the_way_of_the_next() {
    let house = House::new();
    house.runtime.block_on(async {
        let (cairn, start) = verify(&house, House::blank(), &Start::default()).await.unwrap();
        let mut put = cairn.begin(&house.chains[3], 1, Durability::Ssd).unwrap();
        let frame = put.reserve(0).await.unwrap();
        drop((frame, put));
        let mut script = Script::new(&house, cairn, start);
        script.step(put_all(3, &house)).await.unwrap();
        assert!(house.chains[3].keys.iter().all(|key| script.has_acknowledged(key)));
    });
}

#[test]
fn replay_07_after_the_directory_is_lost_no_slot_that_holds_a_page_is_handed_out() {
    let house = House::new();
    let ops = [put_all(1, &house), put_all(12, &house), Op::LoseDirectory, put_all(0, &house), put_all(15, &house)];
    let life = live(&house, &ops);
    let points = life.history.points.len();
    // Generations go on: `known_at` checks every one.
    let known = life.known_at(&house, points, true).unwrap();
    for chain in [1, 12, 0, 15] {
        assert!(house.chains[chain].keys.iter().all(|key| known.must.contains(key)), "chain {chain}");
    }
    let world = life.history.cursor().crash(points, true, true);
    house.runtime.block_on(verify(&house, world, &known)).unwrap();
}

#[test]
fn replay_28_damaged_pages_drop_themselves_and_the_errors_end() {
    let house = House::new();
    let life = live(&house, &[put_all(1, &house), put_all(4, &house), put_all(13, &house)]);
    let points = life.history.points.len();
    let mut world = life.history.cursor().crash(points, true, true);
    world.cut_power(Power::Kept, &mut dice_of(28, 0));
    let records: Vec<_> = world.directory.records.values().copied().collect();
    for record in &records {
        world.durable[used(record)[1].start + 100] ^= 1;
    }
    house.runtime.block_on(async {
        let cairn = house.open(&Recorder::new(world)).unwrap();
        for (round, expected) in [Seen::Damaged, Seen::Absent, Seen::Absent].into_iter().enumerate() {
            for place in house.places.iter().filter(|place| [1, 4, 13].contains(&place.chain)) {
                assert_eq!(house.read(&cairn, *place).await.unwrap(), expected, "round {round}");
            }
        }
        assert_eq!(cairn.damaged(), records.len() as u64);
        let mut script = Script::new(&house, cairn, Start::default());
        // The slots were out of use until this start.
        let again = Op::Reopen { orderly: true };
        script.run(&[again, put_all(1, &house), again]).await.unwrap();
        let chain = &house.chains[1];
        let cairn = script.cairn();
        let options = GetOptions { first_page: 0, usable_pages: u64::MAX, deadline: cairn.deadline() };
        let mut get = cairn.engine.get_prefix(&cairn.spaces[chain.space], chain.keys.clone(), options).unwrap();
        while get.next().await.is_some() {}
        assert_eq!(get.end().stop, StopReason::EndOfChain);
        assert_eq!(cairn.damaged(), 0);
    });
}

#[test]
fn replay_33_an_orderly_close_after_a_transient_error_promises_nothing_new() {
    let house = House::new();
    for nth in 0..6 {
        let (world, known) = house.runtime.block_on(async {
            let (cairn, start) = verify(&house, House::blank(), &Start::default()).await.unwrap();
            let mut script = Script::new(&house, cairn, start);
            script.run(&[put_all(1, &house)]).await.unwrap();
            let mut barriers = 0;
            let plan: Plan = Box::new(move |step| {
                barriers += usize::from(step == Step::Barrier);
                if step == Step::Barrier && barriers == nth + 1 { Verdict::Refused } else { Verdict::Good }
            });
            script.cairn().recorder.set_plan(plan);
            script.run(&[put_all(13, &house), put_all(4, &house), put_all(16, &house)]).await.unwrap();
            script.cairn().engine.close(std::time::Duration::from_secs(30)).await;
            let life = script.end();
            let points = life.history.points.len();
            let known = life.known_at(&house, points, true).unwrap();
            (life.history.cursor().crash(points, true, true), known)
        });
        for power in [Power::Lost, Power::Kept] {
            let mut world = world.clone();
            world.cut_power(power, &mut dice_of(33, 0));
            house.runtime.block_on(verify(&house, world, &known)).unwrap();
        }
    }
}

#[test]
fn replay_45_no_record_is_committed_before_its_page_has_passed_a_barrier() {
    let house = House::new();
    for trial in 0..60 {
        let life = live(&house, &roll(&house, &mut dice_of(45, trial), 16));
        let (mut unsynced, mut synced) = (HashSet::new(), HashSet::new());
        for point in &life.history.points {
            match point {
                Point::Write(write) => unsynced.extend(pages_in(write)),
                Point::Barrier { .. } => synced.extend(unsynced.drain()),
                Point::Commit(changes) => {
                    for change in changes.iter() {
                        let Change::Put(record) = change else { continue };
                        let page = (record.key, record.generation.to_u64());
                        assert!(synced.contains(&page), "trial {trial}: {record:?}");
                    }
                }
                _ => {}
            }
        }
    }
}

#[test]
fn replay_47_no_slot_is_written_while_a_record_names_it() {
    let house = House::new();
    let mut writes = 0;
    for trial in 0..60 {
        let life = live(&house, &roll(&house, &mut dice_of(47, trial), 16));
        // Records that have been committed, and those whose removal has not.
        let mut named: HashMap<PageKey, (SlotId, usize)> = HashMap::new();
        for point in &life.history.points {
            match point {
                Point::Write(write) => {
                    writes += 1;
                    let end = write.at + write.bytes.len();
                    for (slot, space) in named.values() {
                        let at = slot_at(*slot, PAGE_BYTES[*space]);
                        let slot_end = at + slot_bytes(PAGE_BYTES[*space]) as usize;
                        assert!(
                            end <= at || slot_end <= write.at,
                            "trial {trial}: {slot:?} is written at {}",
                            write.at
                        );
                    }
                }
                Point::Commit(changes) => changes.iter().for_each(|change| match change {
                    Change::Put(record) => {
                        let space = house.space_of(&record.namespace).expect("a space");
                        named.insert(record.key, (record.slot, space));
                    }
                    Change::Remove { key, .. } => drop(named.remove(key)),
                    Change::RemoveNamespace(id) => {
                        let cleared = house.space_of(id);
                        named.retain(|_, (_, space)| Some(*space) != cleared);
                    }
                }),
                // What it named is found again, and named again before anything is written.
                Point::LostDirectory => named.clear(),
                _ => {}
            }
        }
    }
    assert!(writes > 1000, "nothing was shown by {writes} writes");
}
