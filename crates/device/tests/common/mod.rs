//! Shared parts of this crate's tests: folders on different file systems, and a reactor driven by the test.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use weir_device::{Arena, Device, DeviceOptions, Devices, Event, Reactor, ReactorOptions, Ring};
use weir_model::{
    Buffer, Bytes, ConnId, DeviceId, DeviceOffset, Io, IoCompletion, IoError, IoId, IoKind, Memory, Nanos,
};

pub(crate) const DEVICE: DeviceId = DeviceId(0);
pub(crate) const SIZE: Bytes = Bytes::mib(16);
/// Long enough for any machine; only reached when something hangs.
pub(crate) const TIMEOUT: Nanos = Nanos::secs(30);

/// Returns a folder on the default file system, and one in memory if there is one.
pub(crate) fn folders() -> Vec<TempDir> {
    let mut folders = vec![tempfile::tempdir().expect("a temporary folder")];
    match tempfile::tempdir_in("/dev/shm") {
        Ok(folder) => folders.push(folder),
        Err(e) => println!("no folder in memory ({e}): that part is not tested"),
    }
    folders
}

/// Returns the rings that are available here.
pub(crate) fn rings() -> Vec<Ring> {
    let arena = Arena::new(Bytes::mib(1)).unwrap();
    let options = ReactorOptions { ring: Ring::Uring, ..Default::default() };
    match Reactor::new(&options, Devices::new(), &arena) {
        Ok(_) => vec![Ring::Uring, Ring::Plain],
        Err(e) => {
            println!("{e}: only the plain ring is tested");
            vec![Ring::Plain]
        }
    }
}

pub(crate) fn options() -> DeviceOptions {
    DeviceOptions { size: Some(SIZE), lock_wait: Duration::ZERO, ..Default::default() }
}

/// Opens a device. A ring that was dropped may hold the lock a little longer: the kernel closes its
/// registered files in the background.
pub(crate) fn open(path: &Path) -> Device {
    Device::open(path, &DeviceOptions { lock_wait: Duration::from_secs(30), ..options() }).unwrap()
}

/// A reactor, its memory, and its events so far.
pub(crate) struct Rig {
    pub(crate) reactor: Reactor,
    pub(crate) arena: Arena,
    pub(crate) events: Vec<Event>,
    pub(crate) sector: Bytes,
    next: u64,
}

impl Rig {
    pub(crate) fn new(ring: Ring, device: Option<Device>) -> Self {
        Self::with(&ReactorOptions { ring, ..Default::default() }, device)
    }

    pub(crate) fn with(options: &ReactorOptions, device: Option<Device>) -> Self {
        let arena = Arena::new(Bytes::mib(32)).unwrap();
        let mut devices = Devices::new();
        let sector = device.as_ref().map_or(Bytes(4096), Device::sector);
        if let Some(device) = device {
            devices.insert(DEVICE, device).unwrap();
        }
        let reactor = Reactor::new(options, devices, &arena).unwrap();
        Self { reactor, arena, events: Vec::new(), sector, next: 0 }
    }

    /// Waits until `pick` accepts an event; keeps the others, in order.
    pub(crate) fn until<T>(&mut self, what: &str, mut pick: impl FnMut(&Event) -> Option<T>) -> T {
        let end = self.reactor.now() + TIMEOUT;
        let mut seen = 0;
        loop {
            for at in seen..self.events.len() {
                if let Some(found) = pick(&self.events[at]) {
                    self.events.remove(at);
                    return found;
                }
            }
            seen = self.events.len();
            assert!(self.reactor.now() < end, "{what}: nothing happened");
            self.reactor.wait(Some(end), &mut self.events);
        }
    }

    /// Starts a command and returns its id.
    pub(crate) fn start(&mut self, kind: IoKind, at: DeviceOffset, buffer: Buffer) -> IoId {
        self.next += 1;
        let id = IoId(self.next);
        self.reactor.start(Io { id, device: DEVICE, kind, at, buffer });
        id
    }

    pub(crate) fn done(&mut self, id: IoId) -> Result<(), IoError> {
        self.until("device command", |event| match event {
            Event::Io(IoCompletion { id: its, result }) if *its == id => Some(*result),
            _ => None,
        })
    }

    pub(crate) fn flush(&mut self) -> Result<(), IoError> {
        let id = self.start(IoKind::Flush, DeviceOffset(0), Buffer::EMPTY);
        self.done(id)
    }

    pub(crate) fn write(&mut self, at: DeviceOffset, bytes: &[u8], fua: bool) -> Result<(), IoError> {
        let buffer = self.filled(bytes);
        let part = buffer.part(0, bytes.len() as u32);
        let id = self.start(IoKind::Write { fua }, at, part);
        let result = self.done(id);
        self.arena.give(buffer);
        result
    }

    pub(crate) fn read(&mut self, at: DeviceOffset, len: Bytes) -> Result<Vec<u8>, IoError> {
        let buffer = self.arena.take(len).unwrap();
        let part = buffer.part(0, len.0 as u32);
        let id = self.start(IoKind::Read, at, part);
        let result = self.done(id).map(|()| self.arena.bytes(part).to_vec());
        self.arena.give(buffer);
        result
    }

    /// Returns a buffer that begins with these bytes.
    pub(crate) fn filled(&mut self, bytes: &[u8]) -> Buffer {
        let buffer = self.arena.take(Bytes(bytes.len() as u64)).unwrap();
        self.arena.bytes_mut(buffer.part(0, bytes.len() as u32)).copy_from_slice(bytes);
        buffer
    }

    pub(crate) fn accepted(&mut self) -> ConnId {
        self.until("accept", |event| match event {
            Event::Accepted { conn, .. } => Some(*conn),
            _ => None,
        })
    }

    pub(crate) fn received(&mut self) -> (ConnId, Result<usize, IoError>) {
        self.until("receive", |event| match event {
            Event::Received { conn, result } => Some((*conn, *result)),
            _ => None,
        })
    }

    pub(crate) fn sent(&mut self) -> (ConnId, Result<(), IoError>) {
        self.until("send", |event| match event {
            Event::Sent { conn, result } => Some((*conn, *result)),
            _ => None,
        })
    }

    pub(crate) fn closed(&mut self, id: ConnId) {
        self.until("close", |event| matches!(event, Event::Closed { conn } if *conn == id).then_some(()));
    }
}
