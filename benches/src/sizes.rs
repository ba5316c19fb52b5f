//! Tiers of exactly so many pages.
//!
//! A tier is cut into arenas or regions, and those into slots of whole 4,096-byte sectors, so a size in bytes that looks right may hold a
//! few pages fewer. The load tests compare hit rates by capacity in pages: there it has to be exact.

use cairn_core::HEADER_BYTES;

/// Sector that slots are rounded up to, in bytes.
const SECTOR_BYTES: u64 = 4096;
/// An arena is at most this large: the most that a server takes.
const ARENA_BYTES_MAX: u64 = 16 << 30;
/// Bytes of an SSD file before its first region.
const SSD_FRONT_BYTES: u64 = 65_536;
/// A region is about this large when the number of pages allows it.
const REGION_BYTES_AIM: u64 = 64 << 20;

/// How many pages each tier of a server holds, all of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Bytes of one page.
    pub page_bytes: u64,
    /// Pages that fit in DRAM.
    pub dram_pages: u64,
    /// Pages that fit on the SSD.
    pub ssd_pages: u64,
}

/// A tier cut into equal pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cut {
    /// All pieces.
    bytes: u64,
    /// One arena or region.
    piece_bytes: u64,
}

impl Sizes {
    /// The settings of a server that holds exactly so many pages.
    pub fn settings(&self) -> Vec<String> {
        let (dram, ssd) = (self.dram(), self.ssd());
        vec![
            format!("dram.bytes={}", dram.bytes),
            format!("dram.arena_bytes={}", dram.piece_bytes),
            format!("ssd.bytes={}", SSD_FRONT_BYTES + ssd.bytes),
            format!("ssd.region_bytes={}", ssd.piece_bytes),
            format!("limits.page_bytes_max={}", self.page_bytes),
            "server.metrics_listen=127.0.0.1:0".to_owned(),
        ]
    }

    /// One arena if a server takes one so large: nothing is left over in it.
    fn dram(&self) -> Cut {
        cut(self.dram_pages, self.page_bytes.next_multiple_of(SECTOR_BYTES), 0, ARENA_BYTES_MAX)
    }

    /// A region has a header, and so has each slot.
    fn ssd(&self) -> Cut {
        let header_bytes = HEADER_BYTES as u64;
        let slot_bytes = header_bytes + self.page_bytes.next_multiple_of(SECTOR_BYTES);
        cut(self.ssd_pages, slot_bytes, header_bytes, REGION_BYTES_AIM)
    }
}

/// Cuts `pages` slots into pieces of about `aim_bytes`, each with the same number of slots: a divisor of `pages`, and the largest that
/// fits. A number of pages without a good one, such as a prime, becomes one large piece.
fn cut(pages: u64, slot_bytes: u64, header_bytes: u64, aim_bytes: u64) -> Cut {
    let pages = pages.max(1);
    let slots_max = (aim_bytes / slot_bytes).clamp(1, pages);
    let divisor = (1..=slots_max).rev().find(|slots| pages.is_multiple_of(*slots)).unwrap_or(1);
    let slots = if divisor * 16 < slots_max { pages } else { divisor };
    let piece_bytes = header_bytes + slots * slot_bytes;
    Cut { bytes: piece_bytes * (pages / slots), piece_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that a tier holds, counted as the tier counts.
    fn pages_in(cut: Cut, slot_bytes: u64, header_bytes: u64) -> u64 {
        (cut.piece_bytes - header_bytes) / slot_bytes * (cut.bytes / cut.piece_bytes)
    }

    #[test]
    fn a_tier_holds_exactly_the_pages_asked_for() {
        for pages in [1, 2, 7, 97, 1_000, 9_973, 13_245, 132_450, 104_729] {
            for page_bytes in [256_u64, 4096, 5000, 16_384, 2_359_296] {
                let sizes = Sizes { page_bytes, dram_pages: pages, ssd_pages: pages };
                let frame_bytes = page_bytes.next_multiple_of(4096);
                assert_eq!(pages_in(sizes.dram(), frame_bytes, 0), pages, "{sizes:?}");
                assert_eq!(pages_in(sizes.ssd(), 4096 + frame_bytes, 4096), pages, "{sizes:?}");
            }
        }
    }

    #[test]
    fn a_large_ssd_tier_is_cut_into_regions_of_a_handy_size() {
        let ssd = Sizes { page_bytes: 16_384, dram_pages: 1, ssd_pages: 132_450 }.ssd();
        assert_eq!(ssd.bytes / ssd.piece_bytes, 50);
    }
}
