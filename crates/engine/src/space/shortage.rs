//! The end of a lack of space.

/// The space available when a write got none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shortage {
    /// Extents that were available all the same, on devices that the policy does not use.
    available: u64,
    /// The number of further extents that must become available.
    margin: u64,
}

impl Shortage {
    /// The maximum margin, in a large pool.
    const MARGIN_MAX: u64 = 8;

    /// Records the extents available. The margin is a small fraction of all extents, so that a pool at its
    /// limit does not change state with each extent freed.
    pub(super) fn new(available: u64, all: u64) -> Self {
        Self { available, margin: (all / 1000).min(Self::MARGIN_MAX) }
    }

    /// Whether the lack is over, given the extents available now.
    pub(super) fn is_over(self, available: u64) -> bool {
        available > self.available + self.margin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortage_ends_beyond_the_margin() {
        let small = Shortage::new(0, 64);
        assert_eq!([0, 1].map(|available| small.is_over(available)), [false, true]);
        let large = Shortage::new(3, 1 << 20);
        assert_eq!([3, 11, 12].map(|available| large.is_over(available)), [false, false, true]);
    }
}
