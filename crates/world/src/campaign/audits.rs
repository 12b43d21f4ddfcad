//! Draws audits, permanent losses of a device and operator changes at random, from a random stream of their
//! own.

use super::setup::policy;
use super::{StepGenerator, between, pick};
use crate::driver::{DeviceLoss, HistoryStep, SettingChange};
use crate::{Rng, Seed};
use weir_map::Hardening;

/// Returns the random stream of these steps.
pub(super) fn rng(seed: Seed) -> Rng {
    Rng::new(Seed(seed.0.rotate_left(24) ^ 1))
}

impl StepGenerator<'_> {
    /// Inserts audits after some of the crashes.
    pub(super) fn audits(&self, rng: &mut Rng, steps: &mut Vec<HistoryStep>) {
        if !self.kind.audits {
            return;
        }
        match rng.below(16) {
            0 => {
                let asks = between(rng, 0, 24);
                steps.push(HistoryStep::Lose(DeviceLoss {
                    device: rng.below(12) as usize,
                    requests: self.draw_requests(rng, asks),
                }));
            }
            1..=2 => steps.push(HistoryStep::Audit),
            3 => steps.push(HistoryStep::Tune(SettingChange::PoolPolicy(policy(rng)))),
            4 => {
                let own = if rng.chance(0.5) { Some(policy(rng)) } else { None };
                steps.push(HistoryStep::Tune(SettingChange::VolumePolicy(
                    rng.below(self.volumes) as usize,
                    own,
                )));
            }
            5..=6 => {
                let hardening = pick(rng, &[Hardening::Flush, Hardening::Write]);
                steps.push(HistoryStep::Tune(SettingChange::Hardening(
                    rng.below(self.volumes) as usize,
                    hardening,
                )));
            }
            _ => {}
        }
    }
}
