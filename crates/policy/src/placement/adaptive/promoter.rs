//! What is copied or moved to the fast devices.

use super::super::{Action, DeviceView, Moment};
use super::SOONER;
use super::fast::Fast;
use super::headroom::Headroom;
use super::heat::{Cut, Mask, ONE};
use super::worth::Worth;
use std::collections::VecDeque;
use weir_model::{ExtentKey, PlaceId, PlaceKind};

/// What a copy must be worth if all that is read is read again and the other devices are busy, in reads of the slow
/// device saved; and the least part of these two that counts.
const COPY: f64 = 0.5;
const REREAD_LEAST: f64 = 0.25;
const BUSY_LEAST: f64 = 0.1;
/// Copies asked for in a round.
pub(super) const COPIES: usize = 8;
/// A copy is asked for at once, and made with what the read brings, while the mover would take this many more; one that
/// has to read for itself only while the mover has little else to do.
const ROOM: usize = 16;
const LATER: usize = 48;
/// Parts waiting to be copied.
const WANTED: usize = 1024;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Promoter {
    wanted: VecDeque<(ExtentKey, Mask)>,
    /// Copies asked for since the last round.
    asked: usize,
}

/// Whether parts may be added to a fast device.
fn has_room(moment: &Moment<'_>, fast: Fast, headroom: &Headroom, cut: Cut) -> bool {
    fast.these(moment.devices).any(|d| Headroom::is_below(d, cut, headroom.for_copies()))
}

/// What a part must be worth more than the price for a copy to pay.
pub(super) fn copy_cost(worth: &Worth, headroom: &Headroom) -> u16 {
    let reread = worth.table.reread().max(REREAD_LEAST);
    (COPY * headroom.busy().max(BUSY_LEAST) / reread * f64::from(ONE)) as u16
}

impl Promoter {
    /// Other devices are the fast ones.
    pub(super) fn forget(&mut self) {
        self.wanted.clear();
    }

    /// Parts have been read that are not on the fast device: those that are worth it are copied there.
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
        // Asked for at once, a copy takes what the read brings.
        if moment.actions.len() + ROOM < moment.actions_max && has_room(moment, fast, headroom, cut) {
            self.copy(moment, fast, (worth, headroom), key, parts);
        } else {
            self.want(key, parts);
        }
    }

    /// What is wanted gets its copies, as long as reads are answered sooner there, by a fifth at least.
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

    /// Parts that would be worth the price and the move.
    fn want(&mut self, key: ExtentKey, parts: Mask) {
        if parts != 0 && self.wanted.len() < WANTED && self.wanted.back() != Some(&(key, parts)) {
            self.wanted.push_back((key, parts));
        }
    }

    /// These parts are copied or moved to the fast device: side by side as long as may be asked for, the others later.
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
