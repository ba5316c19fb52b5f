//! A device in memory that fails as disks do: on command, and at a power cut.
//!
//! Readers see every write at once, as through a page cache. Durable is only what a good barrier followed; of the rest, a
//! [power cut](FaultDevice::image) leaves all, nothing, or what a seed decides: each write kept, lost, or torn into any subset of its
//! 512-byte sectors, in any order. After a failed barrier the writes before it never become durable, as with a kernel that drops
//! what it could not write.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use cairn_core::{Entropy, Result};
use cairn_ssd::{Device, DeviceError};
use parking_lot::Mutex;

use crate::dice::Dice;

const SECTOR_BYTES: usize = 512;

/// What the next operation of its kind does instead of succeeding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The read is refused.
    FailRead,
    /// The write is refused, nothing is written.
    FailWrite,
    /// The write is refused after this many bytes.
    ShortWrite {
        /// Bytes that were written all the same.
        kept_bytes: usize,
    },
    /// The write is reported as done, and nothing is written.
    LoseWrite,
    /// The barrier is refused; what was written before it will not become durable.
    FailBarrier,
}

/// What a power cut leaves of the writes that no barrier followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsynced {
    /// Every one.
    Kept,
    /// None.
    Lost,
    /// This seed decides.
    Dice(u64),
}

/// The device.
#[derive(Debug)]
pub struct FaultDevice {
    bytes: u64,
    state: Mutex<State>,
}

struct State {
    durable: Vec<u8>,
    seen: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
    /// Writes before this one missed a barrier that failed.
    never_durable: usize,
    faults: VecDeque<Fault>,
    bad: Vec<Range<u64>>,
    steps: u64,
    power_until: Option<u64>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("steps", &self.steps)
            .field("unsynced", &self.unsynced.len())
            .finish_non_exhaustive()
    }
}

impl FaultDevice {
    /// A blank device.
    pub fn new(bytes: usize) -> Self {
        Self::from_image(vec![0; bytes])
    }

    /// A device that holds `image`, durable.
    pub fn from_image(image: Vec<u8>) -> Self {
        let state = State {
            seen: image.clone(),
            durable: image,
            unsynced: Vec::new(),
            never_durable: 0,
            faults: VecDeque::new(),
            bad: Vec::new(),
            steps: 0,
            power_until: None,
        };
        Self { bytes: state.seen.len() as u64, state: Mutex::new(state) }
    }

    /// Makes the next operation of the fault's kind fail. Several queue up.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.push_back(fault);
    }

    /// Refuses every read that touches `range` from now on.
    pub fn break_sectors(&self, range: Range<u64>) {
        self.state.lock().bad.push(range);
    }

    /// Cuts the power after `steps` more writes and barriers: every later one fails. Reads go on, so that a test need not stop at that very step;
    /// [`FaultDevice::image`] is what the cut leaves.
    pub fn cut_power_after(&self, steps: u64) {
        let mut state = self.state.lock();
        state.power_until = Some(state.steps + steps);
    }

    /// Writes and barriers that were tried so far.
    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// What a power cut now would leave on the device.
    pub fn image(&self, unsynced: Unsynced) -> Vec<u8> {
        let state = self.state.lock();
        match unsynced {
            Unsynced::Kept => state.seen.clone(),
            Unsynced::Lost => state.durable.clone(),
            Unsynced::Dice(seed) => torn(&state, &mut Dice::new(seed)),
        }
    }

    /// Bytes as a reader sees them.
    pub fn peek(&self, at: u64, bytes: usize) -> Vec<u8> {
        let at = index(at);
        self.state.lock().seen[at..at + bytes].to_vec()
    }

    /// Changes bytes behind the back of whoever uses the device, durable.
    pub fn overwrite(&self, at: u64, bytes: &[u8]) {
        let at = index(at);
        let mut state = self.state.lock();
        state.seen[at..at + bytes.len()].copy_from_slice(bytes);
        state.durable[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Flips one bit (0 to 7) of the byte at `at`, durable.
    pub fn flip_bit(&self, at: u64, bit: u8) {
        let byte = self.peek(at, 1)[0] ^ (1 << (bit % 8));
        self.overwrite(at, &[byte]);
    }

    /// Copies bytes to another place, as a misdirected write does.
    pub fn copy(&self, from: u64, to: u64, bytes: usize) {
        let found = self.peek(from, bytes);
        self.overwrite(to, &found);
    }

    /// Cuts off everything from `at` on; the device still claims its size.
    pub fn truncate(&self, at: u64) {
        let mut state = self.state.lock();
        state.seen.truncate(index(at));
        state.durable.truncate(index(at));
    }
}

impl State {
    /// Counts a write or barrier; false once the power is gone.
    fn step(&mut self) -> bool {
        let on = self.power_until.is_none_or(|until| self.steps < until);
        self.steps += 1;
        on
    }

    fn fault(&mut self, of_kind: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let place = self.faults.iter().position(of_kind)?;
        self.faults.remove(place)
    }

    fn apply(&mut self, at: usize, bytes: Vec<u8>) {
        let end = at + bytes.len();
        if self.seen.len() < end {
            self.seen.resize(end, 0);
            self.durable.resize(end, 0);
        }
        self.seen[at..end].copy_from_slice(&bytes);
        self.unsynced.push((at, bytes));
    }
}

/// The durable image with each unsynced write kept, lost or torn, in an order that the dice choose.
fn torn(state: &State, dice: &mut Dice) -> Vec<u8> {
    let mut image = state.durable.clone();
    let mut order: Vec<_> = (0..state.unsynced.len()).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, dice.place(last + 1));
    }
    for write in order {
        let (at, bytes) = &state.unsynced[write];
        let fate = dice.below(3);
        // Sectors of the device, not of the write: a write may begin inside one.
        let mut from = 0;
        while from < bytes.len() {
            let to = (from + SECTOR_BYTES - (at + from) % SECTOR_BYTES).min(bytes.len());
            if fate == 0 || (fate == 1 && dice.below(2) == 0) {
                image[at + from..at + to].copy_from_slice(&bytes[from..to]);
            }
            from = to;
        }
    }
    image
}

