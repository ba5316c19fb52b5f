//! What every queue of transfers promises: one suite, and everything that moves transfers runs it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that can not go on says so by panicking")]

mod common;
mod transfers;

use std::fs::{File, OpenOptions};
use std::sync::Arc;

use cairn_core::metrics::IoClass;
use cairn_ssd::{Device, DeviceError, FileDevice, Full, RingQueue, RingTarget, ThreadQueue, TransferQueue};
use cairn_testkit::dice::Dice;
use cairn_testkit::fault_device::{Fault, FaultDevice};
use transfers::{BLOCK, Buffer, Ledger, Told, blocks, gate, read, write};

/// A device and a queue over it. The queue goes first.
struct Bench {
    queue: Box<dyn TransferQueue>,
    device: Arc<dyn Device>,
    _folder: Option<tempfile::TempDir>,
}

/// Makes a bench with so many bytes, so many transfers at once, and so long a line.
type Make = fn(u64, u32, usize) -> Bench;

fn file(bytes: u64) -> (tempfile::TempDir, Arc<FileDevice>) {
    let folder = tempfile::tempdir().unwrap();
    let device = Arc::new(FileDevice::open_or_create(&folder.path().join("ssd"), bytes).unwrap());
    (folder, device)
}

fn ring(file: Arc<File>, bytes: u64, depth: u32, line_max: usize) -> Box<dyn TransferQueue> {
    let target = RingTarget { file, bytes, depth: Some(depth) };
    let parts = common::components(Arc::new(FaultDevice::new(0)));
    Box::new(RingQueue::start(target, line_max, parts.clock, parts.metrics).unwrap())
}

fn ring_over_a_file(bytes: u64, depth: u32, line_max: usize) -> Bench {
    let (folder, device) = file(bytes);
    let queue = ring(device.ring_file().unwrap(), bytes, depth, line_max);
    Bench { queue, device, _folder: Some(folder) }
}

/// As on a filesystem without direct I/O.
fn ring_through_the_page_cache(bytes: u64, depth: u32, line_max: usize) -> Bench {
    let (folder, device) = file(bytes);
    let plain = OpenOptions::new().read(true).write(true).open(folder.path().join("ssd")).unwrap();
    let queue = ring(Arc::new(plain), bytes, depth, line_max);
    Bench { queue, device, _folder: Some(folder) }
}

fn threads(device: Arc<dyn Device>, depth: u32, line_max: usize) -> Box<dyn TransferQueue> {
    let metrics = common::components(Arc::clone(&device)).metrics;
    Box::new(ThreadQueue::start(device, depth as usize, line_max, metrics).unwrap())
}

fn threads_over_a_file(bytes: u64, depth: u32, line_max: usize) -> Bench {
    let (folder, device) = file(bytes);
    Bench { queue: threads(device.clone(), depth, line_max), device, _folder: Some(folder) }
}

fn threads_over_memory(bytes: u64, depth: u32, line_max: usize) -> Bench {
    let device = Arc::new(FaultDevice::new(usize::try_from(bytes).unwrap()));
    Bench { queue: threads(device.clone(), depth, line_max), device, _folder: None }
}

macro_rules! conformance {
    ($($promise:ident),+ $(,)?) => { $(
        mod $promise {
            #[test]
            fn io_uring() {
                super::check::$promise(super::ring_over_a_file);
            }
            #[test]
            fn io_uring_through_the_page_cache() {
                super::check::$promise(super::ring_through_the_page_cache);
            }
            #[test]
            fn threads_and_a_file() {
                super::check::$promise(super::threads_over_a_file);
            }
            #[test]
            fn threads_and_memory() {
                super::check::$promise(super::threads_over_memory);
            }
        }
    )+ };
}

conformance!(
    every_byte_goes_where_it_belongs,
    a_class_goes_before_those_below_it,
    no_class_waits_for_ever,
    a_full_line_is_a_value,
    the_end_of_the_device_is_short,
    of_reads_side_by_side_those_beyond_the_end_cost_no_other,
    what_nobody_wants_is_not_begun,
    a_transfer_of_nothing_is_done,
    closing_ends_what_is_under_way_and_drops_what_waits,
    a_storm_of_dropped_transfers_leaves_nothing_behind,
);

mod check {
    use super::*;

