//! What device commands cost: a part for the command and a part for each byte, and nothing for what others
//! wait.

use crate::place::outcome::Commands;
use weir_model::{Bytes, IoKind};
use weir_timing::drives::Drive;
use weir_timing::occupancy;

/// Lengths that are tried.
const SHORT: Bytes = Bytes::kib(4);
const LONG: Bytes = Bytes::kib(256);

/// Of a device in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CommandCost {
    /// Seconds a command.
    pub command: f64,
    /// Seconds a byte.
    pub byte: f64,
}

/// Of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceCost {
    /// Of reads.
    pub read: CommandCost,
    /// Of writes.
    pub write: CommandCost,
}

impl CommandCost {
    /// As tried with [`occupancy`] at two lengths, on a drive of this size.
    fn of(drive: &Drive, size: Bytes, kind: IoKind) -> Self {
        let tried = |len| occupancy(&mut *drive.timing(size, drive.cache), size, kind, len).as_secs_f64();
        let (short, long) = (tried(SHORT), tried(LONG));
        let byte = ((long - short) / (LONG.0 - SHORT.0) as f64).max(0.0);
        Self { command: (short - byte * SHORT.0 as f64).max(0.0), byte }
    }

    /// Of so many commands with so many bytes together, in seconds.
    pub fn of_all(&self, commands: u64, bytes: Bytes) -> f64 {
        self.command * commands as f64 + self.byte * bytes.0 as f64
    }
}

impl DeviceCost {
    /// Of a drive of this size.
    pub fn of(drive: &Drive, size: Bytes) -> Self {
        Self {
            read: CommandCost::of(drive, size, IoKind::Read),
            write: CommandCost::of(drive, size, IoKind::Write { fua: false }),
        }
    }

    /// What these commands took of the device's time, in seconds.
    pub fn of_commands(&self, commands: &Commands) -> f64 {
        let Commands { reads, read, writes, written } = *commands;
        self.read.of_all(reads, read) + self.write.of_all(writes, written)
    }
}
