//! Random numbers from a seed: the same on every machine and in every release.

use std::fmt;

/// The seed of a random run. Every failing test prints it, and `WEIR_SEED` sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seed(pub u64);

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// SplitMix64: one addition and three mixes per number, and every seed is as good as another.
///
/// The code that starts a run owns a generator and seeds it; code that receives one only draws from it.
///
/// It is implemented here instead of taken from a library, because a seed in a bug report must still give the
/// same history after the next upgrade.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Creates the generator of `seed`.
    #[must_use]
    pub const fn new(seed: Seed) -> Self {
        Self { state: seed.0 }
    }

    /// Returns a separate generator for a part of a run, so that the draws of one part do not change those of
    /// another.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(Seed(self.word()))
    }

    /// Returns 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Returns a number from 0 to `limit - 1`; 0 if `limit` is 0. Biased by less than `limit / 2^64`.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(limit)) >> 64) as u64
    }

    /// Returns true with this probability; never at 0 or less, always at 1 or more.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns one of `all`; `None` if it is empty.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len() as u64) as usize).copied()
    }

    /// Returns a number from 0 (inclusive) to 1 (exclusive).
    pub fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Spreads every bit of `word` over all of the result; a bijection.
#[inline]
#[must_use]
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_numbers() {
        // The values of the reference implementation of SplitMix64.
        let mut rng = Rng::new(Seed(1_234_567));
        assert_eq!(rng.word(), 6_457_827_717_110_365_317);
        assert_eq!(rng.word(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_stay_in_range() {
        let mut rng = Rng::new(Seed(7));
        assert!((0..1000).all(|_| rng.below(10) < 10));
        assert_eq!((rng.below(0), rng.pick::<u8>(&[])), (0, None));
        assert!(!rng.chance(0.0) && rng.chance(1.0));
    }
}
