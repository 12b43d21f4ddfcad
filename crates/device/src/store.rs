//! The devices of a pool by id, and blocking access to them, for the time before and after serving.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memmap2::MmapMut;
use weir_model::{BLOCK, Bytes, DeviceId, DeviceOffset, Errno, IoError, IoKind, Store};

use crate::fault_injection::FailureMode;
use crate::file::Identity;
use crate::{Device, DeviceError, DeviceOptions};

/// Bytes moved at a time where memory must be aligned for the device.
const BOUNCE: usize = 1 << 20;

/// The open devices of a pool.
#[derive(Debug, Default)]
pub struct Devices {
    table: Vec<Option<Device>>,
    /// Page-aligned memory for direct transfers, allocated when first needed.
    bounce: Option<MmapMut>,
}

impl Devices {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a device under an id that is free.
    ///
    /// # Errors
    /// [`DeviceError::SameDevice`] if the device is already in the set, under whatever path; those of
    /// [`Device::open`].
    ///
    /// # Panics
    /// Panics if the id is taken.
    pub fn open(&mut self, id: DeviceId, path: &Path, options: &DeviceOptions) -> Result<(), DeviceError> {
        // This precedes opening: a process that waits for the device's lock would wait for itself.
        if let Ok(metadata) = std::fs::metadata(path) {
            self.check_duplicate(Identity::of(&metadata), path)?;
        }
        self.insert(id, Device::open(path, options)?)
    }

    /// Adds an open device under an id that is free.
    ///
    /// # Errors
    /// [`DeviceError::SameDevice`] if the device is already in the set, under whatever path.
    ///
    /// # Panics
    /// Panics if the id is taken.
    pub fn insert(&mut self, id: DeviceId, device: Device) -> Result<(), DeviceError> {
        self.check_duplicate(device.identity(), &device.path)?;
        if self.table.len() <= id.index() {
            self.table.resize_with(id.index() + 1, || None);
        }
        let place = &mut self.table[id.index()];
        assert!(place.is_none(), "device id {id} is taken");
        *place = Some(device);
        Ok(())
    }

    fn check_duplicate(&self, identity: Identity, path: &Path) -> Result<(), DeviceError> {
        match self.iter().find(|(_, other)| other.identity() == identity) {
            Some((_, twin)) => {
                Err(DeviceError::SameDevice { first: twin.path.clone(), second: path.to_owned() })
            }
            None => Ok(()),
        }
    }

    /// Returns the device with this id.
    pub fn get(&self, id: DeviceId) -> Option<&Device> {
        self.table.get(id.index())?.as_ref()
    }

    /// Returns all devices, by id.
    pub fn iter(&self) -> impl Iterator<Item = (DeviceId, &Device)> {
        let numbered = self.table.iter().zip(0u8..=u8::MAX);
        numbered.filter_map(|(device, id)| Some((DeviceId(id), device.as_ref()?)))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: DeviceId) -> Option<&mut Device> {
        self.table.get_mut(id.index())?.as_mut()
    }

    fn parts(&mut self, id: DeviceId) -> Result<(&mut Device, &mut [u8]), IoError> {
        let device = self.table.get_mut(id.index()).and_then(Option::as_mut).ok_or(IoError::Lost)?;
        let bounce = match &mut self.bounce {
            Some(bounce) => bounce,
            none => none.insert(MmapMut::map_anon(BOUNCE).map_err(io_error)?),
        };
        Ok((device, bounce))
    }
}

impl Store for Devices {
    fn read(&mut self, device: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        let (device, bounce) = self.parts(device)?;
        device.injected_failure(IoKind::Read)?;
        if let Some(result) = device.read_tail(at, bytes) {
            return result;
        }
        if !device.needs_aligned() {
            return device.read_now(at, bytes);
        }
        let mut at = at;
        for piece in bytes.chunks_mut(BOUNCE) {
            device.read_now(at, &mut bounce[..piece.len()])?;
            piece.copy_from_slice(&bounce[..piece.len()]);
            at = at + Bytes(piece.len() as u64);
        }
        Ok(())
    }

    fn write(&mut self, device: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
        let (device, bounce) = self.parts(device)?;
        device.injected_failure(IoKind::Write { fua: false })?;
        if !device.needs_aligned() {
            return device.write_now(at, bytes, false);
        }
        let mut at = at;
        for piece in bytes.chunks(BOUNCE) {
            bounce[..piece.len()].copy_from_slice(piece);
            device.write_now(at, &bounce[..piece.len()], false)?;
            at = at + Bytes(piece.len() as u64);
        }
        Ok(())
    }