    /// Writes of many sizes, read back in another order; nothing beside them has changed.
    pub(super) fn every_byte_goes_where_it_belongs(make: Make) {
        let bench = make(512 * BLOCK as u64, 8, 512);
        let ledger = Ledger::default();
        let mut dice = Dice::new(7);
        let mut written = Vec::new();
        let mut at = 1;
        while at < 480 {
            let count = 1 + dice.place(24);
            written.push((at, count));
            at += count + dice.place(3);
        }
        for (at, count) in &written {
            bench.queue.submit(IoClass::Write, write(&ledger, *at, blocks(*at as u64, *count))).unwrap();
        }
        ledger.wait_for(written.len());
        bench.device.barrier().unwrap();
        let mut expected = vec![0; 512 * BLOCK];
        for (at, count) in &written {
            expected[at * BLOCK..(at + count) * BLOCK].copy_from_slice(&blocks(*at as u64, *count));
        }
        for last in (1..written.len()).rev() {
            written.swap(last, dice.place(last + 1));
        }
        for (at, count) in &written {
            bench.queue.submit(IoClass::Demand, read(&ledger, *at, *count)).unwrap();
        }
        for told in ledger.take(2 * written.len()) {
            assert!(told.outcome.is_ok(), "{told:?}");
            let (from, bytes) = (told.at * BLOCK, told.buffer);
            assert!(*bytes == expected[from..from + bytes.len()], "block {} is not what was written", told.at);
        }
        let mut all = vec![0; expected.len()];
        bench.device.read_at(0, &mut [&mut all]).unwrap();
        assert!(all == expected, "nothing beside the writes has changed");
    }

    pub(super) fn a_class_goes_before_those_below_it(make: Make) {
        let bench = make(64 * BLOCK as u64, 1, 64);
        let ledger = Ledger::default();
        let open = gate(&*bench.queue);
        let classes = [IoClass::Scrub, IoClass::Write, IoClass::Demand, IoClass::Prefetch];
        for turn in 0..3 {
            for (place, class) in classes.into_iter().enumerate() {
                let at = 10 * place + turn;
                let transfer =
                    if class == IoClass::Write { write(&ledger, at, blocks(1, 1)) } else { read(&ledger, at, 1) };
                bench.queue.submit(class, transfer).unwrap();
            }
        }
        open.send(()).unwrap();
        let order: Vec<_> = ledger.take(12).iter().map(|told| told.at).collect();
        assert_eq!(order, [20, 21, 22, 30, 31, 32, 10, 11, 12, 0, 1, 2]);
    }

    pub(super) fn no_class_waits_for_ever(make: Make) {
        let bench = make(256 * BLOCK as u64, 1, 256);
        let ledger = Ledger::default();
        let open = gate(&*bench.queue);
        bench.queue.submit(IoClass::Write, write(&ledger, 240, blocks(1, 1))).unwrap();
        bench.queue.submit(IoClass::Scrub, read(&ledger, 242, 1)).unwrap();
        // None beside another, which would go together.
        (0..100).for_each(|at| bench.queue.submit(IoClass::Demand, read(&ledger, 2 * at, 1)).unwrap());
        open.send(()).unwrap();
        let order: Vec<_> = ledger.take(102).iter().map(|told| told.at).collect();
        assert_eq!(order.iter().position(|at| *at == 240), Some(15), "after fifteen others");
        assert_eq!(order.iter().position(|at| *at == 242), Some(16));
    }

    pub(super) fn a_full_line_is_a_value(make: Make) {
        let bench = make(64 * BLOCK as u64, 1, 3);
        let ledger = Ledger::default();
        let open = gate(&*bench.queue);
        let submit = |class, at| bench.queue.submit(class, read(&ledger, at, 1));
        (0..3).for_each(|at| submit(IoClass::Demand, at).unwrap());
        let Full(refused) = submit(IoClass::Demand, 3).unwrap_err();
        assert_eq!(refused.at(), 3 * BLOCK as u64, "it comes back");
        submit(IoClass::Scrub, 4).unwrap();
        open.send(()).unwrap();
        assert_eq!(ledger.take(4).len(), 4);
        submit(IoClass::Demand, 5).unwrap();
        assert_eq!(ledger.take(1).len(), 1);
    }

