//! A serial resource with a rate: a link, a controller, a channel.

use weir_model::{Bytes, Nanos};

/// Returns how long `len` takes at `rate` per second, rounded up.
#[inline]
pub(crate) fn duration(len: Bytes, rate: Bytes) -> Nanos {
    Nanos((u128::from(len.0) * 1_000_000_000).div_ceil(u128::from(rate.0.max(1))) as u64)
}

/// A serial resource; its state is the time when it is next free.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pipe {
    free: Nanos,
}

impl Pipe {
    /// Occupies the pipe for `duration` as soon as it is free; returns the end.
    pub(crate) fn pass(&mut self, now: Nanos, duration: Nanos) -> Nanos {
        self.free = self.free.max(now) + duration;
        self.free
    }
    /// Returns when the pipe becomes free; this may be in the past.
    pub(crate) fn free(&self) -> Nanos {
        self.free
    }
}
