//! The state that every part of the engine needs: time, map, devices, commands in flight, notices. It is
//! below all other modules and uses none of them.

mod retry;

use crate::StoppedChanges;
use crate::device::abandoned::AbandonedCommands;
use crate::device::views::Views;
use crate::device::{Device, DurableWrites};
use crate::flight::{DurableStep, Flight, NewIo, Purpose};
use crate::io::commands::Commands;
use crate::notice::Notices;
use weir_map::{Chunk, Hardening, Map, Slot};
use weir_model::{Bytes, DeviceId, ExtentKey, IoKind, Mutant, Nanos, VolumeId};

/// The shared state. Its fields are `pub(crate)` so that a caller can borrow two of them at a time.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) now: Nanos,
    pub(crate) map: Map,
    pub(crate) devices: Vec<Device>,
    /// The devices as policies see them.
    pub(crate) views: Views,
    pub(crate) commands: Commands,
    pub(crate) abandoned: AbandonedCommands,
    pub(crate) notices: Notices,
    /// The reason why changes are no longer accepted, if they are not.
    pub(crate) stopped_changes: Option<StoppedChanges>,
}

impl Core {
    pub(crate) fn new(now: Nanos, map: Map, devices: Vec<Device>) -> Self {
        let commands = Commands::new(map.planted());
        let (abandoned, notices) = Default::default();
        let views = Views::new(&map);
        Self { now, map, devices, views, commands, abandoned, notices, stopped_changes: None }
    }

    /// Updates the views with each device's free space and availability.
    #[inline]
    pub(crate) fn fill_in_views(&mut self) {
        self.views.fill_in(&self.map, &self.devices);
    }

    /// Whether this mutant is planted.
    #[inline(always)]
    pub(crate) fn is_planted(&self, mutant: Mutant) -> bool {
        self.map.planted().is(mutant)
    }

    /// Returns the used and the total space for data on the devices that are present. Visible allocations
    /// count as used.
    pub(crate) fn data_space(&self) -> (Bytes, Bytes) {
        let extent = self.map.extent().bytes().0;
        let all = self.map.devices().iter().zip(&self.devices);
        let there = all.filter(|(_, device)| !device.is_lost()).map(|(sb, _)| sb.device);
        let (used, total) = there.fold((0, 0), |(used, total), device| {
            let space = self.map.space(device);
            let taken = space.extents() - space.free() - self.releasing_extents(device);
            (used + u64::from(taken), total + u64::from(space.extents()))
        });
        (Bytes(used * extent), Bytes(total * extent))
    }

    /// Returns a device's space for user data, and the part of it that no volume owns in the visible state.
    pub(crate) fn device_space(&self, device: DeviceId) -> (Bytes, Bytes) {
        let (space, extent) = (self.map.space(device), self.map.extent().bytes());
        let free = u64::from(space.free()) + u64::from(self.releasing_extents(device));
        (Bytes(u64::from(space.extents()) * extent.0), Bytes(free * extent.0))
    }

    /// Returns the extents of a device that nothing visible uses and that cannot be allocated yet.
    pub(crate) fn releasing_extents(&self, device: DeviceId) -> u32 {
        self.map.pending_release_extents(device) + self.devices[device.index()].quarantined.extents()
    }

    /// Returns the extents on usable devices that can be allocated, now or once their release is durable.
    pub(crate) fn available_extents(&self) -> u64 {
        let there = self.map.devices().iter().map(|sb| sb.device).filter(|id| self.is_usable(*id));
        there.map(|id| u64::from(self.map.space(id).free() + self.releasing_extents(id))).sum()
    }

    /// Whether the device takes data.
    pub(crate) fn is_usable(&self, device: DeviceId) -> bool {
        !self.devices[device.index()].is_lost()
    }

    /// Whether changes in flight are refused too, because the metadata failed.
    pub(crate) fn changes_have_stopped(&self) -> bool {
        self.stopped_changes == Some(StoppedChanges::MetadataFailed)
    }

    /// Whether the volume keeps two copies of its blocks.
    pub(crate) fn is_mirrored(&self, key: ExtentKey) -> bool {
        self.map.volume(key.volume).is_some_and(|volume| volume.copies > 1)
    }

    /// Whether the device is lost.
    #[inline]
    pub(crate) fn is_lost(&self, device: DeviceId) -> bool {
        self.devices[device.index()].is_lost()
    }

    /// Queues a device command. The driver gets it from [`crate::Engine::pump`] and reports its end to
    /// [`crate::Engine::complete`].
    pub(crate) fn launch(&mut self, io: NewIo, purpose: Purpose) {
        self.start(io.flight(purpose));
    }

    /// Queues a device command whose flight already exists.
    #[inline(always)]
    pub(crate) fn start(&mut self, mut flight: Flight) {
        let device = &mut self.devices[flight.device.index()];
        if device.is_lost() {
            return self.abandoned.refuse(flight);
        }
        device.begin(self.now, &mut flight);
        self.views.set_in_flight(flight.device, device.in_flight());
        if flight.is_durability_command() {
            flight.durability_number = Some(device.durability_order.begin());
            if flight.kind == (IoKind::Write { fua: true })
                && device.settings.durable_writes == DurableWrites::WriteThenFlush
            {
                flight.step = DurableStep::Writing;
            }
        }
        flight.started = self.now;
        self.commands.send(flight);
    }

    /// Whether a reply must wait until its changes to the map are durable. A write that changes nothing in
    /// the map waits for no commit: with FUA it is a durable write of its device.
    #[inline]
    pub(crate) fn needs_durable_map(&self, volume: VolumeId, fua: bool) -> bool {
        let hardens = |v: &weir_map::Volume| v.hardening == Hardening::Write;
        fua || self.map.volume(volume).is_some_and(hardens) && !self.is_planted(Mutant::HardeningIgnored)
    }

    /// Allocates up to `most` adjacent free slots.
    pub(crate) fn adjacent_slots(&mut self, device: DeviceId, most: u16) -> Vec<Slot> {
        let mut slots: Vec<Slot> = Vec::new();
        if !self.map.has_fine_places() {
            return slots;
        }
        while slots.len() < usize::from(most) {
            let Some(slot) = self.map.allocate_slot(device) else { break };
            let adjacent = |last: &Slot| slot.extent == last.extent && slot.block == last.block + 1;
            if !slots.last().is_none_or(adjacent) {
                self.map.reuse(Chunk::Slot(device, slot));
                break;
            }
            slots.push(slot);
        }
        slots
    }
}
