//! `adaptive`: every block on the device where it costs least, as measured.
//!
//! Source: ours. It adds what the authors of Hystor, of measurement-driven migration and of Wardrop balancing
//! left for future work: one rule that combines request size, the asymmetry of devices and their load.
//!
//! Devices are fast, or contain homes ([`fast`]): statements about the fast device apply to all fast ones
//! together.
//!
//! Rule: the *worth* of an access is the time that the fast device would save: the difference of the
//! responses to requests of that size and direction as measured on both, with their queues. The worth is
//! spread over the parts of the extent in the request, and over the sequential run that it continues. A
//! write's response includes its share of the flush it makes necessary. Worth is summed by part (a block, for
//! extents of 128 KiB) and halved with every epoch. Epochs are counted in accesses, because nothing is learnt
//! without any. The fast device's space has a *price*: the parts worth more than the price, wherever they
//! are, fit the space.
//! - Allocation first: a write that saves time goes to slots of the fast device, if that answers sooner at
//!   this moment, and is written back later; one worth less than the price does so only as far as there is
//!   space and the other devices have time for the write-back, or to relieve them of a long queue. New
//!   extents go there until it is nearly full, else to the others.
//! - Migration second: a part that was read is copied there if it is worth the price plus the cost of the
//!   copy. That cost grows as fewer parts read once are read again, and as the other devices are busier. A
//!   part written recently is moved instead, so that no write finds its block in two places.
//! - While the other devices are idle, regions that were read are copied as a whole ([`idle_copies`]), and
//!   space for future writes is freed ([`headroom`]).
//! - Parts worth less than the price leave, in home order: clean copies are dropped, the rest is written
//!   back. In a burst ([`burst`]) no more leaves than writes need, and copies that find no space wait.
//! - As the fast device saturates, its responses grow, and accesses are worth less, down to nothing. A write
//!   that another device would answer sooner, by a fifth at least in the long run, goes there; a block read
//!   like that gets a copy there, a few per round. So responses converge; while they are within a fifth,
//!   nothing is copied to the fast device either.
//!
//! Memory: at most a thousandth of the pool's size, like the maximum of Hystor's block table. For extents of
//! 128 KiB that is about three fifths of those that fit the pool, the most recently accessed; extents on the
//! fast device are remembered longest, and are found again if they are not.
//!
//! Constants: see below; chosen on the development traces.
//!
//! Devices that are alike, under load too: nothing can be saved, so nothing is copied, and every write is in
//! place. New extents go to all devices in turn, whole, but to none whose queue has been [`BUSY_RATIO_MAX`]
//! times as long as another one's for seconds.

mod burst;
mod cost;
mod evictor;
mod explain;
mod fast;
mod headroom;
mod heat;
mod idle_copies;
mod inventory;
mod load_comparison;
mod offload;
mod promoter;
mod tiers;
mod worth;
mod writes;

use super::{
    Access, DeviceView, KeptPlaces, Key, Placement, PolicyContext, Question, Reasons, Settings, Stripe,
    Subscriptions, WriteTo,
};
use burst::Burst;
use evictor::Evictor;
use fast::FastDevices;
use headroom::Headroom;
use heat::PartLayout;
use idle_copies::IdleCopies;
use inventory::Inventory;
use offload::Offload;
use promoter::Promoter;
use tiers::Tiers;
use weir_model::{DeviceId, Nanos, Op};
use worth::Worth;

/// The tunable constants: none, because it should need none.
pub(super) const KEYS: &[Key] = &[];

/// The interval of rounds.
const ROUND: Nanos = Nanos::millis(100);
/// The fast device is overloaded for a request whose response elsewhere is below this fraction of its own;
/// and nothing moves there unless its response is below this fraction of that elsewhere.
const SOONER_FRACTION: f64 = 0.8;
/// Among devices that are alike, a new extent goes to none whose long-term queue, including the new extent,
/// is this many times that of the least busy one.
const BUSY_RATIO_MAX: f64 = 3.0;

/// The state of the policy.
#[derive(Clone, Debug, Default)]
pub struct Adaptive {
    tiers: Tiers,
    worth: Worth,
    headroom: Headroom,
    burst: Burst,
    promoter: Promoter,
    idle_copies: IdleCopies,
    evictor: Evictor,
    relief: Offload,
    inventory: Inventory,
    stripe: Stripe,
}

impl Adaptive {
    pub(super) fn new(_: &Settings) -> Self {
        Self::default()
    }

    /// Returns the fast devices, if there are others.
    #[inline]
    fn fast(&mut self, context: &PolicyContext<'_>) -> Option<FastDevices> {
        if self.tiers.reselect(context) {
            self.forget();
        }
        Some(self.tiers.fast()).filter(|fast| !fast.is_empty())
    }

    /// Resets the state, because other devices are the fast ones now.
    fn forget(&mut self) {
        self.worth.forget();
        self.promoter.forget();
        self.idle_copies.forget();
        self.relief.forget();
    }

