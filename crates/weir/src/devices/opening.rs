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
        let mut timed = TimedDevices { devices, opening: Self::default() };
        let began = Instant::now();
        let result = open(&mut timed);
        let mut opening = timed.opening;
        opening.computing = elapsed_since(began) - opening.reading - opening.writing;
        (result, opening)
    }

    /// Returns how long recovery would take at the rates of this opening.
    pub fn estimate_recovery(&self, recovery: ExpectedRecovery) -> Nanos {
        let per_byte = (self.reading + self.computing).0 as f64 / self.read.0.max(1) as f64;
        // A replayed frame is decoded like the contents of pages, so its bytes count as read once more.
        let bytes = (recovery.bytes_read + recovery.bytes_to_replay).0 as f64;
        self.writing + Nanos((bytes * per_byte) as u64)
    }
}

/// Devices whose commands are timed.
struct TimedDevices<'a> {
    devices: &'a mut Devices,
    opening: Opening,
}

impl Store for TimedDevices<'_> {
    fn read(&mut self, device: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        let began = Instant::now();
        let result = self.devices.read(device, at, bytes);
        self.opening.reading += elapsed_since(began);
        self.opening.read += Bytes(bytes.len() as u64);
        result
    }

    fn write(&mut self, device: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
        let began = Instant::now();
        let result = self.devices.write(device, at, bytes);
        self.opening.writing += elapsed_since(began);
        result
    }

    fn flush(&mut self, device: DeviceId) -> Result<(), IoError> {
        let began = Instant::now();
        let result = self.devices.flush(device);
        self.opening.writing += elapsed_since(began);
        result
    }
}

fn elapsed_since(began: Instant) -> Nanos {
    Nanos(began.elapsed().as_nanos() as u64)
}

/// Returns how long recovery of the map in its present state would take, at the rates of the last opening.
pub fn expected_recovery(map: &Map, opening: &Opening) -> Nanos {
    opening.estimate_recovery(map.expected_recovery())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_estimate_scales_with_the_map() {
        let opening = Opening {
            read: Bytes::mib(10),
            reading: Nanos::millis(20),
            writing: Nanos::millis(5),
            computing: Nanos::millis(10),
        };
        let of = |read, replay| {
            opening.estimate_recovery(ExpectedRecovery { bytes_read: read, bytes_to_replay: replay })
        };
        let millis = |ns: Nanos| (ns.as_secs_f64() * 1e3).round();
        assert_eq!(millis(of(Bytes::mib(10), Bytes(0))), 35.0);
        assert_eq!(millis(of(Bytes::mib(20), Bytes(0))), 65.0);
        assert_eq!(millis(of(Bytes::mib(10), Bytes::mib(10))), 65.0);
        assert_eq!(Opening::default().estimate_recovery(ExpectedRecovery::default()), Nanos(0));
    }
}
