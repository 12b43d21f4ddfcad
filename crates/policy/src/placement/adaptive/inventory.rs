//! A search for parts on the fast devices that are not known to be there.

use super::super::allocation::home_off;
use super::super::{Action, Moment, PlaceView, Stripe};
use super::fast::Fast;
use super::heat::Cut;
use super::worth::Worth;
use weir_model::{BlockRange, ExtentIndex, ExtentKey, PlaceKind};

/// The number of extents examined per round.
const LOOKS: usize = 256;
/// The maximum number of extents written back per round.
const STRANDED: usize = 8;

/// The position of the search.
#[derive(Clone, Debug, Default)]
pub(super) struct Inventory {
    next: ExtentKey,
}

impl Inventory {
    /// Searches for parts that were there before, and for parts that were requested to leave and did not.
    /// Parts in slots of other devices are written back.
    pub(super) fn round(
        &mut self,
        moment: &mut Moment<'_>,
        fast: Fast,
        worth: &mut Worth,
        stripe: &mut Stripe,
    ) {
        let cut = Cut::new(moment.extent.blocks());
        let mut stranded = 0;
        for _ in 0..LOOKS {
            let Some(key) = moment.map.next(self.next) else {
                self.next = ExtentKey::default();
                return;
            };
            self.next = ExtentKey { index: ExtentIndex(key.index.0 + 1), ..key };
            let places = moment.map.places(key);
            let whole = fast.have(&places, PlaceKind::Whole);
            let slots = fast.have(&places, PlaceKind::Fine);
            let known = worth.table.get(key).is_some_and(|heat| heat.resident != 0 || heat.whole);
            if !known && (whole || slots) {
                worth.table.set_resident(key, cut.all(), whole);
            }
            // The parts are in slots of a device that was fast.
            let elsewhere = |p: &PlaceView| p.id.kind == PlaceKind::Fine && !fast.has(p.id.device);
            let is_stranded = !whole && !slots && places.as_slice().iter().any(elsewhere);
            if is_stranded && stranded < STRANDED && moment.actions.len() < moment.actions_max {
                let to = home_off(stripe, moment.devices, &places, |d| fast.has(d));
                let Some(to) = to.filter(|to| to.kind == PlaceKind::Whole) else { continue };
                let blocks = BlockRange { first: 0, count: moment.extent.blocks() };
                moment.actions.push(Action::Move { key, blocks, to });
                stranded += 1;
            }
        }
    }
}
