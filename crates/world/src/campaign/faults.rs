//! Draws faults at random.

use super::{between, pick, weighted};
use crate::driver::HistoryStep;
use crate::{Fault, Kinds, Rng};
use weir_model::{BLOCK, Bytes, DeviceOffset, Errno, Nanos};

/// Draws the length of a clock jump.
pub(crate) fn draw_clock_jump(rng: &mut Rng) -> Nanos {
    Nanos::micros(pick(rng, &[1_000, 1_000_000, 3_100_000, 10_500_000, 100_000_000]))
}

/// Draws misdirected or dropped writes.
pub(crate) fn draw_misdirection(rng: &mut Rng) -> Fault {
    Fault::Misdirect {
        range: DeviceOffset(0)..DeviceOffset(u64::MAX),
        shift: if rng.chance(0.5) { Some(Bytes(between(rng, 1, 200) * BLOCK)) } else { None },
        chance: pick(rng, &[0.1, 1.0]),
        times: between(rng, 1, 3),
    }
}

/// Draws a step that makes a device fail. Failing flushes matter most on devices that hold the map.
pub(crate) fn draw_device_failure(rng: &mut Rng) -> HistoryStep {
    let fault = fault(rng);
    let of_flushes = Kinds { flushes: true, ..Kinds::default() };
    let devices = match &fault {
        Fault::Errors { kinds, .. } if *kinds == of_flushes => &[0, 0, 0, 1, 2, 3][..],
        _ => &[0, 1, 2, 3],
    };
    HistoryStep::Break(pick(rng, devices), fault)
}

/// Draws a few read errors.
pub(super) fn draw_read_errors(rng: &mut Rng) -> Fault {
    Fault::Errors {
        kinds: Kinds { reads: true, ..Kinds::default() },
        range: DeviceOffset(0)..DeviceOffset(u64::MAX),
        chance: 1.0,
        times: between(rng, 1, 3),
        error: Errno::EIO,
    }
}

/// Draws a device fault: a few errors, a pause, or a complete failure.
fn fault(rng: &mut Rng) -> Fault {
    let soon = Nanos::micros(rng.below(20_000));
    let until = Nanos(soon.0 + Nanos::millis(between(rng, 1, 500)).0);
    match weighted(rng, &[(2, 0), (2, 1), (2, 2), (5, 3), (2, 4), (26, 5)]) {
        0 => Fault::Slow { factor: 100, during: soon..until },
        1 => Fault::Hang { during: soon..until },
        2 => Fault::Hang { during: soon..Nanos::MAX },
        // The other faults' draws decide, so that seeds from before these faults keep their histories.
        3 if (soon.0 / 1000).is_multiple_of(2) => {
            Fault::Truncate { keep: (soon.0 / 4000 % 1000) as u16, regrow: (soon.0 / 1000).is_multiple_of(4) }
        }
        3 => Fault::Vanish { at: soon },
        4 => Fault::Full { space: Bytes(rng.below(64) * BLOCK) },
        _ => {
            // Flushes are rare, so they fail more often, half of them permanently: a device that holds the
            // map is given up after the first failure.
            let few = &[1, 1, 2, 3, u64::MAX][..];
            let ((reads, writes, flushes), times) = weighted(
                rng,
                &[
                    (7, ((true, false, false), few)),
                    (6, ((false, true, false), few)),
                    (10, ((false, false, true), &[1, 3, u64::MAX, u64::MAX])),
                    (1, ((true, true, false), few)),
                    (2, ((false, true, true), few)),
                ],
            );
            Fault::Errors {
                kinds: Kinds { reads, writes, flushes },
                range: DeviceOffset(0)..DeviceOffset(u64::MAX),
                chance: pick(rng, &[0.1, 1.0]),
                times: pick(rng, times),
                error: [Errno::EIO, Errno::EIO, Errno::ENOSPC, Errno::EDQUOT][(soon.0 / 1000 % 4) as usize],
            }
        }
    }
}
