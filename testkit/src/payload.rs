//! Page bytes as a function of the page's name, so that a checker needs no memory of what was written, and recognises any foreign byte.

/// Fills `out` with the bytes of the page named `name` (a key, an id: any bytes).
pub fn fill(name: &[u8], out: &mut [u8]) {
    let mut stream = Stream::of(name);
    let mut words = out.chunks_exact_mut(8);
    for word in &mut words {
        word.copy_from_slice(&stream.next().to_le_bytes());
    }
    let tail = words.into_remainder();
    let last = stream.next().to_le_bytes();
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
    let mut stream = Stream::of(name);
    stream.skip(offset / 8);
    let words = bytes.chunks_exact(8);
    let tail = words.remainder();
    words.into_iter().all(|word| word == stream.next().to_le_bytes())
        && tail == &stream.next().to_le_bytes()[..tail.len()]
}

/// SplitMix64, started from a hash of the name.
struct Stream(u64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Stream {
    fn of(name: &[u8]) -> Self {
        // FNV-1a, mixed once more by the first step of the stream.
        Self(name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)))
    }

    fn skip(&mut self, words: usize) {
        self.0 = self.0.wrapping_add(STEP.wrapping_mul(words as u64));
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
