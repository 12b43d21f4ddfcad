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
//! - Room for writes to come is made while the other devices have nothing to do ([`room`]).
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
mod explain;
mod fast;
mod heat;
mod loaded;
mod room;

use super::allocation::home_off;
use super::{
    Access, Action, DeviceView, Keeps, Key, Moment, PlaceView, Placement, Question, Reasons, Settings,
    Stripe, Watches, WriteTo,
};
use burst::Burst;
use cost::{Costs, Prices};
use fast::Fast;
use heat::{Cut, Mask, ONE, PARTS, Table, count};
use loaded::UnderLoad;
use room::{BRIM, Room};
use std::collections::VecDeque;
use weir_model::{BLOCK, BlockRange, Bytes, DeviceId, ExtentIndex, ExtentKey, Nanos, Op, PlaceId, PlaceKind};

/// What may be tuned: nothing. It is to need none.
pub(super) const KEYS: &[Key] = &[];

/// The time between two rounds.
const ROUND: Nanos = Nanos::millis(100);
/// What a copy must be worth if all that is read is read again and the other devices are busy, in reads of the slow
/// device saved; and the least part of these two that counts.
const COPY: f64 = 0.5;
const REREAD_LEAST: f64 = 0.25;
const BUSY_LEAST: f64 = 0.1;
/// The least an access must be worth for a write to go to the fast device.
const LEAST: u16 = ONE / 16;
/// An epoch is as many accesses as this times what has room on the fast device, but no less than this time.
const EPOCH: u64 = 4;
const EPOCH_MIN: Nanos = Nanos::secs(15);
/// Copies asked for in a round.
const COPIES: usize = 8;
/// … and evictions, and parts that are to leave by them; half as many while the other devices are busy.
const EVICTIONS: usize = 16;
const PARTS_LEAVING: f64 = 256.0;
/// The fast device is overloaded for a request that would take less than this elsewhere, of what it takes there, and
/// nothing moves there unless it takes less than this of what it takes elsewhere; what is copied for the former in a round.
const SOONER: f64 = 0.8;
const RELIEF: usize = 8;
/// Among devices that are alike a new extent goes to none that has this many times as many commands in flight, in the long run
/// and with the new one, as the one that has fewest.
const BUSIER: f64 = 3.0;
/// Of what was asked to leave, what may not be gone a round later; space comes back within some seconds.
const STILL_LEAVING: f64 = 0.98;
/// Extents looked at in a round for some to leave, and for what an earlier policy left.
const LOOKS: usize = 256;
/// A copy is asked for at once, and made with what the read brings, while the mover would take this many more; one that
/// has to read for itself only while the mover has little else to do.
const ROOM: usize = 16;
const LATER: usize = 48;
/// Parts waiting to be copied.
const WANTED: usize = 1024;
/// What is known of extents may take one byte in so many of the pool's, as Hystor's block table; and the least number of
/// extents known.
const MEMORY: u64 = 1000;
const EXTENTS_MIN: usize = 1024;

/// See the module.
#[derive(Clone, Debug)]
pub struct Adaptive {
    costs: Costs,
    table: Table,
    fast: Fast,
    /// … of whom all are known.
    certain: bool,
    /// The measurement after which they were looked at.
    looked: Option<u64>,
    load: UnderLoad,
    stripe: Stripe,
    /// What is worth more is to be on the fast device.
    price: u16,
    wanted: VecDeque<(ExtentKey, Mask)>,
    /// What was asked for on the fast device and would have been answered sooner elsewhere.
    burden: VecDeque<(ExtentKey, BlockRange)>,
    room: Room,
    burst: Burst,
    evicting: bool,
    /// What is worth no more leaves: the price, and more while that does not do.
    leave: u16,
    /// Copies asked for since the last round.
    asked: usize,
    /// Parts that were asked to leave, as far as their space may not be back yet.
    leaving: f64,
    /// The last extent looked at for eviction.
    hand: ExtentKey,
    /// Where the search for what is on the fast device goes on.
    looking: ExtentKey,
    epoch_began: Nanos,
}

