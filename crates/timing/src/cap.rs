//! A device whose owner lets through so many commands and so many bytes a second, whatever it could do: a volume of a
//! cloud, or a disk throttled by QEMU.
//!
//! - **Two buckets** that leak, one of commands and one of bytes, as in QEMU's `throttle.c`: a command goes to the device at
//!   once while neither holds more than a burst's worth, else when both have leaked down to that; then it is added to both.
//! - **Order** is kept: nothing overtakes. Flushes are not counted, and overtake.
//!
//! So an idle device answers as fast as what is behind the cap, and a busy one knows no seeks: only how many commands there
//! are, and how long.

use crate::Timing;
use crate::pipe::duration;
use std::collections::VecDeque;
use weir_model::{Bytes, DeviceOffset, IoId, IoKind, Nanos};

/// What makes one cap different from another.
#[derive(Clone, Copy, Debug)]
pub struct CapParams {
    /// Commands a second.
    pub commands: u64,
    /// Bytes a second.
    pub rate: Bytes,
    /// A burst: what passes in this time may come at once.
    pub burst: Nanos,
}

/// A device's timing behind a cap. A command costs a place in a queue besides the device's own.
pub struct Capped {
    params: CapParams,
    device: Box<dyn Timing>,
    /// When each bucket will have leaked empty: of commands, of bytes.
    empty: [Nanos; 2],
    /// When the last command is let through.
    last: Nanos,
    waiting: VecDeque<WaitingCommand>,
}

#[derive(Clone, Copy, Debug)]
struct WaitingCommand {
    goes: Nanos,
    id: IoId,
    kind: IoKind,
    at: DeviceOffset,
    len: Bytes,
}

impl Capped {
    /// An idle device behind an empty bucket.
    pub fn new(params: &CapParams, device: Box<dyn Timing>) -> Self {
        let (empty, last) = ([Nanos(0); 2], Nanos(0));
        Self { params: *params, device, empty, last, waiting: VecDeque::new() }
    }

    /// When a command that comes now is let through.
    fn goes(&mut self, now: Nanos, len: Bytes) -> Nanos {
        let CapParams { commands, rate, burst } = self.params;
        let takes = [Nanos(1_000_000_000 / commands.max(1)), duration(len, rate)];
        let leaked = self.empty.iter().map(|empty| Nanos(empty.0.saturating_sub(burst.0)));
        self.last = leaked.fold(self.last.max(now), Nanos::max);
        for (empty, takes) in self.empty.iter_mut().zip(takes) {
            *empty = (*empty).max(self.last) + takes;
        }
        self.last
    }

    /// What has been let through up to `to` is at the device.
    fn advance(&mut self, to: Nanos) {
        while let Some(WaitingCommand { goes, id, kind, at, len }) = self.waiting.front().copied() {
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
        let goes = self.goes(now, len);
        self.waiting.push_back(WaitingCommand { goes, id, kind, at, len });
        self.advance(now);
    }

    fn next(&self) -> Option<Nanos> {
        let goes = self.waiting.front().map(|command| command.goes);
        [goes, self.device.next()].into_iter().flatten().min()
    }

    fn pop(&mut self, now: Nanos) -> Option<IoId> {
        loop {
            let goes = self.waiting.front().map(|command| command.goes).filter(|goes| *goes <= now);
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
        Capped::new(&params, model("nvm", Bytes::gib(1)).expect("a model"))
    }

    #[test]
    fn small_commands_are_counted_at_any_depth_and_long_ones_weighed() {
        for (depth, len, wanted) in [(1, 4, 200.0), (16, 4, 200.0), (16, 256, 200.0), (16, 1500, 97.6)] {
            let load = Load { depth, len: Bytes::kib(len), count: 4_000, ..Load::reads(Bytes::gib(1)) };
            let rate = drive(&mut capped(), &load).per_second();
            assert!((rate / wanted - 1.0).abs() < 0.01, "{len} KiB at depth {depth}: {rate}");
        }
    }

    #[test]
    fn who_asks_little_waits_for_nothing() {
        let mut cap = capped();
        let mut goes = |ms: u64| cap.goes(Nanos::millis(ms), Bytes::kib(4));
        assert!((0..50).all(|i| goes(i * 10) == Nanos::millis(i * 10)), "half of what may pass");
        let burst: Vec<_> = (0..30).map(|_| goes(1000)).collect();
        assert!(
            burst[..20].iter().all(|at| *at == Nanos::millis(1000)),
            "a tenth of a second's worth at once"
        );
        assert_eq!(burst[29], Nanos::millis(1045), "then one in five milliseconds");
    }
}
