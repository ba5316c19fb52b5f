//! The SSD beside `fio`: pages that are in no memory are read, and pages are written, by the tier alone and by durable puts.
//!
//! Gets and puts go through the engine, with all that belongs to it: matching, frames, verification, the write queue, barriers and the
//! directory. `fio` does the same transfers on a file of its own on the same file system: the same size, as many at once, a barrier after as
//! many writes.

use std::cell::Cell;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cairn_core::{Checksum, Clock, Deadline, Durability, Tier};
use cairn_engine::GetOptions;
use cairn_testkit::payload;

use super::fio::{Fio, Job, Way};
use super::house::{self, House, Sizes};
use super::writes::Writes;
use super::{Plan, blocking, rebuild};
use crate::cairnd::temporary_folder_in;
use crate::error::{BenchError, Result};
use crate::figures::{Figure, Rounds};

/// Regions of the SSD: 2.25 GiB, several times what the pool holds, so that what is read again is cold again.
const REGIONS: u32 = 36;
const DRAM_BYTES: u64 = 512 << 20;
/// Time of one turn.
const TURN: Duration = Duration::from_millis(400);
/// Longest time of one get or put.
const PATIENCE: Duration = Duration::from_secs(30);
/// What the writer of the engine takes at once, and passes a barrier after.
const BATCH_PAGES_MAX: u64 = 64;
const BATCH_BYTES_MAX: u64 = 64 << 20;

/// Least share of fio's direct reads that a cold get reaches.
const GET_SHARE: f64 = 0.95;
/// Least share of fio's direct writes that write-behind reaches.
const WRITE_SHARE: f64 = 0.9;

/// Pages of one size.
struct Case {
    page_bytes: u64,
    chain_pages: u32,
    get: &'static str,
    write: &'static str,
    put: &'static str,
}

const CASES: [Case; 2] = [
    Case {
        page_bytes: 2_304 << 10,
        chain_pages: 64,
        get: "cold get, 2.25 MiB pages, of fio's reads",
        write: "write-behind, 2.25 MiB pages, of fio's writes",
        put: "durable put, 2.25 MiB pages, of fio's writes",
    },
    Case {
        page_bytes: 256 << 10,
        chain_pages: 512,
        get: "cold get, 256 KiB pages, of fio's reads",
        write: "write-behind, 256 KiB pages, of fio's writes",
        put: "durable put, 256 KiB pages, of fio's writes",
    },
];

/// Measures all of it; nothing without `fio`.
pub(super) async fn measure(plan: &Plan, clock: &Arc<dyn Clock>) -> Result<Vec<Figure>> {
    if !Fio::is_installed().await {
        println!("fio is not installed, so the disk is not measured; to install it: deploy/setup.sh bench");
        return Ok(Vec::new());
    }
    let mut figures = Vec::new();
    for case in &CASES {
        let folder = temporary_folder_in(&plan.folder)?;
        let sizes = Sizes { page_bytes: case.page_bytes, dram_bytes: DRAM_BYTES, regions: REGIONS };
        figures.extend(case.measure(folder.path(), sizes, plan.rounds, clock).await?);
        if case.page_bytes == CASES[CASES.len() - 1].page_bytes {
            figures.push(rebuild::measure(folder.path(), sizes, plan.rounds, clock).await?);
        }
    }
    Ok(figures)
}

impl Case {
    async fn measure(&self, folder: &Path, sizes: Sizes, rounds: usize, clock: &Arc<dyn Clock>) -> Result<[Figure; 3]> {
        let fio = Fio::lay_out(&folder.join("fio"), sizes.ssd_bytes()).await?;
        let mut shelf = Shelf::fill(folder, sizes, self.chain_pages, clock).await?;
        let stats = shelf.house.engine.stats();
        println!("pages of {} bytes; {}; {}", self.page_bytes, stats.ssd_backing, stats.dram_backing);
        let depth = u32::try_from(shelf.house.metrics.ssd_depth.get()).unwrap_or(1);
        let batch_pages = (BATCH_BYTES_MAX / self.page_bytes).min(BATCH_PAGES_MAX);
        let (path, its_clock) = (folder.join("writes"), clock.clone());
        let fill = move || Ok(Writes::fill(&path, &sizes, batch_pages as u32, depth, its_clock)?);
        let mut writes = blocking(fill).await?;

        let huge_pages = stats.dram_backing.contains("huge pages");
        let job = |way| Job { way, bytes: sizes.slot_bytes(), depth, huge_pages };
        let (read, write) = (job(Way::Read(TURN)), job(Way::Write(TURN, batch_pages)));
        let [mut gets, mut batches, mut puts] = [(); 3].map(|()| Rounds::default());
        for _ in 0..rounds {
            gets.add(shelf.get_turn().await? / 1e9, fio.run(read).await? / 1e9);
            let written;
            (written, writes) = blocking(move || Ok((writes.turn(TURN)?, writes))).await?;
            let limit = fio.run(write).await? / 1e9;
            batches.add(written / 1e9, limit);
            puts.add(shelf.put_turn().await? / 1e9, limit);
        }
        shelf.house.close().await?;
        Ok([
            Figure::share_of(self.get, &gets, "GB/s", GET_SHARE),
            Figure::share_of(self.write, &batches, "GB/s", WRITE_SHARE),
            Figure::reported_share_of(self.put, &puts, "GB/s"),
        ])
    }
}

