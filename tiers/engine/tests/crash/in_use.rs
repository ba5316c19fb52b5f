//! Faults of the disks while they are used: F05, F10, F11; and many callers at once: F32.

use std::sync::Arc;

use cairn_core::Durability;
use cairn_core::metrics::Skipped;
use cairn_testkit::dice::Dice;
use cairn_testkit::recorder::{DirectoryState, Plan, Point, Power, Step, Verdict, World};
use cairn_testkit::trials::Rig;

use crate::at_rest::check_loosely;
use crate::house::{Cairn, House, Place, Seen, send_all};
use crate::oracle::{Life, Note, Start, check_capacity, verify};
use crate::script::{Op, Script, is_durable, roll};

const fn rig(name: &'static str, target: &'static str, trials: u64, nightly: u64) -> Rig {
    Rig { name, target, trials, nightly, each: 1 }
}

/// Good up to the `nth` step of a kind; that one, and if `forever` all after it, have this verdict.
fn from_nth(kind: Step, nth: usize, verdict: Verdict, forever: bool) -> Plan {
    let mut steps = 0;
    Box::new(move |step| {
        if step != kind {
            return Verdict::Good;
        }
        steps += 1;
        if steps == nth + 1 || (forever && steps > nth) { verdict } else { Verdict::Good }
    })
}

/// Some operations, none of which opens the engine anew.
fn roll_open(house: &House, dice: &mut Dice, ops: usize) -> Vec<Op> {
    let mut rolled = roll(house, dice, ops);
    rolled.retain(|op| !matches!(op, Op::Reopen { .. } | Op::LoseDirectory | Op::Rot { .. }));
    rolled
}

/// A life that was on good disks so far, and goes on as `plan` says.
async fn begin<'a>(house: &'a House, dice: &mut Dice, plan: Plan) -> Result<Script<'a>, String> {
    let (cairn, start) = verify(house, House::blank(), &Start::default()).await?;
    let mut script = Script::new(house, cairn, start);
    let ops = 1 + dice.place(6);
    script.run(&roll_open(house, dice, ops)).await?;
    script.cairn().recorder.set_plan(plan);
    Ok(script)
}

/// A life on good disks first, then as `plan` says.
fn life(house: &House, dice: &mut Dice, plan: Plan) -> Result<Life, String> {
    house.runtime.block_on(async {
        let mut script = begin(house, dice, plan).await?;
        let ops = 4 + dice.place(8);
        script.run(&roll_open(house, dice, ops)).await?;
        Ok(script.end())
    })
}

/// What the end of a life leaves, with the power cut, and what is known of it.
fn end(house: &House, life: &Life, dice: &mut Dice) -> Result<(World, Start), String> {
    let points = life.history.points.len();
    let known = life.known_at(house, points, true)?;
    let mut world = life.history.cursor().crash(points, true, true);
    world.cut_power([Power::Kept, Power::Lost, Power::Torn, Power::Dice][dice.place(4)], dice);
    Ok((world, known))
}

/// The next start is like any other: what was acknowledged is there, and puts are durable again.
async fn start_again(house: &House, world: World, known: &Start) -> Result<(), String> {
    let (cairn, start) = verify(house, world, known).await?;
    let mut script = Script::new(house, cairn, start);
    for chain in 0..2 {
        let chain = chain * house.chains.len() / 2;
        script.step(Op::Put { chain, pages: 1, durability: Durability::Ssd }).await?;
        if !script.has_acknowledged(&house.chains[chain].keys[0]) {
            return Err("I7: a put after the restart is not durable".to_owned());
        }
    }
    Ok(())
}

#[test]
fn f05_a_failed_barrier_is_not_repeated_and_a_lying_one_yields_no_wrong_bytes() {
    let rig = rig("F05 failing or lying barrier", "-p cairn-engine --test crash -- --nocapture f05", 1_000, 50_000);
    rig.run(House::new, |house, trial, dice| {
        let nth = dice.place(12);
        if trial % 2 == 0 {
            let life = life(house, dice, from_nth(Step::Barrier, nth, Verdict::Refused, false))?;
            let points = &life.history.points;
            let failed = points.iter().position(|point| *point == Point::FailedBarrier).unwrap_or(points.len());
            if points[failed..].iter().skip(1).any(|point| !matches!(point, Point::Commit(_))) {
                return Err("something was written after a failed barrier".to_owned());
            }
            let (world, known) = end(house, &life, dice)?;
            return house.runtime.block_on(start_again(house, world, &known));
        }
        let life = life(house, dice, from_nth(Step::Barrier, nth, Verdict::Lied, true))?;
        let (world, _) = end(house, &life, dice)?;
        house.runtime.block_on(check_loosely(house, world))
    });
}

