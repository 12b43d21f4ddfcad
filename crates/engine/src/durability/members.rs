//! The metadata members: every journal frame, checkpoint page and root goes to each of them, and
//! counts when it is durable on all. When one of two fails, the pool goes on with the other: first the
//! superblocks of every device left say so, durably; until then nothing more is acknowledged that the
//! failed one may not know.

use crate::Engine;
use crate::device::verify::Round;
use crate::flight::{MetadataIo, NewIo, Purpose};
use crate::task::Task;
use smallvec::SmallVec;
use std::collections::VecDeque;
use weir_map::Superblock;
use weir_model::{Buffer, DeviceId, DeviceOffset, IoError, IoKind, Memory, Mutant};

/// A member that is written.
#[derive(Clone, Copy, Debug)]
struct Member {
    device: DeviceId,
    /// For the journal frame under way.
    frame: Buffer,
    /// For the checkpoint pages under way. A buffer of its own: what a member that hangs has been given
    /// is never used for another command.
    pages: Buffer,
}

/// The members, and the superblocks being written because one was left behind.
#[derive(Debug, Default)]
pub(crate) struct Members {
    list: SmallVec<[Member; 2]>,
    /// Where superblocks are still to be written, in order.
    to_record: VecDeque<(DeviceId, DeviceOffset)>,
    /// The buffer of the one being written.
    writing: Option<Buffer>,
    /// The check of a device that the superblock in its last page waits for.
    checked: Option<(DeviceId, Round)>,
}

impl Members {
    /// Each member with its buffers.
    pub(crate) fn new(devices: &[DeviceId], scratch: &crate::space::scratch::Scratch) -> Self {
        let member = |(n, device): (usize, &DeviceId)| {
            let [frame, pages] = scratch.large(n);
            Member { device: *device, frame, pages }
        };
        Self { list: devices.iter().enumerate().map(member).collect(), ..Self::default() }
    }

    /// The superblocks do not yet say, durably, which member was left behind.
    pub(crate) fn are_recording(&self) -> bool {
        self.writing.is_some() || !self.to_record.is_empty()
    }

    /// The longest run of checkpoint pages that can be written at once.
    pub(crate) fn pages_len(&self) -> usize {
        self.list.first().map_or(0, |member| member.pages.len as usize)
    }
}

impl Task for Members {
    /// A superblock could be written now.
    fn can_run(engine: &Engine) -> bool {
        engine.durability.members.writing.is_none()
            && !engine.durability.members.to_record.is_empty()
            && engine.space.scratch.has_blocks()
            && engine.may_record()
            && engine
                .durability
                .members
                .checked
                .is_none_or(|(device, round)| engine.is_checked(device, round))
    }

    fn run<M: Memory>(engine: &mut Engine, memory: &mut M) {
        engine.write_superblock(memory);
    }

    fn is_idle(engine: &Engine) -> bool {
        let may_be_left = engine.durability.commits.metadata_failed && !engine.verification.any_damaged();
        may_be_left || !engine.durability.members.are_recording()
    }
}

impl Engine {
    /// Writes a part of the metadata to every member; how many writes that are.
    pub(crate) fn write_to_members<M: Memory>(
        &mut self,
        part: MetadataIo,
        at: DeviceOffset,
        bytes: &[u8],
        memory: &mut M,
    ) -> usize {
        let mut members = self.durability.members.list.clone();
        let to_one = match part {
            MetadataIo::Frame => Mutant::FrameToOneMember,
            MetadataIo::Root => Mutant::RootToOneMember,
            _ => Mutant::PagesToOneMember,
        };
        if self.is_planted(to_one) {
            members.truncate(1);
        }
        for member in &members {
            let buffer = if part == MetadataIo::Frame { member.frame } else { member.pages };
            let buffer = buffer.part(0, bytes.len() as u32);
            memory.bytes_mut(buffer).copy_from_slice(bytes);
            let volatile = self.core.devices[member.device.index()].settings.volatile_cache;
            let fua = match part {
                MetadataIo::Frame => volatile && !self.is_planted(Mutant::FrameNotDurable),
                MetadataIo::Root => true,
                _ => false,
            };
            let kind = IoKind::Write { fua };
            self.core.launch(NewIo { device: member.device, kind, at, buffer }, Purpose::Metadata(part));
        }
        members.len()
    }

