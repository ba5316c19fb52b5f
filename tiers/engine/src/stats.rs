//! What the engine holds, at one moment.

use cairn_core::{ByteSize, Tier};
use cairn_pool::BackingBytes;

use crate::endurance::BudgetStats;
use crate::engine::Engine;
use crate::recovery::Recovery;
use crate::scrub::ScrubStats;

/// A tier's fill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierFill {
    /// Size in bytes.
    pub capacity_bytes: u64,
    /// Bytes in use, slots counted whole.
    pub used_bytes: u64,
    /// Pages.
    pub pages: u64,
}

/// What was written to the flash, and where its room is. Bytes since this start, where they are not a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlashStats {
    /// Bytes written to the file: pages, headers, padding, what was written again, and failed writes.
    pub written_bytes: u64,
    /// Page bytes written for the first time. `written_bytes` over this is the write amplification.
    pub page_bytes: u64,
    /// Page bytes written again because their region was emptied.
    pub reinserted_bytes: u64,
    /// Regions emptied.
    pub reclaimed_regions: u64,
    /// Bytes that the device was told to forget.
    pub trimmed_bytes: u64,
    /// Bytes of freed slots whose region is not empty yet.
    pub dead_bytes: u64,
    /// Bytes out of use because a page there was damaged.
    pub quarantined_bytes: u64,
}

/// A snapshot for operators. Counters are in the metrics.
#[derive(Clone, PartialEq, Debug)]
pub struct EngineStats {
    /// Host memory.
    pub dram: TierFill,
    /// Local flash.
    pub ssd: TierFill,
    /// What backs the pool's memory, in words.
    pub dram_backing: String,
    /// What the SSD device is, in words.
    pub ssd_backing: String,
    /// What was written to the SSD, and where its room is.
    pub flash: FlashStats,
    /// The scrub.
    pub scrub: ScrubStats,
    /// The SSD takes no writes because one failed.
    pub write_quarantined: bool,
    /// Directory entries resident in memory.
    pub entries: u64,
    /// Bytes allocated for the resident index.
    pub index_bytes: u64,
    /// Namespaces known.
    pub namespaces: u64,
    /// How the data folder was opened.
    pub recovery: Recovery,
    /// The write budget and what was written.
    pub budget: BudgetStats,
}

impl Engine {
    /// Takes a snapshot, and sets the gauges in the metrics by it.
    pub fn stats(&self) -> EngineStats {
        let shared = &self.shared;
        let (dram_pages, ssd_pages, entries, index_bytes) = {
            let catalogue = shared.catalogue.lock();
            (
                catalogue.pages_in(Tier::Dram),
                catalogue.pages_in(Tier::Ssd),
                catalogue.entries(),
                catalogue.index_bytes(),
            )
        };
        let stats = EngineStats {
            dram: TierFill {
                capacity_bytes: shared.pool.capacity_bytes(),
                used_bytes: shared.pool.used_bytes(),
                pages: dram_pages,
            },
            ssd: TierFill {
                capacity_bytes: shared.tier.capacity_bytes(),
                used_bytes: shared.tier.used_bytes(),
                pages: ssd_pages,
            },
            dram_backing: in_words(&shared.pool.backing()),
            ssd_backing: shared.pages.describe(),
            flash: self.flash_stats(),
            scrub: shared.scrub.stats(&shared.tier, shared.clock.now()),
            write_quarantined: shared.is_write_quarantined(),
            entries,
            index_bytes,
            namespaces: shared.namespaces.len() as u64,
            recovery: shared.recovery.lock().clone(),
            budget: shared.endurance.stats(),
        };
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        shared.metrics.dram_pages.set(gauge(stats.dram.pages));
        shared.metrics.ssd_pages.set(gauge(stats.ssd.pages));
        shared.metrics.entries.set(gauge(stats.entries));
        shared.metrics.namespaces.set(gauge(stats.namespaces));
        shared.metrics.ssd_scrub_progress_ppm.set(gauge(stats.scrub.progress_ppm));
        shared.metrics.ssd_scrub_age_seconds.set(gauge(stats.scrub.oldest.unwrap_or_default().as_secs()));
        stats
    }

    fn flash_stats(&self) -> FlashStats {
        let metrics = &self.shared.metrics;
        let bytes = |gauge: i64| u64::try_from(gauge).unwrap_or(0);
        FlashStats {
            written_bytes: metrics.ssd_written_bytes.get(),
            page_bytes: metrics.ssd_page_bytes.get(),
            reinserted_bytes: metrics.ssd_reinserted_bytes.get(),
            reclaimed_regions: metrics.ssd_reclaimed_regions.get(),
            trimmed_bytes: metrics.ssd_trimmed_bytes.get(),
            dead_bytes: bytes(metrics.ssd_dead_bytes.get()),
            quarantined_bytes: bytes(metrics.ssd_quarantined_bytes.get()),
        }
    }
}

/// Such as `1GiB 4 KiB pages`; each kind of memory that there is any of.
fn in_words(backing: &BackingBytes) -> String {
    let kinds = [
        (backing.hugetlb_bytes, "reserved huge pages"),
        (backing.thp_bytes, "transparent huge pages"),
        (backing.small_bytes, "4 KiB pages"),
    ];
    let there: Vec<String> = kinds
        .iter()
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, kind)| format!("{} {kind}", ByteSize(*bytes)))
        .collect();
    there.join(", ")
}