/// An engine whose SSD fills up, and the chains that are whole there, the one used longest ago first.
struct Shelf {
    house: House,
    chain_pages: u32,
    chains: VecDeque<u32>,
    next: Cell<u32>,
    /// The bytes of every page: what is measured is how they travel.
    page: Vec<u8>,
    checksum: Checksum,
}

impl Shelf {
    async fn fill(folder: &Path, sizes: Sizes, chain_pages: u32, clock: &Arc<dyn Clock>) -> Result<Self> {
        let open = || {
            let (folder, clock) = (folder.to_owned(), clock.clone());
            blocking(move || {
                let house = House::in_folder(&folder, &sizes, clock)?;
                house.engine.wait_warm();
                Ok(house)
            })
        };
        let page = payload::page(b"speed", usize::try_from(sizes.page_bytes).unwrap_or(usize::MAX));
        let checksum = Checksum::of(&page);
        let (chains, next) = (VecDeque::new(), Cell::new(0));
        let mut shelf = Self { house: open().await?, chain_pages, chains, next, page, checksum };
        while shelf.next.get() < sizes.slots() / chain_pages {
            shelf.put().await?;
        }
        shelf.note_put_since(0)?;
        // Opened again, so that it measures how many transfers at once this disk likes: a new file has nothing to read.
        let Self { house, chains, next, page, .. } = shelf;
        house.close().await?;
        Ok(Self { house: open().await?, chain_pages, chains, next, page, checksum })
    }

    /// Reads chains for a while; bytes a second.
    async fn get_turn(&mut self) -> Result<f64> {
        let clock = self.house.clock.clone();
        let (start, mut chains_read) = (clock.now(), 0_u32);
        while clock.now().since(start) < TURN {
            let Some(chain) = self.chains.pop_front() else { return Err(cut_short("get", 0, self.chain_pages)) };
            self.get(chain).await?;
            self.chains.push_back(chain);
            chains_read += 1;
        }
        Ok(self.bytes_of(chains_read) / clock.now().since(start).as_secs_f64())
    }

    async fn get(&self, chain: u32) -> Result<()> {
        let options = GetOptions { first_page: 0, usable_pages: u64::MAX, deadline: self.deadline() };
        let keys = house::chain(chain, self.chain_pages);
        let mut get = self.house.engine.get_prefix(&self.house.namespace, keys, options)?;
        let mut pages = 0;
        while let Some(served) = get.next().await {
            pages += u32::from(served.tier == Tier::Ssd);
        }
        if pages == self.chain_pages { Ok(()) } else { Err(cut_short("cold get", pages, self.chain_pages)) }
    }

    /// Puts new chains for a while, over those used longest ago, two at once, so that the writer always finds the next batch; bytes a second.
    async fn put_turn(&mut self) -> Result<f64> {
        let (clock, first) = (self.house.clock.clone(), self.next.get());
        let start = clock.now();
        let putter = || async {
            while clock.now().since(start) < TURN {
                self.put().await?;
            }
            Ok::<(), BenchError>(())
        };
        tokio::try_join!(putter(), putter())?;
        let rate = self.bytes_of(self.next.get() - first) / clock.now().since(start).as_secs_f64();
        self.note_put_since(first)?;
        Ok(rate)
    }

    async fn put(&self) -> Result<()> {
        let chain = self.next.replace(self.next.get() + 1);
        let keys = house::chain(chain, self.chain_pages);
        let mut put = self.house.engine.begin_put(&self.house.namespace, keys, Durability::Ssd, self.deadline())?;
        for page in 0..self.chain_pages as usize {
            // A page that is refused is missing in the report.
            let Ok(mut frame) = put.reserve(page).await else { break };
            frame.copy_from_slice(&self.page);
            put.commit(page, frame, self.checksum);
        }
        let report = put.finish().await;
        let pages = if report.durability == Durability::Ssd { report.good_pages } else { 0 };
        if pages == self.chain_pages as usize {
            Ok(())
        } else {
            Err(cut_short("put", u32::try_from(pages).unwrap_or(u32::MAX), self.chain_pages))
        }
    }

    /// Notes the chains put since `first`, and forgets those that went for them, or lost a page with a region that was emptied.
    fn note_put_since(&mut self, first: u32) -> Result<()> {
        self.chains.extend(first..self.next.get());
        let mut whole = VecDeque::with_capacity(self.chains.len());
        for chain in self.chains.drain(..) {
            let keys = house::chain(chain, self.chain_pages);
            let found = self.house.engine.match_prefix(&self.house.namespace, &keys, u64::MAX)?;
            if found.pages == keys.len() {
                whole.push_back(chain);
            }
        }
        self.chains = whole;
        Ok(())
    }

    fn bytes_of(&self, chains: u32) -> f64 {
        f64::from(chains) * f64::from(self.chain_pages) * self.page.len() as f64
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(&*self.house.clock, PATIENCE)
    }
}

/// A rate of pages that did not travel would be a lie.
fn cut_short(call: &str, pages: u32, expected: u32) -> BenchError {
    BenchError::Settings(format!("the {call} was cut short, so it can not be timed pages={pages} expected={expected}"))
}
