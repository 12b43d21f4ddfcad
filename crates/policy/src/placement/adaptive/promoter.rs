//! Promotion: copies and moves to the fast devices.

use super::super::{Action, DeviceView, Moment};
use super::SOONER;
use super::fast::Fast;
use super::headroom::Headroom;
use super::heat::{Cut, Mask, ONE};
use super::worth::Worth;
use std::collections::VecDeque;
use weir_model::{ExtentKey, PlaceId, PlaceKind};

/// The minimum worth of a copy if all parts read once are read again and the other devices are busy, in reads
/// of the slow device saved; and the lower bounds of these two factors.
const COPY: f64 = 0.5;
const REREAD_LEAST: f64 = 0.25;
const BUSY_LEAST: f64 = 0.1;
/// The maximum number of copies requested per round.
pub(super) const COPIES: usize = 8;
/// A copy is requested at once, and piggybacked on the read, while the mover would take this many more
/// actions; one that needs its own read only while the mover's queue is nearly empty.
const ROOM: usize = 16;
const LATER: usize = 48;
/// The maximum number of entries waiting to be copied.
const WANTED: usize = 1024;

/// The state of promotion.
#[derive(Clone, Debug, Default)]
pub(super) struct Promoter {
    wanted: VecDeque<(ExtentKey, Mask)>,
    /// The number of copies requested since the last round.
    asked: usize,
}

/// Whether parts may be added to a fast device.
fn has_room(moment: &Moment<'_>, fast: Fast, headroom: &Headroom, cut: Cut) -> bool {
    fast.these(moment.devices).any(|d| Headroom::is_below(d, cut, headroom.for_copies()))
}

/// Returns the amount by which a part's worth must exceed the price for a copy to pay.
pub(super) fn copy_cost(worth: &Worth, headroom: &Headroom) -> u16 {
    let reread = worth.table.reread().max(REREAD_LEAST);
    (COPY * headroom.busy().max(BUSY_LEAST) / reread * f64::from(ONE)) as u16
}

impl Promoter {
    /// Resets the state, because other devices are the fast ones now.
    pub(super) fn forget(&mut self) {
        self.wanted.clear();
    }

    /// Notes a read of parts that are not on the fast device, and requests copies of those worth it.
    pub(super) fn missed(
        &mut self,
        moment: &mut Moment<'_>,
        fast: Fast,
        (worth, headroom): (&mut Worth, &mut Headroom),
        key: ExtentKey,
        missing: Mask,
    ) {
        let cut = Cut::new(moment.extent.blocks());
        let least = worth.price().saturating_add(copy_cost(worth, headroom));
        if worth.table.get(key).is_none() {
            return;
        }
        let parts = worth.above(key, missing, least);
        if parts != 0 {
            headroom.want();
        }
        // A copy requested at once is piggybacked on the read.
        if moment.actions.len() + ROOM < moment.actions_max && has_room(moment, fast, headroom, cut) {
            self.copy(moment, fast, (worth, headroom), key, parts);
        } else {
            self.want(key, parts);
        }
    }

    /// Requests waiting copies, as long as reads there are answered sooner by at least a fifth.
    pub(super) fn round(
        &mut self,
        moment: &mut Moment<'_>,
        fast: Fast,
        worth: &mut Worth,
        headroom: &Headroom,
    ) {
        let cut = Cut::new(moment.extent.blocks());
        self.asked = 0;
        if !worth.of_a_block(moment, fast, false).is_sooner_on_fast(SOONER) {
            self.wanted.clear();
        }
        while self.asked < COPIES
            && moment.actions.len() + LATER < moment.actions_max
            && has_room(moment, fast, headroom, cut)
        {
            let Some((key, parts)) = self.wanted.pop_front() else { return };
            if worth.table.get(key).is_some() {
                let parts = worth.above(key, parts, worth.price());
                self.copy(moment, fast, (worth, headroom), key, parts);
            }
        }
    }

    /// Queues parts that would be worth the price and the move.
    fn want(&mut self, key: ExtentKey, parts: Mask) {
        if parts != 0 && self.wanted.len() < WANTED && self.wanted.back() != Some(&(key, parts)) {
            self.wanted.push_back((key, parts));
        }
    }

    /// Requests copies or moves of these parts to the fast device: adjacent parts together, as many as
    /// permitted; the others later.
    fn copy(
        &mut self,
        moment: &mut Moment<'_>,
        fast: Fast,
        (worth, headroom): (&mut Worth, &Headroom),
        key: ExtentKey,
        parts: Mask,
    ) {
        let cut = Cut::new(moment.extent.blocks());
        let mut left = parts;
        let costs = worth.of_a_block(moment, fast, false);
        let there = moment.map.places(key);
        let read = |d: &DeviceView| costs.response(d);
        let Some(to) = fast.with_room(moment.devices, cut, headroom.for_copies(), &there, read) else {
            return;
        };
        let to = PlaceId { device: to.id, kind: PlaceKind::Fine };
        while self.asked < COPIES && moment.actions.len() < moment.actions_max {
            let Some(heat) = worth.table.get(key) else { return };
            let Some((blocks, run)) = cut.first_run(left & !heat.resident) else { return };
            moment.actions.push(match heat.written & run {
                0 => Action::Copy { key, blocks, to },
                _ => Action::Move { key, blocks, to },
            });
            worth.table.set_resident(key, heat.resident | run, heat.whole);
            left &= !run;
            self.asked += 1;
        }
        self.want(key, left);
    }
}
