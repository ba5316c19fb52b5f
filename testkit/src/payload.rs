//! Page bytes as a function of the page's name, so that a checker needs no memory of what was written, and recognises any foreign byte.

use crate::dice::Dice;

/// Fills `out` with the bytes of the page named `name` (a key, an id: any bytes).
pub fn fill(name: &[u8], out: &mut [u8]) {
    let mut stream = words_of(name);
    let mut words = out.chunks_exact_mut(8);
    for word in &mut words {
        word.copy_from_slice(&stream.roll().to_le_bytes());
    }
    let tail = words.into_remainder();
    let last = stream.roll().to_le_bytes();
    tail.copy_from_slice(&last[..tail.len()]);
}

/// The bytes of the page named `name`.
pub fn page(name: &[u8], bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    fill(name, &mut out);
    out
}

/// Whether `bytes`, which start at `offset` (a multiple of 8) of the page named `name`, are right.
pub fn is_right(name: &[u8], offset: usize, bytes: &[u8]) -> bool {
    let mut stream = words_of(name);
    stream.skip(offset as u64 / 8);
    let words = bytes.chunks_exact(8);
    let tail = words.remainder();
    words.into_iter().all(|word| word == stream.roll().to_le_bytes())
        && tail == &stream.roll().to_le_bytes()[..tail.len()]
}

/// The words of a page: dice seeded with a hash of its name.
fn words_of(name: &[u8]) -> Dice {
    // FNV-1a, mixed once more by the first roll.
    Dice::new(name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)))
}
