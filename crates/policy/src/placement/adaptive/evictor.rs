//! Eviction from the fast devices while space is short there.

use super::super::allocation::home_off;
use super::super::{Action, DeviceView, Moment, Stripe};
use super::burst::Burst;
use super::fast::Fast;
use super::headroom::Headroom;
use super::heat::Cut;
use super::worth::Worth;
use weir_model::{ExtentKey, PlaceKind};

/// The maximum of evictions requested per round, and of the parts that leave by them; half as many while the
/// other devices are busy.
const EVICTIONS: usize = 16;
const PARTS_LEAVING: f64 = 256.0;
/// The decay per round of the parts requested to leave that may not be gone yet; space returns within some
/// seconds.
const STILL_LEAVING: f64 = 0.98;
/// The number of extents examined per round.
const LOOKS: usize = 256;

/// The state of the eviction.
#[derive(Clone, Debug, Default)]
pub(super) struct Evictor {
    evicting: bool,
    /// The threshold of worth below which parts leave: the price, and more while that does not suffice.
    leave: u16,
    /// Parts requested to leave whose space may not be back yet.
    leaving: f64,
    /// The last extent examined.
    hand: ExtentKey,
}

impl Evictor {
    /// Whether space is short.
    pub(super) fn is_evicting(&self) -> bool {
        self.evicting
    }

    /// Evicts parts worth less than the price, while space is short.
    pub(super) fn round(
        &mut self,
        moment: &mut Moment<'_>,
        fast: Fast,
        worth: &mut Worth,
        (headroom, burst): (&Headroom, Burst),
        stripe: &mut Stripe,
    ) {
        let cut = Cut::new(moment.extent.blocks());
        let fill = fast.fill(moment.devices, cut);
        let part = 1.0 / (fast.extents(moment.devices) as f64 * f64::from(cut.count())).max(1.0);
        self.leaving *= STILL_LEAVING;
        let (full, filled) = headroom.leaving(burst.lasts());
        let staying = |leaving: f64| fill - leaving * part;
        let has_slots = fast.these(moment.devices).all(DeviceView::has_slots);
        let is_full = staying(self.leaving) > if self.evicting { filled } else { full } || !has_slots;
        self.evicting = is_full && headroom.is_wanted();
        self.leave = if self.evicting { self.leave.max(worth.price()) } else { worth.price() };
        if !self.evicting {
            return;
        }
        let most = self.leaving + PARTS_LEAVING * (1.0 - headroom.busy() / 2.0);
        let looks = LOOKS.min(worth.table.residents());
        for _ in 0..looks {
            let enough =
                moment.actions.len() + 1 >= moment.actions_max.min(EVICTIONS) || self.leaving >= most;
            if enough || staying(self.leaving) <= filled {
                return;
            }
            let Some(key) = worth.table.next_resident(self.hand) else { return };
            if key <= self.hand {
                // The scan has visited all extents, and space is still short: extents in whole places leave
                // only as a whole.
                self.leave = self.leave.saturating_add(self.leave / 4 + 1);
            }
            self.hand = key;
            self.evict_from(moment, fast, worth, stripe, key);
        }
    }

    /// Evicts the parts of an extent that are worth less than the price.
    fn evict_from(
        &mut self,
        moment: &mut Moment<'_>,
        fast: Fast,
        worth: &mut Worth,
        stripe: &mut Stripe,
        key: ExtentKey,
    ) {
        let cut = Cut::new(moment.extent.blocks());
        let Some(heat) = worth.table.get(key) else { return };
        let places = moment.map.places(key);
        let (whole, slots) = (fast.have(&places, PlaceKind::Whole), fast.have(&places, PlaceKind::Fine));
        if !whole && !slots {
            return worth.table.set_resident(key, 0, false);
        }
        let going = match (whole, heat.mean() <= self.leave) {
            (true, true) => cut.all(),
            (true, false) => 0,
            (false, _) => heat.cheap(heat.resident, self.leave),
        };
        let Some(to) = home_off(stripe, moment.devices, &places, |d| fast.has(d)) else {
            return;
        };
        let mut left = going;
        while let Some((blocks, run)) = cut.first_run(left) {
            if moment.actions.len() >= moment.actions_max {
                break;
            }
            moment.actions.push(Action::Move { key, blocks, to });
            self.leaving += f64::from(run.count_ones());
            left &= !run;
        }
        let gone = going & !left;
        worth.table.set_resident(key, heat.resident & !gone, whole && gone == 0);
    }
}
