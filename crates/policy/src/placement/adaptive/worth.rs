//! What the parts of extents are worth on the fast devices, and the price of the space there.

use super::super::{Access, DeviceView, Moment};
use super::cost::{Costs, Prices};
use super::fast::Fast;
use super::headroom::Headroom;
use super::heat::{Cut, Heat, Mask, ONE, PARTS, Table, count};
use weir_model::{BLOCK, Bytes, ExtentKey, Nanos, Op};

/// An epoch is as many accesses as this times what has room on the fast device, but no less than this time.
const EPOCH: u64 = 4;
const EPOCH_MIN: Nanos = Nanos::secs(15);
/// What is known of extents may take one byte in so many of the pool's, as Hystor's block table; and the least number of
/// extents known.
pub(super) const MEMORY: u64 = 1000;
const EXTENTS_MIN: usize = 1024;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Worth {
    pub(super) costs: Costs,
    pub(super) table: Table,
    /// What is worth more is to be on the fast device.
    price: u16,
    epoch_began: Nanos,
}

impl Default for Worth {
    fn default() -> Self {
        let table = Table::new(EXTENTS_MIN);
        Self { costs: Costs::default(), table, price: 0, epoch_began: Nanos(0) }
    }
}

impl Worth {
    /// Other devices are the fast ones: what is on them is learnt anew.
    pub(super) fn forget(&mut self) {
        self.costs.forget();
        self.table.forget_residents();
    }

    /// What is worth more than this has room on the fast device.
    #[inline]
    pub(super) fn price(&self) -> u16 {
        self.price
    }

    /// What a block costs to read, or to write.
    pub(super) fn of_a_block<'a>(&'a mut self, moment: &Moment<'a>, fast: Fast, write: bool) -> Prices<'a> {
        self.costs.prices(moment, fast, write, Bytes(BLOCK))
    }

    /// Sums up what an access is worth to its parts. What each is worth, and what is known of the extent now.
    #[inline]
    pub(super) fn note(
        &mut self,
        moment: &Moment<'_>,
        fast: Fast,
        access: &Access,
        parts: Mask,
    ) -> (u16, &Heat) {
        let write = access.op == Op::Write;
        let saving = self.costs.note(moment, fast, write, access.bytes, share(access));
        let worth = worth(saving, parts);
        (worth, self.table.note(access.key, parts, worth, write))
    }

    /// Parts all of whose blocks are true nowhere any more take no space.
    pub(super) fn trimmed(&mut self, cut: Cut, access: &Access) {
        let Some(heat) = self.table.get(access.key) else { return };
        let gone = cut.within(access.blocks);
        if gone == cut.all() {
            self.table.set_resident(access.key, 0, false);
        } else if heat.resident & gone != 0 && !heat.whole {
            self.table.set_resident(access.key, heat.resident & !gone, false);
        }
    }

    /// The parts that are worth more than this.
    pub(super) fn above(&mut self, key: ExtentKey, parts: Mask, least: u16) -> Mask {
        self.table.get(key).map_or(0, |heat| parts & !heat.cheap(parts, least))
    }

    /// An epoch ends once enough has been accessed; memory follows the pool's size.
    pub(super) fn round(&mut self, moment: &Moment<'_>, fast: Fast) {
        let since = moment.now.since(self.epoch_began);
        let accesses = EPOCH * fast.extents(moment.devices) * u64::from(PARTS);
        if self.table.pass(accesses, since >= EPOCH_MIN) {
            self.epoch_began = moment.now;
        }
        let extents: u64 = moment.devices.iter().map(|d| u64::from(d.extents)).sum();
        self.table.set_memory(Bytes(extents * moment.extent.bytes().0 / MEMORY), EXTENTS_MIN);
    }

    /// The price is such that what is worth more has room on the fast device.
    pub(super) fn set_price(&mut self, devices: &[DeviceView], fast: Fast, headroom: &Headroom, cut: Cut) {
        let filled = headroom.filled();
        let parts = fast.extents(devices) as f64 * f64::from(cut.count());
        let (least, more_than) = self.table.worthiest((filled * parts) as u32);
        self.price = if fast.fill(devices, cut) < filled { least.saturating_sub(1) } else { more_than };
    }
}

/// What of a response counts: an access that continues a run costs a disk only its share of it.
#[inline]
pub(super) fn share(access: &Access) -> f64 {
    match access.run <= access.bytes {
        true => 1.0,
        false => access.bytes.0 as f64 / access.run.0 as f64,
    }
}

/// What an access that saves so much is worth to each part it carries.
#[inline]
pub(super) fn worth(saving: f64, parts: Mask) -> u16 {
    let saved = saving * f64::from(ONE);
    let each = match count(parts) {
        0 | 1 => saved,
        several => saved / f64::from(several),
    };
    // Less than nothing is nothing.
    (each as u16).min(4 * ONE)
}
