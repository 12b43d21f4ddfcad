//! The page bits of a chunk: a set bit is an allocated page.

use super::Bits;

/// Returns the number of set bits.
pub(super) fn used(bits: &Bits) -> u64 {
    bits.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// Sets or clears consecutive bits.
pub(super) fn set(bits: &mut Bits, at: u32, count: u32, value: bool) {
    for at in at as usize..(at + count) as usize {
        let bit = 1 << (at % 64);
        if value { bits[at / 64] |= bit } else { bits[at / 64] &= !bit }
    }
}

/// Returns the runs of clear bits among the first `pages`: start and length.
fn free_runs(bits: &Bits, pages: u32) -> impl Iterator<Item = (u32, u32)> {
    let is_free = |at: u32| bits[at as usize / 64] & 1 << (at % 64) == 0;
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < pages && !is_free(at) {
            at += 1;
        }
        let start = at;
        while at < pages && is_free(at) {
            at += 1;
        }
        (at > start).then_some((start, at - start))
    })
}

/// Returns the length of the longest run of clear bits among the first `pages`.
pub(super) fn longest_run(bits: &Bits, pages: u32) -> u32 {
    free_runs(bits, pages).map(|(_, len)| len).max().unwrap_or(0)
}

/// Returns the start of the shortest run of clear bits that has `count` of them.
pub(super) fn find_run(bits: &Bits, pages: u32, count: u32) -> Option<u32> {
    free_runs(bits, pages).filter(|(_, len)| *len >= count).min_by_key(|(_, len)| *len).map(|(at, _)| at)
}
