//! How many transfers the ring has under way at once: measured on the device when it starts.
//!
//! More is not always better. A virtual disk here reads 2.25 MiB at 2,700 MiB/s one at a time, at 1,300 to 1,700 two to eight at a time, and at
//! 2,300 thirty-two at a time; an NVMe drive may want several. So each depth reads for a few hundredths of a second, twice, so that a moment in
//! which others used the disk does not decide, and the smallest that is nearly as fast as the fastest is taken: what it does not need
//! only adds waiting time. Nothing is ever written.
//!
//! Only places that hold something are read: of a new file the filesystem knows that it is empty, and does not ask the disk.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use cairn_core::Clock;
use parking_lot::Mutex;
use rustix::fs::SeekFrom;

use crate::block::Blocks;
use crate::device::DeviceError;
use crate::transfer::{Parts, Transfer};
use crate::uring::Ring;

/// The depths that are tried. The last is the most that a ring ever has under way.
const DEPTHS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Transfers of a ring, at most.
pub(crate) const DEPTH_MAX: u32 = DEPTHS[DEPTHS.len() - 1];
/// Depth where nothing could be measured.
pub(crate) const DEPTH_UNMEASURED: u32 = 4;
/// Bytes of a read: about a page of today's models.
const READ_BYTES: usize = 1 << 20;
/// Least data on the device that says something: fewer, and the reads would find each other's bytes in the drive's cache.
const DATA_BYTES_MIN: u64 = 256 << 20;
/// Pieces of data that are looked for.
const PIECES_MAX: usize = 4096;
/// How often each depth has its turn; the better one counts.
const ROUNDS: usize = 2;
/// Time for one turn, and for all of them.
const TURN: Duration = Duration::from_millis(18);
const ALL_TURNS: Duration = Duration::from_millis(250);
/// Reads of one turn, whatever the clock says.
const READS_MAX: u64 = 4096;
/// A smaller depth is preferred if it reaches this many hundredths of the fastest.
const NEARLY_PERCENT: u64 = 95;

/// What was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Calibration {
    pub(crate) depth: u32,
    /// `None` if nothing could be measured.
    pub(crate) bytes_per_second: Option<u64>,
}

/// Measures, for at most [`ALL_TURNS`]. A disk that answers later than that leaves reads in the ring, which go on there.
pub(crate) fn calibrate(ring: &mut Ring, file: &File, bytes: u64, clock: &dyn Clock) -> io::Result<Calibration> {
    let unmeasured = Calibration { depth: DEPTH_UNMEASURED, bytes_per_second: None };
    let Some(places) = Places::of(file, bytes) else { return Ok(unmeasured) };
    let spare = Spare::default();
    let mut probing = Probing { ring, places, spare, clock, until: clock.now().after(ALL_TURNS) };
    let mut rates = DEPTHS.map(|depth| (depth, 0));
    for turn in 0..ROUNDS * DEPTHS.len() {
        let (depth, best) = &mut rates[turn % DEPTHS.len()];
        let Some(rate) = probing.turn(*depth)? else { break };
        *best = rate.max(*best);
    }
    Ok(choose(&rates).unwrap_or(unmeasured))
}

/// The smallest depth that is nearly the fastest.
fn choose(rates: &[(u32, u64)]) -> Option<Calibration> {
    let fastest = rates.iter().map(|(_, rate)| *rate).max().filter(|rate| *rate > 0)?;
    let enough = fastest / 100 * NEARLY_PERCENT;
    let (depth, rate) = rates.iter().find(|(_, rate)| *rate >= enough)?;
    Some(Calibration { depth: *depth, bytes_per_second: Some(*rate) })
}

struct Probing<'a> {
    ring: &'a mut Ring,
    places: Places,
    spare: Spare,
    clock: &'a dyn Clock,
    until: cairn_core::Moment,
}

