//! The writes of one file that were not synced.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use cairn_testkit::dice::Dice;

use crate::{Cut, Unsynced};

const SECTOR_BYTES: usize = 512;

/// Writes in their order; a reader sees them over what is below.
#[derive(Default, Debug)]
pub(crate) struct Held {
    writes: Vec<(u64, Vec<u8>)>,
}

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        self.writes.push((at, bytes.to_vec()));
    }

    /// Where the last of them ends.
    pub(crate) fn end(&self) -> u64 {
        self.writes.iter().map(|(at, bytes)| at + bytes.len() as u64).max().unwrap_or(0)
    }

    /// Shows the writes in `out`, which holds what is below from `at` on.
    pub(crate) fn show(&self, at: u64, out: &mut [u8]) {
        for (from, bytes) in &self.writes {
            let (first, end) = (at.max(*from), (at + out.len() as u64).min(from + bytes.len() as u64));
            if first < end {
                let place = |of: u64, from: u64| usize::try_from(of - from).unwrap_or(usize::MAX);
                out[place(first, at)..place(end, at)].copy_from_slice(&bytes[place(first, *from)..place(end, *from)]);
            }
        }
    }

    /// The file is cut at `bytes`.
    pub(crate) fn truncate(&mut self, bytes: u64) {
        for (at, written) in &mut self.writes {
            written.truncate(usize::try_from(bytes.saturating_sub(*at)).unwrap_or(usize::MAX));
        }
        self.writes.retain(|(_, written)| !written.is_empty());
    }

    /// Writes everything to the file below.
    pub(crate) fn sync(&mut self, below: &File) -> io::Result<()> {
        for (at, bytes) in &self.writes {
            below.write_all_at(bytes, *at)?;
        }
        self.writes.clear();
        Ok(())
    }

    /// Nothing of it is held any more: each write meets its fate.
    pub(crate) fn cut_power(
        &mut self,
        below: &File,
        unsynced: Unsynced,
        dice: &mut Dice,
        cut: &mut Cut,
    ) -> io::Result<()> {
        let mut writes = std::mem::take(&mut self.writes);
        if unsynced == Unsynced::Lost {
            cut.lost += writes.len() as u64;
            return Ok(());
        }
        for last in (1..writes.len()).rev() {
            writes.swap(last, dice.place(last + 1));
        }
        for (at, bytes) in writes {
            let (mut kept, mut lost) = (0, 0);
            let fate = dice.place(3);
            let mut from = 0;
            while from < bytes.len() {
                let sector_left = SECTOR_BYTES as u64 - (at + from as u64) % SECTOR_BYTES as u64;
                let to = (from + usize::try_from(sector_left).unwrap_or(SECTOR_BYTES)).min(bytes.len());
                if fate == 0 || (fate == 1 && dice.place(2) == 0) {
                    below.write_all_at(&bytes[from..to], at + from as u64)?;
                    kept += 1;
                } else {
                    lost += 1;
                }
                from = to;
            }
            match (kept, lost) {
                (_, 0) => cut.kept += 1,
                (0, _) => cut.lost += 1,
                _ => cut.torn += 1,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_what_is_held_and_the_file_below_does_not() {
        let below = tempfile::tempfile().unwrap();
        below.write_all_at(b"below", 0).unwrap();
        let mut held = Held::default();
        held.write(2, b"HELD");
        held.write(4, b"x");
        let mut seen = *b"below...";
        held.show(0, &mut seen);
        assert_eq!(&seen, b"beHExD..");
        let mut seen = *b"w.";
        held.show(4, &mut seen);
        assert_eq!(&seen, b"xD");
        assert_eq!((held.end(), below.metadata().unwrap().len()), (6, 5));
        held.truncate(3);
        held.sync(&below).unwrap();
        assert_eq!((held.end(), std::io::read_to_string(below).unwrap().as_str()), (0, "beHow"));
    }

    #[test]
    fn a_power_cut_keeps_whole_sectors_or_nothing() {
        for seed in 0..50 {
            let below = tempfile::tempfile().unwrap();
            let (mut held, mut cut, mut dice) = (Held::default(), Cut::default(), Dice::new(seed));
            held.write(256, &[1; 2048]);
            held.cut_power(&below, Unsynced::Dice, &mut dice, &mut cut).unwrap();
            assert!(held.is_empty());
            let mut kept = vec![0; 4096];
            let read = below.read_at(&mut kept, 0).unwrap();
            for sector in kept[..read].chunks(SECTOR_BYTES) {
                let ones = sector.iter().filter(|byte| **byte == 1).count();
                assert!([0, 256, 512].contains(&ones), "{ones}");
            }
            assert_eq!(cut.kept + cut.lost + cut.torn, 1);
        }
    }
}