impl Adaptive {
    pub(super) fn new(_: &Settings) -> Self {
        Self {
            costs: Costs::default(),
            table: Table::new(EXTENTS_MIN),
            fast: Fast::default(),
            certain: false,
            looked: None,
            load: UnderLoad::default(),
            stripe: Stripe::default(),
            price: 0,
            wanted: VecDeque::new(),
            burden: VecDeque::new(),
            room: Room::default(),
            burst: Burst::default(),
            evicting: false,
            leave: 0,
            asked: 0,
            leaving: 0.0,
            hand: ExtentKey::default(),
            looking: ExtentKey::default(),
            epoch_began: Nanos(0),
        }
    }

    /// The fast devices, if there are others. Stay the same, once all devices have said how fast they are, while they
    /// can be used and load does not tell otherwise.
    #[inline]
    fn fast(&mut self, moment: &Moment<'_>) -> Option<Fast> {
        if self.looked != Some(moment.measured) {
            self.look_for_fast(moment);
        }
        (!self.fast.is_empty()).then_some(self.fast)
    }

    #[inline(never)]
    fn look_for_fast(&mut self, moment: &Moment<'_>) {
        self.looked = Some(moment.measured);
        if !self.certain || !self.fast.are_usable(moment.devices) {
            self.certain = Fast::is_certain(moment.devices);
            self.set_fast(Fast::of(moment.devices));
        }
    }

    /// From now on these are the fast devices. What is on them is learnt anew if they are others.
    fn set_fast(&mut self, fast: Fast) {
        if std::mem::replace(&mut self.fast, fast) != fast {
            self.costs.forget();
            self.table.forget_residents();
            self.wanted.clear();
            self.burden.clear();
        }
    }

    /// Parts that would be worth the price and the move.
    fn want(&mut self, key: ExtentKey, parts: Mask) {
        if parts != 0 && self.wanted.len() < WANTED && self.wanted.back() != Some(&(key, parts)) {
            self.wanted.push_back((key, parts));
        }
    }

    /// What a part must be worth more than the price for a copy to pay.
    fn copy_cost(&self) -> u16 {
        let reread = self.table.reread().max(REREAD_LEAST);
        (COPY * self.room.busy().max(BUSY_LEAST) / reread * f64::from(ONE)) as u16
    }

    /// Of these parts, those a copy pays for are copied or moved to the fast device: side by side as long as may
    /// be asked for, the others later.
    fn copy(&mut self, moment: &mut Moment<'_>, cut: Cut, key: ExtentKey, parts: Mask) {
        let mut left = parts;
        let costs = self.costs.prices(moment, self.fast, false, Bytes(BLOCK));
        let there = moment.map.places(key);
        let read = |d: &DeviceView| costs.response(d);
        let Some(to) = self.fast.with_room(moment.devices, cut, self.room.for_copies(), &there, read) else {
            return;
        };
        let to = PlaceId { device: to.id, kind: PlaceKind::Fine };
        while self.asked < COPIES && moment.actions.len() < moment.room {
            let Some(heat) = self.table.get(key) else { return };
            let Some((blocks, run)) = cut.first_run(left & !heat.resident) else { return };
            moment.actions.push(match heat.written & run {
                0 => Action::Copy { key, blocks, to },
                _ => Action::Move { key, blocks, to },
            });
            self.table.set_resident(key, heat.resident | run, heat.whole);
            left &= !run;
            self.asked += 1;
        }
        self.want(key, left);
    }

