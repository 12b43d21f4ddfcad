//! The devices under a reactor: which commands execute at once, which go to the ring, and how a completed
//! transfer is interpreted.

use std::os::fd::{AsRawFd, RawFd};

use weir_model::{Buffer, Bytes, DeviceId, DeviceOffset, Errno, Io, IoCompletion, IoError, IoKind, Nanos};

use super::Event;
use super::backend::{Action, FileOp, Finished};
use crate::arena::{KernelAccess, Region};
use crate::fault_injection::FailureMode;
use crate::pace::{PaceStats, Pacer};
use crate::{Device, Devices};

/// Writes of at least this length to files in memory are copied by another thread, while this one receives,
/// if the client is blocked otherwise. A shorter copy takes less time than handing it over.
const OFFLOAD_MIN: Bytes = Bytes::kib(64);

/// The devices, by id.
#[derive(Debug)]
pub(super) struct Disks {
    devices: Devices,
    /// Devices that are served with a modelled drive's timing.
    paced: Vec<DeviceId>,
    /// Number of commands in flight that other threads execute.
    offloaded: u32,
}

/// Outcome of starting a command.
pub(super) enum StartResult {
    /// It has completed.
    Done(Result<(), IoError>),
    /// It never completes.
    Never,
    /// The backend must execute it.
    Submit(FileOp),
}

/// Meaning of a transfer's result.
pub(super) enum TransferStep {
    /// Continue with the rest (or retry, if nothing was moved).
    Continue,
    /// The transfer is complete.
    Complete(Result<(), IoError>),
}

impl Disks {
    pub(super) fn new(devices: Devices) -> Self {
        let paced = devices.iter().filter(|(_, device)| device.is_paced()).map(|(id, _)| id).collect();
        Self { devices, paced, offloaded: 0 }
    }

    /// Returns the open files, by device id.
    pub(super) fn files(&self) -> Vec<Option<RawFd>> {
        let count = self.devices.iter().map(|(id, _)| id.index() + 1).max().unwrap_or(0);
        (0..=u8::MAX).take(count).map(|id| self.file(DeviceId(id))).collect()
    }

    /// Returns the open file of a device.
    pub(super) fn file(&self, id: DeviceId) -> Option<RawFd> {
        Some(self.devices.get(id)?.file.as_raw_fd())
    }

    /// Reads a device's last page, if the command reads just that and the page is in memory.
    pub(super) fn read_tail(&mut self, io: &Io, region: &Region) -> Option<Result<(), IoError>> {
        let device = self.devices.get(io.device)?;
        let end = io.at.0.checked_add(io.len().0);
        if io.kind != IoKind::Read || end != Some(device.size().0) {
            return None;
        }
        // SAFETY: the engine gave the buffer away until the command ends, which it does here.
        device.read_tail(io.at, unsafe { region.lent_slice(io.buffer) })
    }

    /// Returns the open device.
    pub(super) fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.get(id)
    }

    /// Checks a command, and executes it if that is cheaper than using the ring. `sender_blocks` says whether
    /// a client waits until this thread receives again: another thread then copies long writes.
    pub(super) fn begin(&mut self, io: &Io, region: &Region, sender_blocks: bool) -> StartResult {
        let Some(device) = self.devices.get_mut(io.device) else {
            return StartResult::Done(Err(IoError::Lost));
        };
        if let Err(error) = check(device, io) {
            return StartResult::Done(Err(error));
        }
        match device.fault_injection.as_ref().and_then(|demand| demand.failure_mode(io.kind)) {
            Some(FailureMode::Fail(error)) => return StartResult::Done(Err(error)),
            Some(FailureMode::NeverComplete) => return StartResult::Never,
            None => {}
        }
        let is_write = matches!(io.kind, IoKind::Write { .. });
        let is_offloaded = sender_blocks && device.mapped.is_some() && is_write && io.len() >= OFFLOAD_MIN;
        if (device.memory_backed() && !is_offloaded) || device.lossy.is_some() {
            return StartResult::Done(run_now(device, io, region));
        }
        let action = match io.kind {
            IoKind::Read => Action::Read,
            IoKind::Write { fua } => Action::Write { durable: fua && !device.flush_is_free() },
            IoKind::Flush if device.flush_is_free() => return StartResult::Done(Ok(())),
            IoKind::Flush => Action::Sync,
        };
        region.lend(io.buffer, lent(action));
        self.offloaded += u32::from(is_offloaded);
        StartResult::Submit(FileOp {
            id: io.id,
            device: io.device,
            action,
            at: io.at.0,
            buffer: io.buffer,
            transferred: 0,
            is_offloaded,
        })
    }

    /// Reports whether other threads are executing commands, for which they need processors.
    pub(super) const fn has_offloaded(&self) -> bool {
        self.offloaded > 0
    }

    /// Handles a command that the backend has completed. Returns its completion if it is to be reported now.
    pub(super) fn handle_finished(&mut self, finished: Finished) -> Option<IoCompletion> {
        let Finished { op, result } = finished;
        self.offloaded -= u32::from(op.is_offloaded);
        let device = self.devices.get_mut(op.device);
        if let (Some(mapped), Action::Write { .. }) = (device.and_then(|d| d.mapped.as_mut()), op.action) {
            mapped.mark_written(DeviceOffset(op.at), Bytes(op.transferred.into()));
        }
        self.handle_completion(op.device, IoCompletion { id: op.id, result })
    }
}

