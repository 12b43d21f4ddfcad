//! What tests of several simulations use.

use weir_model::{Bytes, Hint, Nanos, Op, VolumeOffset};
use weir_trace::{Disk, Record};

/// Returns a request of a trace without times and with one disk; offset and length are in bytes.
pub(crate) fn record(op: Op, offset: u64, len: u64) -> Record {
    Record {
        at: Nanos(0),
        disk: Disk(0),
        op,
        offset: VolumeOffset(offset),
        len: Bytes(len),
        hint: Hint::None,
    }
}
