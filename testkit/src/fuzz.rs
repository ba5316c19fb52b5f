//! A mutational fuzzer for parsers of bytes that lie on disks: valid encodings, changed in a few places, a million times and more.
//!
//! What guards a record with a checksum never lets a changed one through; so every other input is sealed anew, and reaches the code behind
//! the seal. It knows nothing of coverage: the records are small and of fixed form, and the corpus has every kind of them.

use std::fmt;

use crate::dice::Dice;
use crate::trials::Rig;

/// Executions of one trial.
const EXECUTIONS: u64 = 10_000;
/// Changes of one input, at most.
const CHANGES_MAX: usize = 6;
/// Bytes that an input may grow to.
const BYTES_MAX: usize = 8192;
/// Numbers at which something may tip over.
const EDGES: [u64; 12] =
    [0, 1, 2, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 4096, u64::MAX / 2, u64::MAX - 1, u64::MAX];

/// A parser to be fuzzed.
pub struct Target<'a> {
    /// Name in `target/rigs.json`.
    pub name: &'static str,
    /// The part of the command after `cargo test --release` that runs it.
    pub command: &'static str,
    /// Valid encodings.
    pub corpus: Vec<Vec<u8>>,
    /// Whether inputs keep their length.
    pub fixed: bool,
    /// Bytes in use of an input: changes are made there. The rest is changed now and then.
    pub used_bytes: usize,
    /// Seals an input, so that only its values can be wrong.
    pub seal: &'a (dyn Fn(&mut [u8]) + Sync),
}

impl fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Target<'_> {
    /// Feeds `millions` million inputs (twenty times as many at night) to `check`, which says what is wrong with the answer.
    ///
    /// # Panics
    /// If anything is wrong.
    pub fn run(&self, millions: u64, check: impl Fn(&[u8]) -> Result<(), String> + Sync) {
        let trials = millions * 1_000_000 / EXECUTIONS;
        let rig = Rig { name: self.name, target: self.command, trials, nightly: trials * 20, each: EXECUTIONS };
        rig.run(Vec::new, |input: &mut Vec<u8>, _, dice| {
            for _ in 0..EXECUTIONS {
                self.make(input, dice);
                check(input).map_err(|failed| format!("{failed} input={}", hex(input)))?;
            }
            Ok(())
        });
    }

    /// Makes one input of one of the corpus.
    fn make(&self, input: &mut Vec<u8>, dice: &mut Dice) {
        input.clear();
        input.extend_from_slice(&self.corpus[dice.place(self.corpus.len())]);
        for _ in 0..=dice.place(CHANGES_MAX) {
            self.change(input, dice);
        }
        if dice.place(2) == 0 {
            (self.seal)(input);
        }
    }

    fn change(&self, input: &mut Vec<u8>, dice: &mut Dice) {
        if input.is_empty() {
            input.push(0);
        }
        let used = if dice.place(16) == 0 { input.len() } else { self.used_bytes.clamp(1, input.len()) };
        let at = dice.place(used);
        match dice.place(if self.fixed { 7 } else { 10 }) {
            0 | 1 => input[at] ^= 1 << dice.place(8),
            2 => input[at] = dice.roll().to_le_bytes()[0],
            3 => overwrite(input, at, &EDGES[dice.place(EDGES.len())].to_le_bytes()[..1 << dice.place(4)]),
            4 => overwrite(input, at, &dice.roll().to_le_bytes()),
            5 => {
                let end = (at + 1 + dice.place(64)).min(input.len());
                input[at..end].fill([0, 0xff][dice.place(2)]);
            }
            6 => {
                let other = &self.corpus[dice.place(self.corpus.len())];
                let from = at.min(other.len());
                let part = other[from..(from + 1 + dice.place(64)).min(other.len())].to_vec();
                overwrite(input, at, &part);
            }
            7 => input.truncate(at),
            8 => {
                let part = input[at..(at + 1 + dice.place(64)).min(input.len())].to_vec();
                input.splice(at..at, part);
                input.truncate(BYTES_MAX);
            }
            _ => drop(input.drain(at..(at + 1 + dice.place(16)).min(input.len()))),
        }
    }
}

fn overwrite(input: &mut [u8], at: usize, bytes: &[u8]) {
    let end = (at + bytes.len()).min(input.len());
    input[at..end].copy_from_slice(&bytes[..end - at]);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
