//! The worth of extents' parts on the fast devices, and the price of the space there.

use super::super::{Access, DeviceView, PolicyContext};
use super::cost::{Costs, Prices};
use super::fast::FastDevices;
use super::headroom::Headroom;
use super::heat::{Heat, HeatTable, Mask, PARTS, PartLayout, UNIT_WORTH, count};
use weir_model::{BLOCK, Bytes, ExtentKey, Nanos, Op};

/// The length of an epoch: the minimum of accesses, as a multiple of the parts that fit the fast device, and
/// the minimum of time.
const EPOCH_ACCESSES: u64 = 4;
const EPOCH_MIN: Nanos = Nanos::secs(15);
/// The state of extents may use one byte per this many of the pool's, like Hystor's block table; and the
/// minimum number of extents known.
pub(super) const MEMORY_DIVISOR: u64 = 1000;
const EXTENTS_MIN: usize = 1024;

/// The state of worth and price.
#[derive(Clone, Debug)]
pub(super) struct Worth {
    pub(super) costs: Costs,
    pub(super) table: HeatTable,
    /// The price: parts worth more belong on the fast device.
    price: u16,
    epoch_began: Nanos,
}

impl Default for Worth {
    fn default() -> Self {
        let table = HeatTable::new(EXTENTS_MIN);
        Self { costs: Costs::default(), table, price: 0, epoch_began: Nanos(0) }
    }
}

impl Worth {
    /// Resets the residency of parts, because other devices are the fast ones now.
    pub(super) fn forget(&mut self) {
        self.costs.forget();
        self.table.forget_residents();
    }

    /// Returns the price: the parts worth more than this fit the fast device.
    #[inline]
    pub(super) fn price(&self) -> u16 {
        self.price
    }

    /// Returns the prices of reading or writing a block.
    pub(super) fn block_prices<'a>(
        &'a mut self,
        context: &PolicyContext<'a>,
        fast: FastDevices,
        write: bool,
    ) -> Prices<'a> {
        self.costs.prices(context, fast, write, Bytes(BLOCK))
    }

    /// Adds an access's worth to its parts. Returns the worth of each, and the extent's present state.
    #[inline]
    pub(super) fn note(
        &mut self,
        context: &PolicyContext<'_>,
        fast: FastDevices,
        access: &Access,
        parts: Mask,
    ) -> (u16, &Heat) {
        let write = access.op == Op::Write;
        let saving = self.costs.note(context, fast, write, access.bytes, run_share(access));
        let worth = worth(saving, parts);
        (worth, self.table.note(access.key, parts, worth, write))
    }

    /// Notes that blocks were trimmed: parts without valid blocks occupy no space.
    pub(super) fn note_trim(&mut self, layout: PartLayout, access: &Access) {
        let Some(heat) = self.table.get(access.key) else { return };
        let gone = layout.parts_within(access.blocks);
        if gone == layout.all() {
            self.table.set_resident(access.key, 0, false);
        } else if heat.resident & gone != 0 && !heat.whole {
            self.table.set_resident(access.key, heat.resident & !gone, false);
        }
    }

    /// Returns the parts worth more than `least`.
    pub(super) fn parts_above(&mut self, key: ExtentKey, parts: Mask, least: u16) -> Mask {
        self.table.get(key).map_or(0, |heat| parts & !heat.parts_below(parts, least))
    }

    /// Ends an epoch once there were enough accesses; adapts the memory to the pool's size.
    pub(super) fn round(&mut self, context: &PolicyContext<'_>, fast: FastDevices) {
        let since = context.now.since(self.epoch_began);
        let accesses = EPOCH_ACCESSES * fast.extents(context.devices) * u64::from(PARTS);
        if self.table.advance_epoch(accesses, since >= EPOCH_MIN) {
            self.epoch_began = context.now;
        }
        let extents: u64 = context.devices.iter().map(|d| u64::from(d.extents)).sum();
        self.table.set_memory(Bytes(extents * context.extent.bytes().0 / MEMORY_DIVISOR), EXTENTS_MIN);
    }

    /// Sets the price so that the parts worth more fit the fast device.
    pub(super) fn set_price(
        &mut self,
        devices: &[DeviceView],
        fast: FastDevices,
        headroom: &Headroom,
        layout: PartLayout,
    ) {
        let filled = headroom.eviction_stop();
        let parts = fast.extents(devices) as f64 * f64::from(layout.count());
        let (least, more_than) = self.table.worthiest((filled * parts) as u32);
        self.price = if fast.fill(devices, layout) < filled { least.saturating_sub(1) } else { more_than };
    }
}

/// Returns the weight of a response: an access that continues a run costs a disk only its share of the run.
#[inline]
pub(super) fn run_share(access: &Access) -> f64 {
    match access.run <= access.bytes {
        true => 1.0,
        false => access.bytes.0 as f64 / access.run.0 as f64,
    }
}

/// Returns the worth of an access with this saving to each part in it.
#[inline]
pub(super) fn worth(saving: f64, parts: Mask) -> u16 {
    let saved = saving * f64::from(UNIT_WORTH);
    let each = match count(parts) {
        0 | 1 => saved,
        several => saved / f64::from(several),
    };
    // A negative worth becomes zero.
    (each as u16).min(4 * UNIT_WORTH)
}