    pub(super) fn the_end_of_the_device_is_short(make: Make) {
        let bench = make(8 * BLOCK as u64, 2, 8);
        let ledger = Ledger::default();
        for (at, count) in [(6, 4), (8, 1), (100, 2)] {
            bench.queue.submit(IoClass::Demand, read(&ledger, at, count)).unwrap();
            let told = ledger.take(1).remove(0);
            let there = 8_u64.saturating_sub(at as u64) * BLOCK as u64;
            let wanted = (count * BLOCK) as u64;
            match told.outcome {
                Err(DeviceError::Short { at: from, wanted_bytes, got_bytes }) => {
                    assert_eq!((from, wanted_bytes, got_bytes), ((at * BLOCK) as u64, wanted, there));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    pub(super) fn of_reads_side_by_side_those_beyond_the_end_cost_no_other(make: Make) {
        let bench = make(8 * BLOCK as u64, 1, 64);
        let ledger = Ledger::default();
        bench.queue.submit(IoClass::Write, write(&ledger, 0, blocks(7, 8))).unwrap();
        ledger.take(1);
        let open = gate(&*bench.queue);
        for at in 2..12 {
            bench.queue.submit(IoClass::Demand, read(&ledger, at, 1)).unwrap();
        }
        open.send(()).unwrap();
        for Told { at, outcome, buffer } in ledger.take(10) {
            if at < 8 {
                assert!(outcome.is_ok(), "block {at}: {outcome:?}");
                assert!(*buffer == blocks(7, 8)[at * BLOCK..(at + 1) * BLOCK], "block {at} is not what was written");
            } else {
                assert!(matches!(outcome, Err(DeviceError::Short { got_bytes: 0, .. })), "block {at}: {outcome:?}");
            }
        }
    }

    pub(super) fn what_nobody_wants_is_not_begun(make: Make) {
        let bench = make(64 * BLOCK as u64, 1, 64);
        let ledger = Ledger::default();
        let open = gate(&*bench.queue);
        for at in 0..40 {
            let transfer = if at % 4 == 0 { read(&ledger, at, 1) } else { transfers::unwanted(&ledger, at) };
            bench.queue.submit(IoClass::Demand, transfer).unwrap();
        }
        open.send(()).unwrap();
        assert!(ledger.take(10).iter().all(|told| told.at % 4 == 0));
        drop(bench.queue);
        assert_eq!((ledger.begun(), ledger.alive()), (10, 0));
    }

    pub(super) fn a_transfer_of_nothing_is_done(make: Make) {
        let bench = make(8 * BLOCK as u64, 1, 8);
        let ledger = Ledger::default();
        bench.queue.submit(IoClass::Demand, read(&ledger, 3, 0)).unwrap();
        bench.queue.submit(IoClass::Write, write(&ledger, 3, Buffer::of(0))).unwrap();
        assert!(ledger.take(2).iter().all(|told| told.outcome.is_ok()));
    }

    pub(super) fn closing_ends_what_is_under_way_and_drops_what_waits(make: Make) {
        for round in 0..20 {
            let bench = make(256 * BLOCK as u64, 4, 256);
            let ledger = Ledger::default();
            for at in 0..100 {
                bench.queue.submit(IoClass::Demand, read(&ledger, at, 2)).unwrap();
                bench.queue.submit(IoClass::Write, write(&ledger, 2 * at, blocks(at as u64, 1))).unwrap();
            }
            if round % 2 == 0 {
                ledger.wait_for(3);
            }
            drop(bench.queue);
            assert_eq!(ledger.alive(), 0, "nothing is held after the end");
            assert_eq!(ledger.begun(), ledger.told(), "what was begun was ended");
        }
    }

    /// Ten thousand transfers whose callers go away, at every moment of their lives.
    pub(super) fn a_storm_of_dropped_transfers_leaves_nothing_behind(make: Make) {
        let bench = make(256 * BLOCK as u64, 8, 64);
        let ledger = Ledger::default();
        let (mut taken, mut dice) = (0, Dice::new(11));
        while taken < 10_000 {
            let at = dice.place(250);
            let (transfer, caller) = transfers::with_caller(&ledger, at, 1 + dice.place(4));
            let Ok(()) = bench.queue.submit(IoClass::Demand, transfer) else {
                std::thread::yield_now();
                continue;
            };
            taken += 1;
            match dice.place(3) {
                0 => drop(caller),
                1 => std::thread::yield_now(),
                _ => {}
            }
        }
        drop(bench.queue);
        assert_eq!(ledger.alive(), 0);
        assert_eq!(ledger.begun(), ledger.told());
    }
}

#[test]
fn a_refusal_of_the_kernel_keeps_its_number() {
    let (folder, device) = file(8 * BLOCK as u64);
    let read_only = Arc::new(File::open(folder.path().join("ssd")).unwrap());
    let queue = ring(read_only, device.bytes(), 2, 8);
    let ledger = Ledger::default();
    queue.submit(IoClass::Write, write(&ledger, 1, blocks(1, 1))).unwrap();
    match ledger.take(1).remove(0).outcome {
        Err(DeviceError::Io { operation: "write", source, .. }) => {
            assert_eq!(source.raw_os_error(), Some(rustix::io::Errno::BADF.raw_os_error()));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_injected_error_reaches_the_caller_and_the_next_transfer_is_served() {
    let device = Arc::new(FaultDevice::new(8 * BLOCK));
    let queue = threads(device.clone(), 2, 8);
    let ledger = Ledger::default();
    for (fault, class) in [(Fault::FailRead, IoClass::Demand), (Fault::FailWrite, IoClass::Write)] {
        let submit = || {
            let is_write = class == IoClass::Write;
            let transfer = if is_write { write(&ledger, 1, blocks(1, 1)) } else { read(&ledger, 1, 1) };
            queue.submit(class, transfer).unwrap();
            ledger.take(1).remove(0).outcome
        };
        device.inject(fault);
        assert!(matches!(submit(), Err(DeviceError::Io { .. })));
        submit().unwrap();
    }
}

#[test]
fn a_ring_sleeps_until_somebody_asks() {
    let bench = ring_over_a_file(8 * BLOCK as u64, 2, 8);
    let ledger = Ledger::default();
    // Each finds the ring asleep.
    for at in 0..8 {
        bench.queue.submit(IoClass::Demand, read(&ledger, at, 1)).unwrap();
        ledger.take(1).remove(0).outcome.unwrap();
    }
}