    fn flush(&mut self, device: DeviceId) -> Result<(), IoError> {
        let device = self.get_mut(device).ok_or(IoError::Lost)?;
        device.injected_failure(IoKind::Flush)?;
        device.flush_now()
    }
}

/// Blocking commands. The caller aligns memory where the device is direct.
impl Device {
    /// Returns the error of a command that the fault layer fails. A command that should never complete fails,
    /// too: a blocking caller could not give it up.
    fn injected_failure(&self, kind: IoKind) -> Result<(), IoError> {
        match self.fault_injection.as_ref().and_then(|demand| demand.failure_mode(kind)) {
            Some(FailureMode::Fail(error)) => Err(error),
            Some(FailureMode::NeverComplete) => Err(IoError::Lost),
            None => Ok(()),
        }
    }

    /// Reports whether memory must be aligned for transfers.
    fn needs_aligned(&self) -> bool {
        self.direct && self.mapped.is_none()
    }

    /// Reports whether a range is within the device.
    pub(crate) fn contains(&self, at: DeviceOffset, len: Bytes) -> bool {
        at.0.checked_add(len.0).is_some_and(|end| end <= self.facts.size.0)
    }

    /// Reads the last page, if the range is just that and the page is available without access to the device.
    /// Pacing and faults injected for tests do not apply to it.
    pub(crate) fn read_tail(&self, at: DeviceOffset, bytes: &mut [u8]) -> Option<Result<(), IoError>> {
        let is_tail = bytes.len() as u64 == BLOCK && at.0 + BLOCK == self.facts.size.0;
        match (&self.last_page, &self.mapped) {
            _ if !is_tail => None,
            (Some(tail), _) => tail.read(&self.file, &self.expected, bytes),
            (None, Some(mapped)) => {
                let is_whole = self.expected.check(&self.file);
                Some(is_whole.and_then(|()| mapped.read(&self.file, at, bytes)))
            }
            (None, None) => None,
        }
    }

    pub(crate) fn read_now(&self, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        if !self.contains(at, Bytes(bytes.len() as u64)) {
            return Err(IoError::Short);
        }
        match &self.mapped {
            Some(mapped) => return mapped.read(&self.file, at, bytes),
            None => self.file.read_exact_at(bytes, at.0).map_err(io_error)?,
        }
        if let Some(forget) = &self.lossy {
            forget.overlay(at, bytes);
        }
        Ok(())
    }

    pub(crate) fn write_now(&mut self, at: DeviceOffset, bytes: &[u8], fua: bool) -> Result<(), IoError> {
        if !self.contains(at, Bytes(bytes.len() as u64)) {
            return Err(IoError::Short);
        }
        if let Some(mapped) = &mut self.mapped {
            return mapped.write(&self.file, at, bytes);
        }
        match &mut self.lossy {
            Some(forget) if !fua => return forget.buffer_write(&self.file, at, bytes),
            Some(forget) => forget.drop_range(at, Bytes(bytes.len() as u64)),
            None => {}
        }
        self.file.write_all_at(bytes, at.0).map_err(io_error)?;
        if fua { self.sync() } else { Ok(()) }
    }

    pub(crate) fn flush_now(&mut self) -> Result<(), IoError> {
        if let Some(forget) = &mut self.lossy {
            forget.write_out(&self.file)?;
        }
        self.sync()
    }

    fn sync(&self) -> Result<(), IoError> {
        if self.flush_is_free() {
            return Ok(());
        }
        // `File::sync_data` would retry when it is interrupted, but an error is reported only once.
        rustix::fs::fdatasync(&self.file).map_err(|error| io_error(error.into()))
    }

    /// Reports whether completed writes are already durable. For a file they are not, even without a volatile
    /// cache: the file system may not have written its metadata.
    pub(crate) fn flush_is_free(&self) -> bool {
        self.facts.memory_backed || (self.facts.is_block && self.direct && !self.facts.volatile_cache)
    }
}

/// Converts a system error to the engine's error.
pub(crate) fn io_error(e: io::Error) -> IoError {
    match e.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::WriteZero => IoError::Short,
        _ => IoError::Os(e.raw_os_error().map_or(Errno::EIO, Errno)),
    }
}
