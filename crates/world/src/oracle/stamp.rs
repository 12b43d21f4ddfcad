//! Sector contents that identify the request and the place.

use super::Ticket;
use std::fmt;
use weir_model::{Bytes, SECTOR};
use zerocopy::IntoBytes;

/// Contents of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    /// Only zeros.
    Zeros,
    /// The stamp of this request for this place.
    Written(Ticket),
    /// The stamp of a request for another place.
    Misplaced {
        /// The request.
        by: Ticket,
        /// The volume to which it was written.
        volume: usize,
        /// The sector to which it was written, counted from the volume's start.
        sector: usize,
    },
    /// No valid stamp: a mixture of several contents, or foreign bytes.
    Torn,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zeros => f.write_str("zeros"),
            Self::Written(by) => write!(f, "data of {by}"),
            Self::Misplaced { by, volume, sector } => {
                let at = Bytes(*sector as u64 * SECTOR);
                write!(f, "data that {by} wrote to volume {volume} at {:#x}", at.0)
            }
            Self::Torn => f.write_str("bytes nobody wrote as a sector"),
        }
    }
}

const WORD: usize = size_of::<u64>();

const WORDS: usize = SECTOR as usize / WORD;

/// Computes the words of a stamp: word 0 is the request, word 1 the place, the others follow from both. It
/// uses only additions, so that the compiler can vectorize it.
fn words(by: u64, place: u64) -> [u64; WORDS] {
    let first = (by ^ place.rotate_left(32)).wrapping_mul(STEP);
    let mut words = STEPS;
    words.iter_mut().for_each(|word| *word = word.wrapping_add(first));
    (words[0], words[1]) = (by, place);
    words
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

const STEPS: [u64; WORDS] = {
    let mut steps = [0u64; WORDS];
    let mut index = 1;
    while index < WORDS {
        steps[index] = steps[index - 1].wrapping_add(STEP);
        index += 1;
    }
    steps
};

/// Encodes volume and sector in one word, never zero.
fn place_word(volume: usize, sector: usize) -> u64 {
    ((volume as u64 + 1) << SECTOR_BITS) | sector as u64
}

const SECTOR_BITS: u32 = 40;

pub(super) fn fill(by: Ticket, volume: usize, sector: usize, bytes: &mut [u8]) {
    fill_with(by.0, place_word(volume, sector), bytes);
}

fn fill_with(by: u64, place: u64, bytes: &mut [u8]) {
    bytes.copy_from_slice(words(by, place).as_bytes());
}

pub(super) fn identify(volume: usize, sector: usize, bytes: &[u8]) -> Found {
    let mut read = [0u64; WORDS];
    read.as_mut_bytes().copy_from_slice(bytes);
    let (by, place) = (read[0], read[1]);
    if by == 0 {
        return if read == [0; WORDS] { Found::Zeros } else { Found::Torn };
    }
    if read != words(by, place) {
        return Found::Torn;
    }
    if place == place_word(volume, sector) {
        return Found::Written(Ticket(by));
    }
    match (place >> SECTOR_BITS).checked_sub(1) {
        Some(volume) => {
            let sector = (place & ((1 << SECTOR_BITS) - 1)) as usize;
            Found::Misplaced { by: Ticket(by), volume: volume as usize, sector }
        }
        None => Found::Torn,
    }
}
