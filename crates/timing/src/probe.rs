//! What a model answers when it is tried.

use crate::Timing;
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};

/// Write-and-flush pairs tried.
const TRIES: u64 = 5;

/// How long a write of 4 KiB and the flush that makes it durable take on an idle device of this size, on
/// average over it.
pub fn flush_response(timing: &mut dyn Timing, size: Bytes) -> Nanos {
    let mut now = Nanos(0);
    for number in 0..TRIES {
        let at = DeviceOffset((size.0 / TRIES * number).next_multiple_of(4096));
        let pair = [
            (2 * number, IoKind::Write { fua: false }, Bytes(4096)),
            (2 * number + 1, IoKind::Flush, Bytes(0)),
        ];
        for (id, kind, len) in pair {
            timing.submit(now, IoId(id), kind, at, len);
            while let Some(due) = timing.next() {
                now = now.max(due);
                if timing.pop(due) == Some(IoId(id)) {
                    break;
                }
            }
        }
    }
    Nanos(now.0 / TRIES)
}
