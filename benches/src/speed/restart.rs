//! A start after a clean stop, with a million pages on the SSD: how long until the engine serves.
//!
//! Directory, superblocks and headers of regions are real, and so is a part of the file, for the engine to measure the disk with. The pages are
//! not: a quarter of a terabyte would take minutes to write, and no start reads it. The file is sparse in their place.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cairn_core::{Checksum, Clock, Generation, OsEntropy, TenantId};
use cairn_directory::{Change, DeviceRecord, Directory, NamespaceRecord, Record, RocksDirectory};
use cairn_engine::OpenMode;
use cairn_ssd::{Device, DeviceError, FileDevice, SsdComponents, SsdError, SsdTier};

use super::house::{self, House, REGION_BYTES, Sizes};
use super::{Plan, blocking};
use crate::cairnd::temporary_folder_in;
use crate::error::{BenchError, Result};
use crate::figures::{Figure, median};

const PAGE_BYTES: u64 = 256 << 10;
const CHAIN_PAGES: u32 = 64;
const DRAM_BYTES: u64 = 64 << 20;
/// Starts; the median counts.
const STARTS: usize = 5;
/// Real bytes in the file: enough to measure a disk with.
const DATA_BYTES: u64 = 384 << 20;
const COMMIT_RECORDS: usize = 16_384;
/// Longest start, in milliseconds.
const START_MS_MAX: f64 = 1000.0;

/// Starts an engine with that many entries again and again.
pub(super) async fn measure(plan: &Plan, clock: Arc<dyn Clock>) -> Result<Vec<Figure>> {
    let folder = temporary_folder_in(&plan.folder)?;
    let chains = (plan.restart_entries / CHAIN_PAGES).max(1);
    let mut sizes = Sizes { page_bytes: PAGE_BYTES, dram_bytes: DRAM_BYTES, regions: 0 };
    sizes.regions = (chains * CHAIN_PAGES).div_ceil(sizes.region_slots());
    let (at, its_clock) = (folder.path().to_owned(), clock.clone());
    blocking(move || lay_out(&at, sizes, chains, its_clock)).await?;
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let (at, its_clock) = (folder.path().to_owned(), clock.clone());
        let start = clock.now();
        let house = blocking(move || House::in_folder(&at, &sizes, its_clock)).await?;
        let took = clock.now().since(start);
        let recovery = house.engine.stats().recovery;
        println!(
            "start with {} entries: {} ms, of which {} ms to take them over",
            recovery.pages,
            took.as_millis(),
            recovery.took.as_millis()
        );
        if recovery.mode != OpenMode::Directory || recovery.pages != u64::from(chains * CHAIN_PAGES) {
            return Err(BenchError::Settings(format!("pages are missing at the start pages={}", recovery.pages)));
        }
        house.close().await?;
        starts.push(took.as_secs_f64() * 1e3);
    }
    Ok(vec![Figure::at_most("start with a million entries, until it serves", median(starts), "ms", START_MS_MAX)])
}

/// A file that stays sparse: regions are opened, and no room is asked for.
#[derive(Debug)]
struct Sparse(FileDevice);

impl Device for Sparse {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn read_at(&self, at: u64, parts: &mut [&mut [u8]]) -> std::result::Result<(), DeviceError> {
        self.0.read_at(at, parts)
    }

    fn write_at(&self, at: u64, parts: &[&[u8]]) -> std::result::Result<(), DeviceError> {
        self.0.write_at(at, parts)
    }

    fn barrier(&self) -> std::result::Result<(), DeviceError> {
        self.0.barrier()
    }

    fn describe(&self) -> &str {
        self.0.describe()
    }
}

fn lay_out(folder: &Path, sizes: Sizes, chains: u32, clock: Arc<dyn Clock>) -> Result<()> {
    let path = house::ssd_path(folder);
    let file = |source| BenchError::File { action: "make the ssd file", path: path.clone(), source };
    // Already as long as it has to be, so nothing is allocated.
    File::create(&path).and_then(|new| new.set_len(sizes.ssd_bytes())).map_err(file)?;
    let device = FileDevice::open_or_create(&path, sizes.ssd_bytes()).map_err(of_ssd_device)?;
    let parts = SsdComponents { device: Arc::new(Sparse(device)), clock, metrics: house::metrics()? };
    let tier = SsdTier::format(parts, REGION_BYTES, &OsEntropy).map_err(cairn_core::Error::from)?;
    let directory = RocksDirectory::open(&house::directory_path(folder)).map_err(cairn_core::Error::from)?;
    fill(&tier, &directory, chains).map_err(BenchError::from)?;
    drop(tier);
    write_some(&path, sizes).map_err(file)
}

fn of_ssd_device(error: cairn_ssd::DeviceError) -> cairn_core::Error {
    SsdError::Device(error).into()
}

/// Takes slots for all pages, which writes the headers of their regions, and makes the directory name them.
fn fill(tier: &SsdTier, directory: &dyn Directory, chains: u32) -> cairn_core::Result<()> {
    directory.set_device(DeviceRecord { id: tier.device_id(), run: tier.run().number })?;
    let (id, identity) = (house::namespace_id(PAGE_BYTES), house::identity(PAGE_BYTES));
    directory.save_namespace(&NamespaceRecord { id, tenant: TenantId::local(), identity })?;
    let mut changes = Vec::with_capacity(COMMIT_RECORDS);
    for number in 0..chains * CHAIN_PAGES {
        let (chain, position) = (number / CHAIN_PAGES, number % CHAIN_PAGES);
        let Some(slot) = tier.reserve(PAGE_BYTES)? else { break };
        changes.push(Change::Put(Record {
            namespace: id,
            key: house::key(chain, position),
            parent: position.checked_sub(1).map(|before| house::key(chain, before)),
            position,
            slot,
            generation: Generation::from_u64(u64::from(number) + 1),
            payload_bytes: PAGE_BYTES,
            checksum: Checksum::from_u64(0),
        }));
        if changes.len() == COMMIT_RECORDS {
            directory.commit(&changes)?;
            changes.clear();
        }
    }
    directory.commit(&changes)?;
    directory.close()?;
    Ok(())
}

/// Fills the pages of some regions with something, and leaves the headers of regions alone.
fn write_some(path: &Path, sizes: Sizes) -> std::io::Result<()> {
    let file = File::options().write(true).open(path)?;
    let region = vec![7; usize::try_from(REGION_BYTES - 4096).unwrap_or(usize::MAX)];
    for number in 0..DATA_BYTES / REGION_BYTES {
        let front_bytes = sizes.ssd_bytes() % REGION_BYTES;
        file.write_all_at(&region, front_bytes + number * REGION_BYTES + 4096)?;
    }
    file.sync_all()
}
