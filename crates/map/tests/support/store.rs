//! Devices in memory that lose unflushed writes.

use super::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use weir_map::PAGE;
use weir_model::{DeviceId, DeviceOffset, Errno, IoError, Store};

type Page = Rc<[u8; PAGE]>;
const SECTOR: usize = 512;

#[derive(Clone, Debug, Default)]
struct Device {
    live: BTreeMap<u64, Page>,
    durable: BTreeMap<u64, Page>,
    /// The previous content of each durable page.
    stale: BTreeMap<u64, Page>,
    /// Writes since the last flush, in order.
    unflushed: Vec<(u64, Page)>,
    /// Writes that a failed flush gave up: still readable, but made durable by no later flush.
    forsaken: Vec<(u64, Page)>,
    /// Whether every command fails.
    broken: bool,
    /// The page whose next read fails.
    unreadable: Option<u64>,
    /// The pages whose reads all fail.
    bad: BTreeSet<u64>,
    /// The number of flushes until one fails; the failure is reported once.
    flushes_left: Option<u64>,
    /// Whether every command after that fails too.
    breaks: bool,
}

/// Sparse devices of any size. Absent pages are zeros.
#[derive(Clone, Debug)]
pub struct MemStore {
    devices: Vec<Device>,
    /// The number of writes until the power fails; everything fails from then on, until [`Self::power_loss`].
    writes_left: Option<u64>,
}

impl MemStore {
    pub fn new(devices: usize) -> Self {
        Self { devices: vec![Device::default(); devices], writes_left: None }
    }

    /// Makes the power fail at the write after this many.
    pub fn fail_after(&mut self, writes: u64) {
        self.writes_left = Some(writes);
    }

    /// Makes every command to the device fail, or none.
    pub fn set_broken(&mut self, device: DeviceId, broken: bool) {
        self.devices[device.index()].broken = broken;
    }

    /// Makes the next flush of the device fail.
    pub fn fail_flush(&mut self, device: DeviceId) {
        self.fail_flush_after(device, 0);
    }

    /// Makes the flush of the device after this many fail: writes before it can still be read, and no later
    /// flush makes them durable.
    pub fn fail_flush_after(&mut self, device: DeviceId, flushes: u64) {
        self.devices[device.index()].flushes_left = Some(flushes);
    }

    /// Like [`Self::fail_flush_after`]; if it `breaks` the device, every command from then on fails.
    #[allow(dead_code, reason = "of use to some tests")]
    pub fn break_at_flush(&mut self, device: DeviceId, flushes: u64, breaks: bool) {
        self.fail_flush_after(device, flushes);
        self.devices[device.index()].breaks = breaks;
    }

    /// Makes the next read of a page fail.
    #[allow(dead_code, reason = "of use to some tests")]
    pub fn fail_read(&mut self, device: DeviceId, number: u64) {
        self.devices[device.index()].unreadable = Some(number);
    }

    /// Makes every read of a page fail.
    #[allow(dead_code, reason = "of use to some tests")]
    pub fn corrupt_page(&mut self, device: DeviceId, number: u64) {
        self.devices[device.index()].bad.insert(number);
    }

    /// Ends the program that used the devices, without a power loss: they keep its writes.
    #[allow(dead_code, reason = "of use to some tests")]
    pub fn kill(&mut self) {
        self.writes_left = None;
    }

    /// Makes the power fail and return: some subset of the 512-byte sectors of unflushed writes survives.
    pub fn power_loss(&mut self, rng: &mut Rng) {
        self.writes_left = None;
        for device in &mut self.devices {
            let chance = [0, 50, 90, 100][rng.below(4) as usize];
            for (number, page) in device.forsaken.drain(..).chain(device.unflushed.drain(..)) {
                let old = device.durable.entry(number).or_insert_with(|| Rc::new([0; PAGE]));
                let kept = Rc::make_mut(old);
                for (to, from) in kept.chunks_mut(SECTOR).zip(page.chunks(SECTOR)) {
                    if rng.below(100) < chance {
                        to.copy_from_slice(from);
                    }
                }
            }
            device.live = device.durable.clone();
        }
    }

    /// Returns the previous durable content of a page, as if the last write had been lost.
    pub fn stale(&self, device: DeviceId, number: u64) -> [u8; PAGE] {
        self.devices[device.index()].stale.get(&number).map_or([0; PAGE], |p| **p)
    }

    /// Sets a page durably: for images, and for damage.
    pub fn set_page(&mut self, device: DeviceId, number: u64, page: [u8; PAGE]) {
        let device = &mut self.devices[device.index()];
        device.live.insert(number, Rc::new(page));
        device.durable.insert(number, Rc::new(page));
    }

    pub fn page(&self, device: DeviceId, number: u64) -> [u8; PAGE] {
        self.devices[device.index()].live.get(&number).map_or([0; PAGE], |p| **p)
    }

    /// Returns the numbers of the pages that are not all zeros.
    pub fn pages(&self, device: DeviceId) -> impl Iterator<Item = u64> + '_ {
        let written = self.devices[device.index()].live.iter();
        written.filter(|(_, page)| page.iter().any(|b| *b != 0)).map(|(number, _)| *number)
    }

    fn device(&mut self, device: DeviceId) -> Result<&mut Device, IoError> {
        if self.writes_left == Some(0) {
            return Err(IoError::Lost);
        }
        match &mut self.devices[device.index()] {
            device if device.broken => Err(IoError::Os(Errno::EIO)),
            device => Ok(device),
        }
    }
}

impl Store for MemStore {
    fn read(&mut self, device: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        assert!(at.0.is_multiple_of(PAGE as u64) && bytes.len().is_multiple_of(PAGE));
        let device = self.device(device)?;
        let first = at.0 / PAGE as u64;
        let numbers = first..first + (bytes.len() / PAGE) as u64;
        if device.unreadable.take_if(|number| numbers.contains(number)).is_some()
            || device.bad.range(numbers).next().is_some()
        {
            return Err(IoError::Os(Errno::EIO));
        }
        for (i, to) in bytes.chunks_mut(PAGE).enumerate() {
            match device.live.get(&(at.0 / PAGE as u64 + i as u64)) {
                Some(page) => to.copy_from_slice(&page[..]),
                None => to.fill(0),
            }
        }
        Ok(())
    }

    fn write(&mut self, device: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
        assert!(at.0.is_multiple_of(PAGE as u64) && bytes.len().is_multiple_of(PAGE));
        let failing = self.writes_left == Some(1);
        let device = self.device(device)?;
        let (pages, _) = bytes.as_chunks::<PAGE>();
        for (i, page) in pages.iter().enumerate() {
            let (number, page) = (at.0 / PAGE as u64 + i as u64, Rc::new(*page));
            device.live.insert(number, page.clone());
            device.unflushed.push((number, page));
        }
        if let Some(left) = &mut self.writes_left {
            *left -= 1;
        }
        if failing { Err(IoError::Lost) } else { Ok(()) }
    }

    fn flush(&mut self, device: DeviceId) -> Result<(), IoError> {
        let device = self.device(device)?;
        if let Some(left) = device.flushes_left {
            device.flushes_left = left.checked_sub(1);
            if left == 0 {
                device.forsaken.append(&mut device.unflushed);
                device.broken |= std::mem::take(&mut device.breaks);
                return Err(IoError::Os(Errno::EIO));
            }
        }
        for (number, page) in device.unflushed.drain(..) {
            device.forsaken.retain(|(other, _)| *other != number);
            if let Some(old) = device.durable.insert(number, page) {
                device.stale.insert(number, old);
            }
        }
        Ok(())
    }
}
