//! A search for parts on the fast devices that are not known to be there.

use super::super::allocation::home_off;
use super::super::{Action, PolicyContext, Stripe};
use super::fast::FastDevices;
use super::heat::PartLayout;
use super::worth::Worth;
use weir_model::{BlockRange, ExtentIndex, ExtentKey, PlaceKind};

/// The number of extents examined per round.
const EXTENTS_PER_ROUND: usize = 256;
/// The maximum number of extents written back per round.
const WRITE_BACKS_MAX: usize = 8;

/// The position of the search.
#[derive(Clone, Debug, Default)]
pub(super) struct Inventory {
    next: ExtentKey,
    /// The extents with parts on fast devices among those examined, and whether the place is a whole one.
    found: Vec<(ExtentKey, bool)>,
}

impl Inventory {
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
        // The table is searched afterwards, many extents in turn, so that the processor waits for several
        // cache lines at a time.
        self.found.clear();
        for _ in 0..EXTENTS_PER_ROUND {
            let Some(key) = context.map.next(self.next) else {
                self.next = ExtentKey::default();
                break;
            };
            self.next = ExtentKey { index: ExtentIndex(key.index.0 + 1), ..key };
            let (mut whole, mut slots, mut slots_elsewhere) = (false, false, false);
            context.map.visit_place_ids(key, &mut |place| match (fast.contains(place.device), place.kind) {
                (true, PlaceKind::Whole) => whole = true,
                (true, PlaceKind::Fine) => slots = true,
                // The parts are in slots of a device that was fast.
                (false, PlaceKind::Fine) => slots_elsewhere = true,
                (false, PlaceKind::Whole) => {}
            });
            if whole || slots {
                self.found.push((key, whole));
                continue;
            }
            if slots_elsewhere && stranded < WRITE_BACKS_MAX && context.actions.len() < context.actions_max {
                let places = context.map.places(key);
                let to = home_off(stripe, context.devices, &places, |d| fast.contains(d));
                let Some(to) = to.filter(|to| to.kind == PlaceKind::Whole) else { continue };
                let blocks = BlockRange { first: 0, count: context.extent.blocks() };
                context.actions.push(Action::Move { key, blocks, to });
                stranded += 1;
            }
        }
        for (key, whole) in &self.found {
            let known = worth.table.get(*key).is_some_and(|heat| heat.resident != 0 || heat.whole);
            if !known {
                worth.table.set_resident(*key, cut.all(), *whole);
            }
        }
    }
}
