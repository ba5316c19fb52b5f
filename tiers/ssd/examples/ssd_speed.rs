//! How fast pages of 2.25 MiB come from and go to this disk, beside `fio` with the same size and kind of memory: at the same
//! depth, and at the best of the depths 1, 8 and 32.
//!
//! ```text
//! cargo run --release -p cairn-ssd --example ssd_speed -- FOLDER [ROUNDS]
//! ```
//!
//! FOLDER is on the disk to be measured; 2 x 2.2 GiB are written there and removed again. Each round measures both sides in turn, so that a
//! noisy neighbour meets them alike; medians of the rounds are printed, of either side and of the ratio. Reads are verified: header
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
use cairn_testkit::dice::Dice;
use cairn_testkit::fault_device::SeededEntropy;
use cairn_testkit::payload;

const PAGE_BYTES: u64 = 9 << 18;
const SLOT_BYTES: u64 = PAGE_BYTES + 4096;
const PAGES: usize = 952;
const REGION_BYTES: u64 = 64 << 20;
const FILE_BYTES: u64 = 65_536 + 34 * REGION_BYTES;
/// Pages of a batch, which one barrier follows: what the writer of the engine takes at once.
const BATCH_PAGES: usize = 28;
const TURN: Duration = Duration::from_millis(800);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let rounds = arguments.next().map_or(11, |rounds| rounds.parse().expect("a number of rounds"));
    let fio = Fio::prepare(&folder);
    let heads = ["cairn", "fio", "ratio", "fio best", "ratio"];
    println!("{:<40} {}", "MiB/s, median of rounds", heads.map(|head| format!("{head:>9}")).concat());
    for (huge_pages, memory) in [(HugePages::Auto, "huge pages"), (HugePages::Off, "4 KiB pages")] {
        for kind in [DeviceKind::IoUring, DeviceKind::Positioned] {
            let house = House::open(&folder, kind, huge_pages);
            let mut tables = [("read", Table::default()), ("write", Table::default())];
            for _ in 0..rounds {
                for (what, table) in &mut tables {
                    table.ours.push(if *what == "read" { house.read() } else { house.write() });
                    let Some(fio) = &fio else { continue };
                    let fio = |depth| fio.run(what, depth, huge_pages);
                    table.same_depth.push(fio(house.io.depth()));
                    table.best_depth.push([1, 8, 32].map(fio).into_iter().fold(0.0, f64::max));
                }
            }
            println!("{}\n  {}", house.io.describe(), house.pool.backing());
            for (what, table) in tables {
                println!("{:<40} {}", format!("  {what}, {memory}, {}", kind.label()), table.line());
            }
        }
    }
}

/// What the rounds gave, MiB a second.
#[derive(Default)]
struct Table {
    ours: Vec<f64>,
    same_depth: Vec<f64>,
    best_depth: Vec<f64>,
}

impl Table {
    fn line(&self) -> String {
        let mut line = format!("{:>9.0}", median(&self.ours));
        for theirs in [&self.same_depth, &self.best_depth] {
            let ratios: Vec<f64> = self.ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
            line += &format!("{:>9.0}{:>9.2}", median(theirs), median(&ratios));
        }
        line
    }
}

fn median(rates: &[f64]) -> f64 {
    let mut rates = rates.to_vec();
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
                let (slot, expected) = stored[dice.place(stored.len())];
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
    fn run(&self, what: &str, depth: usize, huge_pages: HugePages) -> f64 {
        let mut command = self.command(&format!("rand{what}"), depth, huge_pages);
        command.args([
            "--time_based".to_owned(),
            format!("--runtime={}ms", TURN.as_millis()),
            "--size=2250MiB".to_owned(),
        ]);
        if what == "write" {
            command.arg(format!("--fdatasync={BATCH_PAGES}"));
        }
        let output = command.output().expect("fio runs");
        let text = String::from_utf8_lossy(&output.stdout);
        // KiB a second of reads and of writes.
        let field = if what == "read" { 6 } else { 47 };
        text.split(';').nth(field).and_then(|rate| rate.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}
