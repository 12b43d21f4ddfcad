//! Eviction from the fast devices: while space is short there, and of what is worth less than a region that
//! is copied in idle time.

use super::super::allocation::home_off;
use super::super::{Action, DeviceView, PolicyContext, Stripe};
use super::burst::Burst;
use super::fast::FastDevices;
use super::headroom::Headroom;
use super::heat::{PartLayout, REGION_EXTENTS, region_end, region_start};
use super::idle_copies::Replacement;
use super::worth::Worth;
use weir_model::{ExtentKey, PlaceKind};

/// The maximum of evictions requested per round, and of the parts that leave by them; half as many while the
/// other devices are busy.
const EVICTIONS_MAX: usize = 16;
const PARTS_EVICTED_MAX: f64 = 256.0;
/// The decay per round of the parts requested to leave that may not be gone yet; space returns within some
/// seconds.
const PENDING_DECAY: f64 = 0.98;
/// The number of extents examined per round, and that of regions.
const EXTENTS_PER_ROUND: usize = 256;
const REGIONS_PER_ROUND: usize = EXTENTS_PER_ROUND / REGION_EXTENTS as usize;

/// The state of the eviction.
#[derive(Clone, Debug, Default)]
pub(super) struct Evictor {
    evicting: bool,
    /// The threshold of worth below which parts leave: the price, and more while that does not suffice.
    eviction_threshold: u16,
    /// Parts requested to leave whose space may not be back yet.
    pending_evictions: f64,
    /// The last extent examined.
    hand: ExtentKey,
}

impl Evictor {
    /// Whether space is short.
    pub(super) fn is_evicting(&self) -> bool {
        self.evicting
    }

    /// Evicts parts worth less than the price, while space is short; otherwise what `replacement` permits.
    /// Returns the number of parts that leave for the replacement.
    pub(super) fn round(
        &mut self,
        context: &mut PolicyContext<'_>,
        fast: FastDevices,
        worth: &mut Worth,
        (headroom, burst, replacement): (&Headroom, Burst, Option<Replacement>),
        stripe: &mut Stripe,
    ) -> u32 {
        let cut = PartLayout::new(context.extent.blocks());
        let fill = fast.fill(context.devices, cut);
        let part = 1.0 / (fast.extents(context.devices) as f64 * f64::from(cut.count())).max(1.0);
        self.pending_evictions *= PENDING_DECAY;
        let (full, filled) = headroom.eviction_thresholds(burst.is_active());
        let staying = |leaving: f64| fill - leaving * part;
        let has_slots = fast.fast_devices(context.devices).all(DeviceView::has_slots);
        let is_full =
            staying(self.pending_evictions) > if self.evicting { filled } else { full } || !has_slots;
        self.evicting = is_full && headroom.is_requested();
        self.eviction_threshold =
            if self.evicting { self.eviction_threshold.max(worth.price()) } else { worth.price() };
        if !self.evicting {
            return replacement
                .map_or(0, |replacement| self.replace(context, fast, worth, replacement, stripe));
        }
        let most = self.pending_evictions + PARTS_EVICTED_MAX * (1.0 - headroom.utilization() / 2.0);
        let looks = EXTENTS_PER_ROUND.min(worth.table.residents());
        for _ in 0..looks {
            if !may_evict(context)
                || self.pending_evictions >= most
                || staying(self.pending_evictions) <= filled
            {
                break;
            }
            let Some(key) = worth.table.next_resident(self.hand) else { break };
            if key <= self.hand {
                // The scan has visited all extents, and space is still short: extents in whole places leave
                // only as a whole.
                self.eviction_threshold =
                    self.eviction_threshold.saturating_add(self.eviction_threshold / 4 + 1);
            }
            self.hand = key;
            let gone = evict_from(context, fast, worth, stripe, key, self.eviction_threshold);
            self.pending_evictions += f64::from(gone);
        }
        0
    }

    /// Evicts parts in favour of a region, though space is not short: these are not pending, because the
    /// region takes their space. Returns their number.
    fn replace(
        &mut self,
        context: &mut PolicyContext<'_>,
        fast: FastDevices,
        worth: &mut Worth,
        replacement: Replacement,
        stripe: &mut Stripe,
    ) -> u32 {
        let cut = PartLayout::new(context.extent.blocks());
        let mut gone = 0;
        for _ in 0..REGIONS_PER_ROUND {
            let Some(first) = worth.table.next_resident(self.hand) else { break };
            let region = region_start(first);
            let stays = region == replacement.region || worth.table.region_worth(cut, region, true) > 0;
            if stays {
                self.hand = region_end(region);
                continue;
            }
            let mut next = Some(first);
            while let Some(key) = next {
                if !may_evict(context) || gone >= replacement.parts {
                    return gone;
                }
                self.hand = key;
                gone += evict_from(context, fast, worth, stripe, key, replacement.part_worth);
                next = worth
                    .table
                    .next_resident(key)
                    .filter(|next| *next > key && region_start(*next) == region);
            }
        }
        gone
    }
}

/// Whether another eviction may be requested in this round.
fn may_evict(context: &PolicyContext<'_>) -> bool {
    context.actions.len() + 1 < context.actions_max.min(EVICTIONS_MAX)
}

/// Evicts the parts of an extent that are worth no more than `most`. Returns their number.
fn evict_from(
    context: &mut PolicyContext<'_>,
    fast: FastDevices,
    worth: &mut Worth,
    stripe: &mut Stripe,
    key: ExtentKey,
    most: u16,
) -> u32 {
    let cut = PartLayout::new(context.extent.blocks());
    let Some(heat) = worth.table.get(key) else { return 0 };
    let places = context.map.places(key);
    let (whole, slots) =
        (fast.have_place(&places, PlaceKind::Whole), fast.have_place(&places, PlaceKind::Fine));
    if !whole && !slots {
        worth.table.set_resident(key, 0, false);
        return 0;
    }
    let going = match (whole, heat.mean_worth() <= most) {
        (true, true) => cut.all(),
        (true, false) => 0,
        (false, _) => heat.parts_below(heat.resident, most),
    };
    let Some(to) = home_off(stripe, context.devices, &places, |d| fast.contains(d)) else {
        return 0;
    };
    let mut left = going;
    while let Some((blocks, run)) = cut.first_run(left) {
        if context.actions.len() >= context.actions_max {
            break;
        }
        context.actions.push(Action::Move { key, blocks, to });
        left &= !run;
    }
    let gone = going & !left;
    worth.table.set_resident(key, heat.resident & !gone, whole && gone == 0);
    gone.count_ones()
}
