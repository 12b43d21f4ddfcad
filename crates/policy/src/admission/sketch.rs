//! Approximate recent access counts of blocks, in a few bits each.

use crate::cache::Block;

/// The number of rows of counters: a block has one in each, and its count is the lowest.
const ROWS: usize = 4;
/// The maximum of a counter: four bits.
const COUNTER_MAX: u8 = 15;

/// A count-min sketch of four-bit counters.
#[derive(Debug)]
pub(super) struct Sketch {
    /// Two counters per byte, all rows in one vector.
    counters: Vec<u8>,
    /// The counters of a row: a power of two.
    width: usize,
}

impl Sketch {
    /// Creates a sketch with at least `width` counters per row.
    pub(super) fn new(width: usize) -> Self {
        let width = width.max(16).next_power_of_two();
        Self { counters: vec![0; ROWS * width / 2], width }
    }

    pub(super) fn count(&self, block: Block) -> u8 {
        (0..ROWS).map(|row| self.get(self.counter_index(row, block))).min().unwrap_or(0)
    }

    /// Counts a block: increments those of its counters that are lowest.
    pub(super) fn increment(&mut self, block: Block) {
        let count = self.count(block);
        if count < COUNTER_MAX {
            for row in 0..ROWS {
                let place = self.counter_index(row, block);
                if self.get(place) == count {
                    self.counters[place / 2] += 1 << (4 * (place % 2));
                }
            }
        }
    }

    /// Halves all counts.
    pub(super) fn halve(&mut self) {
        for pair in &mut self.counters {
            *pair = (*pair >> 1) & 0x77;
        }
    }

    fn get(&self, place: usize) -> u8 {
        self.counters[place / 2] >> (4 * (place % 2)) & 0xf
    }

    /// Returns the index of a block's counter in a row: multiplicative hashing, with another odd factor in
    /// each row.
    fn counter_index(&self, row: usize, block: Block) -> usize {
        const FACTORS: [u64; ROWS] =
            [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xd6e8_feb8_6659_fd93];
        let hash = (u64::from(block.0) + 1).wrapping_mul(FACTORS[row]);
        row * self.width + (hash >> (64 - self.width.trailing_zeros())) as usize
    }
}
