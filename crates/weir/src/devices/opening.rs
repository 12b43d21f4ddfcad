//! How long opening a pool took, and how long recovery would take now.

use std::time::Instant;
use weir_device::Devices;
use weir_map::{ExpectedRecovery, Map};
use weir_model::{Bytes, DeviceId, DeviceOffset, IoError, Nanos, Store};

/// The times of one opening of a pool, by activity.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opening {
    read: Bytes,
    /// Time spent waiting for reads.
    reading: Nanos,
    /// Time spent waiting for writes and flushes. Apart from the checkpoint, it does not depend on the size
    /// of the map.
    writing: Nanos,
    /// The rest: decoding and replaying.
    computing: Nanos,
}

impl Opening {
    /// Runs `open` over the devices and measures its times.
    pub fn timed<T>(devices: &mut Devices, open: impl FnOnce(&mut dyn Store) -> T) -> (T, Self) {
        let mut timed = Timed { devices, opening: Self::default() };
        let began = Instant::now();
        let result = open(&mut timed);
        let mut opening = timed.opening;
        opening.computing = since(began) - opening.reading - opening.writing;
        (result, opening)
    }

    /// Returns how long recovery would take at the rates of this opening.
    pub fn expect(&self, recovery: ExpectedRecovery) -> Nanos {
        let per_byte = (self.reading + self.computing).0 as f64 / self.read.0.max(1) as f64;
        // A replayed frame is decoded like the contents of pages, so its bytes count as read once more.
        let bytes = (recovery.read + recovery.replay).0 as f64;
        self.writing + Nanos((bytes * per_byte) as u64)
    }
}

/// Devices whose commands are timed.
struct Timed<'a> {
    devices: &'a mut Devices,
    opening: Opening,
}

impl Store for Timed<'_> {
    fn read(&mut self, device: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        let began = Instant::now();
        let result = self.devices.read(device, at, bytes);
        self.opening.reading += since(began);
        self.opening.read += Bytes(bytes.len() as u64);
        result
    }

    fn write(&mut self, device: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
        let began = Instant::now();
        let result = self.devices.write(device, at, bytes);
        self.opening.writing += since(began);
        result
    }

    fn flush(&mut self, device: DeviceId) -> Result<(), IoError> {
        let began = Instant::now();
        let result = self.devices.flush(device);
        self.opening.writing += since(began);
        result
    }
}

fn since(began: Instant) -> Nanos {
    Nanos(began.elapsed().as_nanos() as u64)
}

/// Returns how long recovery of the map in its present state would take, at the rates of the last opening.
pub fn expected(map: &Map, opening: &Opening) -> Nanos {
    opening.expect(map.expected_recovery())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_map_takes_twice_as_long() {
        let opening = Opening {
            read: Bytes::mib(10),
            reading: Nanos::millis(20),
            writing: Nanos::millis(5),
            computing: Nanos::millis(10),
        };
        let of = |read, replay| opening.expect(ExpectedRecovery { read, replay });
        let millis = |ns: Nanos| (ns.as_secs_f64() * 1e3).round();
        assert_eq!(millis(of(Bytes::mib(10), Bytes(0))), 35.0);
        assert_eq!(millis(of(Bytes::mib(20), Bytes(0))), 65.0);
        assert_eq!(millis(of(Bytes::mib(10), Bytes::mib(10))), 65.0);
        assert_eq!(Opening::default().expect(ExpectedRecovery::default()), Nanos(0));
    }
}
