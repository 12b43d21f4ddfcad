//! How the map changes: places, copies, what is withdrawn, what a commit says.

pub mod commit;
pub(crate) mod narrow;
pub(crate) mod places;
pub(crate) mod usage;
pub(crate) mod withdraw;
