//! How often pages were used, in memory that does not grow.

/// Rows of counters; a count is the least of a page's four.
const ROWS: usize = 4;
/// Counters of a row.
const WIDTH: usize = 1 << 17;
/// Uses after which every count is halved: about five for each counter of a row, so that chance meetings stay rare.
const AGING_USES: u64 = 5 * WIDTH as u64;

/// Counts uses of pages by their fingerprint: never less than there were since the last aging, seldom more. 512 KiB.
///
/// What is used no more is forgotten: after every so many uses all counts are halved.
#[derive(Debug)]
pub struct Sketch {
    counters: Vec<u8>,
    uses: u64,
}

impl Default for Sketch {
    fn default() -> Self {
        Self { counters: vec![0; ROWS * WIDTH], uses: 0 }
    }
}

impl Sketch {
    /// Counts a use of `page`, and returns how many there are now; 255 stands for all above.
    pub fn add(&mut self, page: u64) -> u8 {
        let places = places(page);
        let count = self.least(&places).saturating_add(1);
        for place in places {
            // Only what is below the new count: others share the higher counters.
            self.counters[place] = self.counters[place].max(count);
        }
        self.uses += 1;
        if self.uses == AGING_USES {
            self.age();
        }
        count
    }

    /// Uses of `page`.
    pub fn count(&self, page: u64) -> u8 {
        self.least(&places(page))
    }

    fn least(&self, places: &[usize; ROWS]) -> u8 {
        places.iter().map(|place| self.counters[*place]).min().unwrap_or(0)
    }

    fn age(&mut self) {
        self.uses = 0;
        self.counters.iter_mut().for_each(|counter| *counter /= 2);
    }
}

fn places(page: u64) -> [usize; ROWS] {
    std::array::from_fn(|row| {
        let hash = mixed(page ^ (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        row * WIDTH + usize::try_from(hash % WIDTH as u64).unwrap_or(0)
    })
}

/// Spreads the bits (the finalizer of SplitMix64).
pub(crate) fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_never_too_low_and_seldom_too_high() {
        let mut sketch = Sketch::default();
        for page in 0..100_000 {
            sketch.add(page);
            if page % 5 == 0 {
                sketch.add(page);
            }
        }
        let true_count = |page: u64| if page.is_multiple_of(5) { 2 } else { 1 };
        assert!((0..100_000).all(|page| sketch.count(page) >= true_count(page)));
        assert!((0..100_000).filter(|page| sketch.count(*page) == true_count(*page)).count() > 95_000);
    }

    #[test]
    fn what_is_used_no_more_is_forgotten() {
        let mut sketch = Sketch::default();
        for _ in 0..4 {
            sketch.add(7);
        }
        for page in 0..2 * AGING_USES {
            sketch.add(1000 + page % 1000);
        }
        assert!(sketch.count(7) <= 1, "{}", sketch.count(7));
    }
}
