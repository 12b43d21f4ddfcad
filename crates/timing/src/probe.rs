//! Probes of a model's response times.

use crate::Timing;
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos, Rng, Seed};

/// Number of write-and-flush pairs measured.
const PAIRS: u64 = 5;

/// Returns the mean response time of a 4 KiB write and the flush that makes it durable, on an idle device of
/// this size.
pub fn flush_response(timing: &mut dyn Timing, size: Bytes) -> Nanos {
    let mut now = Nanos(0);
    for number in 0..PAIRS {
        let at = DeviceOffset((size.0 / PAIRS * number).next_multiple_of(4096));
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
    Nanos(now.0 / PAIRS)
}

/// Number of commands in flight during the measurement of occupancy.
const DEPTH: u64 = 16;
/// Number of commands until a device is in a steady state.
const WARM_UP: u64 = 2_000;
/// Number of commands measured.
const MEASURED: u64 = 4_000;

/// Returns the device time that a command of this kind and length occupies on a device of this size: the mean
/// time between two completions with 16 commands in flight at random positions.
pub fn occupancy(timing: &mut dyn Timing, size: Bytes, kind: IoKind, len: Bytes) -> Nanos {
    let mut positions = Rng::new(Seed(1));
    let spots = (size.0 / len.0).max(1);
    let mut submit = |timing: &mut dyn Timing, now, id| {
        let at = DeviceOffset(positions.word() % spots * len.0);
        timing.submit(now, IoId(id), kind, at, len);
    };
    let (mut now, mut from) = (Nanos(0), Nanos(0));
    let mut submitted = 0;
    while submitted < DEPTH {
        submit(timing, now, submitted);
        submitted += 1;
    }
    let mut ended = 0;
    while ended < WARM_UP + MEASURED {
        let Some(due) = timing.next() else { break };
        now = now.max(due);
        while timing.pop(now).is_some() {
            ended += 1;
            if ended == WARM_UP {
                from = now;
            }
            submit(timing, now, submitted);
            submitted += 1;
        }
    }
    Nanos((now - from).0 / ended.saturating_sub(WARM_UP).max(1))
}