    /// Adds an access's worth to its parts, and requests copies of those that are worth it. Returns the worth
    /// of each part; `None` if it is unknown, or if nothing is read or written.
    #[inline]
    fn note_worth(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> Option<u16> {
        let fast = self.fast(context)?;
        let cut = PartLayout::new(context.extent.blocks());
        if !access.op.has_payload() {
            self.worth.note_trim(cut, access);
            return None;
        }
        let parts = cut.parts(access.blocks);
        let is_read = access.op == Op::Read;
        let (worth, heat) = self.worth.note(context, fast, access, parts);
        let (whole, known) = (heat.whole, heat.resident);
        if is_read {
            self.relief.note(context, fast, &mut self.worth, access);
        }
        if whole {
            return Some(worth);
        }
        // A requested action may not have been executed.
        let resident = match fast.slots_of(&access.places) {
            0 => known & !parts,
            some if some == access.blocks.count => known | parts,
            _ => known,
        };
        if resident != known {
            self.worth.table.set_resident(access.key, resident, false);
        }
        let missing = parts & !resident;
        if is_read
            && missing != 0
            && worth > 0
            && access.places.device().is_some()
            && self.worth.costs.prices(context, fast, false, access.bytes).is_sooner_on_fast(SOONER_FRACTION)
        {
            let space = (&mut self.worth, &mut self.headroom);
            self.promoter.note_miss(context, fast, space, access.key, missing);
            self.idle_copies.note_miss(access.key);
        }
        Some(worth)
    }

    /// Returns the target of a write with this worth, if known.
    fn write_target(&mut self, context: &PolicyContext<'_>, access: &Access, worth: Option<u16>) -> WriteTo {
        let Some(fast) = self.fast(context) else { return WriteTo::InPlace };
        match fast.holder(context.devices, &access.places) {
            Some(holder) => writes::overwrite_target(context, fast, &mut self.worth, access, holder),
            None => {
                let space = (&mut self.worth, &mut self.headroom);
                writes::new_write_target(context, fast, space, &self.evictor, access, worth)
            }
        }
    }

    /// Allocates where there are no fast devices: on the next one in turn that is not far busier than another
    /// one.
    fn allocate_balanced(&mut self, devices: &[DeviceView]) -> Option<DeviceId> {
        let costs = &self.worth.costs;
        let commands = |d: &DeviceView| costs.in_flight_for_long(d) + 1.0;
        let least = devices.iter().filter(|d| d.free > 0).map(commands).fold(f64::INFINITY, f64::min);
        self.stripe.next_of(devices, |d| d.free > 0 && commands(d) <= BUSY_RATIO_MAX * least)
    }
}

impl Placement for Adaptive {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn allocate(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> Option<DeviceId> {
        let Some(fast) = self.fast(context) else { return self.allocate_balanced(context.devices) };
        let cut = PartLayout::new(context.extent.blocks());
        let others = |d: &DeviceView| d.free > 0 && !fast.contains(d.id);
        let costs = self.worth.costs.prices(context, fast, true, access.bytes);
        let write = |d: &DeviceView| costs.response(d);
        let roomy = fast.fast_devices(context.devices).filter(|d| Headroom::accepts_extents(d, cut));
        let roomy = roomy.min_by(|a, b| write(a).total_cmp(&write(b)));
        let sooner = roomy.filter(|fast| {
            context.devices.iter().filter(|d| others(d)).all(|other| write(fast) <= write(other))
        });
        if let Some(fast) = sooner {
            self.worth.table.set_resident(access.key, cut.all(), true);
            return Some(fast.id);
        }
        let other = self.stripe.next_of(context.devices, others);
        other.or_else(|| self.stripe.next_of(context.devices, |d| d.free > 0))
    }

    fn kept_places(&self) -> KeptPlaces {
        KeptPlaces::OnDevices(self.tiers.fast().devices())
    }

    fn subscriptions(&self) -> Subscriptions {
        Subscriptions { accesses: true, writes: true, runs: true, ..Subscriptions::default() }
    }

    fn accessed(&mut self, context: &mut PolicyContext<'_>, access: &Access) {
        self.note_worth(context, access);
    }

    fn write_to(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> WriteTo {
        self.write_target(context, access, None)
    }

    fn write(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> WriteTo {
        let worth = self.note_worth(context, access);
        self.write_target(context, access, worth)
    }

    fn round_interval(&self) -> Option<Nanos> {
        Some(ROUND)
    }

    fn round(&mut self, context: &mut PolicyContext<'_>) {
        if self.tiers.round(context) {
            self.forget();
        }
        let fast = self.fast(context);
        self.worth.costs.round(context.devices, fast.is_some());
        let Some(fast) = fast else { return };
        let cut = PartLayout::new(context.extent.blocks());
        let Self { worth, headroom, stripe, .. } = self;
        worth.round(context, fast);
        headroom.round(context.devices, fast, cut);
        self.burst.round(context.now, context.devices, fast);
        worth.set_price(context.devices, fast, headroom, cut);
        self.inventory.round(context, fast, worth, stripe);
        self.relief.round(context, fast, stripe);
        let replacement = self.idle_copies.replacement(context, fast, worth);
        let space = self.evictor.round(context, fast, worth, (headroom, self.burst, replacement), stripe);
        self.idle_copies.note_space(space);
        self.promoter.round(context, fast, worth, headroom);
        let is_evicting = self.evictor.is_evicting();
        self.idle_copies.round(context, fast, (worth, headroom, is_evicting), &mut self.promoter);
    }

    fn explain(&self, context: &PolicyContext<'_>, about: &Question<'_>) -> Reasons {
        self.reasons(context, about)
    }
}

#[cfg(test)]
mod tests;
