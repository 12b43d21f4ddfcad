//! Model of a device with a limit on commands and bytes per second, independent of its own speed: a cloud
//! volume, or a disk throttled by QEMU.
//!
//! - **Two leaky buckets**, one of commands and one of bytes, as in QEMU's `throttle.c`: a command goes to
//!   the device at once if neither holds more than a burst's worth, otherwise when both have leaked down to
//!   that; then it is added to both.
//! - **Order** is kept among commands. Flushes are not counted, and may overtake them.
//!
//! So an idle device responds as fast as the one behind the cap, and a busy one has no seeks: only the number
//! and the length of commands count.

use crate::Timing;
use crate::pipe::duration;
use std::collections::VecDeque;
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};

/// Parameters of a cap.
#[derive(Clone, Copy, Debug)]
pub struct CapParams {
    /// Commands per second.
    pub commands: u64,
    /// Bytes per second.
    pub rate: Bytes,
    /// Burst: the commands and bytes of this time may come at once.
    pub burst: Nanos,
}

/// Timing of a device behind a cap. Cost per command, in addition to the device's: one queue entry.
pub struct Capped {
    params: CapParams,
    device: Box<dyn Timing>,
    /// When each bucket will be empty: of commands, of bytes.
    empty_at: [Nanos; 2],
    /// When the last command is passed on.
    last: Nanos,
    waiting: VecDeque<WaitingCommand>,
}

#[derive(Clone, Copy, Debug)]
struct WaitingCommand {
    passes_at: Nanos,
    id: IoId,
    kind: IoKind,
    at: DeviceOffset,
    len: Bytes,
}

impl Capped {
    /// Creates an idle device behind empty buckets.
    pub fn new(params: &CapParams, device: Box<dyn Timing>) -> Self {
        let (empty, last) = ([Nanos(0); 2], Nanos(0));
        Self { params: *params, device, empty_at: empty, last, waiting: VecDeque::new() }
    }

    /// Returns when a command that arrives now is passed on.
    fn pass_time(&mut self, now: Nanos, len: Bytes) -> Nanos {
        let CapParams { commands, rate, burst } = self.params;
        let takes = [Nanos(1_000_000_000 / commands.max(1)), duration(len, rate)];
        let leaked = self.empty_at.iter().map(|empty| Nanos(empty.0.saturating_sub(burst.0)));
        self.last = leaked.fold(self.last.max(now), Nanos::max);
        for (empty, takes) in self.empty_at.iter_mut().zip(takes) {
            *empty = (*empty).max(self.last) + takes;
        }
        self.last
    }

    /// Passes commands on to the device up to `to`.
    fn advance(&mut self, to: Nanos) {
        while let Some(WaitingCommand { passes_at: goes, id, kind, at, len }) = self.waiting.front().copied()
        {
            if goes > to {
                return;
            }
            self.waiting.pop_front();
            self.device.submit(goes, id, kind, at, len);
        }
    }
}

impl Timing for Capped {
    fn submit(&mut self, now: Nanos, id: IoId, kind: IoKind, at: DeviceOffset, len: Bytes) {
        self.advance(now);
        if kind == IoKind::Flush {
            return self.device.submit(now, id, kind, at, len);
        }
        let goes = self.pass_time(now, len);
        self.waiting.push_back(WaitingCommand { passes_at: goes, id, kind, at, len });
        self.advance(now);
    }

    fn next(&self) -> Option<Nanos> {
        let goes = self.waiting.front().map(|command| command.passes_at);
        [goes, self.device.next()].into_iter().flatten().min()
    }

    fn pop(&mut self, now: Nanos) -> Option<IoId> {
        loop {
            let goes = self.waiting.front().map(|command| command.passes_at).filter(|goes| *goes <= now);
            match (goes, self.device.next()) {
                (Some(goes), due) if due.is_none_or(|due| goes < due) => self.advance(goes),
                (_, Some(due)) if due <= now => {
                    let ended = self.device.pop(due);
                    if ended.is_some() {
                        return ended;
                    }
                }
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;
    use crate::tests::{Load, drive};

    fn capped() -> Capped {
        let params = CapParams { commands: 200, rate: Bytes(150_000_000), burst: Nanos::millis(100) };
        Capped::new(&params, model("nvm", Bytes::gib(1), crate::ssd::without_collection).expect("a model"))
    }

    #[test]
    fn cap_limits_both_commands_and_bytes() {
        for (depth, len, wanted) in [(1, 4, 200.0), (16, 4, 200.0), (16, 256, 200.0), (16, 1500, 97.6)] {
            let load = Load { depth, len: Bytes::kib(len), count: 4_000, ..Load::reads(Bytes::gib(1)) };
            let rate = drive(&mut capped(), &load).per_second();
            assert!((rate / wanted - 1.0).abs() < 0.01, "{len} KiB at depth {depth}: {rate}");
        }
    }

    #[test]
    fn load_below_cap_is_not_delayed() {
        let mut cap = capped();
        let mut goes = |ms: u64| cap.pass_time(Nanos::millis(ms), Bytes::kib(4));
        assert!((0..50).all(|i| goes(i * 10) == Nanos::millis(i * 10)), "half of what may pass");
        let burst: Vec<_> = (0..30).map(|_| goes(1000)).collect();
        assert!(
            burst[..20].iter().all(|at| *at == Nanos::millis(1000)),
            "a tenth of a second's worth at once"
        );
        assert_eq!(burst[29], Nanos::millis(1045), "then one in five milliseconds");
    }
}
