//! Devices in memory that answer at once, in order, unless configured otherwise.

use super::DEVICE_SIZE;
use crate::Driver;
use std::collections::VecDeque;
use weir_model::{BLOCK, DeviceId, DeviceOffset, HeapMemory, Io, IoError, IoKind, Nanos, Store};

/// Devices as plain vectors, with an optional limit on further writes.
#[derive(Clone)]
pub(crate) struct Disks(pub(super) Vec<Vec<u8>>, pub(super) Option<usize>);

impl Store for Disks {
    fn read(&mut self, device: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        let disk = &self.0[device.index()];
        bytes.copy_from_slice(disk.get(at.0 as usize..at.0 as usize + bytes.len()).ok_or(IoError::Short)?);
        Ok(())
    }
    fn write(&mut self, device: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
        if let Some(left) = &mut self.1 {
            *left = left.checked_sub(1).ok_or(IoError::Lost)?;
        }
        let (disk, end) = (&mut self.0[device.index()], at.0 as usize + bytes.len());
        // A truncated file grows again.
        disk.resize(disk.len().max(end), 0);
        disk[at.0 as usize..end].copy_from_slice(bytes);
        Ok(())
    }
    fn flush(&mut self, _: DeviceId) -> Result<(), IoError> {
        Ok(())
    }
}

pub(crate) struct Devices {
    /// Every command received.
    pub(crate) log: Vec<Io>,
    pub(crate) memory: HeapMemory,
    pub(super) disks: Disks,
    pub(super) failing: VecDeque<(IoKind, Option<IoError>)>,
    /// Devices whose commands of a kind fail, with the error.
    pub(crate) broken: Vec<(DeviceId, IoKind, IoError)>,
    /// Devices whose files were removed: reported once, when their last page is read.
    pub(crate) removed: Vec<DeviceId>,
    reported_removals: Vec<DeviceId>,
    /// Devices that do not answer; a kind of command whose next one is not answered; and the commands
    /// delayed.
    pub(crate) hanging: Vec<DeviceId>,
    pub(crate) delay_next: Option<IoKind>,
    pub(crate) delayed: Vec<Io>,
    pub(super) now: Nanos,
    /// Whether a command has arrived.
    pub(super) is_asked: bool,
}

impl Driver for Devices {
    type Memory = HeapMemory;
    fn now(&self) -> Nanos {
        self.now
    }
    fn memory(&mut self) -> &mut HeapMemory {
        &mut self.memory
    }
    fn start(&mut self, io: Io) -> Option<Result<(), IoError>> {
        self.is_asked = true;
        self.log.push(io);
        let holds = self.delay_next == Some(io.kind);
        if holds || self.hanging.contains(&io.device) {
            self.delay_next.take_if(|_| holds);
            self.delayed.push(io);
            return None;
        }
        Some(self.carry_out(io))
    }
}

impl Devices {
    pub(super) const fn new(disks: Disks, memory: HeapMemory) -> Self {
        Self {
            log: Vec::new(),
            memory,
            disks,
            failing: VecDeque::new(),
            broken: Vec::new(),
            removed: Vec::new(),
            reported_removals: Vec::new(),
            hanging: Vec::new(),
            delay_next: None,
            delayed: Vec::new(),
            now: Nanos(1),
            is_asked: false,
        }
    }

    pub(super) fn carry_out(&mut self, io: Io) -> Result<(), IoError> {
        if self.failing.front().is_some_and(|(kind, _)| *kind == io.kind)
            && let Some((_, Some(error))) = self.failing.pop_front()
        {
            return Err(error);
        }
        let broken = self.broken.iter().find(|(device, kind, _)| (*device, *kind) == (io.device, io.kind));
        if let Some((.., error)) = broken {
            return Err(*error);
        }
        let is_tail = io.kind == IoKind::Read && io.at.0 + BLOCK == DEVICE_SIZE;
        if is_tail && self.removed.contains(&io.device) && !self.reported_removals.contains(&io.device) {
            self.reported_removals.push(io.device);
            return Err(IoError::Removed);
        }
        self.disks.execute(&io, &mut self.memory)
    }
}

impl PartialEq for Disks {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
