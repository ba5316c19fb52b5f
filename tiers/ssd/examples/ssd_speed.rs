//! How fast pages of 2.25 MiB come from and go to this disk, beside `fio` with the same size, depth and kind of memory.
//!
//! ```text
//! cargo run --release -p cairn-ssd --example ssd_speed -- FOLDER [ROUNDS]
//! ```
//!
//! FOLDER is on the disk to be measured; 2 x 2.2 GiB are written there and removed again. Each round measures everything in turn, so that a
//! noisy neighbour meets all alike; the median of the rounds is printed, and the ratio of the two medians. Reads are verified: header
//! and payload. Without `fio` only our side is printed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measurement that can not go on says so by panicking")]

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use cairn_core::metrics::{IoClass, Metrics};
use cairn_core::{Checksum, Clock, NamespaceId, PageKey, SlotId, SystemClock};
use cairn_pool::{HugePages, Pool, PoolSettings, SealedPage, TenantNo};
use cairn_ssd::{
    DeviceKind, Expected, FileDevice, IoSettings, PageFacts, PageIo, ReadJob, SsdComponents, SsdTier, Submitted,
};
use cairn_testkit::fault_device::{Dice, SeededEntropy};
use cairn_testkit::payload;

const PAGE_BYTES: u64 = 9 << 18;
const SLOT_BYTES: u64 = PAGE_BYTES + 4096;
const PAGES: usize = 952;
const REGION_BYTES: u64 = 64 << 20;
const FILE_BYTES: u64 = 65_536 + 34 * REGION_BYTES;
/// Pages of a batch, which one barrier follows: what the writer of the engine takes at once.
const BATCH_PAGES: usize = 28;
const TURN: Duration = Duration::from_secs(2);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let rounds = arguments.next().map_or(5, |rounds| rounds.parse().expect("a number of rounds"));
    let fio = Fio::prepare(&folder);
    println!("{:<46} {:>9} {:>9} {:>6}", "MiB/s, median of rounds", "cairn", "fio", "ratio");
    for (huge_pages, memory) in [(HugePages::Auto, "huge pages"), (HugePages::Off, "4 KiB pages")] {
        for kind in [DeviceKind::IoUring, DeviceKind::Positioned] {
            let house = House::open(&folder, kind, huge_pages);
            let (mut ours, mut theirs) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
            for _ in 0..rounds {
                ours[0].push(house.read());
                theirs[0].extend(fio.as_ref().map(|fio| fio.run("randread", house.io.depth(), huge_pages)));
                ours[1].push(house.write());
                theirs[1].extend(fio.as_ref().map(|fio| fio.run("randwrite", house.io.depth(), huge_pages)));
            }
            println!("{}\n  {}", house.io.describe(), house.pool.backing());
            for ((ours, theirs), what) in ours.into_iter().zip(theirs).zip(["read", "write"]) {
                let name = format!("  {what}, {memory}, {}", kind.label());
                let (ours, theirs) = (median(ours), median(theirs));
                println!("{name:<46} {ours:>9.0} {theirs:>9.0} {:>6.2}", ours / theirs);
            }
        }
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(f64::NAN)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A tier full of pages, and the pages in memory that they are copies of.
struct House {
    io: PageIo,
    tier: Arc<SsdTier>,
    pool: Pool,
    clock: Arc<SystemClock>,
    pages: Vec<(PageFacts, SealedPage)>,
    stored: parking_lot::Mutex<Vec<(SlotId, Expected)>>,
    path: PathBuf,
}

impl House {
    fn open(folder: &Path, kind: DeviceKind, huge_pages: HugePages) -> Self {
        let path = folder.join("ssd_speed.pages");
        let clock = Arc::new(SystemClock::start());
        let metrics = Arc::new(Metrics::new(&prometheus::Registry::new()).unwrap());
        let device = || Arc::new(FileDevice::open_or_create(&path, FILE_BYTES).unwrap());
        let parts = SsdComponents { device: device(), clock: clock.clone(), metrics: metrics.clone() };
        let tier = Arc::new(SsdTier::format(parts, REGION_BYTES, &SeededEntropy::new(1)).unwrap());
        let arena_bytes = 64 << 20;
        let pool = Pool::start(PoolSettings { bytes: 4 * arena_bytes, arena_bytes, huge_pages }, metrics).unwrap();
        pool.wait_warm();
        let pages = (0..BATCH_PAGES as u64).map(|number| page(&pool, number)).collect();
        let settings = IoSettings { kind, threads: 4, line_max: 64 };
        // Filled first, so that the calibration finds something to read.
        let io = PageIo::start(Arc::clone(&tier), settings).unwrap();
        let mut house = Self { io, tier, pool, clock, pages, stored: parking_lot::Mutex::default(), path };
        house.fill();
        house.io = PageIo::start(Arc::clone(&house.tier), settings).unwrap();
        house
    }

    /// Writes every slot; MiB a second.
    fn fill(&self) -> f64 {
        let start = self.clock.now();
        let mut stored = Vec::with_capacity(PAGES);
        while stored.len() < PAGES {
            let mut batch = self.io.batch();
            for (facts, page) in &self.pages {
                let slot = self.tier.reserve(PAGE_BYTES).unwrap().expect("a free slot");
                let generation = batch.write(slot, facts, page.verified().unwrap()).unwrap();
                let PageFacts { namespace, key, checksum, .. } = *facts;
                stored.push((slot, Expected { namespace, key, generation, checksum, payload_bytes: PAGE_BYTES }));
            }
            batch.finish().unwrap();
        }
        let rate = mib(stored.len() as u64 * PAGE_BYTES) / self.clock.now().since(start).as_secs_f64();
        *self.stored.lock() = stored;
        rate
    }

    /// Overwrites every slot; MiB a second.
    fn write(&self) -> f64 {
        self.stored.lock().drain(..).for_each(|(slot, _)| self.tier.free(slot));
        self.fill()
    }

    /// Reads random pages for a while; MiB a second.
    fn read(&self) -> f64 {
        let (mut dice, stored) = (Dice::new(5), self.stored.lock());
        let (start, mut waiting, mut bytes) = (self.clock.now(), VecDeque::new(), 0);
        let window = self.io.depth() + 2;
        loop {
            let more = self.clock.now().since(start) < TURN;
            while more && waiting.len() < window {
                let (slot, expected) = stored[dice.below(stored.len() as u64)];
                let into = self.pool.reserve(TenantNo(1), PAGE_BYTES).expect("a free frame");
                let job = ReadJob { pin: self.tier.pin(slot), expected, into };
                let Submitted::Queued(reply) = self.io.read(IoClass::Demand, job) else { panic!("the line is full") };
                waiting.push_back(reply);
            }
            let Some(reply) = waiting.pop_front() else { break };
            reply.wait().unwrap().unwrap();
            bytes += PAGE_BYTES;
        }
        mib(bytes) / self.clock.now().since(start).as_secs_f64()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).ok();
    }
}

