//! Blocking access to devices, for the time before and after serving: creating a pool, opening it (recovery),
//! offline commands.

use crate::{DeviceId, DeviceOffset, Io, IoError, IoKind, Memory};

/// The devices of a pool, one command at a time. weir-device implements it over real files, weir-world over
/// simulated ones. Addresses and lengths are multiples of 4096.
///
/// The durability contract is that of [`io`](crate::io): a write is durable once a later [`Store::flush`] of
/// its device has succeeded.
pub trait Store {
    /// Fills `bytes` from the device.
    fn read(&mut self, device: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError>;
    /// Writes `bytes` to the device.
    fn write(&mut self, device: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError>;
    /// Makes every write to the device so far durable.
    fn flush(&mut self, device: DeviceId) -> Result<(), IoError>;

    /// Executes a command whose bytes are in `memory`. A durable write is followed by a flush.
    ///
    /// # Errors
    /// Fails like the command itself, and for a durable write also like the flush.
    fn execute<M: Memory>(&mut self, io: &Io, memory: &mut M) -> Result<(), IoError>
    where
        Self: Sized,
    {
        match io.kind {
            IoKind::Read => self.read(io.device, io.at, memory.bytes_mut(io.buffer)),
            IoKind::Write { fua } => {
                self.write(io.device, io.at, memory.bytes(io.buffer))?;
                if fua { self.flush(io.device) } else { Ok(()) }
            }
            IoKind::Flush => self.flush(io.device),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Bytes, HeapMemory, IoId};

    /// One device of 8 KiB, and the bytes that a flush has made durable.
    struct Disk {
        bytes: Vec<u8>,
        durable: Vec<u8>,
        fails: bool,
    }

    impl Store for Disk {
        fn read(&mut self, _: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
            bytes.copy_from_slice(&self.bytes[at.0 as usize..][..bytes.len()]);
            Ok(())
        }
        fn write(&mut self, _: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
            self.bytes[at.0 as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
        fn flush(&mut self, _: DeviceId) -> Result<(), IoError> {
            if self.fails {
                return Err(IoError::Lost);
            }
            self.durable.clone_from(&self.bytes);
            Ok(())
        }
    }

    #[test]
    fn only_durable_writes_are_flushed() {
        let mut disk = Disk { bytes: vec![0; 8192], durable: vec![0; 8192], fails: false };
        let mut memory = HeapMemory::new(Bytes::kib(64));
        let buffer = memory.take(Bytes(4096)).expect("memory");
        let io = |kind, at| Io { id: IoId(0), device: DeviceId(0), kind, at: DeviceOffset(at), buffer };
        memory.bytes_mut(buffer).fill(1);
        disk.execute(&io(IoKind::Write { fua: false }, 4096), &mut memory).expect("written");
        assert!(disk.bytes[4096..] == [1; 4096] && disk.durable == [0; 8192]);
        memory.bytes_mut(buffer).fill(2);
        disk.execute(&io(IoKind::Write { fua: true }, 0), &mut memory).expect("written");
        assert!(disk.durable[..4096] == [2; 4096] && disk.durable[4096..] == [1; 4096]);
        disk.execute(&io(IoKind::Read, 4096), &mut memory).expect("read");
        assert_eq!(memory.bytes(buffer), [1; 4096]);
        disk.fails = true;
        for kind in [IoKind::Write { fua: true }, IoKind::Flush] {
            let failed = disk.execute(&io(kind, 0), &mut memory);
            assert_eq!(failed, Err(IoError::Lost), "{kind:?}");
        }
        let none = Io { buffer: Buffer::EMPTY, ..io(IoKind::Flush, 0) };
        disk.fails = false;
        disk.execute(&none, &mut memory).expect("flushed");
    }
}