    /// What is wanted gets its copies, as long as reads are answered sooner there, by a fifth at least.
    fn promote(&mut self, moment: &mut Moment<'_>, cut: Cut) {
        if !self.costs.prices(moment, self.fast, false, Bytes(BLOCK)).is_sooner_on_fast(SOONER) {
            self.wanted.clear();
        }
        while self.asked < COPIES && moment.actions.len() + LATER < moment.room && self.has_room(moment, cut)
        {
            let Some((key, parts)) = self.wanted.pop_front() else { return };
            let Some(heat) = self.table.get(key) else { continue };
            self.copy(moment, cut, key, parts & !heat.cheap(parts, self.price));
        }
    }

    /// Whether parts may be added to a fast device.
    fn has_room(&self, moment: &Moment<'_>, cut: Cut) -> bool {
        self.fast.these(moment.devices).any(|d| Room::is_below(d, cut, self.room.for_copies()))
    }

    /// The price is such that what is worth more has room on the fast device.
    fn set_price(&mut self, devices: &[DeviceView], cut: Cut) {
        let filled = self.room.filled();
        let parts = self.fast.extents(devices) as f64 * f64::from(cut.count());
        let (least, more_than) = self.table.worthiest((filled * parts) as u32);
        self.price = if self.fast.fill(devices, cut) < filled { least.saturating_sub(1) } else { more_than };
    }

    /// While space is short, what is worth less than the price leaves.
    fn evict(&mut self, moment: &mut Moment<'_>, cut: Cut) {
        let fill = self.fast.fill(moment.devices, cut);
        let part = 1.0 / (self.fast.extents(moment.devices) as f64 * f64::from(cut.count())).max(1.0);
        self.leaving *= STILL_LEAVING;
        let (full, filled) = self.room.leaving(self.burst.lasts());
        let staying = |leaving: f64| fill - leaving * part;
        let has_slots = self.fast.these(moment.devices).all(DeviceView::has_slots);
        let is_full = staying(self.leaving) > if self.evicting { filled } else { full } || !has_slots;
        self.evicting = is_full && self.room.is_wanted();
        self.leave = if self.evicting { self.leave.max(self.price) } else { self.price };
        if !self.evicting {
            return;
        }
        let most = self.leaving + PARTS_LEAVING * (1.0 - self.room.busy() / 2.0);
        let looks = LOOKS.min(self.table.residents());
        for _ in 0..looks {
            let enough = moment.actions.len() + 1 >= moment.room.min(EVICTIONS) || self.leaving >= most;
            if enough || staying(self.leaving) <= filled {
                return;
            }
            let Some(key) = self.table.next_resident(self.hand) else { return };
            if key <= self.hand {
                // Once around, and space is still short: extents in whole places leave only as such.
                self.leave = self.leave.saturating_add(self.leave / 4 + 1);
            }
            self.hand = key;
            self.evict_from(moment, key, cut);
        }
    }

    /// What of an extent is worth less than the price leaves.
    fn evict_from(&mut self, moment: &mut Moment<'_>, key: ExtentKey, cut: Cut) {
        let Some(heat) = self.table.get(key) else { return };
        let places = moment.map.places(key);
        let fast = self.fast;
        let (whole, slots) = (fast.have(&places, PlaceKind::Whole), fast.have(&places, PlaceKind::Fine));
        if !whole && !slots {
            return self.table.set_resident(key, 0, false);
        }
        let going = match (whole, heat.mean() <= self.leave) {
            (true, true) => cut.all(),
            (true, false) => 0,
            (false, _) => heat.cheap(heat.resident, self.leave),
        };
        let Some(to) = home_off(&mut self.stripe, moment.devices, &places, |d| fast.has(d)) else {
            return;
        };
        let mut left = going;
        while let Some((blocks, run)) = cut.first_run(left) {
            if moment.actions.len() >= moment.room {
                break;
            }
            moment.actions.push(Action::Move { key, blocks, to });
            self.leaving += f64::from(run.count_ones());
            left &= !run;
        }
        let gone = going & !left;
        self.table.set_resident(key, heat.resident & !gone, whole && gone == 0);
    }