impl Device for FaultDevice {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, at: u64, parts: &mut [&mut [u8]]) -> Result<(), DeviceError> {
        let wanted_bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let mut state = self.state.lock();
        let is_bad = state.bad.iter().any(|bad| bad.start < at + wanted_bytes && at < bad.end);
        let fault = state.fault(|fault| matches!(fault, Fault::FailRead));
        if is_bad || fault.is_some() {
            return Err(refused("read", at, wanted_bytes));
        }
        fill(&state.seen, at, parts)
    }

    fn write_at(&self, at: u64, parts: &[&[u8]]) -> Result<(), DeviceError> {
        let mut all = parts.concat();
        let bytes = all.len() as u64;
        if at + bytes > self.bytes {
            return Err(DeviceError::OutOfRange { at, bytes, device_bytes: self.bytes });
        }
        let mut state = self.state.lock();
        if !state.step() {
            return Err(refused("write", at, bytes));
        }
        match state.fault(|fault| !matches!(fault, Fault::FailRead | Fault::FailBarrier)) {
            Some(Fault::LoseWrite) => Ok(()),
            Some(Fault::ShortWrite { kept_bytes }) => {
                all.truncate(kept_bytes);
                state.apply(index(at), all);
                Err(refused("write", at, bytes))
            }
            Some(_) => Err(refused("write", at, bytes)),
            None => {
                state.apply(index(at), all);
                Ok(())
            }
        }
    }

    fn barrier(&self) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        if !state.step() {
            return Err(refused("barrier", 0, 0));
        }
        if state.fault(|fault| matches!(fault, Fault::FailBarrier)).is_some() {
            state.never_durable = state.unsynced.len();
            return Err(refused("barrier", 0, 0));
        }
        let keep = state.never_durable;
        for (at, bytes) in state.unsynced.split_off(keep) {
            state.durable[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn describe(&self) -> &str {
        "memory that fails on command"
    }
}

/// Fills `parts` from the device's bytes, as far as they reach.
pub(crate) fn fill(bytes: &[u8], at: u64, parts: &mut [&mut [u8]]) -> Result<(), DeviceError> {
    let wanted_bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
    let there = bytes.get(index(at)..).unwrap_or_default();
    let mut left = there;
    for part in parts {
        let (some, rest) = left.split_at(part.len().min(left.len()));
        part[..some.len()].copy_from_slice(some);
        left = rest;
    }
    let got_bytes = there.len() as u64;
    if got_bytes < wanted_bytes { Err(DeviceError::Short { at, wanted_bytes, got_bytes }) } else { Ok(()) }
}

fn refused(operation: &'static str, at: u64, bytes: u64) -> DeviceError {
    DeviceError::Io { operation, at, bytes, source: io::Error::other("a fault was injected") }
}

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// Seeded randomness behind the seam of the house. Not fit for secrets.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<Dice>);

impl SeededEntropy {
    /// Randomness that `seed` decides.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(Dice::new(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, out: &mut [u8]) -> Result<()> {
        let mut dice = self.0.lock();
        out.iter_mut().for_each(|byte| *byte = dice.roll().to_le_bytes()[0]);
        Ok(())
    }
}
