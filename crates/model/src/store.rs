//! Blocking access to devices, for what happens before and after serving: creating a pool,
//! opening it (recovery), offline commands.

use crate::{DeviceId, DeviceOffset, Io, IoError, IoKind, Memory};

/// The devices of a pool, one command at a time. Implemented by weir-device over real files and
/// by weir-world over simulated ones. Addresses and lengths are multiples of 4096.
///
/// The durability contract is that of [`io`](crate::io): a write is durable once a later
/// [`Store::flush`] of its device has succeeded.
pub trait Store {
    /// Fills `bytes` from the device.
    fn read(&mut self, device: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError>;
    /// Stores `bytes` on the device.
    fn write(&mut self, device: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError>;
    /// Makes every write to the device so far durable.
    fn flush(&mut self, device: DeviceId) -> Result<(), IoError>;

    /// Carries out a command, whose bytes are in `memory`. One that is to be durable is flushed.
    ///
    /// # Errors
    /// As the command itself; of a durable write also those of the flush.
    fn carry_out<M: Memory>(&mut self, io: &Io, memory: &mut M) -> Result<(), IoError>
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