    /// What reads overload the fast device with gets a copy elsewhere, whatever it is worth: they go where they are
    /// answered sooner.
    fn relieve(&mut self, moment: &mut Moment<'_>) {
        let fast = self.fast;
        while let Some((key, blocks)) = self.burden.pop_front().filter(|_| moment.actions.len() < moment.room)
        {
            let places = moment.map.places(key);
            let to = home_off(&mut self.stripe, moment.devices, &places, |d| fast.has(d));
            let Some(to) = to.filter(|_| fast.holder(moment.devices, &places).is_some()) else { continue };
            moment.actions.push(Action::Copy { key, blocks, to });
        }
    }

    /// Parts all of whose blocks are true nowhere any more take no space.
    fn trimmed(&mut self, cut: Cut, access: &Access) {
        let Some(heat) = self.table.get(access.key) else { return };
        let gone = cut.within(access.blocks);
        if gone == cut.all() {
            self.table.set_resident(access.key, 0, false);
        } else if heat.resident & gone != 0 && !heat.whole {
            self.table.set_resident(access.key, heat.resident & !gone, false);
        }
    }

    /// Looks for what is on the fast device and is not known to be: what was there before, and what was asked
    /// to leave and did not. What is in slots of others goes home.
    fn adopt(&mut self, moment: &mut Moment<'_>, cut: Cut) {
        let (fast, mut stranded) = (self.fast, 0);
        for _ in 0..LOOKS {
            let Some(key) = moment.map.next(self.looking) else {
                self.looking = ExtentKey::default();
                return;
            };
            self.looking = ExtentKey { index: ExtentIndex(key.index.0 + 1), ..key };
            let places = moment.map.places(key);
            let whole = self.fast.have(&places, PlaceKind::Whole);
            let slots = self.fast.have(&places, PlaceKind::Fine);
            let known = self.table.get(key).is_some_and(|heat| heat.resident != 0 || heat.whole);
            if !known && (whole || slots) {
                self.table.set_resident(key, cut.all(), whole);
            }
            // In slots of a device that was fast.
            let elsewhere = |p: &PlaceView| p.id.kind == PlaceKind::Fine && !fast.has(p.id.device);
            let is_stranded = !whole && !slots && places.as_slice().iter().any(elsewhere);
            if is_stranded && stranded < RELIEF && moment.actions.len() < moment.room {
                let to = home_off(&mut self.stripe, moment.devices, &places, |d| fast.has(d));
                let Some(to) = to.filter(|to| to.kind == PlaceKind::Whole) else { continue };
                let blocks = BlockRange { first: 0, count: moment.extent.blocks() };
                moment.actions.push(Action::Move { key, blocks, to });
                stranded += 1;
            }
        }
    }
}

/// What is made of an access.
impl Adaptive {
    /// Sums up what an access is worth to its parts, and has those copied that are worth it. What each is worth; `None` if
    /// there is no telling, or nothing is read or written.
    #[inline]
    fn weigh(&mut self, moment: &mut Moment<'_>, access: &Access) -> Option<u16> {
        let fast = self.fast(moment)?;
        let cut = Cut::new(moment.extent.blocks());
        if !access.op.has_payload() {
            self.trimmed(cut, access);
            return None;
        }
        let parts = cut.parts(access.blocks);
        let write = access.op == Op::Write;
        let saving = self.costs.note(moment, fast, write, access.bytes, share(access));
        let worth = worth(saving, parts);
        if !write
            && self.burden.len() < RELIEF
            && let Some(holder) = fast.holder(moment.devices, &access.held)
            && access.held.as_slice().iter().all(|place| fast.has(place.id.device) || place.blocks == 0)
            && self.costs.prices(moment, fast, false, access.bytes).is_sooner_elsewhere(holder, SOONER)
            && self.burden.back() != Some(&(access.key, access.blocks))
        {
            self.burden.push_back((access.key, access.blocks));
        }
        let heat = self.table.note(access.key, parts, worth, write);
        if heat.whole {
            return Some(worth);
        }
        // What was asked for may not have been done.
        let known = heat.resident;
        let resident = match fast.slots_of(&access.held) {
            0 => known & !parts,
            some if some == access.blocks.count => known | parts,
            _ => known,
        };
        if resident != known {
            self.table.set_resident(access.key, resident, false);
        }
        let missing = parts & !resident;
        if !write
            && missing != 0
            && worth > 0
            && access.held.device().is_some()
            && self.costs.prices(moment, fast, false, access.bytes).is_sooner_on_fast(SOONER)
        {
            self.missed(moment, cut, access.key, missing);
        }
        Some(worth)
    }

