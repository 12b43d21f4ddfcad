//! A search for parts on the fast devices that are not known to be there. It never ends: it goes through the
//! extents again and again, more slowly while it finds nothing.

use super::super::allocation::home_off;
use super::super::{Action, PlaceView, PolicyContext, Stripe};
use super::fast::FastDevices;
use super::heat::PartLayout;
use super::worth::Worth;
use weir_model::{BlockRange, ExtentIndex, ExtentKey, PlaceKind};

/// The number of extents examined per round, unless the last pass over all of them found nothing.
const EXTENTS_PER_ROUND: usize = 256;
/// The number of extents examined per round after a pass that found nothing. At 256 the search would take
/// half of a simulation's time.
const EXTENTS_PER_IDLE_ROUND: usize = 32;
/// The maximum number of extents written back per round.
const WRITE_BACKS_MAX: usize = 8;

/// The position of the search.
#[derive(Clone, Debug, Default)]
pub(super) struct Inventory {
    next: ExtentKey,
    /// Whether the last whole pass found nothing.
    is_idle: bool,
    /// Whether this pass has found something.
    has_found: bool,
}

impl Inventory {
    /// Begins anew, because other devices are the fast ones now.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Speeds the search up: there may be more.
    fn note_found(&mut self) {
        (self.has_found, self.is_idle) = (true, false);
    }

    fn end_pass(&mut self) {
        *self = Self { next: ExtentKey::default(), is_idle: !self.has_found, has_found: false };
    }

    /// Searches for parts that were there before, and for parts that were requested to leave and did not.
    /// Parts in slots of other devices are written back.
    pub(super) fn round(
        &mut self,
        context: &mut PolicyContext<'_>,
        fast: FastDevices,
        worth: &mut Worth,
        stripe: &mut Stripe,
    ) {
        let cut = PartLayout::new(context.extent.blocks());
        let mut stranded = 0;
        let extents = if self.is_idle { EXTENTS_PER_IDLE_ROUND } else { EXTENTS_PER_ROUND };
        for _ in 0..extents {
            let Some(key) = context.map.next(self.next) else { return self.end_pass() };
            self.next = ExtentKey { index: ExtentIndex(key.index.0 + 1), ..key };
            let places = context.map.places(key);
            let whole = fast.have_place(&places, PlaceKind::Whole);
            let slots = fast.have_place(&places, PlaceKind::Fine);
            let known = worth.table.get(key).is_some_and(|heat| heat.resident != 0 || heat.whole);
            if !known && (whole || slots) {
                self.note_found();
                worth.table.set_resident(key, cut.all(), whole);
            }
            // The parts are in slots of a device that was fast.
            let elsewhere = |p: &PlaceView| p.id.kind == PlaceKind::Fine && !fast.contains(p.id.device);
            let is_stranded = !whole && !slots && places.as_slice().iter().any(elsewhere);
            if is_stranded {
                self.note_found();
            }
            if is_stranded && stranded < WRITE_BACKS_MAX && context.actions.len() < context.actions_max {
                let to = home_off(stripe, context.devices, &places, |d| fast.contains(d));
                let Some(to) = to.filter(|to| to.kind == PlaceKind::Whole) else { continue };
                let blocks = BlockRange { first: 0, count: context.extent.blocks() };
                context.actions.push(Action::Move { key, blocks, to });
                stranded += 1;
            }
        }
    }
}