fn page(pool: &Pool, number: u64) -> (PageFacts, SealedPage) {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&number.to_le_bytes());
    let mut frame = pool.reserve(TenantNo(1), PAGE_BYTES).expect("a free frame");
    payload::fill(&key, &mut frame);
    let checksum = Checksum::of(&frame);
    let (namespace, key) = (NamespaceId::from_bytes([7; 32]), PageKey::from_bytes(key));
    (PageFacts { namespace, key, parent: None, position: 0, checksum }, frame.seal(checksum).unwrap())
}

/// `fio` on a file of its own, written once.
struct Fio(PathBuf);

impl Fio {
    fn prepare(folder: &Path) -> Option<Self> {
        let fio = Self(folder.join("ssd_speed.fio"));
        let lay = fio.command("write", 4, HugePages::Auto).arg("--size=2250MiB").output();
        lay.is_ok_and(|done| done.status.success()).then_some(fio)
    }

    fn command(&self, rw: &str, depth: usize, huge_pages: HugePages) -> Command {
        let mut fio = Command::new("fio");
        if huge_pages == HugePages::Auto {
            // The allocator asks for transparent huge pages.
            fio.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
        }
        fio.args(["--name=x", "--ioengine=io_uring", "--direct=1", "--mem=malloc", "--randrepeat=0", "--norandommap"])
            .args(["--output-format=terse", "--terse-version=3", "--blockalign=4096"])
            .arg(format!("--filename={}", self.0.display()))
            .args([format!("--rw={rw}"), format!("--bs={SLOT_BYTES}"), format!("--iodepth={depth}")]);
        fio
    }

    /// MiB a second.
    fn run(&self, rw: &str, depth: usize, huge_pages: HugePages) -> f64 {
        let mut command = self.command(rw, depth, huge_pages);
        command.args(["--time_based".to_owned(), format!("--runtime={}", TURN.as_secs()), "--size=2250MiB".to_owned()]);
        if rw == "randwrite" {
            command.arg(format!("--fdatasync={BATCH_PAGES}"));
        }
        let output = command.output().expect("fio runs");
        let text = String::from_utf8_lossy(&output.stdout);
        // KiB a second of reads and of writes.
        let field = if rw == "randread" { 6 } else { 47 };
        text.split(';').nth(field).and_then(|rate| rate.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}