    /// Parts have been read that are not on the fast device: those that are worth it are copied there.
    fn missed(&mut self, moment: &mut Moment<'_>, cut: Cut, key: ExtentKey, missing: Mask) {
        let Some(heat) = self.table.get(key) else { return };
        let least = self.price.saturating_add(self.copy_cost());
        let parts = missing & !heat.cheap(missing, least);
        if parts != 0 {
            self.room.want();
        }
        // Asked for at once, a copy takes what the read brings.
        if moment.actions.len() + ROOM < moment.room && self.has_room(moment, cut) {
            self.copy(moment, cut, key, parts);
        } else {
            self.want(key, parts);
        }
    }
}

/// What of a response counts: an access that continues a run costs a disk only its share of it.
#[inline]
fn share(access: &Access) -> f64 {
    match access.run <= access.bytes {
        true => 1.0,
        false => access.bytes.0 as f64 / access.run.0 as f64,
    }
}

/// What an access that saves so much is worth to each part it carries.
#[inline]
fn worth(saving: f64, parts: Mask) -> u16 {
    let saved = saving * f64::from(ONE);
    let each = match count(parts) {
        0 | 1 => saved,
        several => saved / f64::from(several),
    };
    // Less than nothing is nothing.
    (each as u16).min(4 * ONE)
}

/// Where writes go.
impl Adaptive {
    /// The device that is not fast and answers writes soonest at this moment, and what it takes.
    fn slow<'d>(fast: Fast, devices: &'d [DeviceView], costs: &Prices<'_>) -> Option<(&'d DeviceView, f64)> {
        let others = fast.others(devices).filter(|d| d.usable).map(|d| (d, costs.now(d)));
        others.min_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    /// Where a write goes, and what it is worth, if that is known.
    fn write_worth(&mut self, moment: &Moment<'_>, access: &Access, worth: Option<u16>) -> WriteTo {
        let Some(fast) = self.fast(moment) else { return WriteTo::InPlace };
        match fast.holder(moment.devices, &access.held) {
            Some(holder) => self.write_there(moment, access, holder),
            None => self.write_anew(moment, access, worth),
        }
    }

    /// A write of blocks that this fast device holds.
    fn write_there(&mut self, moment: &Moment<'_>, access: &Access, holder: &DeviceView) -> WriteTo {
        let cut = Cut::new(moment.extent.blocks());
        let parts = cut.parts(access.blocks);
        let Some(heat) = self.table.latest(access.key) else { return WriteTo::InPlace };
        let (whole, resident) = (heat.whole, heat.resident);
        let costs = self.costs.prices(moment, self.fast, true, access.bytes);
        let Some((slow, takes)) = Self::slow(self.fast, moment.devices, &costs) else {
            return WriteTo::InPlace;
        };
        if takes < SOONER * costs.now(holder) && costs.is_sooner(slow, SOONER, holder) {
            // The fast device is overloaded: what would be moved from there is written elsewhere.
            if !whole {
                self.table.set_resident(access.key, resident & !cut.within(access.blocks), false);
            }
            return WriteTo::Whole(slow.id);
        }
        if whole {
            return WriteTo::InPlace;
        }
        if parts & !resident != 0 {
            self.table.set_resident(access.key, resident | parts, false);
        }
        WriteTo::Fine(holder.id)
    }

    /// A write of blocks that no fast device holds.
    fn write_anew(&mut self, moment: &Moment<'_>, access: &Access, own: Option<u16>) -> WriteTo {
        let (fast, cut) = (self.fast, Cut::new(moment.extent.blocks()));
        let parts = cut.parts(access.blocks);
        let Some(heat) = self.table.latest(access.key).filter(|heat| !heat.whole) else {
            return WriteTo::InPlace;
        };
        let costs = self.costs.prices(moment, fast, true, access.bytes);
        let own = own.unwrap_or_else(|| worth(costs.saving(share(access)), parts));
        let (worth, resident) = (heat.most(parts).max(own), heat.resident);
        if worth < LEAST {
            return WriteTo::InPlace;
        }
        let to = fast.with_room(moment.devices, cut, BRIM, &access.held, |d: &DeviceView| costs.now(d));
        // What is only buffered goes home later: as long as the others have time for it.
        let part = if self.evicting || to.is_none() { 1.0 } else { self.room.busy() };
        let worthy = worth >= (part * f64::from(self.price)) as u16;
        if worthy && access.held.device().is_some() {
            self.room.ask(parts.count_ones());
        }
        let (Some((_, takes)), Some(to)) = (Self::slow(fast, moment.devices, &costs), to) else {
            return WriteTo::InPlace;
        };
        if !worthy || takes < costs.now(to) {
            return WriteTo::InPlace;
        }
        self.table.set_resident(access.key, resident | parts, false);
        WriteTo::Fine(to.id)
    }
}