/// Pacing: the real command executes at once, its completion is held back.
impl Disks {
    /// Notes that a command is being started; call it before [`Disks::begin`].
    pub(super) fn pace(&mut self, io: &Io, now: impl FnOnce() -> Nanos) {
        if let Some(pacer) = self.pacer(io.device) {
            pacer.submit(now(), io);
        }
    }

    /// Handles the completion of the real command. Returns it if it is to be reported now.
    pub(super) fn handle_completion(&mut self, device: DeviceId, done: IoCompletion) -> Option<IoCompletion> {
        match self.pacer(device) {
            Some(pacer) => {
                pacer.real_done(done);
                None
            }
            None => Some(done),
        }
    }

    /// Returns the time by which [`Disks::release`] must be called.
    pub(super) fn due(&self) -> Option<Nanos> {
        let next = |&id: &DeviceId| self.devices.get(id)?.pacer.as_ref()?.next();
        self.paced.iter().filter_map(next).min()
    }

    /// Reports the completions that are due.
    pub(super) fn release(&mut self, now: Nanos, events: &mut Vec<Event>) {
        for &id in &self.paced {
            if let Some(pacer) = self.devices.get_mut(id).and_then(|device| device.pacer.as_mut()) {
                pacer.release(now, &mut |done| events.push(Event::Io(done)));
            }
        }
    }

    /// Returns how well a paced device has kept to its model.
    pub(super) fn pace_stats(&self, id: DeviceId) -> Option<PaceStats> {
        Some(self.devices.get(id)?.pacer.as_ref()?.stats())
    }

    #[inline]
    fn pacer(&mut self, id: DeviceId) -> Option<&mut Pacer> {
        if self.paced.is_empty() { None } else { self.devices.get_mut(id)?.pacer.as_mut() }
    }
}

/// Checks that a command is within the device and aligned to its sectors.
fn check(device: &Device, io: &Io) -> Result<(), IoError> {
    let mask = device.sector().0 - 1;
    if io.kind == IoKind::Flush {
        Ok(())
    } else if !device.contains(io.at, io.len()) {
        Err(IoError::Short)
    } else if (io.at.0 | io.len().0 | io.buffer.at) & mask != 0 || io.is_empty() {
        Err(IoError::Os(Errno::EINVAL))
    } else {
        Ok(())
    }
}

/// Executes a command at once.
fn run_now(device: &mut Device, io: &Io, region: &Region) -> Result<(), IoError> {
    match io.kind {
        // SAFETY: the engine gave the buffer away until the command ends, which it does here.
        IoKind::Read => device.read_now(io.at, unsafe { region.lent_slice(io.buffer) }),
        // Another device may be writing the same bytes, so the slice must be shared.
        IoKind::Write { fua } => device.write_now(io.at, region.bytes(io.buffer), fua),
        IoKind::Flush => device.flush_now(),
    }
}

/// Returns how the kernel uses a command's buffer.
pub(super) fn lent(action: Action) -> KernelAccess {
    match action {
        Action::Read => KernelAccess::Write,
        Action::Write { .. } | Action::Sync => KernelAccess::Read,
    }
}

impl FileOp {
    /// Returns the part of the buffer that is still to be moved.
    pub(super) fn rest(&self) -> Buffer {
        self.buffer.part(self.transferred, self.buffer.len - self.transferred)
    }

    /// Returns the device address of the rest.
    pub(super) fn rest_at(&self) -> u64 {
        self.at + u64::from(self.transferred)
    }

    /// Reports whether success would promise durability. A failure of such a command, whatever its error, may
    /// be the only report of an earlier write that was lost.
    fn implies_durability(&self) -> bool {
        matches!(self.action, Action::Sync | Action::Write { durable: true })
    }

