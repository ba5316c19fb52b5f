//! Huge pages: tried in order, measured afterwards.
//!
//! The first touch took 3 s per GiB with small pages and at most 0.5 s with huge ones, and direct reads from the SSD ran 2.4 times
//! faster into them. Whether a machine has any is found out with one page of each kind when the pool starts; what the arenas really
//! got is read from `/proc/self/smaps`, because the kernel grants transparent huge pages silently, or does not.

use std::fmt;
use std::fs;
use std::sync::Arc;

use crate::raw::{Arena, HUGE_BYTES, Kind};

/// Whether the pool may use huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum HugePages {
    /// Reserved huge pages, else transparent ones, else small pages: each arena takes the first that there is.
    #[default]
    Auto,
    /// Small pages only.
    Off,
}

/// Bytes of page memory that are ready, by what backs them. Memory counts as `small_bytes` until it is shown to be better.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BackingBytes {
    /// In reserved huge pages.
    pub hugetlb_bytes: u64,
    /// In transparent huge pages.
    pub thp_bytes: u64,
    /// In 4 KiB pages.
    pub small_bytes: u64,
}

impl BackingBytes {
    /// All that is ready.
    pub fn ready_bytes(&self) -> u64 {
        self.hugetlb_bytes + self.thp_bytes + self.small_bytes
    }
}

impl fmt::Display for BackingBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hugetlb_bytes, thp_bytes, small_bytes } = self;
        write!(f, "hugetlb_bytes={hugetlb_bytes} thp_bytes={thp_bytes} small_bytes={small_bytes}")
    }
}

/// The kinds of memory worth asking for on this machine, best first.
pub(crate) fn kinds(huge_pages: HugePages) -> Vec<Kind> {
    let huge = match huge_pages {
        HugePages::Auto => vec![Kind::Hugetlb, Kind::Thp],
        HugePages::Off => vec![],
    };
    huge.into_iter().filter(|kind| there_is(*kind)).chain([Kind::Small]).collect()
}

/// Touches one huge page of `kind` and looks whether it is one.
fn there_is(kind: Kind) -> bool {
    let Ok(one) = Arena::create(HUGE_BYTES, kind) else { return false };
    one.touch().is_ok() && (kind != Kind::Thp || thp_bytes(&[Arc::new(one)]) > 0)
}

/// Bytes of `arenas` that are mapped by transparent huge pages. Reads all of smaps: milliseconds, not for the way of a page.
pub(crate) fn thp_bytes(arenas: &[Arc<Arena>]) -> u64 {
    // Text of the kernel, read as it can be: an unreadable line proves no huge page.
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let mut starts: Vec<usize> = arenas.iter().map(|arena| arena.addresses().start).collect();
    starts.sort_unstable();
    huge_bytes_of(&smaps, &starts)
}

/// Sums `ShmemPmdMapped` over the mappings that begin at one of `starts`, which is sorted.
fn huge_bytes_of(smaps: &str, starts: &[usize]) -> u64 {
    let mut ours = false;
    let mut kib = 0;
    for line in smaps.lines() {
        if let Some(start) = mapping_start(line) {
            ours = starts.binary_search(&start).is_ok();
        } else if let (true, Some(value)) = (ours, line.strip_prefix("ShmemPmdMapped:")) {
            kib += value.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    kib * 1024
}

/// The start address, if this is the first line of a mapping: `7f00-7f40 rw-s ...`.
fn mapping_start(line: &str) -> Option<usize> {
    let (start, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    usize::from_str_radix(end, 16).ok()?;
    usize::from_str_radix(start, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-s 00000000 00:01 7 /memfd:cairn-pool (deleted)
Size:               4096 kB
ShmemPmdMapped:     2048 kB
VmFlags: rd wr sh
7f0000400000-7f0000800000 rw-s 00000000 00:01 8 /memfd:other (deleted)
ShmemPmdMapped:     4096 kB
7f0000800000-7f0000c00000 rw-s 00000000 00:01 9 /memfd:cairn-pool (deleted)
ShmemPmdMapped:     4096 kB
";

    #[test]
    fn only_the_huge_pages_of_our_own_mappings_count() {
        assert_eq!(huge_bytes_of(SMAPS, &[0x7f00_0000_0000, 0x7f00_0080_0000]), 6 << 20);
        assert_eq!(huge_bytes_of(SMAPS, &[]), 0);
        assert_eq!(huge_bytes_of("", &[0]), 0);
    }

    #[test]
    fn small_pages_are_the_last_resort_and_the_only_one_when_huge_pages_are_off() {
        assert_eq!(kinds(HugePages::Off), [Kind::Small]);
        assert_eq!(kinds(HugePages::Auto).last(), Some(&Kind::Small));
    }

    #[test]
    fn a_small_arena_has_no_huge_page() {
        let arena = Arc::new(Arena::create(HUGE_BYTES, Kind::Small).unwrap());
        arena.touch().unwrap();
        assert_eq!(thp_bytes(&[arena]), 0);
    }
}