/// Where there are no fast devices.
impl Adaptive {
    /// The next device in turn that is not far busier than another one.
    fn allocate_among_alike(&mut self, devices: &[DeviceView]) -> Option<DeviceId> {
        let costs = &self.costs;
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
        let costs = self.costs.prices(moment, self.fast, true, access.bytes);
        let write = |d: &DeviceView| costs.response(d);
        let roomy = fast.these(moment.devices).filter(|d| Room::takes_extents(d, cut));
        let roomy = roomy.min_by(|a, b| write(a).total_cmp(&write(b)));
        let sooner = roomy.filter(|fast| {
            moment.devices.iter().filter(|d| others(d)).all(|other| write(fast) <= write(other))
        });
        if let Some(fast) = sooner {
            self.table.set_resident(access.key, cut.all(), true);
            return Some(fast.id);
        }
        let other = self.stripe.next_of(moment.devices, others);
        other.or_else(|| self.stripe.next_of(moment.devices, |d| d.free > 0))
    }

    fn keeps(&self) -> Keeps {
        Keeps::On(self.fast.devices())
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
        if let Some(fast) = self.load.round(moment.now, moment.devices, self.fast) {
            self.set_fast(fast);
        }
        let fast = self.fast(moment);
        self.costs.round(moment.devices, fast.is_some());
        let Some(fast) = fast else { return };
        let cut = Cut::new(moment.extent.blocks());
        let since = moment.now.since(self.epoch_began);
        let accesses = EPOCH * fast.extents(moment.devices) * u64::from(PARTS);
        if self.table.pass(accesses, since >= EPOCH_MIN) {
            self.epoch_began = moment.now;
        }
        self.room.round(moment.devices, fast, cut);
        self.burst.round(moment.now, moment.devices, fast);
        let extents: u64 = moment.devices.iter().map(|d| u64::from(d.extents)).sum();
        self.table.set_memory(Bytes(extents * moment.extent.bytes().0 / MEMORY), EXTENTS_MIN);
        self.asked = 0;
        self.set_price(moment.devices, cut);
        self.adopt(moment, cut);
        self.relieve(moment);
        self.evict(moment, cut);
        self.promote(moment, cut);
    }

    fn explain(&self, moment: &Moment<'_>, about: &Question<'_>) -> Reasons {
        self.reasons(moment, about)
    }
}

#[cfg(test)]
mod tests;
