//! When the devices are looked at, and one of them lost for good, made up at random. Drawn apart.

use super::{Maker, between};
use crate::driver::{Lose, Step};
use crate::{Rng, Seed};

/// What these are drawn with.
pub(super) fn rng(seed: Seed) -> Rng {
    Rng::new(Seed(seed.0.rotate_left(24) ^ 1))
}

impl Maker<'_> {
    /// After a crash now and then.
    pub(super) fn audits(&self, rng: &mut Rng, steps: &mut Vec<Step>) {
        if !self.kind.audits {
            return;
        }
        match rng.below(16) {
            0 => {
                let asks = between(rng, 0, 24);
                steps.push(Step::Lose(Lose { device: rng.below(12) as usize, asks: self.asks(rng, asks) }));
            }
            1..=2 => steps.push(Step::Audit),
            _ => {}
        }
    }
}
