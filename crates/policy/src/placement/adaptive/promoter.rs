//! Promotion: copies and moves to the fast devices.

use super::super::{Action, DeviceView, PolicyContext};
use super::SOONER_FRACTION;
use super::fast::FastDevices;
use super::headroom::Headroom;
use super::heat::{Mask, PartLayout, UNIT_WORTH};
use super::worth::Worth;
use std::collections::VecDeque;
use weir_model::{ExtentKey, PlaceId, PlaceKind};

/// The minimum worth of a copy if all parts read once are read again and the other devices are busy, in reads
/// of the slow device saved; and the lower bounds of these two factors.
const COPY_WORTH_MIN: f64 = 0.5;
const REREAD_MIN: f64 = 0.25;
const BUSY_MIN: f64 = 0.1;
/// The maximum number of copies requested per round.
pub(super) const COPIES_PER_ROUND: usize = 8;
/// A copy is requested at once, and piggybacked on the read, while the mover would take this many more
/// actions; one that needs its own read only while the mover's queue is nearly empty.
const QUEUE_LIMIT: usize = 16;
const PIGGYBACK_QUEUE_LIMIT: usize = 48;
/// The maximum number of entries waiting to be copied.
const WAITING_MAX: usize = 1024;

/// The state of promotion.
#[derive(Clone, Debug, Default)]
pub(super) struct Promoter {
    waiting: VecDeque<(ExtentKey, Mask)>,
    /// The number of copies requested since the last round.
    requested: usize,
}

/// Whether parts may be added to a fast device.
fn has_space(
    context: &PolicyContext<'_>,
    fast: FastDevices,
    headroom: &Headroom,
    layout: PartLayout,
) -> bool {
    fast.fast_devices(context.devices).any(|d| Headroom::is_below(d, layout, headroom.copy_fill_max()))
}

/// Returns the amount by which a part's worth must exceed the price for a copy to pay.
pub(super) fn copy_cost(worth: &Worth, headroom: &Headroom) -> u16 {
    let reread = worth.table.reread_fraction().max(REREAD_MIN);
    (COPY_WORTH_MIN * headroom.utilization().max(BUSY_MIN) / reread * f64::from(UNIT_WORTH)) as u16
}

impl Promoter {
    /// Resets the state, because other devices are the fast ones now.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
    }

    /// Notes a read of parts that are not on the fast device, and requests copies of those worth it.
    pub(super) fn note_miss(
        &mut self,
        context: &mut PolicyContext<'_>,
        fast: FastDevices,
        (worth, headroom): (&mut Worth, &mut Headroom),
        key: ExtentKey,
        missing: Mask,
    ) {
        let cut = PartLayout::new(context.extent.blocks());
        let least = worth.price().saturating_add(copy_cost(worth, headroom));
        if worth.table.get(key).is_none() {
            return;
        }
        let parts = worth.parts_above(key, missing, least);
        if parts != 0 {
            headroom.request_space();
        }
        // A copy requested at once is piggybacked on the read.
        if context.actions.len() + QUEUE_LIMIT < context.actions_max
            && has_space(context, fast, headroom, cut)
        {
            self.copy(context, fast, (worth, headroom), key, parts);
        } else {
            self.enqueue(key, parts);
        }
    }

    /// Requests waiting copies, as long as reads there are answered sooner by at least a fifth.
    pub(super) fn round(
        &mut self,
        context: &mut PolicyContext<'_>,
        fast: FastDevices,
        worth: &mut Worth,
        headroom: &Headroom,
    ) {
        let cut = PartLayout::new(context.extent.blocks());
        self.requested = 0;
        if !worth.block_prices(context, fast, false).is_sooner_on_fast(SOONER_FRACTION) {
            self.waiting.clear();
        }
        while self.may_request(context) && has_space(context, fast, headroom, cut) {
            let Some((key, parts)) = self.waiting.pop_front() else { return };
            if worth.table.get(key).is_some() {
                let parts = worth.parts_above(key, parts, worth.price());
                self.copy(context, fast, (worth, headroom), key, parts);
            }
        }
    }

    /// Whether another copy may be requested in this round.
    pub(super) fn may_request(&self, context: &PolicyContext<'_>) -> bool {
        self.requested < COPIES_PER_ROUND
            && context.actions.len() + PIGGYBACK_QUEUE_LIMIT < context.actions_max
    }

    /// Queues parts that would be worth the price and the move.
    fn enqueue(&mut self, key: ExtentKey, parts: Mask) {
        if parts != 0 && self.waiting.len() < WAITING_MAX && self.waiting.back() != Some(&(key, parts)) {
            self.waiting.push_back((key, parts));
        }
    }

    /// Requests copies or moves of these parts to the fast device: adjacent parts together, as many as
    /// permitted; the others later.
    pub(super) fn copy(
        &mut self,
        context: &mut PolicyContext<'_>,
        fast: FastDevices,
        (worth, headroom): (&mut Worth, &Headroom),
        key: ExtentKey,
        parts: Mask,
    ) {
        let cut = PartLayout::new(context.extent.blocks());
        let mut left = parts;
        let costs = worth.block_prices(context, fast, false);
        let there = context.map.places(key);
        let read = |d: &DeviceView| costs.response(d);
        let Some(to) = fast.with_space(context.devices, cut, headroom.copy_fill_max(), &there, read) else {
            return;
        };
        let to = PlaceId { device: to.id, kind: PlaceKind::Fine };
        while self.requested < COPIES_PER_ROUND && context.actions.len() < context.actions_max {
            let Some(heat) = worth.table.get(key) else { return };
            let Some((blocks, run)) = cut.first_run(left & !heat.resident) else { return };
            context.actions.push(match heat.written & run {
                0 => Action::Copy { key, blocks, to },
                _ => Action::Move { key, blocks, to },
            });
            worth.table.set_resident(key, heat.resident | run, heat.whole);
            left &= !run;
            self.requested += 1;
        }
        self.enqueue(key, left);
    }
}