    /// Handles the kernel's result: bytes moved, or a negated error number.
    pub(super) fn step(&mut self, answer: i32) -> TransferStep {
        match answer {
            e if (e == -libc::EAGAIN || e == -libc::EINTR) && !self.implies_durability() => {
                TransferStep::Continue
            }
            e if e == -libc::ENODEV || e == -libc::ENXIO => TransferStep::Complete(Err(IoError::Lost)),
            e if e < 0 => TransferStep::Complete(Err(IoError::Os(Errno(-e)))),
            _ if self.action == Action::Sync => TransferStep::Complete(Ok(())),
            0 => TransferStep::Complete(Err(IoError::Short)),
            moved => {
                self.transferred += moved as u32;
                if self.transferred < self.buffer.len {
                    TransferStep::Continue
                } else {
                    TransferStep::Complete(Ok(()))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::IoId;

    /// Starts a command on a device with these options in a folder there; prints a note and returns `None` if
    /// the folder cannot be created.
    fn start_command(
        folder: &str,
        pace: Option<&str>,
        kind: IoKind,
        len: Bytes,
        sender_blocks: bool,
    ) -> Option<(Disks, StartResult)> {
        let Ok(folder) = tempfile::tempdir_in(folder) else {
            println!("no folder in {folder}: that part is not tested");
            return None;
        };
        let pace = pace.map(str::to_owned);
        let options = crate::DeviceOptions { size: Some(Bytes::mib(1)), pace, ..Default::default() };
        let device = Device::open(&folder.path().join("disk"), &options).expect("a device");
        let mut devices = Devices::new();
        devices.insert(DeviceId(0), device).expect("room for it");
        let mut disks = Disks::new(devices);
        let arena = crate::Arena::new(Bytes::mib(1)).expect("memory");
        let buffer = Buffer { at: 0, len: len.0 as u32 };
        let io = Io { id: IoId(0), device: DeviceId(0), kind, at: DeviceOffset(0), buffer };
        disks.pace(&io, || Nanos(0));
        let begun = disks.begin(&io, arena.region(), sender_blocks);
        Some((disks, begun))
    }

    #[test]
    fn fua_writes_are_durable() {
        for fua in [false, true] {
            let kind = IoKind::Write { fua };
            let Some((disks, begun)) = start_command("/var/tmp", None, kind, Bytes::kib(128), true) else {
                return;
            };
            let StartResult::Submit(op) = begun else {
                return println!("/var/tmp is memory: that part is not tested");
            };
            let is_free = disks.device(DeviceId(0)).is_some_and(Device::flush_is_free);
            assert_eq!(op.action, Action::Write { durable: fua && !is_free });
            assert!(!op.is_offloaded && !disks.has_offloaded());
        }
    }

    #[test]
    fn long_writes_to_files_in_memory_are_offloaded_and_counted() {
        let write = IoKind::Write { fua: true };
        for (len, sender_blocks) in [(Bytes::kib(60), true), (Bytes::kib(64), false)] {
            let begun = start_command("/dev/shm", None, write, len, sender_blocks);
            let Some((disks, here)) = begun else { return };
            assert!(matches!(here, StartResult::Done(Ok(()))) && !disks.has_offloaded());
        }
        for pace in [None, Some("nvm")] {
            let Some((mut disks, long)) = start_command("/dev/shm", pace, write, Bytes::kib(64), true) else {
                return;
            };
            let StartResult::Submit(mut op) = long else { panic!("it is copied here") };
            assert!(op.is_offloaded && disks.has_offloaded());
            op.transferred = 64 << 10;
            let ended = disks.handle_finished(Finished { op, result: Ok(()) });
            assert_eq!(ended.is_some(), pace.is_none(), "the end of a paced one is held back");
            assert!(!disks.has_offloaded());
        }
    }

    #[test]
    fn partial_transfer_is_continued() {
        let (action, buffer) = (Action::Write { durable: false }, Buffer { at: 1 << 20, len: 12_288 });
        let (id, device) = (IoId(0), DeviceId(0));
        let mut op = FileOp { id, device, action, at: 8192, buffer, transferred: 0, is_offloaded: false };
        assert!(matches!(op.step(4096), TransferStep::Continue));
        assert!(matches!(op.step(4096), TransferStep::Continue));
        assert_eq!((op.rest_at(), op.rest()), (16_384, Buffer { at: (1 << 20) + 8192, len: 4096 }));
        assert!(matches!(op.step(4096), TransferStep::Complete(Ok(()))));
    }

    fn after(action: Action, answer: i32) -> Option<Result<(), IoError>> {
        let buffer = Buffer { at: 0, len: 4096 };
        let mut op = FileOp {
            id: IoId(0),
            device: DeviceId(0),
            action,
            at: 0,
            buffer,
            transferred: 0,
            is_offloaded: false,
        };
        match op.step(answer) {
            TransferStep::Continue => None,
            TransferStep::Complete(result) => Some(result),
        }
    }

    #[test]
    fn failed_durable_commands_are_not_retried() {
        for error in [libc::EINTR, libc::EAGAIN] {
            let failed = Some(Err(IoError::Os(Errno(error))));
            assert_eq!(after(Action::Sync, -error), failed);
            assert_eq!(after(Action::Write { durable: true }, -error), failed);
            assert_eq!(after(Action::Write { durable: false }, -error), None);
            assert_eq!(after(Action::Read, -error), None);
        }
    }

    #[test]
    fn a_transfer_that_ends_early_is_short() {
        assert_eq!(after(Action::Read, 0), Some(Err(IoError::Short)));
        assert_eq!(after(Action::Write { durable: false }, 0), Some(Err(IoError::Short)));
        assert_eq!(after(Action::Sync, 0), Some(Ok(())));
    }
}
