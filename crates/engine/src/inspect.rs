//! What people can ask of an engine: status, where a block is, what it is doing, and notices.

pub(crate) mod activity;
pub(crate) mod explain;
pub(crate) mod residence;
pub(crate) mod status;

use residence::Since;
use status::Written;

/// What is counted for people alone.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) since: Since,
    pub(crate) written: Written,
}
