//! Counters that only status and `explain` read.

pub(crate) mod residence;
pub(crate) mod written;

use residence::Since;
use written::Written;

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) since: Since,
    pub(crate) written: Written,
}