impl Probing<'_> {
    /// Bytes a second with `depth` reads under way; `None` if a read failed or the time is over.
    fn turn(&mut self, depth: u32) -> io::Result<Option<u64>> {
        let start = self.clock.now();
        let stop = start.after(TURN);
        let mut ended = Vec::new();
        let mut begun: u64 = 0;
        loop {
            let now = self.clock.now();
            while now < stop && begun < READS_MAX && self.ring.under_way() < depth as usize {
                ended.extend(self.ring.push(vec![self.spare.probe(self.places.next())]));
                begun += 1;
            }
            if self.ring.under_way() == 0 {
                break;
            }
            if now >= self.until {
                return Ok(None);
            }
            self.ring.wait(&mut ended, Some(self.until.since(now)))?;
            ended.drain(..).for_each(crate::uring::Ended::tell);
        }
        let took_us = u64::try_from(self.clock.now().since(start).as_micros()).unwrap_or(u64::MAX).max(1);
        let read_bytes = begun * READ_BYTES as u64;
        Ok((!self.spare.has_failed()).then(|| read_bytes * 1_000_000 / took_us))
    }
}

/// Buffers between two reads, and whether a read failed.
#[derive(Clone, Default)]
struct Spare(Arc<Mutex<(Vec<Blocks>, bool)>>);

impl Spare {
    fn probe(&self, at: u64) -> Box<dyn Transfer> {
        let into = self.0.lock().0.pop().unwrap_or_else(|| Blocks::of(READ_BYTES));
        Box::new(Probe { at, into, spare: self.clone() })
    }

    fn has_failed(&self) -> bool {
        self.0.lock().1
    }
}

/// A read of which only the time counts.
struct Probe {
    at: u64,
    into: Blocks,
    spare: Spare,
}

impl Transfer for Probe {
    fn at(&self) -> u64 {
        self.at
    }

    fn bytes(&self) -> u64 {
        READ_BYTES as u64
    }

    fn parts(&mut self) -> Parts<'_> {
        Parts::Into(vec![&mut self.into])
    }

    fn done(self: Box<Self>, outcome: Result<(), DeviceError>) {
        let mut spare = self.spare.0.lock();
        spare.0.push(self.into);
        spare.1 |= outcome.is_err();
    }

    fn lost(&mut self) {
        self.spare.0.lock().1 = true;
    }
}

/// Where there is something to read.
struct Places {
    starts: Vec<u64>,
    turn: u64,
}

impl Places {
    /// Every place of [`READ_BYTES`] that holds data, of the first [`PIECES_MAX`] pieces of data; `None` if they are too few.
    fn of(file: &File, bytes: u64) -> Option<Self> {
        let (mut starts, mut at) = (Vec::new(), 0);
        for _ in 0..PIECES_MAX {
            // A filesystem that knows no holes says that all is data; an error says that there is no more.
            let Ok(from) = rustix::fs::seek(file, SeekFrom::Data(at)) else { break };
            let to = rustix::fs::seek(file, SeekFrom::Hole(from)).unwrap_or(bytes).min(bytes);
            let first = from.next_multiple_of(READ_BYTES as u64);
            starts.extend((first..to).step_by(READ_BYTES).filter(|start| start + READ_BYTES as u64 <= to));
            at = to;
        }
        let enough = starts.len() as u64 * READ_BYTES as u64 >= DATA_BYTES_MIN;
        enough.then_some(Self { starts, turn: 0 })
    }

    /// A place far from the last one.
    fn next(&mut self) -> u64 {
        self.turn = self.turn.wrapping_add(1);
        // A step of the golden ratio visits places evenly and never two neighbours in a row.
        let place = self.turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.starts.len() as u64;
        usize::try_from(place).ok().and_then(|place| self.starts.get(place)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_depth_that_is_nearly_the_fastest_is_chosen() {
        let depth = |rates: &[(u32, u64)]| choose(rates).map(|chosen| chosen.depth);
        assert_eq!(depth(&[(1, 2_700), (2, 1_300), (4, 1_400), (32, 2_340)]), Some(1));
        assert_eq!(depth(&[(1, 700), (2, 1_400), (4, 2_800), (8, 6_700), (16, 7_000), (32, 6_900)]), Some(8));
        assert_eq!(depth(&[(1, 0), (2, 0)]), None);
        assert_eq!(depth(&[]), None);
    }

    #[test]
    fn a_file_that_was_never_written_is_not_measured() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        assert!(Places::of(&file, 1 << 30).is_none());
    }
}
