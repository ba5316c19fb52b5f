//! An engine that knows ten million pages: how long a match takes, and how much memory it costs to know a page.
//!
//! The pages are made up: a directory that hands out records which nobody wrote, and a device of nothing but zeros. The engine takes them over
//! as at any start, so everything that it keeps of a page is there.

use std::collections::HashMap;
use std::sync::Arc;

use cairn_core::{Checksum, Clock, DeviceId, Generation, NamespaceId, OsEntropy, SlotId, TenantId};
use cairn_directory::{Change, DeviceRecord, Directory, DirectoryError, NamespaceRecord, Record, ScanReport};
use cairn_policy::{Ledger, ScrubMark};
use cairn_ssd::{Device, DeviceError, SsdComponents, SsdTier};
use parking_lot::Mutex;

use super::blocking;
use super::house::{self, House, REGION_BYTES, Sizes};
use crate::error::{BenchError, Result};
use crate::figures::{Figure, median, percentile};
use crate::machine;

const CHAIN_PAGES: u32 = 512;
const PAGE_BYTES: u64 = 4096;
/// Page memory, which is not counted.
const DRAM_BYTES: u64 = 4 << 20;
const BLOCK_BYTES: usize = 4096;
/// Matches that are timed, of chains far from each other.
const MATCHES: u32 = 2000;

/// Longest match of 512 pages in process, in microseconds.
const MATCH_US_MAX: f64 = 100.0;
/// Most resident memory a page, in bytes.
const PAGE_MEMORY_MAX: f64 = 160.0;

/// Fills an engine with about `entries` entries, and measures.
pub(super) async fn measure(entries: u32, clock: Arc<dyn Clock>) -> Result<Vec<Figure>> {
    blocking(move || {
        let chains = (entries / CHAIN_PAGES).max(1);
        let resident_before = machine::resident_bytes().map_err(failed)?;
        let house = filled(chains, clock)?;
        let resident = machine::resident_bytes().map_err(failed)?.saturating_sub(resident_before + DRAM_BYTES);
        let stats = house.engine.stats();
        let a_page = |bytes: u64| bytes as f64 / stats.entries as f64;
        let times = match_times(&house, chains)?;
        println!("{} entries, taken over in {:.1} s", stats.entries, stats.recovery.took.as_secs_f64());
        Ok(vec![
            Figure::at_most("match of 512 pages in process, p50", median(times.iter().copied()), "us", MATCH_US_MAX),
            Figure::reported("match of 512 pages in process, p99", percentile(times, 99), "us"),
            Figure::at_most("resident memory of a page", a_page(resident), "bytes", PAGE_MEMORY_MAX),
            Figure::reported("resident memory of a page, index alone", a_page(stats.index_bytes), "bytes"),
        ])
    })
    .await
}

fn failed(source: std::io::Error) -> BenchError {
    BenchError::Measure { what: "the memory of this process", source }
}

fn filled(chains: u32, clock: Arc<dyn Clock>) -> Result<House> {
    let mut sizes = Sizes { page_bytes: PAGE_BYTES, dram_bytes: DRAM_BYTES, regions: 0 };
    sizes.regions = (chains * CHAIN_PAGES).div_ceil(sizes.region_slots());
    let device = Arc::new(Zeros { bytes: sizes.ssd_bytes(), written: Mutex::default() });
    let parts = SsdComponents { device: device.clone(), clock: clock.clone(), metrics: house::metrics()? };
    let tier = SsdTier::format(parts, REGION_BYTES, &OsEntropy).map_err(cairn_core::Error::from)?;
    let directory = MadeUp {
        device: tier.device_id(),
        namespace: house::namespace_id(PAGE_BYTES),
        chains,
        region_slots: sizes.region_slots(),
    };
    House::open(&sizes, device, Arc::new(directory), clock)
}

/// Microseconds of each match.
fn match_times(house: &House, chains: u32) -> Result<Vec<f64>> {
    // A step that is prime to the number of chains visits them all, far from each other.
    (0..MATCHES)
        .map(|turn| {
            let chain = house::chain(turn.wrapping_mul(7919) % chains, CHAIN_PAGES);
            let start = house.clock.now();
            let matched = house.engine.match_prefix(&house.namespace, &chain, u64::MAX)?;
            let took = house.clock.now().since(start);
            if matched.pages == chain.len() {
                Ok(took.as_secs_f64() * 1e6)
            } else {
                Err(BenchError::Settings(format!("a chain is not found whole pages={}", matched.pages)))
            }
        })
        .collect()
}

