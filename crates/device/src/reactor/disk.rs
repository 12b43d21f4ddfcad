//! The devices under a reactor: which commands execute at once, which go to the ring, and how a completed
//! transfer is interpreted.

use std::os::fd::{AsRawFd, RawFd};

use weir_model::{Buffer, Bytes, DeviceId, DeviceOffset, Errno, Io, IoCompletion, IoError, IoKind, Nanos};

use super::Event;
use super::backend::{Action, FileOp, Finished};
use super::offload::Offloaded;
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
    /// Writes that other threads copy.
    offloaded: Offloaded,
    /// Number of commands that devices, not other threads, are executing.
    in_flight: usize,
}

/// Outcome of starting a command.
pub(super) enum StartResult {
    /// It has completed.
    Done(Result<(), IoError>),
    /// It never completes.
    Never,
    /// It waits for another command, and completes after that one.
    Waiting,
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
        Self { devices, paced, offloaded: Offloaded::default(), in_flight: 0 }
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
        if self.offloaded.must_wait(io) {
            region.lend(io.buffer, access(io.kind));
            self.offloaded.wait(*io);
            return StartResult::Waiting;
        }
        let is_write = matches!(io.kind, IoKind::Write { .. });
        let is_long = sender_blocks && device.mapped.is_some() && is_write && io.len() >= OFFLOAD_MIN;
        let is_offloaded = is_long && !self.offloaded.is_awaited(io);
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
        if is_offloaded {
            self.offloaded.begin(*io);
        } else {
            self.in_flight += 1;
        }
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

    /// Reports whether clients wait for devices: commands are in flight, or a paced device holds them back.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight > 0 || self.due().is_some()
    }

    /// Reports whether other threads are executing commands, for which they need processors.
    pub(super) const fn has_offloaded(&self) -> bool {
        !self.offloaded.is_empty()
    }

    /// Handles a command that the backend has completed, and executes those that waited for it. Appends the
    /// completions that are to be reported now.
    pub(super) fn handle_finished(&mut self, finished: Finished, region: &Region, events: &mut Vec<Event>) {
        let Finished { op, result } = finished;
        let device = self.devices.get_mut(op.device);
        if let (Some(mapped), Action::Write { .. }) = (device.and_then(|d| d.mapped.as_mut()), op.action) {
            mapped.mark_written(DeviceOffset(op.at), Bytes(op.transferred.into()));
        }
        events.extend(self.handle_completion(op.device, IoCompletion { id: op.id, result }).map(Event::Io));
        if op.is_offloaded {
            self.offloaded.end(op.id);
            while let Some(io) = self.offloaded.next_ready() {
                region.returned(io.buffer, access(io.kind));
                let device = self.devices.get_mut(io.device);
                let result = device.map_or(Err(IoError::Lost), |device| run_now(device, &io, region));
                let done = self.handle_completion(io.device, IoCompletion { id: io.id, result });
                events.extend(done.map(Event::Io));
            }
        } else {
            self.in_flight -= 1;
        }
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

/// Returns what the buffer of a command that waits is used for.
fn access(kind: IoKind) -> KernelAccess {
    match kind {
        IoKind::Read => KernelAccess::Write,
        IoKind::Write { .. } | IoKind::Flush => KernelAccess::Read,
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

    /// Starts a command on a device as of [`disks`].
    fn start_command(
        folder: &str,
        pace: Option<&str>,
        kind: IoKind,
        len: Bytes,
        sender_blocks: bool,
    ) -> Option<(Disks, StartResult)> {
        let (mut disks, arena) = disks(folder, pace)?;
        let buffer = Buffer { at: 0, len: len.0 as u32 };
        let io = Io { id: IoId(0), device: DeviceId(0), kind, at: DeviceOffset(0), buffer };
        disks.pace(&io, || Nanos(0));
        let begun = disks.begin(&io, arena.region(), sender_blocks);
        Some((disks, begun))
    }

    /// Returns a device of 1 MiB with this pace in a folder there, and as much memory; prints a note and
    /// returns `None` if the folder cannot be created.
    fn disks(folder: &str, pace: Option<&str>) -> Option<(Disks, crate::Arena)> {
        let Ok(folder) = tempfile::tempdir_in(folder) else {
            println!("no folder in {folder}: that part is not tested");
            return None;
        };
        let pace = pace.map(str::to_owned);
        let options = crate::DeviceOptions { size: Some(Bytes::mib(1)), pace, ..Default::default() };
        let device = Device::open(&folder.path().join("disk"), &options).expect("a device");
        let mut devices = Devices::new();
        devices.insert(DeviceId(0), device).expect("room for it");
        Some((Disks::new(devices), crate::Arena::new(Bytes::mib(1)).expect("memory")))
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
            let (arena, mut ended) = (crate::Arena::new(Bytes::mib(1)).expect("memory"), Vec::new());
            disks.handle_finished(Finished { op, result: Ok(()) }, arena.region(), &mut ended);
            assert_eq!(ended.len(), usize::from(pace.is_none()), "the end of a paced one is held back");
            assert!(!disks.has_offloaded());
        }
    }

    /// A read of bytes that another thread is copying would find sectors of which a part is old.
    #[test]
    fn commands_wait_for_the_copy_of_their_bytes_and_for_no_later_one() {
        let Some((mut disks, arena)) = disks("/dev/shm", None) else { return };
        let region = arena.region();
        let mut number = 0;
        let mut begin = |disks: &mut Disks, kind: IoKind, at: Bytes, len: Bytes, from: Bytes| {
            number += 1;
            let buffer = Buffer { at: from.0, len: len.0 as u32 };
            let io = Io { id: IoId(number), device: DeviceId(0), kind, at: DeviceOffset(at.0), buffer };
            disks.begin(&io, region, true)
        };
        let (write, read) = (IoKind::Write { fua: false }, IoKind::Read);
        let [k64, k128] = [64, 128].map(Bytes::kib);
        let StartResult::Submit(first) = begin(&mut disks, write, k64, k64, Bytes(0)) else {
            panic!("it is copied by another thread")
        };
        let reads = [(Bytes(0), k64, true), (k128, k64, true), (Bytes(k128.0 - 4096), Bytes(8192), false)];
        for (nth, (at, len, is_apart)) in reads.into_iter().enumerate() {
            let begun = begin(&mut disks, read, at, len, Bytes::kib(256 + 64 * nth as u64));
            assert_eq!(matches!(begun, StartResult::Done(Ok(()))), is_apart, "{at:?}");
            assert_eq!(matches!(begun, StartResult::Waiting), !is_apart, "{at:?}");
        }
        let later = begin(&mut disks, write, k128, k64, k64);
        assert!(matches!(later, StartResult::Done(Ok(()))), "a read waits for its bytes");
        let apart = begin(&mut disks, write, Bytes::kib(512), k64, k64);
        assert!(matches!(apart, StartResult::Submit(_)), "nobody waits for these");
        let (mut events, op) = (Vec::new(), FileOp { transferred: 64 << 10, ..first });
        region.returned(op.buffer, lent(op.action));
        disks.handle_finished(Finished { op, result: Ok(()) }, region, &mut events);
        let ended: Vec<u64> = events
            .iter()
            .map(|event| match event {
                Event::Io(IoCompletion { id, result: Ok(()) }) => id.0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ended, [1, 4], "the copy, and the read that waited for it");
        assert!(disks.has_offloaded(), "that of other bytes");
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
