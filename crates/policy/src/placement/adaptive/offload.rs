//! Relief: reads that overload the fast devices are sent elsewhere.

use super::super::allocation::home_off;
use super::super::{Access, Action, PolicyContext, Stripe};
use super::SOONER_FRACTION;
use super::fast::FastDevices;
use super::worth::Worth;
use std::collections::VecDeque;
use weir_model::{BlockRange, ExtentKey};

/// The maximum number of extents that get a copy elsewhere per round.
const OFFLOADS_PER_ROUND: usize = 8;

/// Reads on the fast devices that another device would have answered sooner.
#[derive(Clone, Debug, Default)]
pub(super) struct Offload {
    slow_reads: VecDeque<(ExtentKey, BlockRange)>,
}

impl Offload {
    /// Resets the state, because other devices are the fast ones now.
    pub(super) fn forget(&mut self) {
        self.slow_reads.clear();
    }

    /// Notes a read if only fast devices have the blocks, and another one would answer sooner.
    #[inline]
    pub(super) fn note(
        &mut self,
        context: &PolicyContext<'_>,
        fast: FastDevices,
        worth: &mut Worth,
        access: &Access,
    ) {
        if self.slow_reads.len() < OFFLOADS_PER_ROUND
            && let Some(holder) = fast.holder(context.devices, &access.places)
            && access
                .places
                .as_slice()
                .iter()
                .all(|place| fast.contains(place.id.device) || place.blocks == 0)
            && worth
                .costs
                .prices(context, fast, false, access.bytes)
                .is_sooner_elsewhere(holder, SOONER_FRACTION)
            && self.slow_reads.back() != Some(&(access.key, access.blocks))
        {
            self.slow_reads.push_back((access.key, access.blocks));
        }
    }

    /// Requests copies elsewhere of the noted blocks, whatever their worth: reads go where they are answered
    /// sooner.
    pub(super) fn round(&mut self, context: &mut PolicyContext<'_>, fast: FastDevices, stripe: &mut Stripe) {
        while let Some((key, blocks)) =
            self.slow_reads.pop_front().filter(|_| context.actions.len() < context.actions_max)
        {
            let places = context.map.places(key);
            let to = home_off(stripe, context.devices, &places, |d| fast.contains(d));
            let Some(to) = to.filter(|_| fast.holder(context.devices, &places).is_some()) else { continue };
            context.actions.push(Action::Copy { key, blocks, to });
        }
    }
}
