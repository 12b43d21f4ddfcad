//! The additive cost model: a command has a fixed cost and a cost per byte, regardless of queueing.

use crate::place::outcome::Commands;
use weir_model::{Bytes, IoKind};
use weir_timing::drives::Drive;
use weir_timing::occupancy;
use weir_world::flash_log;

/// Lengths at which service times are measured.
const SHORT_LEN: Bytes = Bytes::kib(4);
const LONG_LEN: Bytes = Bytes::kib(256);

/// Cost of a device's commands in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CommandCost {
    /// Seconds per command.
    pub per_command: f64,
    /// Seconds per byte.
    pub per_byte: f64,
}

/// Cost of a device's commands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceCost {
    /// Cost of reads.
    pub read: CommandCost,
    /// Cost of writes.
    pub write: CommandCost,
}

impl CommandCost {
    /// Fits the model to [`occupancy`] at two lengths, on a drive of this size.
    fn of(drive: &Drive, size: Bytes, kind: IoKind) -> Self {
        let tried =
            |len| occupancy(&mut *drive.timing(size, drive.cache, flash_log), size, kind, len).as_secs_f64();
        let (short, long) = (tried(SHORT_LEN), tried(LONG_LEN));
        let byte = ((long - short) / (LONG_LEN.0 - SHORT_LEN.0) as f64).max(0.0);
        Self { per_command: (short - byte * SHORT_LEN.0 as f64).max(0.0), per_byte: byte }
    }

    /// Returns the cost, in seconds, of this many commands with this many bytes in total.
    pub fn of_all(&self, commands: u64, bytes: Bytes) -> f64 {
        self.per_command * commands as f64 + self.per_byte * bytes.0 as f64
    }
}

impl DeviceCost {
    /// Measures a drive of this size.
    pub fn of(drive: &Drive, size: Bytes) -> Self {
        Self {
            read: CommandCost::of(drive, size, IoKind::Read),
            write: CommandCost::of(drive, size, IoKind::Write { fua: false }),
        }
    }

    /// Returns the device time, in seconds, of these commands.
    pub fn of_commands(&self, commands: &Commands) -> f64 {
        let Commands { reads, read, writes, written } = *commands;
        self.read.of_all(reads, read) + self.write.of_all(writes, written)
    }
}
