//! `adaptive`: every block where it costs least, as measured.
//!
//! Source: ours. It does what the authors of Hystor, of measurement-driven migration and of Wardrop
//! balancing left for later: request size, the asymmetry of devices and
//! their load in one rule.
//!
//! Devices are fast, or have homes ([`fast`]): what is said of the fast device holds for all fast ones together.
//!
//! Rule: an access is *worth* what the fast device would save, the responses to requests of that size and
//! direction as measured on both, with their queues; spread over the parts of the extent it carries,
//! and over the run it continues. A write's response has its part of the flush it makes necessary. Worth
//! is summed up by part (a block, of extents of 128 KiB) and halved with every epoch, which is counted in accesses,
//! since nothing is learnt while nothing is asked. The fast device's space has a *price*: of all parts, wherever they
//! are, those worth more have room there.
//! - Allocation first: a write that saves something goes to slots of the fast device, if that answers
//!   sooner at this moment, and leaves it later; one worth less than the price only as far as there is space and the
//!   other devices have time to take it later. New extents go there until it is nearly full, else to the others.
//! - Migration second: a part that was read is copied there if it is worth the price and what the copy costs: the more,
//!   the fewer parts of those read once are read again, and the busier the other devices are. It is moved, if it was
//!   written of late, so that no write finds its block in two places.
//! - Room for writes to come is made while the other devices have nothing to do ([`headroom`]).
//! - What is worth less than the price leaves, in home order: copies are dropped, the rest is written home. In a burst
//!   ([`burst`]) no more leaves than what writes need, and copies that find no room wait.
//! - As the fast device saturates its responses grow, and accesses are worth less, down to nothing. What would be
//!   answered sooner elsewhere, by a fifth at least in the long run, is written there, or gets a copy there that it is read
//!   from, a few a round. So responses become alike; and nothing is copied to the fast device either while they are,
//!   within a fifth.
//!
//! Memory: at most a thousandth of the pool's size, as Hystor's block table takes at most. Of extents of 128 KiB that is some
//! three fifths of those the pool has room for, the latest accessed; what is on the fast device stays known longest, and is
//! found again if it does not.
//!
//! Constants: see below; chosen on the development traces.
//!
//! Devices that are alike, under load too: there is nothing to save, so nothing is copied, and every write is in place. New
//! extents go to all devices in turn, whole, but to none that has been [`BUSIER`] than another one for seconds.

mod burst;
mod cost;
mod evictor;
mod explain;
mod fast;
mod headroom;
mod heat;
mod inventory;
mod loaded;
mod promoter;
mod relief;
mod tiers;
mod worth;
mod writes;

use super::{
    Access, DeviceView, Keeps, Key, Moment, Placement, Question, Reasons, Settings, Stripe, Watches, WriteTo,
};
use burst::Burst;
use evictor::Evictor;
use fast::Fast;
use headroom::Headroom;
use heat::Cut;
use inventory::Inventory;
use promoter::Promoter;
use relief::Relief;
use tiers::Tiers;
use weir_model::{DeviceId, Nanos, Op};
use worth::Worth;

/// What may be tuned: nothing. It is to need none.
pub(super) const KEYS: &[Key] = &[];

/// The time between two rounds.
const ROUND: Nanos = Nanos::millis(100);
/// The fast device is overloaded for a request that would take less than this elsewhere, of what it takes there, and
/// nothing moves there unless it takes less than this of what it takes elsewhere.
const SOONER: f64 = 0.8;
/// Among devices that are alike a new extent goes to none that has this many times as many commands in flight, in the long run
/// and with the new one, as the one that has fewest.
const BUSIER: f64 = 3.0;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Adaptive {
    tiers: Tiers,
    worth: Worth,
    headroom: Headroom,
    burst: Burst,
    promoter: Promoter,
    evictor: Evictor,
    relief: Relief,
    inventory: Inventory,
    stripe: Stripe,
}

impl Adaptive {
    pub(super) fn new(_: &Settings) -> Self {
        Self::default()
    }

    /// The fast devices, if there are others.
    #[inline]
    fn fast(&mut self, moment: &Moment<'_>) -> Option<Fast> {
        if self.tiers.look(moment) {
            self.forget();
        }
        Some(self.tiers.fast()).filter(|fast| !fast.is_empty())
    }

    /// Other devices are the fast ones from now on.
    fn forget(&mut self) {
        self.worth.forget();
        self.promoter.forget();
        self.relief.forget();
    }

