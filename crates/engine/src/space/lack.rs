//! When a pool that had no space has some again.

/// What was there when a write got no space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lack {
    /// Extents that were available all the same: some policies leave devices alone.
    available: u64,
    /// More than these must become available.
    margin: u64,
}

impl Lack {
    /// Most extents that must become available in a large pool.
    const MARGIN_MAX: u64 = 8;

    /// So many extents of all were available. The margin is a small part of the pool, so that one at its
    /// limit does not change its mind with each extent that comes and goes.
    pub(super) fn of(available: u64, all: u64) -> Self {
        Self { available, margin: (all / 1000).min(Self::MARGIN_MAX) }
    }

    /// Whether it is over, now that so many are available.
    pub(super) fn is_over(self, available: u64) -> bool {
        available > self.available + self.margin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_over_once_more_than_the_margin_has_become_available() {
        let small = Lack::of(0, 64);
        assert_eq!([0, 1].map(|available| small.is_over(available)), [false, true]);
        let large = Lack::of(3, 1 << 20);
        assert_eq!([3, 11, 12].map(|available| large.is_over(available)), [false, false, true]);
    }
}
