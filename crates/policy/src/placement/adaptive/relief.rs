//! Relief: reads that overload the fast devices are sent elsewhere.

use super::super::allocation::home_off;
use super::super::{Access, Action, Moment, Stripe};
use super::SOONER;
use super::fast::Fast;
use super::worth::Worth;
use std::collections::VecDeque;
use weir_model::{BlockRange, ExtentKey};

/// The maximum number of extents that get a copy elsewhere per round.
const RELIEF: usize = 8;

/// Reads on the fast devices that another device would have answered sooner.
#[derive(Clone, Debug, Default)]
pub(super) struct Relief {
    burden: VecDeque<(ExtentKey, BlockRange)>,
}

impl Relief {
    /// Resets the state, because other devices are the fast ones now.
    pub(super) fn forget(&mut self) {
        self.burden.clear();
    }

    /// Notes a read if only fast devices have the blocks, and another one would answer sooner.
    #[inline]
    pub(super) fn note(&mut self, moment: &Moment<'_>, fast: Fast, worth: &mut Worth, access: &Access) {
        if self.burden.len() < RELIEF
            && let Some(holder) = fast.holder(moment.devices, &access.places)
            && access.places.as_slice().iter().all(|place| fast.has(place.id.device) || place.blocks == 0)
            && worth.costs.prices(moment, fast, false, access.bytes).is_sooner_elsewhere(holder, SOONER)
            && self.burden.back() != Some(&(access.key, access.blocks))
        {
            self.burden.push_back((access.key, access.blocks));
        }
    }

    /// Requests copies elsewhere of the noted blocks, whatever their worth: reads go where they are answered
    /// sooner.
    pub(super) fn round(&mut self, moment: &mut Moment<'_>, fast: Fast, stripe: &mut Stripe) {
        while let Some((key, blocks)) =
            self.burden.pop_front().filter(|_| moment.actions.len() < moment.actions_max)
        {
            let places = moment.map.places(key);
            let to = home_off(stripe, moment.devices, &places, |d| fast.has(d));
            let Some(to) = to.filter(|_| fast.holder(moment.devices, &places).is_some()) else { continue };
            moment.actions.push(Action::Copy { key, blocks, to });
        }
    }
}