/// A life in which the operator lifts the quarantine after each operation, whatever failed.
fn life_with_an_operator(house: &House, dice: &mut Dice, plan: Plan) -> Result<Life, String> {
    house.runtime.block_on(async {
        let mut script = begin(house, dice, plan).await?;
        let ops = 6 + dice.place(10);
        for op in roll_open(house, dice, ops) {
            script.run(&[op]).await?;
            // The disk may refuse that too; then the next one is tried.
            script.cairn().engine.release_writes().await.ok();
        }
        script.cairn().recorder.set_plan(Box::new(|_| Verdict::Good));
        script.cairn().engine.release_writes().await.map_err(|failed| failed.chain())?;
        script.step(Op::Put { chain: 0, pages: 1, durability: Durability::Ssd }).await?;
        // Unless there is no region that could be emptied for it.
        let no_space = script.cairn().metrics.ssd_skipped.of(Skipped::NoSpace).get();
        if !script.has_acknowledged(&house.chains[0].keys[0]) && no_space == 0 {
            return Err("a put after the quarantine was lifted is not durable".to_owned());
        }
        Ok(script.end())
    })
}

#[test]
fn f05_a_quarantine_that_is_lifted_costs_nothing_that_was_acknowledged() {
    let target = "-p cairn-engine --test crash -- --nocapture f05_a_quarantine";
    let rig = rig("F05 quarantine lifted", target, 2_000, 100_000);
    rig.run(House::new, |house, trial, dice| {
        let kind = [Step::Barrier, Step::Write, Step::Commit][dice.place(3)];
        let (one_in, mut chance) = (4 << dice.place(4), Dice::new(dice.roll()));
        let plan: Plan =
            Box::new(
                move |step| {
                    if step == kind && chance.below(one_in) == 0 { Verdict::Refused } else { Verdict::Good }
                },
            );
        let life = life_with_an_operator(house, dice, plan)?;
        let (mut world, known) = end(house, &life, dice)?;
        if trial % 2 == 0 {
            // What was torn, and is not the last that was written, must not be believed for its header.
            world.directory = DirectoryState::default();
        }
        house.runtime.block_on(start_again(house, world, &known))
    });
}

#[test]
fn f10_a_full_disk_costs_durability_only_until_the_next_start() {
    let rig = rig("F10 disk full", "-p cairn-engine --test crash -- --nocapture f10", 500, 10_000);
    rig.run(House::new, |house, _, dice| {
        let kind = [Step::Commit, Step::Write][dice.place(2)];
        let nth = dice.place(20);
        let life = life(house, dice, from_nth(kind, nth, Verdict::Full, true))?;
        let (world, known) = end(house, &life, dice)?;
        house.runtime.block_on(start_again(house, world, &known))
    });
}

#[test]
fn a_directory_without_room_pauses_writes_and_they_go_on_by_themselves() {
    let house = House::new();
    house.runtime.block_on(async {
        let (cairn, start) = verify(&house, House::blank(), &Start::default()).await.expect("it opens");
        let recorder = Arc::clone(&cairn.recorder);
        let mut script = Script::new(&house, cairn, start);
        let put = |chain: usize| Op::Put { chain, pages: house.chains[chain].keys.len(), durability: Durability::Ssd };
        script.step(put(0)).await.expect("it runs");
        recorder.set_plan(Box::new(|step| if step == Step::Commit { Verdict::Full } else { Verdict::Good }));
        script.step(put(1)).await.expect("it is kept in memory");
        let key = house.chains[1].keys[0];
        assert!(!script.has_acknowledged(&key));
        assert!(script.cairn().engine.stats().write_quarantined);
        // Reads go on.
        assert_eq!(house.read(script.cairn(), Place { chain: 0, page: 0 }).await, Ok(Seen::There));
        recorder.set_plan(Box::new(|_| Verdict::Good));
        while !script.has_acknowledged(&key) {
            script.step(put(1)).await.expect("it runs");
        }
        assert!(!script.cairn().engine.stats().write_quarantined);
        check_capacity(script.cairn(), 0).expect("nothing was left behind");
        let life = script.end();
        let points = life.history.points.len();
        let known = life.known_at(&house, points, true).expect("it is consistent");
        let world = life.history.cursor().crash(points, true, true);
        verify(&house, world, &known).await.expect("what was acknowledged is found");
    });
}