    /// Sums up what an access is worth to its parts, and has those copied that are worth it. What each is worth; `None` if
    /// there is no telling, or nothing is read or written.
    #[inline]
    fn weigh(&mut self, moment: &mut Moment<'_>, access: &Access) -> Option<u16> {
        let fast = self.fast(moment)?;
        let cut = Cut::new(moment.extent.blocks());
        if !access.op.has_payload() {
            self.worth.trimmed(cut, access);
            return None;
        }
        let parts = cut.parts(access.blocks);
        let is_read = access.op == Op::Read;
        let (worth, heat) = self.worth.note(moment, fast, access, parts);
        let (whole, known) = (heat.whole, heat.resident);
        if is_read {
            self.relief.note(moment, fast, &mut self.worth, access);
        }
        if whole {
            return Some(worth);
        }
        // What was asked for may not have been done.
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
            && self.worth.costs.prices(moment, fast, false, access.bytes).is_sooner_on_fast(SOONER)
        {
            let space = (&mut self.worth, &mut self.headroom);
            self.promoter.missed(moment, fast, space, access.key, missing);
        }
        Some(worth)
    }

    /// Where a write goes, and what it is worth, if that is known.
    fn write_worth(&mut self, moment: &Moment<'_>, access: &Access, worth: Option<u16>) -> WriteTo {
        let Some(fast) = self.fast(moment) else { return WriteTo::InPlace };
        match fast.holder(moment.devices, &access.places) {
            Some(holder) => writes::over(moment, fast, &mut self.worth, access, holder),
            None => {
                let space = (&mut self.worth, &mut self.headroom);
                writes::anew(moment, fast, space, &self.evictor, access, worth)
            }
        }
    }

    /// Where there are no fast devices: the next one in turn that is not far busier than another one.
    fn allocate_among_alike(&mut self, devices: &[DeviceView]) -> Option<DeviceId> {
        let costs = &self.worth.costs;
        let commands = |d: &DeviceView| costs.in_flight_for_long(d) + 1.0;
        let least = devices.iter().filter(|d| d.free > 0).map(commands).fold(f64::INFINITY, f64::min);
        self.stripe.next_of(devices, |d| d.free > 0 && commands(d) <= BUSIER * least)
    }
}

impl Placement for Adaptive {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn allocate(&mut self, moment: &mut Moment<'_>, access: &Access) -> Option<DeviceId> {
        let Some(fast) = self.fast(moment) else { return self.allocate_among_alike(moment.devices) };
        let cut = Cut::new(moment.extent.blocks());
        let others = |d: &DeviceView| d.free > 0 && !fast.has(d.id);
        let costs = self.worth.costs.prices(moment, fast, true, access.bytes);
        let write = |d: &DeviceView| costs.response(d);
        let roomy = fast.these(moment.devices).filter(|d| Headroom::takes_extents(d, cut));
        let roomy = roomy.min_by(|a, b| write(a).total_cmp(&write(b)));
        let sooner = roomy.filter(|fast| {
            moment.devices.iter().filter(|d| others(d)).all(|other| write(fast) <= write(other))
        });
        if let Some(fast) = sooner {
            self.worth.table.set_resident(access.key, cut.all(), true);
            return Some(fast.id);
        }
        let other = self.stripe.next_of(moment.devices, others);
        other.or_else(|| self.stripe.next_of(moment.devices, |d| d.free > 0))
    }

    fn keeps(&self) -> Keeps {
        Keeps::On(self.tiers.fast().devices())
    }

    fn watches(&self) -> Watches {
        Watches { accesses: true, writes: true, runs: true, ..Watches::default() }
    }

    fn accessed(&mut self, moment: &mut Moment<'_>, access: &Access) {
        self.weigh(moment, access);
    }

    fn write_to(&mut self, moment: &mut Moment<'_>, access: &Access) -> WriteTo {
        self.write_worth(moment, access, None)
    }

    fn write(&mut self, moment: &mut Moment<'_>, access: &Access) -> WriteTo {
        let worth = self.weigh(moment, access);
        self.write_worth(moment, access, worth)
    }

    fn round_every(&self) -> Option<Nanos> {
        Some(ROUND)
    }

    fn round(&mut self, moment: &mut Moment<'_>) {
        if self.tiers.round(moment) {
            self.forget();
        }
        let fast = self.fast(moment);
        self.worth.costs.round(moment.devices, fast.is_some());
        let Some(fast) = fast else { return };
        let cut = Cut::new(moment.extent.blocks());
        let Self { worth, headroom, stripe, .. } = self;
        worth.round(moment, fast);
        headroom.round(moment.devices, fast, cut);
        self.burst.round(moment.now, moment.devices, fast);
        worth.set_price(moment.devices, fast, headroom, cut);
        self.inventory.round(moment, fast, worth, stripe);
        self.relief.round(moment, fast, stripe);
        self.evictor.round(moment, fast, worth, (headroom, self.burst), stripe);
        self.promoter.round(moment, fast, worth, headroom);
    }

    fn explain(&self, moment: &Moment<'_>, about: &Question<'_>) -> Reasons {
        self.reasons(moment, about)
    }
}

#[cfg(test)]
mod tests;