    /// Flushes every member; how many flushes that are.
    pub(crate) fn flush_members(&mut self) -> usize {
        let members = self.durability.members.list.clone();
        for member in &members {
            self.core.launch(NewIo::flush(member.device), Purpose::Metadata(MetadataIo::PagesFlush));
        }
        members.len()
    }

    /// A device that may be a metadata member failed, hangs or is gone: what it was given last may not be
    /// durable there. The pool goes on with the other member; without one the map can no longer be made
    /// durable.
    pub(crate) fn member_failed(&mut self, device: DeviceId, error: IoError) {
        if self.durability.commits.metadata_failed || !self.core.map.members().contains(&device) {
            return;
        }
        if !self.core.map.leave_behind(device) {
            return self.metadata_failed(error);
        }
        self.durability.members.list.retain(|member| member.device != device);
        self.record_superblocks();
    }

    /// Has the superblocks written to all devices that take them.
    pub(crate) fn record_superblocks(&mut self) {
        let left = self.core.map.devices().iter().filter(|sb| self.takes_superblock(sb));
        let copies =
            left.flat_map(|sb| [DeviceOffset(0), Superblock::second_at(sb.size)].map(|at| (sb.device, at)));
        // A removed file before anything counts against its being older, then the member that is left: it
        // counts.
        let order = |device: DeviceId| {
            (!self.verification.is_removed(device), !self.core.map.members().contains(&device), device)
        };
        let mut copies: Vec<_> = copies.collect();
        copies.sort_by_key(|(device, at)| (order(*device), *at));
        self.durability.members.to_record = copies.into();
        self.durability.members.checked = None;
    }

    /// Whether superblocks are written: once the last member has failed, only that devices were damaged is
    /// worth it.
    fn may_record(&self) -> bool {
        !self.durability.commits.metadata_failed || self.verification.any_damaged()
    }

    /// Superblocks do not yet say that a device was damaged.
    pub(crate) fn is_recording_damage(&self) -> bool {
        self.verification.any_damaged() && self.durability.members.are_recording()
    }

    /// Superblocks are being written because a member was left behind.
    pub fn is_recording(&self) -> bool {
        self.durability.members.are_recording()
    }

    /// Whether the superblock in the device's last page may be written: only once a check that began for it
    /// has ended. Written to a device that was truncated it would make the device grow again, and look whole.
    fn may_record_last_page(&mut self, device: DeviceId) -> bool {
        let wanted = match self.durability.members.checked {
            Some((checked, round)) if checked == device => Some(round),
            _ => self.check_device(device),
        };
        self.durability.members.checked = wanted.map(|round| (device, round));
        wanted.is_none_or(|round| self.is_checked(device, round))
    }

    fn takes_superblock(&self, sb: &Superblock) -> bool {
        let is_removed = self.verification.is_removed(sb.device);
        (is_removed || !self.core.map.missing().contains(sb.device)) && !self.core.is_lost(sb.device)
    }

    /// Writes the next superblock, one at a time so that one copy of each device is good at any instant.
    pub(crate) fn write_superblock<M: Memory>(&mut self, memory: &mut M) {
        if self.durability.members.writing.is_some() || !self.may_record() {
            return;
        }
        let Some(&(device, at)) = self.durability.members.to_record.front() else { return };
        if at != DeviceOffset(0) && !self.may_record_last_page(device) {
            return;
        }
        // With all scratch blocks out, pieces under way give some back.
        let Some([Some(buffer), _]) = self.space.scratch.blocks(1) else { return };
        self.durability.members.to_record.pop_front();
        self.durability.members.checked = None;
        let page = self.core.map.devices()[device.index()].encode();
        memory.bytes_mut(buffer).copy_from_slice(&page[..]);
        self.durability.members.writing = Some(buffer);
        let kind = IoKind::Write { fua: self.core.devices[device.index()].settings.volatile_cache };
        self.core.launch(NewIo { device, kind, at, buffer }, Purpose::Metadata(MetadataIo::Superblock));
    }

    /// A command to a metadata member has ended.
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
        if let Some(buffer) = self.durability.members.writing.take() {
            self.put_back_block(buffer);
        }
        if let Err(error) = result {
            // A device without metadata that cannot be told is lost itself; it cannot mislead anybody
            // who does not accept a rollback.
            self.durability.members.to_record.retain(|(d, _)| *d != device);
            self.member_failed(device, error);
        }
        self.write_superblock(memory);
        self.answer_verified();
    }
}
