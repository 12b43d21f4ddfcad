//! Counters that only status and `explain` read.

pub(crate) mod place_ages;
pub(crate) mod written;

use place_ages::PlaceAges;
use written::BytesWritten;

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) place_ages: PlaceAges,
    pub(crate) written: BytesWritten,
}
