//! Seeded chance: the same seed gives the same rolls on every machine. Not fit for secrets.

use std::time::Duration;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64, with the distributions that tests and loads need.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice that always fall the same way for the same `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Goes on as after `rolls` more rolls, at once.
    pub fn skip(&mut self, rolls: u64) {
        self.0 = self.0.wrapping_add(STEP.wrapping_mul(rolls));
    }

    /// A number in `0..below`; 0 if `below` is 0. The bias of the remainder is below 2^-32 for any `below` under 2^32.
    pub fn below(&mut self, below: u64) -> u64 {
        self.roll().checked_rem(below).unwrap_or(0)
    }

    /// A place in a list of `len`; 0 if it is empty.
    pub fn place(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with `probability`.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Exponentially distributed with this mean: gaps of independent arrivals.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.unit()).ln())
    }

    /// Normally distributed (Box-Muller).
    pub fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        mean + deviation * radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Log-normally distributed with this median; `sigma` is the deviation of the logarithm.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        median * self.normal(0.0, sigma).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_rolls_are_those_that_would_have_come() {
        let (mut rolled, mut skipped) = (Dice::new(7), Dice::new(7));
        for _ in 0..1000 {
            rolled.roll();
        }
        skipped.skip(1000);
        assert_eq!(rolled.roll(), skipped.roll());
    }
}
