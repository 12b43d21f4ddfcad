//! The metadata members: every journal frame, checkpoint page and root is written to each of them, and counts
//! when it is durable on all. When one of two fails, the pool continues with the other. First, the
//! superblocks of all remaining devices record the failure durably; until then nothing more is acknowledged
//! that the failed member may lack.

use crate::Base;
use crate::core::Core;
use crate::durability::Durability;
use crate::flight::{MetadataIo, NewIo, Purpose};
use crate::space::Space;
use crate::task::Task;
use crate::verify::Round;
use crate::verify::Verification;
use smallvec::SmallVec;
use std::collections::VecDeque;
use weir_map::Superblock;
use weir_model::{Buffer, DeviceId, DeviceOffset, IoError, IoKind, Memory, Mutant};

/// A member in use.
#[derive(Clone, Copy, Debug)]
struct Member {
    device: DeviceId,
    /// The buffer of the journal frame in flight.
    frame: Buffer,
    /// The buffer of the checkpoint pages in flight. It is separate, because a buffer given to a member that
    /// hangs is never used for another command.
    pages: Buffer,
}

/// The members, and the superblocks to write because one was left behind.
#[derive(Debug, Default)]
pub(crate) struct Members {
    list: SmallVec<[Member; 2]>,
    /// The superblocks still to be written, in order.
    pending_superblocks: VecDeque<(DeviceId, DeviceOffset)>,
    /// The buffer of the superblock being written.
    superblock_buffer: Option<Buffer>,
    /// The check that the superblock in a device's last page waits for.
    awaited_check: Option<(DeviceId, Round)>,
}

impl Members {
    /// Creates the list of members with their buffers.
    pub(crate) fn new(devices: &[DeviceId], scratch: &crate::space::scratch::Scratch) -> Self {
        let member = |(n, device): (usize, &DeviceId)| {
            let [frame, pages] = scratch.large(n);
            Member { device: *device, frame, pages }
        };
        Self { list: devices.iter().enumerate().map(member).collect(), ..Self::default() }
    }

    /// Whether the superblocks do not yet durably record which member was left behind.
    pub(crate) fn is_recording(&self) -> bool {
        self.superblock_buffer.is_some() || !self.pending_superblocks.is_empty()
    }

    /// Returns the maximum length of a run of checkpoint pages.
    pub(crate) fn pages_len(&self) -> usize {
        self.list.first().map_or(0, |member| member.pages.len as usize)
    }
}

impl Task for Members {
    type On = Base;

    /// Whether a superblock could be written now.
    fn can_run(base: &Base) -> bool {
        base.durability.members.superblock_buffer.is_none()
            && !base.durability.members.pending_superblocks.is_empty()
            && base.space.scratch.has_blocks()
            && base.durability.may_record(&base.verification)
            && base
                .durability
                .members
                .awaited_check
                .is_none_or(|(device, round)| base.verification.is_checked(device, round))
    }

    fn run<M: Memory>(base: &mut Base, memory: &mut M) {
        base.durability.write_superblock(&mut base.core, &mut base.verification, &mut base.space, memory);
    }

    fn is_idle(base: &Base) -> bool {
        let may_be_left = base.durability.commits.metadata_failed && !base.verification.any_damaged();
        may_be_left || !base.durability.members.is_recording()
    }
}

impl Durability {
    /// Writes a part of the metadata to every member. Returns the number of writes.
    pub(crate) fn write_to_members<M: Memory>(
        &mut self,
        core: &mut Core,
        part: MetadataIo,
        at: DeviceOffset,
        bytes: &[u8],
        memory: &mut M,
    ) -> usize {
        let mut members = self.members.list.clone();
        let to_one = match part {
            MetadataIo::Frame => Mutant::FrameToOneMember,
            MetadataIo::Root => Mutant::RootToOneMember,
            _ => Mutant::PagesToOneMember,
        };
        if core.is_planted(to_one) {
            members.truncate(1);
        }
        for member in &members {
            let buffer = if part == MetadataIo::Frame { member.frame } else { member.pages };
            let buffer = buffer.part(0, bytes.len() as u32);
            memory.bytes_mut(buffer).copy_from_slice(bytes);
            let volatile = core.devices[member.device.index()].settings.volatile_cache;
            let fua = match part {
                MetadataIo::Frame => volatile && !core.is_planted(Mutant::FrameNotDurable),
                MetadataIo::Root => true,
                _ => false,
            };
            let kind = IoKind::Write { fua };
            core.launch(NewIo { device: member.device, kind, at, buffer }, Purpose::Metadata(part));
        }
        members.len()
    }

    /// Flushes every member. Returns the number of flushes.
    pub(crate) fn flush_members(&mut self, core: &mut Core) -> usize {
        let members = self.members.list.clone();
        for member in &members {
            core.launch(NewIo::flush(member.device), Purpose::Metadata(MetadataIo::PagesFlush));
        }
        members.len()
    }

