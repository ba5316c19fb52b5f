//! What the checksum of a page costs. It is summed when a page is sealed, each time it is handed over, and again in the client.

use cairn_core::{Checksum, Clock};
use cairn_testkit::payload;

use crate::figures::{Figure, median};

/// More than any cache holds: pages come from memory.
const MEMORY_BYTES: usize = 64 << 20;

/// Microseconds a page, and the rate, of one core and pages that are in no cache.
pub(super) fn measure(rounds: usize, clock: &dyn Clock) -> Vec<Figure> {
    let memory = payload::page(b"speed", MEMORY_BYTES);
    let us_of = |page_bytes: usize| {
        median((0..rounds).map(|_| {
            let start = clock.now();
            for page in memory.chunks_exact(page_bytes) {
                std::hint::black_box(Checksum::of(std::hint::black_box(page)));
            }
            clock.now().since(start).as_secs_f64() * 1e6 / (memory.len() / page_bytes) as f64
        }))
    };
    let (small_us, large_us) = (us_of(256 << 10), us_of(2_304 << 10));
    vec![
        Figure::reported("checksum of a page of 256 KiB", small_us, "us"),
        Figure::reported("checksum of a page of 2.25 MiB", large_us, "us"),
        Figure::reported("checksum, one core", f64::from(2_304 << 10) / large_us / 1e3, "GB/s"),
    ]
}