#[test]
fn f11_an_io_error_is_a_miss_or_a_put_that_is_not_durable() {
    let rig = rig("F11 I/O errors", "-p cairn-engine --test crash -- --nocapture f11", 2_000, 100_000);
    rig.run(House::new, |house, _, dice| {
        let one_in = 32 << dice.place(6);
        let mut chance = Dice::new(dice.roll());
        let plan: Plan = Box::new(move |_| if chance.below(one_in) == 0 { Verdict::Refused } else { Verdict::Good });
        let life = life(house, dice, plan)?;
        let (world, known) = end(house, &life, dice)?;
        house.runtime.block_on(start_again(house, world, &known))
    });
}

#[test]
fn f32_many_callers_of_the_same_pages_see_them_whole_and_one_slot_lives() {
    let rig = rig("F32 concurrent puts", "-p cairn-engine --test crash -- --nocapture f32", 2_000, 40_000);
    rig.run(House::new, |house, _, dice| {
        let life = house.runtime.block_on(async {
            let (cairn, start) = verify(house, House::blank(), &Start::default()).await?;
            let (cairn, mut notes) = (Arc::new(cairn), Vec::new());
            let callers = (0..4).map(|_| caller(house, &cairn, dice.roll()));
            for noted in futures::future::join_all(callers).await {
                notes.extend(noted?);
            }
            cairn.written();
            // A load that nobody waits for any more is published or dropped before the next one of its page begins.
            for place in &house.places {
                house.read(&cairn, *place).await?;
            }
            check_capacity(&cairn, 0)?;
            if cairn.damaged() > 0 {
                return Err("I9: damage was counted, and nobody did any".to_owned());
            }
            notes.sort_by_key(|(at, _)| *at);
            Ok::<_, String>(Life { history: cairn.recorder.history(), notes, start })
        })?;
        let (world, known) = end(house, &life, dice)?;
        house.runtime.block_on(verify(house, world, &known)).map(drop)
    });
}

/// One caller among several: puts, gets and clears of a few chains. What it learnt.
async fn caller(house: &House, cairn: &Cairn, seed: u64) -> Result<Vec<(usize, Note)>, String> {
    let (mut dice, mut notes) = (Dice::new(seed), Vec::new());
    for _ in 0..6 {
        // Few chains, so that callers meet.
        let number = dice.place(6);
        let chain = &house.chains[number];
        match dice.place(9) {
            0..5 => {
                let durability = [Durability::Memory, Durability::Ssd][dice.place(2)];
                let mut put = cairn.begin(chain, chain.keys.len(), durability)?;
                tokio::task::yield_now().await;
                send_all(&mut put, chain).await;
                let report = put.finish().await;
                let at = cairn.recorder.len();
                let durable = chain.keys.iter().zip(&report.outcomes).filter(|(_, outcome)| is_durable(**outcome));
                notes.extend(durable.map(|(key, _)| (at, Note::Acknowledged(*key))));
            }
            5..7 => {
                for page in 0..chain.keys.len() {
                    // A page that is cleared while it is read may look damaged to its reader.
                    house.look(cairn, Place { chain: number, page }).await?;
                }
            }
            7 => cairn.engine.scrub_now(None),
            _ => {
                notes.push((cairn.recorder.len(), Note::ClearBegun(chain.space)));
                cairn.engine.clear(&cairn.spaces[chain.space]).await.map_err(|failed| failed.chain())?;
            }
        }
    }
    Ok(notes)
}