    /// Begins to write the superblocks to all devices that take them.
    pub(crate) fn record_superblocks(&mut self, core: &Core, verification: &Verification) {
        let left = core.map.devices().iter().filter(|sb| takes_superblock(core, verification, sb));
        let copies =
            left.flat_map(|sb| [DeviceOffset(0), Superblock::second_at(sb.size)].map(|at| (sb.device, at)));
        // A removed file comes before anything that makes it count as older; then comes the remaining member,
        // whose record decides.
        let order = |device: DeviceId| {
            (!verification.is_removed(device), !core.map.members().contains(&device), device)
        };
        let mut copies: Vec<_> = copies.collect();
        copies.sort_by_key(|(device, at)| (order(*device), *at));
        self.members.pending_superblocks = copies.into();
        self.members.awaited_check = None;
    }

    /// Whether superblocks are written: once the last member has failed, only to record damaged devices.
    fn may_record(&self, verification: &Verification) -> bool {
        !self.commits.metadata_failed || verification.any_damaged()
    }

    /// Whether superblocks do not yet record that a device was damaged.
    pub(crate) fn is_recording_damage(&self, verification: &Verification) -> bool {
        verification.any_damaged() && self.members.is_recording()
    }

    /// Whether the superblock in the device's last page may be written: only after a check that began for
    /// this purpose. Written to a truncated device, it would make the device grow again and look intact.
    fn may_record_last_page(
        &mut self,
        core: &mut Core,
        verification: &mut Verification,
        device: DeviceId,
    ) -> bool {
        let wanted = match self.members.awaited_check {
            Some((checked, round)) if checked == device => Some(round),
            _ => verification.check_device(core, device),
        };
        self.members.awaited_check = wanted.map(|round| (device, round));
        wanted.is_none_or(|round| verification.is_checked(device, round))
    }

    /// Writes the next superblock. Superblocks are written one at a time, so that at any instant one copy of
    /// each device is good.
    pub(crate) fn write_superblock<M: Memory>(
        &mut self,
        core: &mut Core,
        verification: &mut Verification,
        space: &mut Space,
        memory: &mut M,
    ) {
        if self.members.superblock_buffer.is_some() || !self.may_record(verification) {
            return;
        }
        let Some(&(device, at)) = self.members.pending_superblocks.front() else { return };
        if at != DeviceOffset(0) && !self.may_record_last_page(core, verification, device) {
            return;
        }
        // If all scratch blocks are in use, pieces in flight will return some.
        let Some([Some(buffer), _]) = space.scratch.take_blocks(1) else { return };
        self.members.pending_superblocks.pop_front();
        self.members.awaited_check = None;
        let page = core.map.devices()[device.index()].encode();
        memory.bytes_mut(buffer).copy_from_slice(&page[..]);
        self.members.superblock_buffer = Some(buffer);
        let kind = IoKind::Write { fua: core.devices[device.index()].settings.volatile_cache };
        core.launch(NewIo { device, kind, at, buffer }, Purpose::Metadata(MetadataIo::Superblock));
    }
}

fn takes_superblock(core: &Core, verification: &Verification, sb: &Superblock) -> bool {
    let is_removed = verification.is_removed(sb.device);
    (is_removed || !core.map.missing().contains(sb.device)) && !core.is_lost(sb.device)
}

impl Base {
    /// Handles a device that failed, hangs or is gone and may be a metadata member: its last writes may not
    /// be durable there. The pool continues with the other member; without one the map can no longer be made
    /// durable.
    pub(crate) fn member_failed(&mut self, device: DeviceId, error: IoError) {
        if self.durability.commits.metadata_failed || !self.core.map.members().contains(&device) {
            return;
        }
        if !self.core.map.leave_behind(device) {
            return self.metadata_failed(error);
        }
        self.durability.members.list.retain(|member| member.device != device);
        self.durability.record_superblocks(&self.core, &self.verification);
    }

    /// Handles the end of a command to a metadata member.
    pub(crate) fn metadata_io_ended<M: Memory>(
        &mut self,
        io: MetadataIo,
        device: DeviceId,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        match io {
            MetadataIo::Frame => self.frame_ended(device, result),
            MetadataIo::Pages | MetadataIo::PagesFlush | MetadataIo::Root => {
                self.checkpoint_step_ended(device, result);
            }
            MetadataIo::Superblock => self.superblock_ended(device, result, memory),
        }
    }

    fn superblock_ended<M: Memory>(&mut self, device: DeviceId, result: Result<(), IoError>, memory: &mut M) {
        if let Some(buffer) = self.durability.members.superblock_buffer.take() {
            self.put_back_block(buffer);
        }
        if let Err(error) = result {
            // A device without metadata that cannot take the record is lost itself; it can mislead nobody who
            // does not accept a rollback.
            self.durability.members.pending_superblocks.retain(|(d, _)| *d != device);
            self.member_failed(device, error);
        }
        self.durability.write_superblock(&mut self.core, &mut self.verification, &mut self.space, memory);
        self.answer_verified();
    }
}