/// Says that chains of pages are on a device.
#[derive(Debug)]
struct MadeUp {
    device: DeviceId,
    namespace: NamespaceId,
    chains: u32,
    region_slots: u32,
}

impl MadeUp {
    fn record(&self, chain: u32, position: u32) -> Record {
        // As if all chains had been put page by page in turn: no two pages of a chain are neighbours in memory, which is the worst there is.
        let number = position * self.chains + chain;
        Record {
            namespace: self.namespace,
            key: house::key(chain, position),
            parent: position.checked_sub(1).map(|before| house::key(chain, before)),
            position,
            slot: SlotId { region: number / self.region_slots, slot: number % self.region_slots },
            generation: Generation::from_u64(u64::from(number) + 1),
            payload_bytes: PAGE_BYTES,
            checksum: Checksum::from_u64(0),
        }
    }
}

impl Directory for MadeUp {
    fn commit(&self, _: &[Change]) -> std::result::Result<(), DirectoryError> {
        Ok(())
    }

    fn scan(&self, visit: &mut dyn FnMut(Record)) -> std::result::Result<ScanReport, DirectoryError> {
        for chain in 0..self.chains {
            (0..CHAIN_PAGES).for_each(|position| visit(self.record(chain, position)));
        }
        Ok(ScanReport { records: u64::from(self.chains) * u64::from(CHAIN_PAGES), ..ScanReport::default() })
    }

    fn save_namespace(&self, _: &NamespaceRecord) -> std::result::Result<(), DirectoryError> {
        Ok(())
    }

    fn namespaces(&self) -> std::result::Result<Vec<NamespaceRecord>, DirectoryError> {
        let identity = house::identity(PAGE_BYTES);
        Ok(vec![NamespaceRecord { id: self.namespace, tenant: TenantId::local(), identity }])
    }

    fn device(&self) -> std::result::Result<Option<DeviceRecord>, DirectoryError> {
        Ok(Some(DeviceRecord { id: self.device, run: 0 }))
    }

    fn set_device(&self, _: DeviceRecord) -> std::result::Result<(), DirectoryError> {
        Ok(())
    }

    fn ledger(&self) -> std::result::Result<Option<Ledger>, DirectoryError> {
        Ok(None)
    }

    fn save_ledger(&self, _: &Ledger) -> std::result::Result<(), DirectoryError> {
        Ok(())
    }

    fn scrub(&self) -> std::result::Result<Option<ScrubMark>, DirectoryError> {
        Ok(None)
    }

    fn save_scrub(&self, _: &ScrubMark) -> std::result::Result<(), DirectoryError> {
        Ok(())
    }

    fn release(&self) -> std::result::Result<(), DirectoryError> {
        Ok(())
    }

    fn close(&self) -> std::result::Result<(), DirectoryError> {
        Ok(())
    }
}

/// A device in memory that is zero wherever nothing was written.
#[derive(Debug)]
struct Zeros {
    bytes: u64,
    written: Mutex<HashMap<u64, Vec<u8>>>,
}

impl Zeros {
    /// Where each block of a part lies.
    fn places(at: u64) -> impl Iterator<Item = u64> {
        (at..).step_by(BLOCK_BYTES)
    }
}

impl Device for Zeros {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, at: u64, parts: &mut [&mut [u8]]) -> std::result::Result<(), DeviceError> {
        let written = self.written.lock();
        let blocks = parts.iter_mut().flat_map(|part| part.chunks_mut(BLOCK_BYTES));
        for (at, block) in Self::places(at).zip(blocks) {
            match written.get(&at) {
                Some(found) => block.copy_from_slice(&found[..block.len()]),
                None => block.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, at: u64, parts: &[&[u8]]) -> std::result::Result<(), DeviceError> {
        let blocks = parts.iter().flat_map(|part| part.chunks(BLOCK_BYTES));
        self.written.lock().extend(Self::places(at).zip(blocks.map(<[u8]>::to_vec)));
        Ok(())
    }

    fn barrier(&self) -> std::result::Result<(), DeviceError> {
        Ok(())
    }

    fn describe(&self) -> &str {
        "nothing but zeros"
    }
}
